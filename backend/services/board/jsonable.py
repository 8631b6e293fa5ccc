"""Views as JSON bytes: dataclasses and numpy arrays natively, the few other kinds here."""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel

from backend.services.board.cells import RowCells

OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS


def dump(view: Any) -> bytes:
    """The JSON of a view of this package. Numbers that are not finite become null."""
    return orjson.dumps(view, default=_plain, option=OPTIONS)


def _plain(value: Any) -> Any:
    if isinstance(value, RowCells):
        return value.as_columns()
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, BaseModel | Mapping):
        return dict(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
