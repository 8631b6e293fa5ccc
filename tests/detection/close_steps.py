"""Two steps a few commits apart, of 20 and then 10 %: how often is only one of them reported, 60 commits later?

python tests/detection/close_steps.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from backend.regression.series.detect import detect_record

GAPS, NOISES, SEEDS = (3, 4, 5, 6), (0.003, 0.01, 0.015, 0.02), range(60)


def is_one(gap, noise, seed):
    """Whether fewer than two regressions are reported."""
    levels = np.repeat([10.0, 12.0, 13.2], [40, gap, 60])
    values = levels * np.exp(noise * np.random.default_rng(seed).standard_normal(len(levels)))
    return len(detect_record({"direction": "lower", "values": values.tolist()})["regressions"]) < 2


def main() -> None:
    print(f"| noise | {' | '.join(f'{gap} commits apart' for gap in GAPS)} |\n|---|{'---|' * len(GAPS)}")
    for noise in NOISES:
        counts = [sum(is_one(gap, noise, seed) for seed in SEEDS) for gap in GAPS]
        print(f"| {100 * noise:g} % | {' | '.join(f'{count} of {len(SEEDS)}' for count in counts)} |")


if __name__ == "__main__":
    main()
