import numpy as np
import pytest
from judge_histories import points

from backend.regression.judge import judge_history
from backend.regression.policy import Policy
from backend.regression.terms import Direction, Point, Reason, SeriesKind, Verdict

LOWER = SeriesKind(Direction.LOWER)


def mixed(levels, offsets, seed=0, noise=0.005):
    """Runs that alternate between workers, each with a constant offset."""
    rng = np.random.default_rng(seed)
    made = []
    for i, level in enumerate(levels):
        worker = i % len(offsets)
        (point,) = points([level * (1 + offsets[worker])], rng, noise, worker=f"w{worker}", start=i)
        made.append(point)
    return made


def test_a_box_that_is_ten_percent_slower_is_no_regression():
    judged, _ = judge_history(mixed([10.0] * 60, [0.0, 0.1]), LOWER, Policy())
    assert not any(j.red or j.verdict is Verdict.SUSPECT for j in judged)


def test_a_new_worker_calibrates_before_it_is_judged():
    history = points([10.0] * 20, noise=0.005) + points([11.0] * 6, noise=0.005, worker="w9", start=20)
    judged, _ = judge_history(history, LOWER, Policy())
    assert [j.reason for j in judged[20:23]] == [Reason.CALIBRATING_WORKER] * 3
    assert [j.needed_runs for j in judged[20:23]] == [2, 1, 0]
    assert [j.verdict for j in judged[23:]] == [Verdict.UNCHANGED] * 3
    assert judged[25].baseline == pytest.approx(11.0, rel=0.01)


def test_a_regression_is_found_across_workers_with_offsets():
    judged, _ = judge_history(mixed([10.0] * 40 + [11.2] * 10, [0.0, 0.08, -0.05]), LOWER, Policy())
    onsets = [e.onset_position for j in judged for e in j.events if e.state == "confirmed" and e.past_gate]
    assert onsets == [40]


def test_the_first_runs_of_a_series_may_come_from_several_workers():
    judged, _ = judge_history([Point(i, "c", (10.0,), "e", f"w{i % 3}") for i in range(12)], LOWER, Policy())
    assert judged[-1].verdict is Verdict.UNCHANGED
