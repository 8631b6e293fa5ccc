"""Lenient conversion of foreign values, None where it fails: numbers, texts, commit ids, times."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def number(value: object) -> float | None:
    """`value` as a finite float, or None (booleans are no numbers)."""
    if isinstance(value, bool):
        return None
    try:
        result = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return result if result - result == 0 else None


def numbers(values: object) -> tuple[float, ...] | None:
    """A list of finite numbers, or None when it is not one."""
    if not isinstance(values, list | tuple):
        return None
    read = [number(value) for value in values]
    return None if any(value is None for value in read) else tuple(value for value in read if value is not None)


def mapping(value: object) -> Mapping[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """`value` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str | None:
    """`value` if it is text with something in it, else None."""
    return value if isinstance(value, str) and value else None


def sha_of(value: object) -> str | None:
    """`value` if it is a full commit id, in lower case, else None."""
    return value.lower() if isinstance(value, str) and re.fullmatch(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}", value) else None


def moment_of(value: object) -> str | None:
    """RFC 3339 of an ISO text or of seconds or milliseconds since 1970; a time without a zone is taken as UTC."""
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None
    return None


def scalars(values: Mapping[str, Any], names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Those of the values (of these names) that can be parameters of a variant: texts, finite numbers, flags."""
    chosen = values if names is None else {name: values[name] for name in names if name in values}
    return {name: value for name, value in chosen.items() if is_scalar(value)}


def is_scalar(value: object) -> bool:
    if isinstance(value, float):
        return value - value == 0
    return isinstance(value, int) or (isinstance(value, str) and value != "")
