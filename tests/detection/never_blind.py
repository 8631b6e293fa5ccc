"""Is a step of 20 % told within eight commits whatever came before it, or does the series say that it cannot be judged?

    python tests/detection/never_blind.py --seeds 1001-1006 --series 200
    python tests/detection/never_blind.py --seeds 1001-1006 --series 200 --rough

Pasts are labelled histories cut anywhere where the last five commits make a level. Appended are 40 commits 20 % above
it, each as far from it as one of those five was. `told`: a regression that begins there, within eight commits; `said`:
before the step or eight commits into it the series says that it is too unsteady, or too young, to be judged;
`suspected`: after eight commits its verdict is that they look worse and what it waits for, or it is red already.
"""

from __future__ import annotations

import argparse
import collections
import math
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import score_table

from backend.regression.detector.detector import Detector
from backend.regression.detector.power import is_unsteady
from backend.regression.policy import Policy
from backend.regression.series.detect import log_costs
from backend.regression.series.judge import judge_all
from backend.regression.terms import Direction, Point, SeriesKind, Verdict

POLICY = Policy()
LEVEL, APPENDED, WITHIN = 5, 40, 8
STEP = math.log(1.2)
SHORTEST = 6


@dataclass(frozen=True)
class Past:
    """Log costs up to a commit, and 40 more above the level of the last five."""

    name: str
    x: np.ndarray
    at: int


def pasts(seeds, series, rough=False, cuts=2):
    """Pasts of generated histories; half of them end within the first 60 commits."""
    for record in score_table.histories(seeds, series, rough):
        rng = np.random.default_rng([len(record["values"]), *record["series_id"].encode()])
        x = log_costs(record["values"], record["direction"] == "higher_is_better")
        for _ in range(cuts):
            at = int(rng.integers(SHORTEST, len(x) if rng.random() < 0.5 else 60))
            own = x[at - LEVEL : at] - np.median(x[at - LEVEL : at])
            if is_level(own):
                after = x[at - 1] - own[-1] + STEP + rng.choice(own, APPENDED)
                yield Past(f"{record['series_id']}@{at}", np.concatenate((x[:at], after)), at)


def is_level(own):
    """Whether five commits (as distances from their middle) are such that a step of 20 % would be clear by eye."""
    return np.abs(own).max() < STEP / 4


def answer(past):
    """`told`, `said`, `suspected` or `silent`."""
    detector = Detector(assumed_noise=POLICY.prior_noise)
    places = np.arange(len(past.x))
    detector.feed(past.x[: past.at], places[: past.at], POLICY)
    said = cannot_judge(detector)
    end = past.at + WITHIN
    found = detector.feed(past.x[past.at : end], places[past.at : end], POLICY)
    if any((change.past_threshold or change.known) and change.size > 0 for change in found):
        return "told"
    if said or cannot_judge(detector):
        return "said"
    return "suspected" if is_suspected(past) else "silent"


def is_suspected(past):
    """Whether people read of the eighth commit that the newest runs look worse, or are worse."""
    points = [Point(i, str(i), (math.exp(x),)) for i, x in enumerate(past.x[: past.at + WITHIN])]
    verdict = judge_all(points, SeriesKind(Direction.LOWER), POLICY)[-1].verdict
    return verdict in (Verdict.SUSPECT, Verdict.REGRESSION)


def later(past):
    """Of a past that was not told: what is said at last, and after how many commits; nothing within 40: `silent`."""
    detector = Detector(assumed_noise=POLICY.prior_noise)
    places = np.arange(len(past.x))
    detector.feed(past.x[: past.at], places[: past.at], POLICY)
    for end in range(past.at, len(past.x)):
        found = detector.feed(past.x[end : end + 1], places[end : end + 1], POLICY)
        if any((change.past_threshold or change.known) and change.size > 0 for change in found):
            return f"told after {end + 1 - past.at}"
        if cannot_judge(detector):
            return f"said after {end + 1 - past.at}"
    return "silent"


def cannot_judge(detector):
    """What the verdict says of a quiet run."""
    return not detector.settled(POLICY) or is_unsteady(detector.model, POLICY)


def main(argv=None):
    """Print how many steps were told, and what was silent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1001-1002", help="first-last; below 1000 are for tuning")
    parser.add_argument("--series", type=int, default=150, help="histories a seed")
    parser.add_argument("--rough", action="store_true")
    args = parser.parse_args(argv)
    first, _, last = args.seeds.partition("-")
    count, untold = collections.Counter(), []
    for past in pasts(range(int(first), int(last or first) + 1), args.series, args.rough):
        word = answer(past)
        count[word] += 1
        if word in ("suspected", "silent"):
            untold.append(f"{past.name}: {word}, {later(past)}")
    total = sum(count.values())
    words = ("told", "said", "suspected", "silent")
    print(f"| pasts | {' | '.join(words)} |\n|---|---|---|---|---|\n| {total} ", end="")
    print("".join(f"| {count[word]} ({100 * count[word] / total:.2f} %) " for word in words) + "|")
    print(*untold, sep="\n")
    return 1 if count["silent"] else 0


if __name__ == "__main__":
    sys.exit(main())
