"""How a series' state is stored: small JSON, arrays as base64 of their narrowest exact form."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from backend.regression.detector.density import Floats, Ints, NoiseModel
from backend.regression.detector.detector import Detector
from backend.regression.detector.memory import Opened


def pack_floats(x: Floats) -> str:
    """Log costs are rounded to single precision when they enter, so that this loses nothing."""
    return base64.b64encode(x.astype("<f4").tobytes()).decode()


def unpack_floats(text: str) -> Floats:
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(np.float64)


def pack_ints(x: Ints, kind: str = "<i4") -> str:
    return base64.b64encode(x.astype(kind).tobytes()).decode()


def unpack_ints(text: str, kind: str = "<i4") -> Ints:
    return np.frombuffer(base64.b64decode(text), dtype=kind).astype(np.int64)


def pack_detector(d: Detector) -> dict[str, Any]:
    """A detector as JSON-safe values."""
    model = d.model
    return {
        "segment": pack_floats(d.segment),
        "places": pack_ints(d.places),
        "carried": pack_floats(d.carried),
        "correlation": d.correlation,
        "assumed_noise": d.assumed_noise,
        "replicated": d.replicated,
        "model": None
        if model is None
        else [
            model.level,
            model.scale,
            model.correlation,
            model.spread,
            model.runs,
            pack_ints(model.density, "<i2"),
            [[a, *ends] for a, ends in model.bands.items()],
            model.reach,
        ],
        "cusum": pack_ints(d.cusum),
        "started": pack_ints(d.started, "<i2"),
        "notice": d.notice,
        "next_look": d.next_look,
        "next_fit": d.next_fit,
        "fitted": d.fitted,
        "anchor": d.anchor,
        "levels": list(d.levels),
        "borrowed": d.borrowed,
        "opened": [
            [o.onset, o.last_good, o.before, o.after, o.drift, pack_floats(o.runs), pack_ints(o.places)]
            for o in d.opened
        ],
    }


def unpack_detector(data: dict[str, Any]) -> Detector:
    """The detector that `pack_detector` wrote."""
    model = data["model"]
    return Detector(
        segment=unpack_floats(data["segment"]),
        places=unpack_ints(data["places"]),
        carried=unpack_floats(data["carried"]),
        correlation=data["correlation"],
        assumed_noise=data["assumed_noise"],
        replicated=data["replicated"],
        model=None
        if model is None
        else NoiseModel(
            model[0],
            model[1],
            model[2],
            model[3],
            unpack_ints(model[5], "<i2"),
            model[4],
            # states of before 2026-11-22 do not say how far the runs of the level reach
            (model[7][0], model[7][1]) if len(model) > 7 and model[7] is not None else None,
            {b[0]: (b[1], b[2]) for b in model[6]},
        ),
        cusum=unpack_ints(data["cusum"]),
        started=unpack_ints(data["started"], "<i2"),
        notice=data["notice"],
        next_look=data["next_look"],
        next_fit=data["next_fit"],
        fitted=data["fitted"],
        anchor=data["anchor"],
        levels=tuple(data["levels"]),
        borrowed=data.get("borrowed", 0),  # states of before 2026-11-20 do not say: the level then counts as older
        opened=tuple(
            Opened(o[0], o[1], o[2], o[3], o[4], unpack_floats(o[5]), unpack_ints(o[6])) for o in data["opened"]
        ),
    )
