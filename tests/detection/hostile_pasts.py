"""Pasts made to blind a detector, and 40 commits 20 % above their last level: is the step told, or a reason given?

    python tests/detection/hostile_pasts.py --pasts 0-1200

A past is a ladder of up to eight pieces of 1 to 80 commits: levels that return or add up, ramps, two states, other
noise, far outliers; then 6 to 50 commits at one level.
"""

from __future__ import annotations

import argparse
import collections
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from never_blind import APPENDED, POLICY, STEP, Past, cannot_judge

from backend.regression.detector.detector import Detector

NOISES = (0.0, 0.002, 0.005, 0.01, 0.02, 0.03)
JUMPS = (0.02, 0.04, 0.06, 0.1, 0.18, 0.3, 0.7, 1.5, -0.05, -0.1, -0.18, -0.7)
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 20, 40, 80)
LAST = (6, 7, 9, 12, 20, 50)


def past(number):
    """The past of this number, deterministic."""
    rng = np.random.default_rng([77, number])
    noise, jumps, level, pieces = float(rng.choice(NOISES)), rng.choice(JUMPS, 3), 0.0, []
    for _ in range(int(rng.integers(1, 9))):
        piece, level = _piece(rng, noise, jumps, level)
        pieces.append(piece)
    noise = min(0.03, noise * float(rng.choice((0.3, 1, 1, 1, 3))))
    pieces.append(level + noise * rng.standard_normal(int(rng.choice(LAST))))
    at = sum(map(len, pieces))
    after = level + STEP + noise * rng.standard_normal(APPENDED)
    return Past(str(number), np.concatenate((*pieces, after)), at)


def _piece(rng, noise, jumps, level):
    length, kind = int(rng.choice(LENGTHS)), rng.random()
    noise *= float(rng.choice((1, 1, 1, 1, 3, 10, 0.3)))
    if kind < 0.5:
        level = float(rng.choice((0.0, *jumps)))
    elif kind < 0.7:
        level += float(rng.choice(jumps))
    x = level + noise * rng.standard_normal(length)
    if kind > 0.9:
        x += np.linspace(0, float(rng.choice(jumps)), length)
        level = float(x[-1])
    elif kind > 0.8:
        x += rng.choice((0.0, float(rng.choice(jumps))), length)
    if rng.random() < 0.2:
        x[rng.random(length) < 0.1] += float(rng.choice((0.3, 1, -1, 3)))
    return x, level


def answer(hostile):
    """`told` within the 40 commits, `said` that it cannot be judged, or `silent`."""
    detector, places = Detector(assumed_noise=POLICY.prior_noise), np.arange(len(hostile.x))
    detector.feed(hostile.x[: hostile.at], places[: hostile.at], POLICY)
    found = detector.feed(hostile.x[hostile.at :], places[hostile.at :], POLICY)
    if any((change.past_threshold or change.known) and change.size > 0 for change in found):
        return "told"
    return "said" if cannot_judge(detector) else "silent"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pasts", default="0-200", help="their numbers")
    first, _, last = parser.parse_args().pasts.partition("-")
    answers = {number: answer(past(number)) for number in range(int(first), int(last))}
    print(collections.Counter(answers.values()), *[number for number, word in answers.items() if word == "silent"])
    return "silent" in answers.values()


if __name__ == "__main__":
    sys.exit(main())
