"""Runs from readings: where each belongs, which way it is better, and that no two of a run are taken for one."""

import hashlib
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from backend.contract import SCHEMA_VERSION, Direction, Invalid, Role, Run, parse_run, variant_key
from backend.importers.direction import direction_of_name, direction_of_unit
from backend.importers.model import Commit, Context, Draft, Format, Imported, Problem, Reading
from backend.importers.names import MOST_UNIT, name_of, plain_name_of, short_name_of, within

MOST_PARAMETERS = 50
MOST_PARAMETER_NAME = 100
MOST_TEXT = 10_000
NOT_BELIEVED = "the file's own commit is not to be believed, and none is stated"


@dataclass(frozen=True, slots=True)
class _Home:
    """The run that a reading belongs to."""

    suite: str
    commit: str
    testbed: str
    worker: str | None
    turn: str | None


@dataclass(slots=True)
class _Result:
    """A result in the making, with how many records went into it and where each metric was read first."""

    document: dict[str, Any]
    where: str
    records: int = 0
    seen: dict[str, str] = field(default_factory=dict)


def assemble(kind: Format, draft: Draft, context: Context) -> Imported:
    """One run per suite, commit, testbed and worker; readings that cannot be taken become problems."""
    problems, notes = list(draft.problems), list(draft.notes)
    homes: dict[_Home, list[tuple[Reading, Direction]]] = defaultdict(list)
    for reading in draft.readings:
        problem = _unfit(reading, context)
        if problem is not None:
            problems.append(Problem(reading.where, problem))
            continue
        direction, assumed = _direction(reading, context)
        if direction is None:
            problems.append(Problem(reading.where, _asked_direction(reading)))
            continue
        if assumed and assumed not in notes:
            notes.append(assumed)
        homes[_home(reading, context, kind.name)].append((reading, direction))
    runs: list[Run] = []
    records: dict[str, tuple[int, ...]] = {}
    for home, members in homes.items():
        results = _results(kind, members, context, problems, notes)
        read = _run(kind.name, home, members, results, context, problems)
        if read is not None:
            run, counts = read
            if run.id in records:
                where = members[0][0].where
                problems += [Problem(where, "says all of an earlier run of its commit again")] * sum(counts)
                continue
            runs.append(run)
            records[run.id] = counts
    runs.sort(key=lambda run: (run.started_at or "", run.id))
    return Imported(kind.name, tuple(runs), tuple(problems), tuple(notes), records)


CONTENT_ID = "import-"


def content_id(content: bytes) -> str:
    """The id of a run that follows from its content, so that importing it twice stores nothing twice."""
    return CONTENT_ID + hashlib.sha256(content).hexdigest()[:32]


# --- where it belongs ------------------------------------------------------------------------------------------------


def _unfit(reading: Reading, context: Context) -> str | None:
    """Why a reading cannot be taken; None: it can."""
    if context.stated_wins and not context.commit:
        return NOT_BELIEVED
    if not (reading.commit or context.commit):
        return "the file names no commit; state it with --commit"
    if not (reading.testbed or context.testbed):
        return "the file names no machine class; state it with --testbed"
    if min((*reading.values, *reading.samples), default=0.0) < 0 and reading.role is not Role.DERIVED:
        return f"{reading.metric} is negative; a cost cannot be"
    if reading.failed is None and not reading.values and not reading.samples:
        return f"{reading.metric} has no value"
    return None


def _home(reading: Reading, context: Context, format_name: str) -> _Home:
    said, stated = reading.commit, context.commit
    commit = (stated or said) if context.stated_wins else (said or stated)
    return _Home(
        short_name_of(context.suite or reading.suite or format_name, "suite"),
        str(commit).lower(),
        short_name_of(str(context.testbed or reading.testbed), "testbed"),
        context.worker or reading.worker,
        reading.turn,
    )


def _direction(reading: Reading, context: Context) -> tuple[Direction | None, str]:
    """Which way a reading is better, and what was assumed for it: stated, the file's own word, its unit, its tool's
    habit, its name."""
    named = (reading.metric, reading.benchmark)
    stated = next((way for pattern, way in context.directions.items() if any(fnmatch(n, pattern) for n in named)), None)
    if stated is not None:
        return Direction(stated), ""
    if reading.direction is not None:
        return reading.direction, ""
    by_unit = direction_of_unit(reading.unit)
    if by_unit is not None and reading.supposed not in (by_unit, None):
        unlike = f"its unit, {reading.unit}, says that {by_unit} is better, and its tool that {reading.supposed} is"
        return (
            by_unit,
            f"{reading.benchmark}: {unlike}; the unit counts (--direction 'NAME={reading.supposed}' changes it)",
        )
    if by_unit is not None:
        return by_unit, f"{reading.metric}: {by_unit} is better (read from its unit, {reading.unit})"
    if reading.supposed is not None:
        return reading.supposed, ""
    by_name = direction_of_name(reading.metric)
    return by_name, f"{reading.metric}: {by_name} is better (read from its name)" if by_name else ""


def _asked_direction(reading: Reading) -> str:
    unit = f" (unit {reading.unit!r})" if reading.unit else ""
    return (  # the metric of many formats is called `value`: the name of the benchmark does as well
        f"which way is {reading.metric!r}{unit} better? state it with --direction '{reading.metric}=lower' or =higher"
    )


# --- results: no two are one -----------------------------------------------------------------------------------------


def _results(
    kind: Format,
    members: Sequence[tuple[Reading, Direction]],
    context: Context,
    problems: list[Problem],
    notes: list[str],
) -> list[_Result]:
    results: dict[tuple[str, str], _Result] = {}
    for reading, direction in members:
        benchmark, variant = _identity(reading, context)
        empty: dict[str, Any] = {
            "benchmark": benchmark,
            "variant": variant,
            "status": "ok",
            "error": None,
            "measurements": [],
        }
        result = results.setdefault((benchmark, variant_key(variant)), _Result(empty, reading.where))
        _add(kind, result, reading, direction, problems, notes)
    return list(results.values())


def _identity(reading: Reading, context: Context) -> tuple[str, dict[str, Any]]:
    """Benchmark and variant. A name that cannot be written as it is stands whole in the variant."""
    benchmark, whole = plain_name_of(reading.benchmark)
    variant = {within(str(key).strip() or "parameter", MOST_PARAMETER_NAME): _kept(value)
               for key, value in {**reading.variant, **context.variant}.items()}  # fmt: skip
    if not whole:
        variant["name"] = within(reading.benchmark.strip(), MOST_TEXT)
    if len(variant) > MOST_PARAMETERS:
        first = dict(sorted(variant.items())[: MOST_PARAMETERS - 1])
        rest = {key: value for key, value in variant.items() if key not in first}
        variant = {**first, "further": within(json.dumps(rest, sort_keys=True, default=str), MOST_TEXT)}
    return benchmark, variant


def _kept(value: Any) -> Any:
    """A parameter as it can be stored; text without the NUL that no database keeps."""
    return within(value.replace("\x00", "\N{REPLACEMENT CHARACTER}"), MOST_TEXT) if isinstance(value, str) else value


def _add(
    kind: Format, result: _Result, reading: Reading, direction: Direction, problems: list[Problem], notes: list[str]
) -> None:
    """One reading more of a result. The same metric again is another process of it, or a duplicate: as the format
    has it."""
    name = name_of(reading.metric, "value")
    again = name in result.seen
    first = result.seen.setdefault(name, reading.where)
    document = result.document
    if reading.failed is not None:
        result.records += 1
        if not document["measurements"]:
            document.update(status="failed", error=reading.failed)
        return
    if again and kind.repeats is None:
        problems.append(Problem(reading.where, _doubled(document, reading, first, name)))
        return
    result.records += 1
    document.update(status="ok", error=None)
    processes = list(reading.values) or [statistics.median(reading.samples)]
    samples = [list(reading.samples)] if reading.samples and len(processes) == 1 else []
    same = next((entry for entry in document["measurements"] if entry["metric"] == name), None)
    if same is None:
        document["measurements"].append(
            {
                "metric": name,
                "unit": within(reading.unit, MOST_UNIT),
                "direction": str(direction),
                "role": str(reading.role),
                "value": statistics.median(processes),
                "processes": processes,
                "samples": samples,
                "exact": reading.exact,
            }
        )
        return
    if kind.repeats is not None and not any(note.startswith(kind.repeats) for note in notes):
        notes.append(f"{kind.repeats}, such as {first} and {reading.where}")
    same["processes"] += processes
    same["samples"] = same["samples"] + samples if same["samples"] and samples else []
    same["value"] = statistics.median(same["processes"])


def _doubled(document: Mapping[str, Any], reading: Reading, first: str, name: str) -> str:
    known = next((entry["value"] for entry in document["measurements"] if entry["metric"] == name), None)
    value = statistics.median(reading.values or reading.samples)
    if value == known:
        return f"says {name} of {document['benchmark']!r} again, as {first!r} did: {value:g}"
    of = ", ".join(f"{key}={text}" for key, text in list(document["variant"].items())[:4])
    before = "failed" if known is None else format(known, "g")
    return (
        f"{name} of {document['benchmark']!r}{f' ({of})' if of else ''} is {value:g} here and {before} at {first!r}: "
        "nothing in the file distinguishes the two"
    )


# --- the run ---------------------------------------------------------------------------------------------------------


def _run(
    format_name: str,
    home: _Home,
    members: Sequence[tuple[Reading, Direction]],
    results: Sequence[_Result],
    context: Context,
    problems: list[Problem],
) -> tuple[Run, tuple[int, ...]] | None:
    """The run, and how many records each of its results holds. What the contract refuses is left out and reported."""
    standing = list(results)
    while standing:
        document = _document(format_name, home, members, [result.document for result in standing], context)
        try:
            return parse_run(document), tuple(result.records for result in standing)
        except Invalid as error:
            wrong = {int(index) for index in re.findall(r"results\[(\d+)\]", str(error))}
            if not wrong:
                problems += [Problem(result.where, str(error)) for result in standing for _ in range(result.records)]
                return None
            for index in sorted(wrong):
                reasons = "; ".join(str(p) for p in error.problems if f"results[{index}]" in str(p)) or str(error)
                problems += [Problem(standing[index].where, reasons)] * standing[index].records
            standing = [result for index, result in enumerate(standing) if index not in wrong]
    return None


def _document(
    format_name: str,
    home: _Home,
    members: Sequence[tuple[Reading, Direction]],
    results: list[dict[str, Any]],
    context: Context,
) -> dict[str, Any]:
    readings = [reading for reading, _ in members]
    starts = [at for reading in readings if (at := reading.at or context.at)]
    document: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "project": context.project,
        "commit": home.commit,
        "parents": list(context.parents),
        "branch": context.branch if context.stated_wins else context.branch or readings[0].branch,
        "suite": home.suite,
        "suite_version": "1",
        "testbed": home.testbed,
        "worker": home.worker,
        "started_at": min(starts, default=None),
        "finished_at": max((reading.finished_at for reading in readings if reading.finished_at), default=None),
        "status": "ok",
        "environment": {key: value for reading in readings for key, value in reading.environment.items()},
        "imported_from": format_name,
        "results": results,
    }
    if context.pull_request is not None:
        document["pull_request"] = context.pull_request
    content = json.dumps(document, sort_keys=True, default=str).encode()
    about = next((reading.about for reading in readings if reading.about is not None), None)
    if about is not None and not context.stated_wins:
        document["commit_info"] = _said_of(about)  # no part of what was measured, hence not of the id
    return {**document, "id": content_id(content)}


def _said_of(about: Commit) -> dict[str, str]:
    said = {
        "at": about.at,
        "author": about.author and within(about.author.replace("\x00", ""), 200),
        "message": about.message and within(about.message.replace("\x00", ""), MOST_TEXT),
    }
    return {key: value for key, value in said.items() if value}
