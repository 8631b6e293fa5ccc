"""CPU of the detector where each run measures many series, which are judged in columns, one run after the other.

    python tests/detection/columns_cpu.py --seed 8601 --series 200

The histories are those of the table; all begin at the same run. Printed is the CPU of this process for 1,000
points, once in columns and once series by series, on this machine, now; and what the runs take that are not quiet,
which columns leave to the detector of their series.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import score_table

from backend.regression.detector.detector import Detector
from backend.regression.detector.watch import feed_quiet
from backend.regression.policy import Policy
from backend.regression.series.detect import log_costs


def cpu_ms(costs, watch):
    """Milliseconds of CPU that the runs of all series take, after `watch` took those of each run that are quiet; how
    many of them those take that are not, and how many these are."""
    policy = Policy()
    detectors = [Detector(assumed_noise=policy.prior_noise) for _ in costs]
    spent = others_spent = 0.0
    others = 0
    for at in range(max(map(len, costs))):
        offers = [
            (detector, x[at : at + 1], np.array([at]), policy)
            for detector, x in zip(detectors, costs, strict=True)
            if at < len(x)
        ]
        began = time.process_time()
        quiet = watch(offers)
        watched = time.process_time()
        for (detector, x, places, _), taken in zip(offers, quiet, strict=True):
            if not taken:
                detector.feed(x, places, policy)
        spent += (ended := time.process_time()) - began
        others_spent += ended - watched
        others += quiet.count(0)
    return 1e3 * spent, 1e3 * others_spent, others


def main(argv=None):
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--series", type=int, default=200)
    args = parser.parse_args(argv)
    records = score_table.histories([args.seed], args.series)
    costs = [log_costs(r["values"], r["direction"] == "higher_is_better") for r in records]
    points = sum(map(len, costs))
    columns, loud, number = cpu_ms(costs, feed_quiet)
    alone, _, _ = cpu_ms(costs, lambda offers: [0] * len(offers))
    print(f"{len(costs)} series, {points:,} points: {1e3 * columns / points:.1f} ms per 1,000 in columns,", end=" ")
    print(f"{1e3 * alone / points:.1f} series by series")
    print(f"{number / points:.1%} of the runs are not quiet, and take {1e3 * loud / points:.1f} ms of those in columns")


if __name__ == "__main__":
    main()
