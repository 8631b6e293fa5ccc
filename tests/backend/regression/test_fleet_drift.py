"""Slow losses: suspected by the runs of all testbeds, shown by a session with a commit of long ago, told once."""

import numpy as np
import pytest

from backend.regression.fleet_drift import BACK, EVERY, HINTS, TELLS, Verdict
from backend.regression.fleet_judge import FleetJudge
from backend.regression.fleet_terms import Action, FleetRun, FleetSeries, SessionResult
from backend.regression.terms import Role

BENCHMARKS = 4
SERIES = [
    FleetSeries(id=f"b{n}/{name}", suite="s", benchmark=f"b{n}", role=role, sign=1.0)
    for n in range(BENCHMARKS)
    for name, role in (("step_ms", Role.GATE), ("data_ms", Role.PHASE))
]
SIZE = len(SERIES)


class Project:
    """Two testbeds of two workers; the code costs what `code` says at each position, per series."""

    def __init__(self, code, noise=0.008, until=200):
        self.code, self.noise, self.until = code, noise, until
        self.judge = FleetJudge(SERIES, ["t0", "t1"])
        self.told, self.asked = [], []

    def play(self):
        for position in range(self.until):
            for number, testbed in enumerate(("t0", "t1")):
                told, ask = self.judge.run(self.run(position, testbed, number))
                self.told += told
                while ask is not None:
                    self.asked.append((position, ask))
                    told, ask = self.judge.session(self.session(ask))
                    self.told += told
        return self

    def run(self, position, testbed, number):
        worker = position % 2
        strayed = self.noise * np.random.default_rng([number, position]).standard_normal(SIZE)
        return FleetRun(
            position=position, testbed=testbed, worker=f"{testbed}-w{worker}", timestamp=100.0 * position + number,
            cost=self.code(position) + strayed + 0.03 * worker, spread=np.full(SIZE, self.noise**2),
        )  # fmt: skip

    def session(self, ask):
        strayed = self.noise * 0.4 * np.random.default_rng([9, len(self.asked)]).standard_normal(SIZE)
        return SessionResult(
            testbed=ask.testbed, base=ask.base, head=ask.head,
            change=self.code(ask.head) - self.code(ask.base) + strayed, spread=np.full(SIZE, self.noise**2),
            processes=5,
        )  # fmt: skip

    def opened(self):
        return [told.incident for told in self.told if told.action is Action.OPEN]


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
    def code(position):
        cost = np.ones(SIZE)
        cost[:2] += 0.1 * (position >= 80)
        return cost

    opened = Project(code).play().opened()
    assert [(i.drift, i.first_bad) for i in opened] == [(False, 80)]


def test_a_look_back_comes_once_in_a_while_without_any_suspicion():
    looks = [position for position, ask in Project(slow_loss(0.0)).play().asked if ask.head - ask.base == BACK]
    assert BACK <= looks[0] < BACK + 5
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
