"""`tidemark detect`: labelled or unlabelled histories in, confirmed regressions out, one JSON object a line."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np

from backend.regression.cost import typical
from backend.regression.detector.density import Floats
from backend.regression.detector.detector import Detector
from backend.regression.policy import Policy

_POLICY = Policy()
DIRECTIONS = ("lower_is_better", "higher_is_better")


def log_costs(values: Sequence[float | Sequence[float]], higher_is_better: bool) -> Floats:
    """One log cost a commit: its value, or what is typical of its samples."""
    sign = -1.0 if higher_is_better else 1.0
    try:
        rows = np.asarray(values, dtype=np.float64)
    except ValueError:  # commits with different numbers of samples
        rows = np.array([typical(np.log(v).tolist()) if isinstance(v, list) else math.log(v) for v in values])  # type: ignore[arg-type]
    else:
        rows = np.log(rows)
        if rows.ndim == 2:
            count = rows.shape[1]
            cut = max(1, count // 4) if count >= 3 else 0
            rows = np.sort(rows, axis=1)[:, cut : count - cut].mean(axis=1) if count > 1 else rows[:, 0]
    single: Floats = (sign * rows).astype(np.float32).astype(np.float64)
    return single


def record_of(line: str) -> dict[str, Any]:
    """The record of one line; raises ValueError where it is none."""
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError(f"found {line.strip()[:40]}; expected a JSON object")
    return record


def detect_record(record: dict[str, Any]) -> dict[str, Any]:
    """The answer to one history of the protocol."""
    policy = _POLICY
    values, direction = record["values"], record["direction"]
    if direction not in DIRECTIONS:
        raise ValueError(f"direction is {direction!r}; accepted: {', '.join(DIRECTIONS)}")
    x = log_costs(values, direction == "higher_is_better")
    detector = Detector(assumed_noise=policy.prior_noise)
    found = detector.feed(x, np.arange(len(x)), policy)
    return {
        "series_id": record["series_id"],
        "regressions": [
            {
                "index": change.onset,
                "detected_at": change.detected,
                "magnitude_pct": 100 * math.expm1(change.size),
                "kind": "drift" if change.drift else "step",
            }
            for change in found
            if change.past_threshold and change.size > 0
        ],
    }


def main(stdin: TextIO, stdout: TextIO) -> int:
    """Answer every line in order."""
    for line in stdin:
        if line.strip():
            stdout.write(json.dumps(detect_record(record_of(line))) + "\n")
            stdout.flush()
    return 0
