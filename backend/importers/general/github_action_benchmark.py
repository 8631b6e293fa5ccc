"""github-action-benchmark: the history it keeps (`data.js`), and the lists of {name, unit, value} it takes."""

import json
import re
from collections.abc import Mapping
from typing import Any

from backend.contract import Direction
from backend.importers.file import ResultFile, Unreadable
from backend.importers.model import Commit, Context, Draft, Format, Reading
from backend.importers.values import mapping, moment_of, number, sha_of, text_of

# Which way the tools are better whose units do not say it; the others report times.
HIGHER_TOOLS = frozenset({"benchmarkjs", "pytest", "customBiggerIsBetter"})
ASSIGNED = re.compile(rb"^\s*window\.BENCHMARK_DATA\s*=\s*")


def detect(file: ResultFile) -> bool:
    return ASSIGNED.match(file.data[:200]) is not None or ("entries" in file.first and "repoUrl" in file.first)


def read(file: ResultFile, context: Context) -> Draft:
    """`window.BENCHMARK_DATA = {…}`: every entry is one commit, with its time, author and message."""
    plain = ResultFile(file.name, ASSIGNED.sub(b"", file.data).rstrip().rstrip(b";"))
    document = plain.object_with("`window.BENCHMARK_DATA = {…}` with an object `entries`", entries=dict)
    draft = Draft()
    for suite, entries in document["entries"].items():
        for index, raw in enumerate(entries if isinstance(entries, list) else []):
            where, entry = f"{file.name} entries[{json.dumps(suite)}][{index}]", mapping(raw)
            commit = mapping(entry.get("commit"))
            sha = sha_of(commit.get("id"))
            if sha is None:
                draft.refuse(where, f"commit.id is {commit.get('id')!r}; accepted: 40 hexadecimal digits")
                continue
            _read_benches(
                draft,
                where,
                entry.get("benches"),
                Direction.HIGHER if entry.get("tool") in HIGHER_TOOLS else Direction.LOWER,
                suite=suite,
                commit=sha,
                about=_about(commit),
                turn=str(entry.get("date")),
                at=moment_of(commit.get("timestamp")) or moment_of(entry.get("date")),
            )
    return draft


def _about(commit: Mapping[str, Any]) -> Commit:
    author = mapping(commit.get("author"))
    return Commit(
        at=moment_of(commit.get("timestamp")),
        author=text_of(author.get("name")) or text_of(author.get("username")),
        message=text_of(commit.get("message")),
    )


def read_smaller(file: ResultFile, context: Context) -> Draft:
    """customSmallerIsBetter: a list of {name, unit, value}."""
    return _read_list(file, Direction.LOWER)


def read_bigger(file: ResultFile, context: Context) -> Draft:
    """customBiggerIsBetter: a list of {name, unit, value}."""
    return _read_list(file, Direction.HIGHER)


def _read_list(file: ResultFile, direction: Direction) -> Draft:
    if not isinstance(file.document, list):
        raise Unreadable(f"{file.name}: expected a list of {{name, unit, value}}, found {type(file.document).__name__}")
    draft = Draft()
    _read_benches(draft, file.name, file.document, direction)
    return draft


def _read_benches(draft: Draft, where: str, benches: object, supposed: Direction, **placed: Any) -> None:
    if not isinstance(benches, list):
        draft.refuse(where, "expected a list of {name, unit, value}")
        return
    for index, bench in enumerate(benches):
        at, entry = f"{where} [{index}]", mapping(bench)
        name, value = entry.get("name"), number(entry.get("value"))
        if not isinstance(name, str) or not name.strip() or value is None:
            draft.refuse(at, f"needs a name and a finite number `value`; found {json.dumps(bench)[:120]}")
            continue
        unit, *further = str(entry.get("unit") or "1").split("\t")
        common: dict[str, Any] = {"where": at, "benchmark": name, "supposed": supposed, **placed}
        draft.readings.append(Reading(metric="value", unit=unit.strip(), values=(value,), **common))
        for text in further:  # go's tool writes the other metrics of a line behind the first one's unit
            _read_further(draft, text, common)


def _read_further(draft: Draft, text: str, common: dict[str, Any]) -> None:
    amount, _, unit = text.strip().partition(" ")
    value = number(amount)
    if value is not None and unit.strip():
        draft.readings.append(Reading(metric=unit.strip(), unit=unit.strip(), values=(value,), **common))


def asked_which(file: ResultFile) -> str | None:
    """The question to ask of a list of {name, value}, which has no direction; None for any other file."""
    if {"name", "value"} <= file.first.keys():
        return (
            "a list of {name, unit, value} does not say which way is better; "
            "name it with --format custom-smaller-is-better or --format custom-bigger-is-better"
        )
    return None


IDENTITY = "the name, within its suite; what go's tool writes behind a tab are further metrics of it"
FORMATS = (
    Format(
        name="github-action-benchmark",
        title="github-action-benchmark history (data.js)",
        detect=detect,
        read=read,
        identity=IDENTITY,
        suffixes=(".js", ".json"),
    ),
    Format(
        name="custom-smaller-is-better",
        title="a list of {name, unit, value}; smaller is better where the unit does not say",
        detect=lambda file: False,
        read=read_smaller,
        identity=IDENTITY,
    ),
    Format(
        name="custom-bigger-is-better",
        title="a list of {name, unit, value}; bigger is better where the unit does not say",
        detect=lambda file: False,
        read=read_bigger,
        identity=IDENTITY,
    ),
)
