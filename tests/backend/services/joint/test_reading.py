"""The columns of the joint detector: one a series, with the gate that the policies of its testbeds name."""

from collections.abc import Sequence

import pytest

from backend.regression.policy import PolicyBook, parse_overrides
from backend.services.joint.reading import Columns
from backend.store.joint.incidents import JointSeriesRow

BOOK = PolicyBook(
    "northsea/loom",
    parse_overrides(
        {
            "min_change": 0.04,
            "override": [{"testbed": "steady", "min_change": 0.02}, {"testbed": "loud", "min_change": 0.2}],
        }
    ),
)


def _series(
    number: int, testbed: str, metric: str = "step_ms", unit: str = "ms", exact: bool = False
) -> JointSeriesRow:
    return JointSeriesRow(
        id=number,
        suite="gpt",
        testbed=testbed,
        benchmark="gpt.train",
        variant_key="dtype=bf16",
        preset="cpu",
        metric=metric,
        unit=unit,
        role="gate",
        direction="lower",
        exact=exact,
    )


@pytest.mark.parametrize(
    ("testbeds", "gate"),
    [(["cpu"], 0.04), (["loud"], 0.2), (["loud", "cpu"], 0.04), (["steady", "loud"], 0.02), (["cpu", "steady"], 0.02)],
)
def test_the_gate_of_a_column_is_the_smallest_of_its_testbeds(testbeds: Sequence[str], gate: float) -> None:
    columns = Columns("gpt", [_series(number, name) for number, name in enumerate(testbeds)], BOOK)
    assert [series.min_change for series in columns.series] == [gate]


def test_a_testbed_says_nothing_of_columns_it_does_not_measure() -> None:
    rows = [_series(1, "steady"), _series(2, "loud"), _series(3, "loud", metric="load_ms")]
    assert [series.min_change for series in Columns("gpt", rows, BOOK).series] == [0.02, 0.2]


def test_a_machine_moves_neither_sizes_nor_what_is_counted() -> None:
    rows = [_series(1, "cpu"), _series(2, "cpu", "peak", "GiB"), _series(3, "cpu", "host_syncs", "1", exact=True)]
    assert [series.machine_bound for series in Columns("gpt", rows, BOOK).series] == [True, False, False]
