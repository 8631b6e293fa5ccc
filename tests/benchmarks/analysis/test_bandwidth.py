"""Bus bandwidth by the factor of each operation, against a worked example, and the fit of latency and bandwidth."""

import pytest

from benchmarks.analysis.bandwidth import (
    Operation,
    algorithm_gb_per_s,
    bus_factor,
    bus_gb_per_s,
    fit_line,
    least_elements,
    sent_to,
)


def test_a_gibibyte_in_15_2_ms_on_eight_ranks_is_123_6_gb_per_s():
    assert algorithm_gb_per_s(2**30, 0.0152) == pytest.approx(70.6, abs=0.05)
    assert bus_gb_per_s(Operation.ALL_REDUCE, 8, 2**30, 0.0152) == pytest.approx(123.6, abs=0.05)


@pytest.mark.parametrize(
    ("operation", "two", "eight"),
    [
        ("all_reduce", 1.0, 1.75),
        ("all_gather", 0.5, 0.875),
        ("reduce_scatter", 0.5, 0.875),
        ("all_to_all", 0.5, 0.875),
        ("broadcast", 1.0, 1.0),
        ("send_recv", 1.0, 1.0),
        ("reduce", 1.0, 1.0),
        ("all_to_allv", 2 / 3, 35 / 36),
    ],
)
def test_factors_of_the_operations(operation, two, eight):
    assert bus_factor(Operation(operation), 2) == pytest.approx(two)
    assert bus_factor(Operation(operation), 8) == pytest.approx(eight)


def test_one_rank_has_no_bandwidth():
    with pytest.raises(ValueError, match="at least 2 ranks"):
        bus_factor(Operation.ALL_REDUCE, 1)


def test_the_fit_finds_the_line_that_made_the_times():
    line = fit_line({size: 20e-6 + size / 50e9 for size in (2**10, 2**16, 2**20, 2**26)})
    assert line.alpha_s == pytest.approx(20e-6, rel=1e-6)
    assert line.bytes_per_s == pytest.approx(50e9, rel=1e-6)
    assert line.half_bandwidth_bytes == pytest.approx(1e6, rel=1e-6)


def test_a_fit_never_has_negative_latency():
    assert fit_line({1000: 1e-6, 2000: 3e-6, 4000: 9e-6}).alpha_s >= 0


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_of_an_uneven_exchange_every_rank_sends_and_receives_as_much_in_parts_of_one_to_n(ranks):
    sent = [[sent_to(rank, other, ranks) for other in range(ranks)] for rank in range(ranks)]
    assert all(sorted(parts) == list(range(1, ranks + 1)) for parts in sent)
    assert sent == [list(column) for column in zip(*sent, strict=True)], "what comes is as long as what goes"
    assert sum(sent[0]) == least_elements(Operation.ALL_TO_ALLV, ranks)
