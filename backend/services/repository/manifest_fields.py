"""Kinds of values that the tables of a tidemark.toml share. Pure."""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from backend.services.base.errors import shown
from backend.services.repository.manifest_problems import accepts, refused

Kind = TypeVar("Kind")

MAX_PATTERN = 500
MAX_WILDCARDS = 20


class ManifestTable(BaseModel):
    """A table of known keys; the others are problems."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _usable(text: str) -> str:
    """Nothing that neither a shell nor a database would take."""
    if not text.strip() or "\x00" in text:
        raise ValueError("empty, or with a null character")
    return text


def _bounded(pattern: str) -> str:
    if len(pattern) > MAX_PATTERN or pattern.count("*") + pattern.count("?") > MAX_WILDCARDS:
        accepted = f"patterns of at most {MAX_PATTERN} characters with {MAX_WILDCARDS} wildcards"
        raise refused(f"is {shown(pattern)}", accepted)
    return pattern


def _once(found: tuple[Kind, ...]) -> tuple[Kind, ...]:
    return tuple(dict.fromkeys(found))


Text = Annotated[str, Field(max_length=10_000), AfterValidator(_usable)]
EnvironmentText = Annotated[str, StringConstraints(max_length=10_000, pattern=r"^[^\x00]*$")]
Name = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z._+-]{0,99}$"),
    accepts("a name of letters, digits and . _ - +, beginning with a letter or digit"),
]
BenchmarkPattern = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_*?\[\]][0-9A-Za-z_.*?\[\]+:/-]{0,199}$")]
PathPattern = Annotated[Text, AfterValidator(_bounded)]
Unique = Annotated[tuple[Kind, ...], Field(max_length=1000), AfterValidator(_once)]
"""A list, each of its values once."""
