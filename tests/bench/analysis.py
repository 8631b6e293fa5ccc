"""Budgets of judging itself, in CPU time: no store, no HTTP, one core.

The yardstick is the median of every series by numpy over the same data: on the machine where the budget was set it took
0.95 ms, and Apache Otava's analysis 0.78 s of CPU, 821 times that.
"""

import statistics
import time
from collections.abc import Callable, Iterable

import numpy as np

from backend.regression.detector.density import Floats
from backend.regression.detector.detector import Detector
from backend.regression.policy import Policy
from backend.regression.series.judge import judge_history, judge_many
from backend.regression.terms import Direction, Point, SeriesKind
from tests.bench.registry import Figure, row
from tests.bench.stage import Stage

SERIES = 200
POINTS = 500
ROUNDS = 5
OTAVA_TO_MEDIANS = round(780 / 0.95)
KNOWN_POINTS = 60  # of a series, before the new commit is judged


def histories() -> Floats:
    """Log costs: noise of half a percent; every tenth series gets 8 % slower in the middle."""
    chance = np.random.default_rng(7)
    costs = np.log(10.0) + chance.normal(0, 0.005, (SERIES, POINTS))
    costs[::10, POINTS // 2 :] += np.log(1.08)
    return costs.astype(np.float32).astype(np.float64)


@row("analysis", in_process=True)
def analysis(_: Stage) -> Iterable[Figure]:
    """All of 200 series × 500 points again; and the points of one new commit."""
    costs, places, policy = histories(), np.arange(POINTS), Policy()
    found: list[int] = []

    def all_again() -> None:
        found[:] = [
            sum(
                change.past_threshold
                for change in Detector(assumed_noise=policy.prior_noise).feed(of_one, places, policy)
            )
            for of_one in costs
        ]

    kind = SeriesKind(Direction.LOWER)
    values = np.exp(costs[:, : KNOWN_POINTS + 1])
    points = [[Point(n, "c", (float(v),)) for n, v in enumerate(of_one)] for of_one in values]
    states = [judge_history(known[:-1], kind, policy)[1] for known in points]
    newest = [(state, known[-1], policy) for state, known in zip(states, points, strict=True)]
    again_ms, medians_ms = cpu_in_turns(all_again, lambda: np.median(costs, axis=1))
    assert sum(found) == SERIES // 10, "every step is found, and nothing else"
    commit_ms, _ = cpu_in_turns(lambda: judge_many(newest), lambda: None)
    yield Figure(
        what=f"full re-analysis of {SERIES} series × {POINTS} points, CPU",
        value_ms=again_ms,
        yardstick="numpy medians",
        yardstick_ms=medians_ms,
        at_most=OTAVA_TO_MEDIANS,
        note=f"{sum(found)} changes told, {SERIES // 10} made",
    )
    yield Figure(
        what=f"judging one new commit of {SERIES} series, CPU",
        value_ms=commit_ms,
        yardstick="full re-analysis",
        yardstick_ms=again_ms,
        at_most=1 / 20,
    )


def cpu_in_turns(act: Callable[[], object], yardstick: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of CPU that each takes, in turns."""
    acted, measured = [], []
    for _ in range(ROUNDS):
        acted.append(cpu_ms(act))
        measured.append(cpu_ms(yardstick))
    return statistics.median(acted), statistics.median(measured)


def cpu_ms(act: Callable[[], object]) -> float:
    began = time.thread_time()
    act()
    return (time.thread_time() - began) * 1e3
