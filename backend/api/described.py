"""JSON Schemas of read models, from their dataclasses: OpenAPI describes what orjson will write.

Read models are written straight to JSON, so pydantic never sees them; some hold numpy arrays, which it could not.
"""

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import numpy as np

Schema = dict[str, Any]
SCALARS: dict[object, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    # Numbers that are not known are not-a-number inside and null in JSON.
    float: {"type": ["number", "null"]},
    datetime: {"type": "string", "format": "date-time"},
    type(None): {"type": "null"},
}


def answer(kind: Any, description: str, *, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """The `responses=` entry of a route that answers with `kind`."""
    return {status: {"description": description, "content": {"application/json": {"schema": schema_of(kind)}}}}


def schema_of(kind: Any, seen: tuple[Any, ...] = ()) -> Schema:
    """The schema of a type; what is not known is anything."""
    if kind in SCALARS:
        return dict(SCALARS[kind])
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(part, seen) for part in arguments]}
    if origin is not None and isinstance(origin, type):
        return _generic(origin, arguments, seen)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {"type": "string", "enum": [member.value for member in kind]}
    if isinstance(kind, type) and kind not in seen and (is_dataclass(kind) or hasattr(kind, "_fields")):
        return _record(kind, (*seen, kind))
    return {}


def _generic(origin: type, arguments: tuple[Any, ...], seen: tuple[Any, ...]) -> Schema:
    if is_dataclass(origin):
        return _record(origin, seen, arguments)
    if origin is tuple and arguments and Ellipsis not in arguments:
        # Not as `prefixItems`: readers of OpenAPI know them badly.
        places = [schema_of(each, seen) for each in dict.fromkeys(arguments)]
        return {"type": "array", "items": {"anyOf": places}, "minItems": len(arguments), "maxItems": len(arguments)}
    if issubclass(origin, np.ndarray):
        return {"type": "array"}
    if issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1], seen) if arguments else {}}
    if issubclass(origin, Sequence | set | frozenset):
        return {"type": "array", "items": schema_of(arguments[0], seen) if arguments else {}}
    return {}


def _record(kind: type, seen: tuple[Any, ...], arguments: tuple[Any, ...] = ()) -> Schema:
    hints = typing.get_type_hints(kind)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else list(kind._fields)  # type: ignore[attr-defined]
    filled = {name: _filled(hints.get(name, Any), kind, arguments) for name in names}
    return {
        "type": "object",
        "description": (kind.__doc__ or "").strip().split("\n")[0],
        "properties": {name: schema_of(hint, seen) for name, hint in filled.items()},
        "required": names,
    }


def _filled(hint: Any, kind: Any, arguments: tuple[Any, ...]) -> Any:
    """`hint` with the type variables of a generic record replaced by what it was asked for with."""
    variables = getattr(hint, "__parameters__", ())
    if not variables or not arguments:
        return hint
    meant = dict(zip(kind.__parameters__, arguments, strict=True))
    return hint[tuple(meant[variable] for variable in variables)]
