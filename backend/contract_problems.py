"""Problems found in a document: each with its path, the value that was there, and what would be accepted.

Standard library only, like the contract.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

MAX_PROBLEMS: Final = 20
SHOWN_VALUE_CHARACTERS: Final = 80

# A path is a chain of (parent, step): building its text is left to the rare case that something is refused.
Path = tuple[Any, str | int] | None
REFUSED: Final = object()


@dataclass(frozen=True, slots=True)
class ContractProblem:
    """One thing that is wrong: where, what was there (shortened), and what would have been accepted."""

    path: str
    value: str
    accepted: str

    def __str__(self) -> str:
        return f"{self.path} is {self.value}; accepted: {self.accepted}"


class Invalid(ValueError):
    """A run that the contract refuses, with every problem found (at most twenty are reported)."""

    def __init__(self, problems: tuple[ContractProblem, ...], *, more: int = 0) -> None:
        self.problems = problems
        self.more = more
        lines = [str(problem) for problem in problems]
        if more:
            lines.append(f"and {more} more")
        super().__init__("\n".join(lines))

    @classmethod
    def one(cls, path: str, value: object, accepted: str) -> Invalid:
        return cls((ContractProblem(path, shown(value), accepted),))

    @property
    def path(self) -> str:
        return self.problems[0].path

    @property
    def value(self) -> str:
        return self.problems[0].value

    @property
    def accepted(self) -> str:
        return self.problems[0].accepted


class Problems:
    """Collects what is wrong while a document is read, so that its author can mend all of it at once."""

    __slots__ = ("found", "more")

    def __init__(self) -> None:
        self.found: list[ContractProblem] = []
        self.more = 0

    def add(self, path: Path, value: object, accepted: str) -> Any:
        if len(self.found) < MAX_PROBLEMS:
            self.found.append(ContractProblem(path_text(path), shown(value), accepted))
        else:
            self.more += 1
        return REFUSED

    def raise_if_any(self) -> None:
        if self.found:
            raise Invalid(tuple(self.found), more=self.more)


def path_text(path: Path) -> str:
    steps: list[str | int] = []
    while path is not None:
        path, step = path
        steps.append(step)
    text = ""
    for step in reversed(steps):
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return shortened(text, 400) or "run"


def shortened(text: str, limit: int = SHOWN_VALUE_CHARACTERS) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class Unquoted(str):
    """Words of ours where a message shows a value: "missing", not a text of the document."""

    __slots__ = ()


def shown(value: object) -> str:
    """The value as its author wrote it, short enough for a message."""
    match value:
        case Unquoted():
            text = str(value)
        case str():
            # Escaped, because half a surrogate pair could not be printed.
            text = json.dumps(value[:SHOWN_VALUE_CHARACTERS], ensure_ascii=not storable(value))
        case list() | tuple():
            text = f"a list of {len(value)}"
        case dict():
            text = f"an object with {len(value)} fields"
        case None | bool():
            text = json.dumps(value)
        case int() if value.bit_length() > 200:
            text = "an integer of more than 60 digits"
        case _:
            text = str(value)
    return shortened(text)


def storable(text: str) -> bool:
    """Text that UTF-8 and PostgreSQL can hold: no NUL, no half of a surrogate pair."""
    if "\x00" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
