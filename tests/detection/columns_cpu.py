"""CPU of the detector where each run measures many series, which are judged in columns, one run after the other.

    python tests/detection/columns_cpu.py --seed 8601 --series 200

The histories are those of the table; all begin at the same run. Printed is the CPU of this process for 1,000
points, once in columns and once series by series, on this machine, now.
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
    """Milliseconds of CPU that the runs of all series take, after `watch` took those of each run that are quiet."""
    policy = Policy()
    detectors = [Detector(assumed_noise=policy.prior_noise) for _ in costs]
    spent = 0.0
    for at in range(max(map(len, costs))):
        offers = [
            (detector, x[at : at + 1], np.array([at]), policy)
            for detector, x in zip(detectors, costs, strict=True)
            if at < len(x)
        ]
        began = time.process_time()
        quiet = watch(offers)
        for (detector, x, places, _), taken in zip(offers, quiet, strict=True):
            if not taken:
                detector.feed(x, places, policy)
        spent += time.process_time() - began
    return 1e3 * spent


def main(argv=None):
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--series", type=int, default=200)
    args = parser.parse_args(argv)
    records = score_table.histories([args.seed], args.series)
    costs = [log_costs(r["values"], r["direction"] == "higher_is_better") for r in records]
    points = sum(map(len, costs))
    columns, alone = (cpu_ms(costs, watch) for watch in (feed_quiet, lambda offers: [0] * len(offers)))
    print(f"{len(costs)} series, {points:,} points: {1e3 * columns / points:.1f} ms per 1,000 in columns,", end=" ")
    print(f"{1e3 * alone / points:.1f} series by series")


if __name__ == "__main__":
    main()
