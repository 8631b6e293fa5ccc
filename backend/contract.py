"""`tidemark.run/1`: the format of a run. Dataclasses <-> JSON, every refusal with its path, and the JSON Schema.

Standard library only, because workers and other people's machines import it. A run is one suite x commit x testbed, or
one arm of an interleaved session. Unknown fields are kept in `extra` and written back.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from statistics import median
from typing import Any, Final

from backend.contract_problems import ContractProblem, Invalid, Path, Problems, Unquoted
from backend.contract_rules import (
    BooleanField,
    Choice,
    FlatObject,
    Free,
    ListOf,
    Moment,
    Nullable,
    Number,
    Numbers,
    Object,
    Part,
    Scalar,
    Text,
    Whole,
    rule,
    written,
)
from backend.contract_weight import check_weight
from backend.metric import Direction, Role
from backend.records import record

__all__ = [
    "Arm",
    "CanaryReading",
    "Check",
    "CodeUnderTest",
    "CommitInfo",
    "ContractProblem",
    "Correctness",
    "CorrectnessState",
    "Direction",
    "Invalid",
    "Measurement",
    "Result",
    "ResultStatus",
    "Role",
    "Run",
    "RunStatus",
    "SeriesKey",
    "Session",
    "new_run_id",
    "parse_run",
    "schema",
    "to_json",
    "variant_key",
]

SCHEMA_VERSION: Final = "tidemark.run/1"
MAX_BODY_BYTES: Final = 50_000_000
MAX_RESULTS: Final = 10_000
MAX_MEASUREMENTS: Final = 1_000
MAX_PROCESSES: Final = 1_000
MAX_SAMPLES: Final = 100_000
LEAST_SIZE: Final = 1e-60
MOST_SIZE: Final = 1e60
ACCEPTED_SIZE: Final = f"0, or a number from {LEAST_SIZE:g} to {MOST_SIZE:g} in size"
# Writers round: a value may differ from the median of its processes by this share of it.
MEDIAN_TOLERANCE: Final = 1e-3
TIME_UNITS: Final = frozenset({"ns", "us", "µs", "ms", "s", "min", "h"})


class RunStatus(StrEnum):
    OK = "ok"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    QUARANTINED = "quarantined"


class ResultStatus(StrEnum):
    OK = "ok"
    FAILED = "failed"
    CHECK_FAILED = "check_failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    INCOMPLETE = "incomplete"
    NOT_APPLICABLE = "not_applicable"


class Arm(StrEnum):
    BASE = "base"
    HEAD = "head"


class CorrectnessState(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    SKIPPED = "skipped"


_COMMIT: Final = Text(
    "a full commit id: 40 (or 64) lower-case hexadecimal digits", 64, 40, r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z"
)
_RUN_ID: Final = Text(
    "a run id: a ULID, or letters, digits, '.', '_' and '-', beginning with a letter or digit",
    64,
    8,
    r"[0-9A-Za-z][0-9A-Za-z._-]*\Z",
)
_NAME: Final = Text(
    "a name of letters, digits and . _ - + : / , beginning with a letter, digit or '_'",
    200,
    1,
    r"[0-9A-Za-z_][0-9A-Za-z._+:/-]*\Z",
)
_SHORT_NAME: Final = Text(
    "a name of letters, digits and . _ - +, beginning with a letter or digit", 100, 1, r"[0-9A-Za-z][0-9A-Za-z._+-]*\Z"
)
_LINE: Final = Text("text", 200, 0)
_LONG_TEXT: Final = Text("text", 100_000, 0)


@record(kw_only=True)
class CodeUnderTest(Part):
    """How the suite reached the team's code."""

    kind: str = rule(Text("such as implementation, command or builtin", 50), "implementation, benchmark or build")
    entry: str | None = rule(Nullable(Text("what was called", 500)), default=None)


@record(kw_only=True)
class Session(Part):
    """The interleaved run of base and head on one worker to which this run belongs as an arm."""

    id: str = rule(Text("the session's name", 100))
    arm: Arm | None = rule(Nullable(Choice(Arm)), default=None)
    base: str | None = rule(Nullable(_COMMIT), "the commit of the base arm", default=None)
    order: str | None = rule(Nullable(Text("such as ABBA", 100)), default=None)


@record(kw_only=True)
class CommitInfo(Part):
    """A commit as described by an imported history, for a project without a connected repository."""

    at: str | None = rule(Nullable(Moment()), "when it was committed", default=None)
    author: str | None = rule(Nullable(_LINE), default=None)
    message: str | None = rule(Nullable(_LONG_TEXT), default=None)


@record(kw_only=True)
class CanaryReading(Part):
    """A fixed workload that no commit can change, measured before and after: did the machine change?"""

    name: str = rule(_NAME)
    before: float | None = rule(Nullable(Number()), default=None)
    after: float | None = rule(Nullable(Number()), default=None)
    own_noise: float | None = rule(
        Nullable(Number("a fraction of at least 0", 0.0)), "the reading's usual spread, as a fraction", default=None
    )


@record(kw_only=True)
class Check(Part):
    """One comparison with a reference: passed when the value is at most the limit."""

    name: str = rule(_NAME)
    value: float | None = rule(Nullable(Number()), default=None)
    limit: float | None = rule(Nullable(Number()), default=None)


@record(kw_only=True)
class Correctness(Part):
    """Whether what was timed computes the right thing."""

    state: CorrectnessState = rule(Choice(CorrectnessState))
    reference: str | None = rule(Nullable(_LINE), default=None)
    checks: tuple[Check, ...] = rule(ListOf(Object(Check), 1_000, "checks"), default=())


@record(kw_only=True)
class Measurement(Part):
    """One metric of a result."""

    metric: str = rule(_NAME)
    unit: str = rule(Text("a unit such as ms, B, 1/s or 1", 50, 0))
    direction: Direction = rule(Choice(Direction), "which way is better")
    role: Role = rule(Choice(Role), "gate: judged; watch: judged, never red; derived; phase: part of a step")
    value: float = rule(Number(), "the median of the processes")
    processes: tuple[float, ...] = rule(
        Numbers(MAX_PROCESSES), "medians of fresh processes: what judging compares", default=()
    )
    samples: tuple[tuple[float, ...], ...] = rule(
        ListOf(Numbers(MAX_SAMPLES), MAX_PROCESSES, "lists of samples, one list per process"),
        "timed repetitions, one list per process, in the order of the processes",
        default=(),
    )
    samples_taken: tuple[float, ...] = rule(
        Numbers(MAX_PROCESSES), "how many samples each process took, when its list was thinned", default=()
    )
    exact: bool = rule(BooleanField(), "a counter without noise", default=False)
    converged: bool | None = rule(Nullable(BooleanField()), default=None)
    formula: str | None = rule(Nullable(Text("how the value was derived", 500, 0)), default=None)

    def check(self, path: Path, problems: Problems) -> None:
        self._check_sizes(path, problems)
        self._check_signs(path, problems)
        self._check_median(path, problems)
        expected = len(self.processes) or 1
        if len(self.samples) > expected:
            problems.add(
                (path, "samples"),
                list(self.samples),
                f"at most one list per process: {expected}, as `processes` has {len(self.processes)} values",
            )
        if self.samples_taken and len(self.samples_taken) != len(self.samples):
            problems.add(
                (path, "samples_taken"), list(self.samples_taken), f"one count per list of samples: {len(self.samples)}"
            )

    def _check_sizes(self, path: Path, problems: Problems) -> None:
        """Ratios and squares of what is judged must be numbers too."""
        if self.value and not LEAST_SIZE <= abs(self.value) <= MOST_SIZE:
            problems.add((path, "value"), self.value, ACCEPTED_SIZE)
        for index, value in enumerate(self.processes):
            if value and not LEAST_SIZE <= abs(value) <= MOST_SIZE:
                problems.add(((path, "processes"), index), value, ACCEPTED_SIZE)

    def _check_signs(self, path: Path, problems: Problems) -> None:
        """Change is a ratio of costs, so what is judged cannot be negative; neither can a time, whatever its role."""
        if self.role is Role.DERIVED and self.unit not in TIME_UNITS:
            return
        if self.value >= 0 and not any(some and min(some) < 0 for some in (self.processes, *self.samples)):
            return
        accepted = "0 or more" + (f": a time in {self.unit}" if self.unit in TIME_UNITS else f" for role {self.role}")
        if self.value < 0:
            problems.add((path, "value"), self.value, accepted)
        if self.processes and min(self.processes) < 0:
            index = next(index for index, value in enumerate(self.processes) if value < 0)
            problems.add(((path, "processes"), index), self.processes[index], accepted)
        for number, samples in enumerate(self.samples):
            if samples and min(samples) < 0:
                index = next(index for index, value in enumerate(samples) if value < 0)
                problems.add((((path, "samples"), number), index), samples[index], accepted)

    def _check_median(self, path: Path, problems: Problems) -> None:
        if not self.processes:
            return
        middle = median(self.processes)
        if abs(self.value - middle) > MEDIAN_TOLERANCE * max(abs(middle), abs(self.value)):
            problems.add(
                (path, "value"), self.value, f"the median of `processes`, {middle:g}, to within {MEDIAN_TOLERANCE:.1%}"
            )


@record(kw_only=True)
class Result(Part):
    """One variant of a benchmark in a run, with a status."""

    benchmark: str = rule(_NAME)
    variant: Mapping[str, Any] = rule(FlatObject(Scalar(), 50, "parameters"), default_factory=dict)
    preset: str = rule(_SHORT_NAME, "the size it ran at: full, cpu, smoke …", default="full")
    mode: str | None = rule(Nullable(_LINE), default=None)
    backend: str | None = rule(Nullable(_LINE), default=None)
    world_size: int = rule(Whole(1, 1_000_000), default=1)
    status: ResultStatus = rule(Choice(ResultStatus))
    error: str | None = rule(Nullable(_LONG_TEXT), default=None)
    correctness: Correctness | None = rule(Nullable(Object(Correctness)), default=None)
    measurements: tuple[Measurement, ...] = rule(
        ListOf(Object(Measurement), MAX_MEASUREMENTS, "measurements"), default=()
    )
    roofline: Mapping[str, Any] | None = rule(Nullable(Free()), default=None)
    diagnosis: Mapping[str, Any] | None = rule(Nullable(Free()), default=None)
    artifacts: Mapping[str, str] = rule(
        FlatObject(Text("an artifact's file name", 300), 100, "artifacts"), default_factory=dict
    )

    def check(self, path: Path, problems: Problems) -> None:
        metrics = [measurement.metric for measurement in self.measurements]
        if len(set(metrics)) == len(metrics):
            return
        for index, metric in enumerate(metrics):
            first = metrics.index(metric)
            if first < index:
                problems.add(
                    (((path, "measurements"), index), "metric"),
                    metric,
                    f"a metric that this result does not have yet; measurements[{first}] has it",
                )


@record(kw_only=True)
class Run(Part):
    """One suite x commit x testbed, or one arm of an interleaved session."""

    schema: str = rule(Text(f'"{SCHEMA_VERSION}"', 14, 14, r"tidemark\.run/1\Z"))
    id: str = rule(_RUN_ID)
    project: str = rule(Text("owner/name", 200, 1, r"[0-9A-Za-z_][0-9A-Za-z._-]*(?:/[0-9A-Za-z_][0-9A-Za-z._-]*)*\Z"))
    commit: str = rule(_COMMIT)
    parents: tuple[str, ...] = rule(ListOf(_COMMIT, 64, "commit ids"), default=())
    commit_info: CommitInfo | None = rule(Nullable(Object(CommitInfo)), default=None)
    branch: str | None = rule(Nullable(Text("a branch name", 255)), default=None)
    pull_request: int | None = rule(Nullable(Whole(1, 2**31 - 1)), default=None)
    suite: str = rule(_SHORT_NAME)
    suite_version: str = rule(Text("a version", 50), default="1")
    testbed: str = rule(_SHORT_NAME, "the hardware class")
    worker: str | None = rule(Nullable(Text("the worker's name", 100)), default=None)
    attempt: int = rule(Whole(1, 1_000), default=1)
    started_at: str | None = rule(Nullable(Moment()), default=None)
    finished_at: str | None = rule(Nullable(Moment()), default=None)
    status: RunStatus = rule(Choice(RunStatus))
    error: str | None = rule(Nullable(_LONG_TEXT), "why a run failed, in a sentence", default=None)
    log_tail: str | None = rule(
        Nullable(Text("the end of the log", 1_000_000, 0)), "the last lines a failed run wrote", default=None
    )
    code_under_test: CodeUnderTest | None = rule(Nullable(Object(CodeUnderTest)), default=None)
    session: Session | None = rule(Nullable(Object(Session)), default=None)
    environment: Mapping[str, Any] = rule(
        Free(), "what the run ran on; `hash` is its fingerprint", default_factory=dict
    )
    telemetry: Mapping[str, Any] = rule(Free(), default_factory=dict)
    ceilings: Mapping[str, float | None] = rule(
        FlatObject(Nullable(Number()), 200, "measured limits"),
        "hardware limits measured in this run",
        default_factory=dict,
    )
    canary: tuple[CanaryReading, ...] = rule(ListOf(Object(CanaryReading), 100, "canary readings"), default=())
    results: tuple[Result, ...] = rule(ListOf(Object(Result), MAX_RESULTS, "results"))

    @property
    def started(self) -> datetime | None:
        return None if self.started_at is None else datetime.fromisoformat(self.started_at)

    @property
    def finished(self) -> datetime | None:
        return None if self.finished_at is None else datetime.fromisoformat(self.finished_at)

    def check(self, path: Path, problems: Problems) -> None:
        if self.started and self.finished and self.finished < self.started:
            problems.add((path, "finished_at"), self.finished_at, f"a time not before started_at, {self.started_at}")
        first_at: dict[tuple[str, str, str], int] = {}
        for index, result in enumerate(self.results):
            first = first_at.setdefault((result.benchmark, variant_key(result.variant), result.preset), index)
            if first != index:
                problems.add(
                    (((path, "results"), index), "variant"),
                    variant_key(result.variant) or "{}",
                    f"a variant of {result.benchmark} that this run does not have yet; results[{first}] has it "
                    "(put what distinguishes them into `variant`)",
                )


@dataclass(frozen=True, slots=True, order=True)
class SeriesKey:
    """The key of a series: measurements with equal keys are its points. Branch, worker and environment are not part."""

    project: str
    suite: str
    testbed: str
    benchmark: str
    variant: str
    metric: str
    preset: str
    suite_version: str


_RUN: Final = Object(Run)


def parse_run(body: bytes | str | Mapping[str, Any]) -> Run:
    """The run in a body; raises `Invalid` with every problem found, and nothing else."""
    document = body if isinstance(body, Mapping) else _decoded(body)
    problems = Problems()
    version = document.get("schema") if isinstance(document, dict) else None
    if isinstance(version, str) and version != SCHEMA_VERSION:
        # Another version's other fields would only bury this one problem.
        raise Invalid.one("schema", version, f'"{SCHEMA_VERSION}"')
    run = _RUN.read(document, None, problems)
    problems.raise_if_any()
    assert isinstance(run, Run)
    return run


def _decoded(body: bytes | str) -> Any:
    if len(body) > MAX_BODY_BYTES:
        raise Invalid.one("run", Unquoted(f"{len(body)} bytes"), f"at most {MAX_BODY_BYTES} bytes of JSON")
    check_weight(body)
    try:
        return json.loads(body if isinstance(body, str) else body.decode())
    except RecursionError:
        raise Invalid.one("run", Unquoted("deeply nested JSON"), "JSON without excessive nesting") from None
    except UnicodeDecodeError as error:
        what = Unquoted(f"bytes that are not UTF-8 at offset {error.start}")
        raise Invalid.one("run", what, "JSON in UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        near = error.doc[error.pos : error.pos + 40] or Unquoted("cut short")
        raise Invalid.one("run", near, f"JSON ({error.msg}, {where})") from None
    except ValueError as error:
        raise Invalid.one("run", Unquoted(f"unreadable: {error}"), "JSON") from None


def to_json(run: Run) -> dict[str, Any]:
    """The run as a JSON document: every stated field, and every field that differs from its default."""
    return written(run)


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a run, generated from the same rules that parse one."""
    definitions: dict[str, Any] = {}
    _RUN.schema(definitions)
    root = definitions.pop("Run")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://tidemark.dev/schema/run-1.json",
        **root,
        "title": SCHEMA_VERSION,
        "$defs": definitions,
    }


_ESCAPED: Final = re.compile(r"[%,=\x00-\x1f\x7f]")
# What an index takes: a longer text, or a longer key, stands as its beginning with a digest of all of it.
MOST_TEXT_IN_KEY: Final = 200
MOST_KEY_BYTES: Final = 1_200
DIGEST: Final = 12


def variant_key(variant: Mapping[str, Any]) -> str:
    """A variant as one canonical text, such as `dtype=bf16,experts=64`: sorted, and escaped like a URL."""
    key = ",".join(f"{_escaped(name)}={_escaped(_scalar_text(value))}" for name, value in sorted(variant.items()))
    if len(key) <= MOST_TEXT_IN_KEY:
        return key
    key = ",".join(
        f"{_escaped(name)}={_escaped(_shortened(_scalar_text(value)))}" for name, value in sorted(variant.items())
    )
    if len(key.encode()) <= MOST_KEY_BYTES:
        return key
    return key.encode()[: MOST_KEY_BYTES - DIGEST - 1].decode(errors="ignore") + "~" + _digest(key)


def _shortened(text: str) -> str:
    if len(text) <= MOST_TEXT_IN_KEY:
        return text
    return f"{text[: MOST_TEXT_IN_KEY - DIGEST - 1]}~{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST]


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", text)


def _scalar_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        # 64 and 64.0 are the same number in JSON, so they are the same variant.
        return str(int(value))
    return str(value)


_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_run_id() -> str:
    """A ULID: 48 bits of time in ms and 80 random bits, in 26 characters that sort by time."""
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))
