"""Pasts made to blind a detector, and 40 commits 20 % above their last level: is the step told, or a reason given?

    python tests/detection/hostile_pasts.py --pasts 0-1200
    python tests/detection/hostile_pasts.py --pasts 0-1200 --wild

A past is a ladder of up to eight pieces of 1 to 80 commits: levels that return or add up, ramps, two states, other
noise, far outliers; then 6 to 50 commits at one level. The step is to be told within the 40 commits.

Wild ones are one or two pieces of a kind (stairs, going to and fro, a steep ramp, chaos, two states, a gain and its
loss, spikes), some on a coarse clock; the last level of 5 to 60 commits is often one that was there before, or lies
a step below one. The step is to be told within eight commits, or the series says that it cannot see it.
"""

from __future__ import annotations

import argparse
import collections
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from never_blind import APPENDED, POLICY, STEP, WITHIN, Past, cannot_judge

from backend.regression.detector.detector import Detector
from backend.regression.series.detect import detect_record

NOISES = (0.0, 0.002, 0.005, 0.01, 0.02, 0.03)
JUMPS = (0.02, 0.04, 0.06, 0.1, 0.18, 0.3, 0.7, 1.5, -0.05, -0.1, -0.18, -0.7)
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 20, 40, 80)
LAST = (6, 7, 9, 12, 20, 50)
WILD_NOISES = (0.0, 1e-4, 1e-3, 0.003, 0.01, 0.02)


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


# ---- wild ones


def wild(number):
    """The wild past of this number, deterministic; its noise is small enough that anybody sees the step."""
    rng = np.random.default_rng([78, number])
    pieces = [WILD[int(rng.integers(len(WILD)))](rng) for _ in range(int(rng.integers(1, 3)))]
    x = np.concatenate([piece + (pieces[0][-1] if number else 0.0) for number, piece in enumerate(pieces)])
    seen, noise = float(rng.choice(x)), float(rng.choice(WILD_NOISES))
    level = (seen, seen - STEP, float(x[-1]), float(x[-1]) + float(rng.normal(0, 0.4)))[int(rng.integers(4))]
    x = x + float(rng.choice(WILD_NOISES)) * rng.standard_normal(len(x))
    last = level + noise * rng.standard_normal(int(rng.choice((5, 5, 6, 7, 8, 10, 15, 30, 60))))
    after = level + STEP + noise * rng.standard_normal(APPENDED)
    made = np.concatenate((x, last, after))
    tick = float(rng.choice((0, 0, 0, 0.001, 0.01, 0.03))) * np.exp(level)
    if tick:
        made = np.log(np.maximum(np.rint(np.exp(made) / tick), 1) * tick)
    return Past(f"wild {number}", made, len(x) + len(last))


def _stairs(rng):
    sizes = float(rng.choice((-1, 1))) * float(rng.choice((0.03, 0.06, 0.1, 0.18, 0.4)))
    return np.repeat(sizes * np.arange(int(rng.integers(2, 9))), int(rng.integers(1, 13)))


def _to_and_fro(rng):
    levels = rng.choice((0.0, 0.18, -0.18, float(rng.normal(0, 0.5))), int(rng.integers(2, 4)), replace=False)
    turns = int(rng.integers(2, 16))
    return np.repeat(np.resize(levels, turns), rng.integers(1, int(rng.choice((3, 5, 9, 21))), turns))


def _ramp(rng):
    flat, runs = int(rng.choice((0, 10, 30))), int(rng.integers(5, 80))
    return np.concatenate((np.zeros(flat), np.linspace(0, float(rng.normal(0, 1)), runs)))


def _chaos(rng):
    return float(rng.choice((0.1, 0.3, 1, 2))) * rng.standard_normal(int(rng.integers(2, 40)))


def _two_states(rng):
    high = float(rng.choice((0.05, 0.1, 0.18, 0.4, 1.1)))
    return high * (rng.random(int(rng.integers(10, 80))) < float(rng.choice((0.1, 0.3, 0.5))))


def _gain_and_loss(rng):
    size = float(rng.choice((0.1, 0.18, 0.4, 0.7, 1.4)))
    return np.repeat((0.0, -size, float(rng.choice((0, -size / 2, size)))), rng.integers(3, 30, 3))


def _spikes(rng):
    runs = int(rng.integers(10, 80))
    return float(rng.normal(0, 0.5)) * rng.random(runs) * (rng.random(runs) < float(rng.choice((0.05, 0.1, 0.2))))


WILD = (_stairs, _to_and_fro, _ramp, _chaos, _two_states, _gain_and_loss, _spikes)


def answer_soon(hostile):
    """`told` within eight commits, `suspected`, `said` that it cannot be seen, `red` for an earlier step and not a word
    of this one, or `silent`."""
    end = hostile.at + WITHIN
    given = {"direction": "lower", "values": np.exp(hostile.x[:end]).tolist()}
    last = detect_record(given)
    known, detector = np.arange(end), Detector(assumed_noise=POLICY.prior_noise)
    detector.feed(hostile.x[: hostile.at], known[: hostile.at], POLICY)
    found = detector.feed(hostile.x[hostile.at : end], known[hostile.at :], POLICY)
    if any((change.past_threshold or change.known) and change.size > 0 for change in found):
        return "told"
    if "sees_pct" in last or last["verdict"] == "insufficient":
        return "said"
    return {"suspect": "suspected", "regression": "red"}.get(last["verdict"], "silent")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pasts", default="0-200", help="their numbers")
    parser.add_argument("--wild", action="store_true", help="wild ones, within eight commits")
    args = parser.parse_args()
    first, _, last = args.pasts.partition("-")
    numbers = range(int(first), int(last))
    if args.wild:
        answers = {number: answer_soon(wild(number)) for number in numbers}
    else:
        answers = {number: answer(past(number)) for number in numbers}
    silent = [f"{number}: {word}" for number, word in answers.items() if word in ("silent", "red")]
    print(collections.Counter(answers.values()), *silent, sep="\n")
    return bool(silent)


if __name__ == "__main__":
    sys.exit(main())
