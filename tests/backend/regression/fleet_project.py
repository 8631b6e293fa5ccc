"""A small project on two testbeds of two workers, played to the joint detector: what its code costs is a function."""

import numpy as np

from backend.regression.joint.detector import JointDetector
from backend.regression.joint.terms import IncidentAction, JointRun, JointSeries, SessionResult
from backend.regression.terms import Role

BENCHMARKS = 4
SERIES = [
    JointSeries(id=f"b{n}/{name}", suite="s", benchmark=f"b{n}", role=role, sign=1.0)
    for n in range(BENCHMARKS)
    for name, role in (("step_ms", Role.GATE), ("data_ms", Role.PHASE))
]
SIZE = len(SERIES)


class Project:
    """The code costs what `code` says at each position, per series; `machine` says what a run has beside."""

    def __init__(self, code, noise=0.008, until=200, machine=lambda position, worker: {}, begins=0):
        self.code, self.noise, self.machine = code, noise, machine
        self.positions = range(begins, begins + until)
        self.detector = JointDetector(SERIES, ["t0", "t1"])
        self.updates, self.asked = [], []

    def play(self):
        for position in self.positions:
            for number, testbed in enumerate(("t0", "t1")):
                updates, ask = self.detector.run(self.run(position, testbed, number))
                self.updates += updates
                while ask is not None:
                    self.asked.append((position, ask))
                    updates, ask = self.detector.session(self.session(ask))
                    self.updates += updates
        return self

    def run(self, position, testbed, number):
        worker = f"{testbed}-w{position % 2}"
        state = dict(self.machine(position, worker))
        slower = state.pop("slower", 0.0)
        strayed = self.noise * np.random.default_rng([number, position]).standard_normal(SIZE)
        return JointRun(
            position=position, testbed=testbed, worker=worker, timestamp=100.0 * position + number,
            cost=self.code(position) + strayed + 0.03 * (position % 2) + slower, spread=np.full(SIZE, self.noise**2),
            **state,
        )  # fmt: skip

    def session(self, ask):
        strayed = self.noise * 0.4 * np.random.default_rng([9, len(self.asked)]).standard_normal(SIZE)
        return SessionResult(
            testbed=ask.testbed, base=ask.base, head=ask.head,
            change=self.code(ask.head) - self.code(ask.base) + strayed, spread=np.full(SIZE, self.noise**2),
            processes=5,
        )  # fmt: skip

    def opened(self):
        return [update.incident for update in self.updates if update.action is IncidentAction.OPEN]


def steps(*changes):
    """Code that costs more from a commit on: (position, columns, log cost)."""

    def code(position):
        cost = np.ones(SIZE)
        for at, columns, by in changes:
            cost[list(columns)] += by * (position >= at)
        return cost

    return code
