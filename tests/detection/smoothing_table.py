"""How much noise the smoothed value leaves and how far it lags, beside a running median and an EWMA.

    python tests/detection/smoothing_table.py

Each figure is a root mean square error of the level in units of the noise (2 % between runs), over 40 histories of one
process a run, except the lag: runs after a step of 25 % until the line is nearer to the new level than to the old.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from backend.regression.policy import Policy
from backend.regression.series.judge import judge_all
from backend.regression.terms import Direction, Point, SeriesKind

NOISE = 0.02
STEP_AT, RUNS, SIZE = 60, 110, 1.25


def ours(values):
    points = [Point(i, f"c{i}", (value,)) for i, value in enumerate(values)]
    return [judged.smoothed for judged in judge_all(points, SeriesKind(Direction.LOWER), Policy())]


def running_median(values, window=7):
    return [float(np.median(values[max(0, i - window + 1) : i + 1])) for i in range(len(values))]


def average(values, gain=0.2):
    line = [values[0]]
    for value in values[1:]:
        line.append(line[-1] + gain * (value - line[-1]))
    return line


LINES = {"Tidemark": ours, "running median of 7": running_median, "EWMA, gain 0.2": average}


def histories(count, *, step=1.0, spikes=0.0):
    """(values, level): quiet, with a step, or with spikes of +60 %."""
    for seed in range(count):
        rng = np.random.default_rng([11, seed])
        level = np.where(np.arange(RUNS) < STEP_AT, 10.0, 10.0 * step)
        spiked = np.where(rng.random(RUNS) < spikes, 1.6, 1.0)
        yield (level * spiked * np.exp(NOISE * rng.standard_normal(RUNS))).tolist(), level


def error(line, level, part):
    return float(np.sqrt(np.mean((np.log(line[part]) - np.log(level[part])) ** 2))) / NOISE


def lag(line):
    middle = 10.0 * np.sqrt(SIZE)
    return next(i for i, value in enumerate(line[STEP_AT:]) if value > middle)


def measured(smooth, count):
    """The figures of one way to smooth, quiet, with spikes, after a step, lag."""
    quiet = [error(smooth(v), level, slice(20, None)) for v, level in histories(count)]
    spiky = [error(smooth(v), level, slice(20, None)) for v, level in histories(count, spikes=0.05)]
    after = slice(STEP_AT + 2, STEP_AT + 8)
    stepped = [(smooth(v), level) for v, level in histories(count, step=SIZE)]
    late = [error(line, level, after) for line, level in stepped]
    lags = [lag(line) for line, _ in stepped]
    return [float(np.mean(figure)) for figure in (quiet, spiky, late, lags)]


def main(count=40):
    print("| line | quiet | with spikes (5 %) | runs 3 to 8 after a step | lag (runs) |\n|---|---|---|---|---|")
    for name, smooth in LINES.items():
        quiet, spiky, late, runs = measured(smooth, count)
        print(f"| {name} | {quiet:.2f} | {spiky:.2f} | {late:.2f} | {runs:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
