"""A series' state as a whole that rarely changes and a small tail that every run rewrites.

A run changes only its own value, the CUSUMs and a few counts: half a kilobyte. The model, the memory of earlier
levels and the runs before change only when the detector refits or accepts a change; then the whole is rewritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter, is_
from struct import Struct
from typing import Any

import numpy as np
import orjson

from backend.regression.detector.detector import Detector
from backend.regression.detector.memory import FIELDS
from backend.regression.detector.smoothing import Smooth
from backend.regression.series.state import SeriesState, Suspect
from backend.regression.terms import SeriesKind

KEY_BYTES = 8
MOST_RUNS = 48
"""The most runs in a tail: up to this many are cheaper to rewrite than the whole."""

DETECTOR_TAIL = ("segment", "places", "assumed_noise", "replicated", "cusum", "started", "notice", "next_look")
STATE_TAIL = (
    "detector",
    "last_position",
    "points",
    "suspect",
    "returning",
    "smooth",
    "within",
    "within_runs",
    "limits",
)
_DETECTOR_WHOLE = attrgetter(*(name for name in FIELDS if name not in DETECTOR_TAIL))
_STATE_WHOLE = attrgetter(*(name for name in SeriesState.__dataclass_fields__ if name not in STATE_TAIL))
# key, runs, last position, points, assumed noise, replicated, notice, next look, returning, level and runs of the
# smooth, spread within a run and its runs, whether there is a suspect, and its five fields; then the CUSUMs, where
# they started, the runs and their places
_HEAD = Struct(f"<{KEY_BYTES}sHiid?iiididi?iiidd")
_NO_SUSPECT = (0, 0, 0, 0.0, 0.0)


def write_whole(state: SeriesState) -> tuple[bytes, bytes]:
    """The whole state, and the key by which its tails name it."""
    whole = orjson.dumps(state.to_json())
    return whole, hashlib.blake2b(whole, digest_size=KEY_BYTES).digest()


def read_whole(stored: bytes) -> SeriesState:
    """The state that `write_whole` wrote."""
    return SeriesState.from_json(orjson.loads(stored))


def key_of(tail: bytes) -> bytes:
    """Names the whole to which a tail belongs."""
    return tail[:KEY_BYTES]


def write_tail(whole: SeriesState, key: bytes, state: SeriesState) -> bytes | None:
    """The changes since the whole was stored; None if more has changed than a tail can hold."""
    d, base = state.detector, whole.detector
    if base.model is None or not _same(_STATE_WHOLE, whole, state) or not _same(_DETECTOR_WHOLE, base, d):
        return None
    before = len(base.segment)
    added = len(d.segment) - before
    if not 0 <= added <= MOST_RUNS or d.places[0] != base.places[0] or d.places[before - 1] != base.places[-1]:
        return None
    s = state.suspect
    head = _HEAD.pack(
        key, added, state.last_position, state.points, d.assumed_noise, d.replicated, d.notice, d.next_look,
        state.returning, state.smooth.level, state.smooth.runs, state.within, state.within_runs, s is not None,
        *(_NO_SUSPECT if s is None else (s.onset, s.last_good, s.runs, s.baseline, s.worst)),
    )  # fmt: skip
    return b"".join(
        (
            head,
            d.cusum.astype("<i4").tobytes(),
            d.started.astype("<i2").tobytes(),
            d.segment[before:].astype("<f4").tobytes(),
            d.places[before:].astype("<i4").tobytes(),
        )
    )


def read_tail(whole: SeriesState, tail: bytes) -> SeriesState:
    """The state, from a whole and the changes that `write_tail` wrote."""
    (
        _, added, last_position, points, assumed_noise, replicated, notice, next_look,
        returning, level, smooth_runs, within, within_runs, suspected, *suspect,
    ) = _HEAD.unpack_from(tail)  # fmt: skip
    base = whole.detector
    banks, at = len(base.cusum), _HEAD.size
    cusum = np.frombuffer(tail, "<i4", banks, at).astype(np.int64)
    started = np.frombuffer(tail, "<i2", banks, at + 4 * banks).astype(np.int64)
    at += 6 * banks
    runs = np.frombuffer(tail, "<f4", added, at).astype(np.float64)
    places = np.frombuffer(tail, "<i4", added, at + 4 * added).astype(np.int64)
    detector = base.snapshot()
    detector.segment = np.concatenate((base.segment, runs))
    detector.places = np.concatenate((base.places, places))
    detector.cusum, detector.started = cusum, started
    detector.assumed_noise, detector.replicated = assumed_noise, replicated
    detector.notice, detector.next_look = notice, next_look
    return replace(
        whole,
        detector=detector,
        last_position=last_position,
        points=points,
        suspect=Suspect(*suspect) if suspected else None,
        returning=returning,
        smooth=Smooth(level, smooth_runs),
        within=within,
        within_runs=within_runs,
    )


def _same(parts: Callable[[Any], tuple[Any, ...]], one: SeriesState | Detector, other: SeriesState | Detector) -> bool:
    """Whether nothing of this was replaced: arrays and models never change in place."""
    mine, yours = parts(one), parts(other)
    return all(map(is_, mine, yours)) or all(
        a is b or (isinstance(a, _PLAIN) and a == b) for a, b in zip(mine, yours, strict=True)
    )


_PLAIN = (int, float, str, SeriesKind)
