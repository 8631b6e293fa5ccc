"""How many drifts can be found at all: an oracle that knows noise and shape, beside our detector.

    python tests/detection/drift_oracle.py --seeds 7301-7350 --series 200

The oracle is a matched filter: it knows where a drift begins and ends, that it is a ramp, how wide the noise is and
how its neighbours go together, and sees 60 commits beyond the end. It may raise a false alarm as often as ours does,
once in 80 histories (0.05 per 1,000 commits); not knowing the place, it would have to look at some twenty.
"""

from __future__ import annotations

import argparse
import collections
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import scoring
from labelled_histories import CVS_PCT
from score_table import histories

from backend.regression.series.detect import detect_record

BEFORE, BEYOND = 150, 60
AT_A_PLACE, ANYWHERE = 2.24, 3.23
"""Deviations that chance exceeds once in 80 looks at one place, and at any of twenty."""
CORRELATED = ("ar1", "bimodal", "hetero")


def clarity(series, drift):
    """How many standard errors the ramp of a drift stands out by, measured along it."""
    first, last = max(0, drift["index"] - BEFORE), min(len(series["values"]), drift["end"] + BEYOND)
    cost = np.log(np.array(series["values"])[first:last]).mean(axis=1)
    cost = -cost if series["direction"].startswith("higher") else cost
    shape = np.interp(np.arange(first, last), (drift["index"], drift["end"]), (0.0, 1.0))
    shape -= shape.mean()
    size = float(shape @ cost / (shape @ shape))
    noise = series["meta"]["cv_pct"] / 100
    if series["meta"]["noise"] in CORRELATED:
        left = cost - cost.mean() - size * shape
        near = float(np.clip(left[1:] @ left[:-1] / (left @ left), 0.0, 0.9))
        noise *= np.sqrt((1 + near) / (1 - near))
    return size * np.sqrt(shape @ shape) / noise


def found_by_ours(series, drift):
    tally = scoring.Tally()
    tally.add({**series, "labels": [drift]}, detect_record(scoring.public(series))["regressions"])
    return tally.count["drifts_found"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="7301-7310")
    parser.add_argument("--series", type=int, default=200, help="histories a seed")
    args = parser.parse_args()
    first, _, last = args.seeds.partition("-")
    count = collections.Counter()
    for series in histories(range(int(first), int(last or first) + 1), args.series):
        for drift in series["labels"]:
            if drift["kind"] == "drift" and drift["cost_pct"] >= scoring.MUST_PCT:
                z = clarity(series, drift)
                found = {"drifts": 1, "ours": found_by_ours(series, drift)}
                found |= {"oracle at the place": z >= AT_A_PLACE, "oracle": z >= ANYWHERE}
                for name, value in found.items():
                    count[series["meta"]["cv_pct"], name] += value
    print("| noise | drifts | Tidemark | oracle | oracle that also knows the place |\n|---|---|---|---|---|")
    levels = [(f"{cv:g} %", [cv]) for cv in CVS_PCT] + [("all", CVS_PCT)]
    for title, noises in levels:
        drifts, *found = [
            sum(count[cv, name] for cv in noises) for name in ("drifts", "ours", "oracle", "oracle at the place")
        ]
        print(f"| {title} | {drifts} | " + " | ".join(f"{n / max(1, drifts):.3f}" for n in found) + " |")


if __name__ == "__main__":
    main()
