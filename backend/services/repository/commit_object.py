"""A commit as git stores it, read: parents, message, people and times, in whatever encoding."""

import codecs
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from backend.contract_rules import Moment

MAX_MESSAGE_CHARACTERS = 20_000


PERSON = re.compile(r"(?P<name>.*?) ?<(?P<email>[^<>]*)> (?P<seconds>-?\d+) [+-]\d{4}\Z", re.DOTALL)


# Codecs that are no encoding of text, or take time with the square of its length.
ODD_ENCODINGS = frozenset({"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitObject:
    """A commit as its object says, with the paths that it changed."""

    sha: str
    parents: tuple[str, ...]
    message: str
    author_name: str
    author_email: str
    authored_at: datetime | None
    committed_at: datetime | None
    changed_paths: tuple[str, ...] = ()


def parse_commit(sha: str, raw: bytes) -> CommitObject:
    """The fields of a commit object, which may be in any encoding and as odd as its author liked."""
    head, _, message = raw.partition(b"\n\n")
    fields = [line.partition(b" ") for line in head.split(b"\n") if not line.startswith(b" ")]
    encoding = next((value.decode("ascii", "replace") for key, _, value in fields if key == b"encoding"), "utf-8")
    values = {key: _decoded(value, encoding) for key, _, value in fields}
    author, committer = _person(values.get(b"author", "")), _person(values.get(b"committer", ""))
    return CommitObject(
        sha=sha,
        parents=tuple(value.decode("ascii") for key, _, value in fields if key == b"parent"),
        message=_decoded(message, encoding)[:MAX_MESSAGE_CHARACTERS].strip("\n"),
        author_name=author[0],
        author_email=author[1],
        authored_at=author[2],
        committed_at=committer[2],
    )


def _decoded(value: bytes, encoding: str) -> str:
    """Decode a commit's text; its stated encoding is not trusted."""
    try:
        name = codecs.lookup(encoding).name
        text = value.decode("utf-8" if name in ODD_ENCODINGS else name, "replace")
    except (LookupError, ValueError):
        text = value.decode("utf-8", "replace")
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _person(line: str) -> tuple[str, str, datetime | None]:
    match = PERSON.match(line)
    if match is None:
        return line[:200], "", None
    try:
        when = datetime.fromtimestamp(int(match["seconds"]), UTC)
    except (ValueError, OverflowError, OSError):
        when = None
    if when is not None and when.year not in Moment.years:  # what a page adds a day to must stay a date
        when = None
    return match["name"][:200], match["email"][:200], when
