"""Slow losses: suspected by the runs of all testbeds, shown by a session with a commit of long ago, told once."""

import numpy as np
import pytest

from backend.regression.joint.detector import JointDetector
from backend.regression.joint.drift import AGAIN, BACK, EVERY, HINTS, JUDGED, REPORTED_FROM, DriftVerdict
from tests.backend.regression.fleet_project import SERIES, SIZE, Project, steps


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


@pytest.mark.parametrize("begins", [0, 4000])
def test_a_look_back_comes_once_in_a_while_without_any_suspicion(begins):
    asked = Project(steps(), begins=begins).play().asked
    looks = [position - begins for position, ask in asked if ask.head - ask.base == BACK]
    assert BACK + JUDGED <= looks[0] < BACK + JUDGED + 5
    assert EVERY <= looks[1] - looks[0] < EVERY + 10


def test_no_session_is_asked_of_a_commit_before_the_first_that_was_run():
    asked = Project(slow_loss(0.3, start=4015, lasts=30), begins=4000, until=100).play().asked
    assert asked
    assert min(ask.base for _, ask in asked) >= 4000


@pytest.mark.parametrize(
    ("z", "loss", "z_of_runs", "verdict"),
    [
        (5.0, REPORTED_FROM, 0.0, DriftVerdict.DRIFT),
        (4.4, REPORTED_FROM, 0.0, DriftVerdict.NONE),
        (4.4, REPORTED_FROM, 2.0, DriftVerdict.DRIFT),
        (2.9, REPORTED_FROM, 2.0, DriftVerdict.DOUBTFUL),
        (1.9, REPORTED_FROM, 2.0, DriftVerdict.NONE),
        (9.0, 0.99 * REPORTED_FROM, 9.0, DriftVerdict.NOT_YET),
        (1.9, 0.99 * REPORTED_FROM, 9.0, DriftVerdict.NONE),
        (9.0, 0.99 * HINTS, 9.0, DriftVerdict.NONE),
    ],
)
def test_a_session_proves_a_loss_alone_or_with_the_runs(z, loss, z_of_runs, verdict):
    detector = JointDetector(SERIES, ["t0"])
    assert detector.drifts.judge_loss(z, loss, z_of_runs) is verdict


@pytest.mark.parametrize(("step", "told_beside"), [(0.035, 0), (0.09, 1)])
def test_a_benchmark_that_drifts_is_still_told_of_when_it_loses_much_at_one_commit(step, told_beside):
    slow = slow_loss(0.1, phase=0.2)

    def code(position):
        cost = slow(position)
        cost[:2] += step * (position >= 185)
        return cost

    opened = Project(code, noise=0.004, until=215).play().opened()
    assert sum(i.drift for i in opened) == 1
    beside = [i for i in opened if not i.drift]
    assert [i.first_bad for i in beside] == [185] * told_beside


def test_two_benchmarks_that_get_slower_together_are_one_incident():
    def code(position):
        cost = np.ones(SIZE)
        cost[:4] += np.clip((position - 70) / 80, 0, 1) * 0.1
        return cost

    opened = Project(code, noise=0.004).play().opened()
    assert [i.drift for i in opened] == [True]
    assert {SERIES[s].benchmark for s in opened[0].series} == {"b0", "b1"}


def test_the_commit_a_drift_is_dated_to_was_run_and_touched_more_than_documentation():
    project = Project(steps(), until=60).play()
    detector = project.detector
    detector.state.docs |= {40, 41}
    assert detector.drifts.blamable(40) == 42
    assert detector.drifts.blamable(43) == 43
    assert detector.drifts.blamable(70) == 70


def test_where_no_session_can_be_had_a_look_back_is_not_asked_for_at_every_run():
    class WithoutSessions(Project):
        def session(self, ask):
            return None

    asked = WithoutSessions(slow_loss(0.1)).play().asked
    looks = [position for position, ask in asked if ask.head - ask.base == BACK]
    assert len(looks) >= 2
    assert min(np.diff(looks)) >= AGAIN
