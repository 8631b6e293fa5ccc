"""What is wrong in a tidemark.toml, as sentences: each with the key, the value and what is accepted. Pure."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

from backend.services.base.errors import shown

FILE_NAME = "tidemark.toml"
MAX_PROBLEMS = 50
REFUSED, OF_POLICY, UNKNOWN = "refused", "of_policy", "extra_forbidden"


class ManifestInvalid(ValueError):
    """A tidemark.toml that cannot be used; `problems` has a sentence for each error."""

    def __init__(self, problems: Sequence[str]) -> None:
        told = [problem.replace("\x00", "\ufffd") for problem in problems[:MAX_PROBLEMS]]
        if len(problems) > MAX_PROBLEMS:
            told.append(f"{FILE_NAME}: and {len(problems) - MAX_PROBLEMS} more")
        super().__init__("\n".join(told))
        self.problems = tuple(told)


def refused(said: str, accepted: str) -> PydanticCustomError:
    """The error to raise in a validator; `said` describes the value, as in `is 7`."""
    return PydanticCustomError(REFUSED, "is not accepted", {"said": said, "accepted": accepted})


def accepts(accepted: str) -> WrapValidator:
    """What a key accepts, in words for its author. A message for a key below is more specific, and stays."""

    def read(value: Any, read_on: Callable[[Any], Any]) -> Any:
        try:
            return read_on(value)
        except ValidationError as error:
            found = error.errors(include_url=False)
            if any(each["type"] in (REFUSED, OF_POLICY, UNKNOWN) for each in found):
                raise
            raise refused(f"is {shown(found[0]['input'])}", accepted) from None

    return WrapValidator(read)


def sentences(error: ValidationError, known_below: Callable[[Sequence[str | int]], Sequence[str]]) -> list[str]:
    """One for each error; `known_below` returns the keys that the table at a place may have."""
    return [
        f"{FILE_NAME}: {_sentence(each['type'], each['loc'], each['input'], each.get('ctx', {}), known_below)}"
        for each in error.errors(include_url=False)
    ]


def _sentence(
    kind: str,
    place: tuple[str | int, ...],
    value: Any,
    context: Mapping[str, str],
    known_below: Callable[[Sequence[str | int]], Sequence[str]],
) -> str:
    if kind == UNKNOWN:
        known = known_below(place[:-1])
        close = difflib.get_close_matches(str(place[-1]), known, 1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        return f"unknown key {_written(place)}{meant}; known: {', '.join(known)}"
    if kind == OF_POLICY:
        return _written((*place[:-1], context["told"]))
    if place[-1:] == ("[key]",):
        place = place[:-2]
    said, accepted = context.get("said", f"is {shown(value)}"), context.get("accepted", "a table")
    return f"{_written(place)} {said}; accepted: {accepted}".strip()


def _written(place: Sequence[str | int]) -> str:
    """As an author would: `schedule[0].at`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
