"""Answers that repeat what the store read: their fields are copied by name."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol


class Row(Protocol):
    """A row of the store: a named tuple."""

    def _asdict(self) -> dict[str, Any]: ...


def shared_fields(row: Row, record: type[Any]) -> Mapping[str, Any]:
    """The values of a row whose names are those of fields of the dataclass `record`."""
    names = {field.name for field in fields(record)}
    return {name: value for name, value in row._asdict().items() if name in names}
