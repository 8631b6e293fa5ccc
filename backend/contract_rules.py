"""How the contract reads a JSON value: one rule a kind of value, each able to read, to refuse and to describe itself.

The same rule object reads a field and writes its JSON Schema, so what is accepted and what is published cannot differ.
Standard library only: workers and strangers' machines import it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol

from backend.contract_problems import REFUSED, Path, Problems, Unquoted, storable
from backend.records import record

MAX_FREE_TEXT: Final = 100_000
LARGEST_FREE_NUMBER: Final = 2**63
MAX_FREE_DEPTH: Final = 32
MAX_PARAMETER_TEXT: Final = 10_000


class Rule(Protocol):
    """Reads one kind of JSON value."""

    def read(self, value: Any, path: Path, problems: Problems) -> Any: ...

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Text:
    """`pattern` is of ASCII characters, and none of them NUL: what matches can be stored."""

    accepted: str
    max_length: int = 200
    min_length: int = 1
    pattern: str | None = None
    matches: Callable[[str], object] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "matches", re.compile(self.pattern or "", re.ASCII).match)

    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        if (
            type(value) is str
            and self.min_length <= len(value) <= self.max_length
            and (storable(value) if self.pattern is None else self.matches(value))
        ):
            return value
        if type(value) is not str or len(value) > self.max_length or not storable(value):
            return problems.add(path, value, f"{self.accepted}, at most {self.max_length} characters, without NUL")
        return problems.add(path, value, self.accepted)

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        described: dict[str, Any] = {"type": "string", "maxLength": self.max_length, "description": self.accepted}
        if self.min_length:
            described["minLength"] = self.min_length
        if self.pattern:
            described["pattern"] = self.pattern.replace(r"\Z", "$")
        return described


@dataclass(frozen=True)
class Whole:
    minimum: int
    maximum: int

    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        if type(value) is not int or not self.minimum <= value <= self.maximum:
            return problems.add(path, value, f"a whole number from {self.minimum} to {self.maximum}")
        return value

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


_FLOATS: Final = frozenset({float})


def finite(value: Any) -> bool:
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    # Larger whole numbers are no JSON number to most readers, and would fail later, where no path is known any more.
    return kind is int and -(2**63) <= value < 2**63


@dataclass(frozen=True)
class Number:
    accepted: str = "a finite number (a whole one within 64 bits)"
    minimum: float | None = None

    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        if not finite(value) or (self.minimum is not None and value < self.minimum):
            return problems.add(path, value, self.accepted)
        return value

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"type": "number"} if self.minimum is None else {"type": "number", "minimum": self.minimum}


@dataclass(frozen=True)
class BooleanField:
    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        return value if type(value) is bool else problems.add(path, value, "true or false")

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Choice:
    kind: type[StrEnum]
    members: dict[str, StrEnum] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", {member.value: member for member in self.kind})

    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        member = self.members.get(value) if type(value) is str else None
        if member is None:
            return problems.add(path, value, "one of " + ", ".join(self.members))
        return member

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"enum": [member.value for member in self.kind]}


@dataclass(frozen=True)
class Moment:
    """A point in time with its offset, as RFC 3339 writes it; kept as text, so that it is written back unchanged."""

    accepted: ClassVar[str] = (
        'an RFC 3339 time with its offset, such as "2026-11-18T11:20:04.120Z", from the year 1970 to 9000'
    )
    # Further out, some zone of the world is before the first or after the last year that a datetime can say.
    years: ClassVar[range] = range(1970, 9001)

    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        if type(value) is not str or len(value) > 40 or "T" not in value:
            return problems.add(path, value, self.accepted)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return problems.add(path, value, self.accepted)
        if moment.utcoffset() is None or moment.year not in self.years:
            return problems.add(path, value, self.accepted)
        return value

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"type": "string", "format": "date-time"}


@dataclass(frozen=True)
class Numbers:
    """A list of finite numbers, checked as a whole: most of a document's bytes are these."""

    max_items: int

    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        if type(value) is not list or len(value) > self.max_items:
            return problems.add(path, value, f"a list of at most {self.max_items} finite numbers")
        if _FLOATS.issuperset(map(type, value)) and math.isfinite(sum(value)):  # no sum with nan or infinity is finite
            return tuple(value)
        for index, number in enumerate(value):
            if not finite(number):
                return problems.add((path, index), number, "a finite number")
        return tuple(map(float, value))  # as they are stored, so that what is delivered again is the same

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"type": "array", "maxItems": self.max_items, "items": {"type": "number"}}


@dataclass(frozen=True)
class ListOf:
    item: Rule
    max_items: int
    what: str

    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        if type(value) is not list or len(value) > self.max_items:
            return problems.add(path, value, f"a list of at most {self.max_items} {self.what}")
        read = self.item.read
        items = [read(entry, (path, index), problems) for index, entry in enumerate(value)]
        return REFUSED if any(entry is REFUSED for entry in items) else tuple(items)

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"type": "array", "maxItems": self.max_items, "items": self.item.schema(definitions)}


@dataclass(frozen=True)
class Free:
    """An object whose fields its writer chooses; only its size and its numbers and texts are checked."""

    max_fields: int = 500

    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        if type(value) is not dict or len(value) > self.max_fields:
            return problems.add(path, value, f"an object of at most {self.max_fields} fields")
        return value if free_is_sound(value, path, problems, depth=0) else REFUSED

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "maxProperties": self.max_fields}


@dataclass(frozen=True)
class FlatObject:
    """Names to values of one rule."""

    item: Rule
    max_fields: int
    what: str

    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        if type(value) is not dict or len(value) > self.max_fields:
            return problems.add(path, value, f"an object of at most {self.max_fields} {self.what}")
        sound = True
        for name, entry in value.items():
            if not 0 < len(name) <= 100 or not storable(name):
                problems.add((path, name), name, "a name of 1 to 100 characters, without NUL")
                sound = False
            elif self.item.read(entry, (path, name), problems) is REFUSED:
                sound = False
        return value if sound else REFUSED

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "maxProperties": self.max_fields,
            "propertyNames": {"minLength": 1, "maxLength": 100},
            "additionalProperties": self.item.schema(definitions),
        }


@dataclass(frozen=True)
class Scalar:
    """A value of a variant's parameter: text, a finite number below 2^63, true or false, or null."""

    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        sound = value is None or type(value) is bool or keepable(value)
        if type(value) is str:
            sound = len(value) <= MAX_PARAMETER_TEXT and storable(value)
        if sound:
            return value
        accepted = f"text of at most {MAX_PARAMETER_TEXT} characters, a finite number below 2^63, true, false or null"
        return problems.add(path, value, accepted)

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean", "null"], "maxLength": MAX_PARAMETER_TEXT}


@dataclass(frozen=True)
class Nullable:
    rule: Rule

    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        return None if value is None else self.rule.read(value, path, problems)

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        return {"anyOf": [self.rule.schema(definitions), {"type": "null"}]}


def keepable(value: Any) -> bool:
    """Whether this is a number that comes back as it was: a database that keeps JSON writes 1e30 as the whole number it
    is, which no reader takes."""
    return finite(value) and abs(value) < LARGEST_FREE_NUMBER


def free_is_sound(value: Any, path: Path, problems: Problems, *, depth: int) -> bool:
    """Whether an unknown value can be stored and written back: finite, storable, not too deep."""
    kind = type(value)
    if kind is str:
        sound = len(value) <= MAX_FREE_TEXT and storable(value)
    elif kind is dict or kind is list:
        if depth == MAX_FREE_DEPTH:
            sound = False
        else:
            entries = value.items() if kind is dict else enumerate(value)
            return all([_entry_is_sound(key, entry, path, problems, depth) for key, entry in entries])
    else:
        sound = value is None or kind is bool or keepable(value)
    if not sound:
        problems.add(
            path,
            value,
            f"text of at most {MAX_FREE_TEXT} characters without NUL, a finite number below 2^63, true, false, null, "
            f"or a list or object of these at most {MAX_FREE_DEPTH} deep",
        )
    return sound


def _entry_is_sound(key: str | int, entry: Any, path: Path, problems: Problems, depth: int) -> bool:
    if isinstance(key, str) and (len(key) > 200 or not storable(key)):
        problems.add((path, key), key, "a name of at most 200 characters, without NUL")
        return False
    return free_is_sound(entry, (path, key), problems, depth=depth + 1)


@record(kw_only=True)
class Part:
    """Base of every described object of the contract; unknown fields live on in `extra`."""

    extra: Mapping[str, Any] = field(default_factory=dict)
    # Optional fields that were written although they hold their default: so that a document is written back as it came.
    stated: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def check(self, path: Path, problems: Problems) -> None:
        """Check rules across fields; called once all fields are read."""


_UNDESCRIBED: Final = ("extra", "stated")


def rule(read_by: Rule, doc: str = "", **options: Any) -> Any:
    """A dataclass field together with the rule that reads it and what it means."""
    return field(metadata={"rule": read_by, "doc": doc}, **options)


@dataclass(frozen=True)
class Object:
    """Reads an object into its dataclass by the rules of the dataclass's fields."""

    kind: type[Part]
    plan: list[tuple[str, Callable[[Any, Path, Problems], Any], Any]] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        plan = [(name, by.read, default) for name, by, default, _ in described(self.kind)]
        object.__setattr__(self, "plan", plan)

    def read(self, value: Any, path: Path, problems: Problems) -> Any:
        if type(value) is not dict:
            return problems.add(path, value, "an object")
        known: dict[str, Any] = {}
        stated: list[str] = []
        sound = True
        for name, read, default in self.plan:
            if name in value:
                entry = read(value[name], (path, name), problems)
                if entry is REFUSED:
                    sound = False
                elif entry == default and default is not MISSING:
                    stated.append(name)
                known[name] = entry
            elif default is MISSING:
                required = f"a value: the field is required in {described_name(self.kind)}"
                problems.add((path, name), Unquoted("missing"), required)
                sound = False
        present = len(known)
        if len(value) > present:
            extra = {name: entry for name, entry in value.items() if name not in known}
            sound = free_is_sound(extra, path, problems, depth=0) and sound
            known["extra"] = extra
        if not sound:
            return REFUSED
        part = self.kind(**known, stated=frozenset(stated)) if stated else self.kind(**known)
        before = len(problems.found)
        part.check(path, problems)
        return part if len(problems.found) == before else REFUSED

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        name = self.kind.__name__
        if name not in definitions:
            definitions[name] = {}
            properties, required = {}, []
            for field_name, by, default, doc in described(self.kind):
                properties[field_name] = by.schema(definitions)
                if doc:
                    properties[field_name] = {**properties[field_name], "description": doc}
                if default is MISSING:
                    required.append(field_name)
            definitions[name] = {
                "type": "object",
                "title": described_name(self.kind),
                "description": " ".join((self.kind.__doc__ or "").split()),
                "properties": properties,
                "required": required,
            }
        return {"$ref": f"#/$defs/{name}"}


def described(kind: type[Part]) -> Iterator[tuple[str, Rule, Any, str]]:
    """Each field a document may hold: its name, rule, default (MISSING: required) and what it means."""
    for entry in fields(kind):
        if entry.name not in _UNDESCRIBED:
            default = entry.default_factory() if entry.default_factory is not MISSING else entry.default
            yield entry.name, entry.metadata["rule"], default, entry.metadata.get("doc", "")


def described_name(kind: type[Part]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()


def written(part: Part) -> dict[str, Any]:
    """The object as JSON: what differs from its default, or was stated, and every unknown field."""
    document: dict[str, Any] = {}
    for name, _, default, _ in described(type(part)):
        value = getattr(part, name)
        if default is MISSING or value != default or name in part.stated:
            document[name] = _written_value(value)
    document.update(part.extra)
    return document


def _written_value(value: Any) -> Any:
    if isinstance(value, Part):
        return written(value)
    if isinstance(value, tuple):
        return [_written_value(entry) for entry in value]
    if isinstance(value, StrEnum):
        return value.value
    return value
