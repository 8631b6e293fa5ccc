"""Slow losses: suspected by the runs of all testbeds, shown by a session with a commit of long ago, told once."""

import numpy as np
import pytest
from fleet_project import SERIES, SIZE, Project, steps

from backend.regression.fleet_drift import BACK, EVERY, HINTS, JUDGED, TELLS, Verdict
from backend.regression.fleet_judge import FleetJudge


def slow_loss(step, *, phase=0.0, start=70, lasts=80):
    """The first benchmark gets slower bit by bit."""

    def code(position):
        cost = np.ones(SIZE)
        cost[:2] += np.clip((position - start) / lasts, 0, 1) * np.array([step, phase])
        return cost

    return code


@pytest.mark.parametrize(("step", "found"), [(0.02, 0), (0.1, 1)])
def test_a_slow_loss_is_told_once_when_it_is_large_enough(step, found):
    drifts = [i for i in Project(slow_loss(step, phase=2 * step)).play().opened() if i.drift]
    assert len(drifts) == found
    for drift in drifts:
        assert drift.testbeds == ("t0", "t1")
        assert [SERIES[s].id for s in drift.series] == ["b0/step_ms", "b0/data_ms"]
        assert drift.range_start <= 70 <= drift.range_end
        assert 70 <= drift.first_bad <= 150


def test_a_phase_that_loses_while_the_step_does_not_is_nobodys_news():
    assert Project(slow_loss(0.0, phase=0.4)).play().opened() == []


def test_a_change_at_one_commit_that_is_known_is_no_drift_in_a_look_back():
    opened = Project(steps((80, (0, 1), 0.1))).play().opened()
    assert [(i.drift, i.first_bad) for i in opened] == [(False, 80)]


def test_a_look_back_comes_once_in_a_while_without_any_suspicion():
    looks = [position for position, ask in Project(slow_loss(0.0)).play().asked if ask.head - ask.base == BACK]
    assert BACK + JUDGED <= looks[0] < BACK + JUDGED + 5
    assert EVERY <= looks[1] - looks[0] < EVERY + 10


@pytest.mark.parametrize(
    ("z", "loss", "z_of_runs", "verdict"),
    [
        (5.0, TELLS, 0.0, Verdict.DRIFT),
        (4.4, TELLS, 0.0, Verdict.NONE),
        (4.4, TELLS, 2.0, Verdict.DRIFT),
        (2.9, TELLS, 2.0, Verdict.DOUBTFUL),
        (1.9, TELLS, 2.0, Verdict.NONE),
        (9.0, 0.99 * TELLS, 9.0, Verdict.NOT_YET),
        (1.9, 0.99 * TELLS, 9.0, Verdict.NONE),
        (9.0, 0.99 * HINTS, 9.0, Verdict.NONE),
    ],
)
def test_a_session_proves_a_loss_alone_or_with_the_runs(z, loss, z_of_runs, verdict):
    judge = FleetJudge(SERIES, ["t0"])
    assert judge.judge_loss(z, loss, z_of_runs) is verdict
