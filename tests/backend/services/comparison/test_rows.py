"""The order of a comparison's rows, and the mean of a suite."""

import math
from dataclasses import replace

import pytest

from backend.regression.terms import Verdict
from backend.services.comparison.rows import ComparisonRow, NotCompared, mean_of, suite_means, worst_first

SLOWER = ComparisonRow(
    suite="moe",
    benchmark="moe.layer",
    variant_key="experts=64",
    preset="full",
    metric="step_ms",
    unit="ms",
    direction="lower",
    role="gate",
    base=10.0,
    head=11.0,
    change=0.1,
    low=0.08,
    high=0.12,
    verdict=Verdict.REGRESSION.value,
    reason="confirmed",
    needed_runs=0,
    traded_for=(),
    series_id=1,
)
FASTER = replace(SLOWER, change=1 / 1.1 - 1, low=1 / 1.12 - 1, high=1 / 1.08 - 1, verdict=Verdict.IMPROVEMENT.value)
UNCHANGED = replace(SLOWER, change=0.0, low=-0.01, high=0.01, verdict=Verdict.UNCHANGED.value)
WATCHED = replace(SLOWER, role="watch", change=0.9)
COUNTER = replace(SLOWER, metric="host_syncs", change=1.0, low=1.0, high=1.0)
MISSING = NotCompared(
    suite="gpt", benchmark="gpt.train", variant_key="", preset="full", base_status="ok", head_status="failed",
    error="out of memory", run_id="R",
)  # fmt: skip


def test_gates_that_moved_come_first_and_silent_ones_last() -> None:
    doubtful = replace(SLOWER, verdict=Verdict.INSUFFICIENT.value)
    larger = replace(SLOWER, change=0.2)
    rows = [UNCHANGED, WATCHED, doubtful, FASTER, SLOWER, larger]
    assert sorted(rows, key=worst_first) == [larger, SLOWER, FASTER, doubtful, WATCHED, UNCHANGED]


def test_a_mean_is_geometric_so_that_a_loss_and_its_opposite_cancel() -> None:
    mean = mean_of("moe", [SLOWER, FASTER], 2, 0)
    assert mean.change == pytest.approx(0.0, abs=1e-12)
    assert (mean.compared, mean.slower, mean.faster) == (2, 1, 1)
    assert mean.low is not None and mean.high is not None and mean.low < 0 < mean.high


def test_counters_and_watched_metrics_are_in_no_mean() -> None:
    mean = mean_of("moe", [SLOWER, COUNTER, WATCHED], 2, 0)
    assert mean.change == pytest.approx(0.1) and mean.compared == 2
    assert mean_of("moe", [COUNTER], 1, 0).change is None


def test_the_interval_of_a_mean_narrows_as_gates_are_added() -> None:
    one, four = mean_of("moe", [SLOWER], 1, 0), mean_of("moe", [SLOWER] * 4, 4, 0)
    width = [math.log1p(mean.high or 0) - math.log1p(mean.low or 0) for mean in (one, four)]
    assert width[1] == pytest.approx(width[0] / 2)


def test_a_suite_of_which_nothing_could_be_compared_is_named_with_what_was_left_out() -> None:
    gpt, moe = suite_means([SLOWER], {"a": "moe", "b": "moe"}, [MISSING])
    assert (gpt.suite, gpt.change, gpt.gates, gpt.left_out) == ("gpt", None, 0, 1)
    assert (moe.suite, moe.compared, moe.gates, moe.left_out) == ("moe", 1, 2, 0)
