"""What every importer speaks: readings out of a foreign file, and runs put together from them.

An importer reads one file into `Reading`s, one per measurement, and `Problem`s, one per record it could not take. What
a format does not say (commit, testbed, direction…) comes from the `Context` the caller states; what neither says is a
problem that names the option. `assemble` groups readings into `tidemark.run/1` documents whose ids follow from their
content, so that importing a file twice stores nothing twice.
"""

import hashlib
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatch
from typing import Any

from backend.contract import SCHEMA_VERSION, Direction, Invalid, Role, Run, parse_run

# Words in a metric's name that say which way it is better; the higher ones are asked first ("tokens per second").
HIGHER_WORDS = frozenset(
    "throughput tps qps rps ops bandwidth busbw algbw bw flops tflops gflops mfu hfu speedup accuracy utilization "
    "utilisation goodput rate".split()
)
HIGHER_PHRASES = ("per_s", "per-s", "per s", "/s", "iter/sec")
LOWER_WORDS = frozenset(
    "latency time duration ms us ns s sec seconds ttft tpot itl e2el memory mem bytes size loss error errors breaks "
    "compile overhead".split()
)
LOWER_UNITS = frozenset(
    "ns us µs ms s sec secs second seconds min h b kb mb gb kib mib gib byte bytes j joules w ns/iter us/iter ms/iter "
    "ns/op us/op ms/op s/op b/op allocs/op".split()
)


class Unreadable(ValueError):
    """The file as a whole is not of this format; the message says what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A record that could not be taken: where it stands (line, path) and why."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.where else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the caller states for what the file does not say. A file's own word wins, except for the project.

    With `stated_wins` it does not: what a stranger's file says of commit and branch is not believed.
    """

    project: str
    testbed: str | None = None
    suite: str | None = None
    commit: str | None = None
    parents: tuple[str, ...] = ()
    branch: str | None = None
    pull_request: int | None = None
    worker: str | None = None
    at: str | None = None  # RFC 3339
    stated_wins: bool = False
    directions: Mapping[str, str] = field(default_factory=dict)  # shell pattern of a metric -> lower | higher
    columns: Mapping[str, str] = field(default_factory=dict)  # CSV: what each column is
    # asv: what its benchmarks.json, beside the results, says of each benchmark
    benchmarks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One measurement as a foreign file states it. `values` are per process where the format knows processes."""

    where: str
    benchmark: str
    metric: str
    unit: str
    values: tuple[float, ...] = ()
    samples: tuple[float, ...] = ()  # repetitions within one process
    direction: Direction | None = None
    role: Role = Role.GATE
    exact: bool = False
    variant: Mapping[str, Any] = field(default_factory=dict)
    suite: str | None = None
    testbed: str | None = None
    worker: str | None = None
    commit: str | None = None
    branch: str | None = None
    at: str | None = None
    finished_at: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    failed: str | None = None  # why there is no value; the result is then a failed one


@dataclass(frozen=True, slots=True)
class Imported:
    """What a file holds: runs that may be stored, the records left out, and what was assumed, in sentences."""

    format: str
    runs: tuple[Run, ...]
    measurements: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    rewritten: bool = False
    """Of a run of ours: it says something else than the file, because the file was not believed."""


@dataclass(slots=True)
class Draft:
    """What a reader fills while it goes through a file."""

    readings: list[Reading] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def refuse(self, where: str, reason: str) -> None:
        self.problems.append(Problem(where, reason))

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


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


def decode(data: bytes, what: str) -> Any:
    """JSON from `data`; raises `Unreadable` naming line and column."""
    try:
        return json.loads(data)
    except UnicodeDecodeError as error:
        raise Unreadable(f"{what}: not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise Unreadable(f"{what}: nested too deeply") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"{what}: no JSON at line {error.lineno} column {error.colno}: {error.msg}") from None
    except ValueError as error:
        raise Unreadable(f"{what}: {error}") from None


def mapping(value: object) -> Mapping[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str | None:
    """`value` if it is text with something in it, else None."""
    return value if isinstance(value, str) and value else None


def sha_of(value: object) -> str | None:
    """`value` if it is a full commit id, in lower case, else None."""
    return value.lower() if isinstance(value, str) and re.fullmatch(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}", value) else None


def moment_of(value: object) -> str | None:
    """RFC 3339 of an ISO text or of milliseconds since 1970; a time without a zone is taken as UTC."""
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None
    return None


def guess_direction(metric: str, unit: str) -> Direction | None:
    """Which way a metric is better, from its unit or its name; None where neither says."""
    plain = unit.strip().lower()
    if plain.endswith(("/s", "/sec", "/second", "per second", "ps")) and plain != "ps":
        return Direction.HIGHER
    if plain in LOWER_UNITS:
        return Direction.LOWER
    name = metric.lower()
    words = set(re.split(r"[^a-z0-9]+", name))
    if words & HIGHER_WORDS or any(phrase in name for phrase in HIGHER_PHRASES):
        return Direction.HIGHER
    return Direction.LOWER if words & LOWER_WORDS else None


def name_of(text: str, fallback: str = "benchmark") -> str:
    """A foreign name as a name of ours: what the contract does not allow becomes `_`; case and order are kept."""
    allowed = "".join(char if char.isascii() and (char.isalnum() or char in "._+:/-") else "_" for char in text.strip())
    allowed = allowed.lstrip(".+:/-")[:200]
    return allowed or fallback


def assemble(format_name: str, draft: Draft, context: Context) -> Imported:
    """Runs from readings: one run per suite, commit, testbed and worker; refused readings become problems."""
    problems, notes = list(draft.problems), list(draft.notes)
    groups: dict[tuple[str, str, str, str | None], list[tuple[Reading, Direction]]] = defaultdict(list)
    for reading in draft.readings:
        placed = _place(reading, context, problems, notes, format_name)
        if placed is not None:
            groups[placed[0]].append((reading, placed[1]))
    runs: list[Run] = []
    taken = 0
    for (suite, commit, testbed, worker), members in groups.items():
        document = _document(format_name, suite, commit, testbed, worker, members, context)
        run = _parsed(document, members[0][0].where, problems)
        if run is not None:
            runs.append(run)
            taken += sum(len(result.measurements) for result in run.results)
    runs.sort(key=lambda run: (run.started_at or "", run.id))
    return Imported(format_name, tuple(runs), taken, tuple(problems), tuple(notes))


def _place(
    reading: Reading, context: Context, problems: list[Problem], notes: list[str], format_name: str
) -> tuple[tuple[str, str, str, str | None], Direction] | None:
    """Where a reading belongs and which way it is better, or None after saying what is missing."""
    stated, said = context.commit, reading.commit
    commit = ((stated or said if context.stated_wins else said or stated) or "").lower()
    if context.stated_wins and not stated:
        problems.append(Problem(reading.where, "the file's own commit is not to be believed, and none is stated"))
        return None
    if not commit:
        problems.append(Problem(reading.where, "the file names no commit; state it with --commit"))
        return None
    testbed = context.testbed or reading.testbed
    if not testbed:
        problems.append(Problem(reading.where, "the file names no machine class; state it with --testbed"))
        return None
    if min((*reading.values, *reading.samples), default=0.0) < 0 and reading.role is not Role.DERIVED:
        problems.append(Problem(reading.where, f"{reading.metric} is negative; a cost cannot be"))
        return None
    way_stated = next((way for pattern, way in context.directions.items() if fnmatch(reading.metric, pattern)), None)
    direction = Direction(way_stated) if way_stated else reading.direction
    if direction is None:
        direction = guess_direction(reading.metric, reading.unit)
        if direction is None:
            problems.append(
                Problem(
                    reading.where,
                    f"which way is {reading.metric!r} better? state it with --direction '{reading.metric}=lower' "
                    "or =higher",
                )
            )
            return None
        sentence = f"{reading.metric}: {direction} is better (read from its name or unit)"
        if sentence not in notes:
            notes.append(sentence)
    suite = context.suite or reading.suite or format_name
    return (name_of(suite), commit, name_of(testbed), context.worker or reading.worker), direction


def _parsed(document: dict[str, Any], where: str, problems: list[Problem]) -> Run | None:
    """The run of a document. Results that the contract refuses are left out and reported; the others stay."""
    while True:
        try:
            return parse_run(document)
        except Invalid as error:
            wrong = {int(index) for index in re.findall(r"results\[(\d+)\]", str(error))}
            if not wrong or len(wrong) == len(document["results"]):
                problems.append(Problem(where, str(error)))
                return None
            for refused in error.problems:
                problems.append(Problem(where, str(refused)))
            document = {
                **document, "results": [entry for index, entry in enumerate(document["results"]) if index not in wrong]
            }  # fmt: skip


def _document(
    format_name: str,
    suite: str,
    commit: str,
    testbed: str,
    worker: str | None,
    members: Sequence[tuple[Reading, Direction]],
    context: Context,
) -> dict[str, Any]:
    first = members[0][0]
    starts = [reading.at or context.at for reading, _ in members]
    document: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "project": context.project,
        "commit": commit,
        "parents": list(context.parents),
        "branch": context.branch if context.stated_wins else context.branch or first.branch,
        "suite": suite,
        "suite_version": "1",
        "testbed": testbed,
        "worker": worker,
        "started_at": min((at for at in starts if at), default=None),
        "finished_at": max((reading.finished_at for reading, _ in members if reading.finished_at), default=None),
        "status": "ok",
        "environment": {key: value for reading, _ in members for key, value in reading.environment.items()},
        "imported_from": format_name,
        "results": _results(members),
    }
    if context.pull_request is not None:
        document["pull_request"] = context.pull_request
    content = json.dumps(document, sort_keys=True, default=str).encode()
    return {**document, "id": content_id(content)}


def content_id(content: bytes) -> str:
    """The id of a run that follows from its content, so that importing it twice stores nothing twice."""
    return "import-" + hashlib.sha256(content).hexdigest()[:32]


def _results(members: Iterable[tuple[Reading, Direction]]) -> list[dict[str, Any]]:
    results: dict[tuple[str, str], dict[str, Any]] = {}
    for reading, direction in members:
        variant = {name_of(str(key), "parameter"): value for key, value in reading.variant.items()}
        key = (name_of(reading.benchmark), json.dumps(variant, sort_keys=True, default=str))
        result = results.setdefault(
            key,
            {"benchmark": key[0], "variant": variant, "status": "ok", "error": None, "measurements": []},
        )
        if reading.failed is not None:
            if not result["measurements"]:
                result.update(status="failed", error=reading.failed)
            continue
        result.update(status="ok", error=None)
        _add(result["measurements"], reading, direction)
    return list(results.values())


def _add(measurements: list[dict[str, Any]], reading: Reading, direction: Direction) -> None:
    """Append a reading as a measurement; the same metric again is another process of it."""
    processes = list(reading.values) or [statistics.median(reading.samples)]
    samples = [list(reading.samples)] if reading.samples and len(processes) == 1 else []
    name = name_of(reading.metric, "value")
    same = next((entry for entry in measurements if entry["metric"] == name), None)
    if same is not None:
        same["processes"] += processes
        same["samples"] = same["samples"] + samples if same["samples"] and samples else []
        same["value"] = statistics.median(same["processes"])
        return
    measurements.append(
        {
            "metric": name,
            "unit": reading.unit,
            "direction": str(direction),
            "role": str(reading.role),
            "value": statistics.median(processes),
            "processes": processes,
            "samples": samples,
            "exact": reading.exact,
        }
    )
