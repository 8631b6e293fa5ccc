"""The types that importers share: a file, the readings in it, and what the caller states beside it.

A reader turns one file into `Reading`s, one per measurement, and `Problem`s, one per record it could not take. What a
format does not say (commit, testbed, direction …) comes from the `Context`; what neither says is a problem that names
the option.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.contract import Direction, Role, Run
from backend.importers.file import ResultFile, Unreadable
from backend.importers.values import number

__all__ = ["Commit", "Context", "Draft", "Format", "Imported", "Metric", "Problem", "Reading", "Unreadable"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A record that could not be used: its place (line, path) and the reason."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.where else self.reason


_PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\([^)]*\)|(?<![\w.])-?\d[\w.+-]*|\S*\[\d+\]\S*")


def plain_reason(reason: str) -> str:
    """A reason without what is particular to one record, such as quoted values, numbers and places."""
    return _PARTICULAR.sub("…", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipReason:
    """Why records were left out: how many for this reason, and the first of them."""

    reason: str
    count: int
    first: str


def reasons(problems: Sequence[Problem]) -> tuple[SkipReason, ...]:
    """The problems by their reason, the most frequent first: quotes and counts make no reason."""
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(plain_reason(problem.reason), []).append(problem)
    ordered = sorted(kinds.items(), key=lambda item: -len(item[1]))
    return tuple(SkipReason(reason=reason, count=len(found), first=str(found[0])) for reason, found in ordered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Values from the caller for what a file leaves out. The file's own win, except where it is `stated` here:
    project, testbed, suite, variant.

    With `stated_wins` commit and branch are stated too: what a stranger's file says of them is not believed.
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
    variant: Mapping[str, str] = field(default_factory=dict)  # parameters that every result of the call gets
    directions: Mapping[str, str] = field(default_factory=dict)  # shell pattern of a metric -> lower | higher
    columns: Mapping[str, str] = field(default_factory=dict)  # CSV: what each column is
    # asv: what its benchmarks.json, beside the results, says of each benchmark
    benchmarks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Metadata of a commit in a file, besides its id."""

    at: str | None = None  # RFC 3339
    author: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One measurement as a foreign file states it. `values` are per process where the format knows processes."""

    where: str
    benchmark: str
    metric: str
    unit: str
    values: tuple[float, ...] = ()
    samples: tuple[float, ...] = ()  # repetitions within one process
    direction: Direction | None = None  # what the file, or the format's definition of this metric, says
    supposed: Direction | None = None  # what its tool usually measures: counts where the unit says nothing
    role: Role = Role.GATE
    exact: bool = False
    variant: Mapping[str, Any] = field(default_factory=dict)
    suite: str | None = None
    testbed: str | None = None
    worker: str | None = None
    commit: str | None = None
    about: Commit | None = None
    turn: str | None = None  # which measuring of the commit, where a file holds several: each is a run of its own
    branch: str | None = None
    at: str | None = None
    finished_at: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    failed: str | None = None  # why there is no value; the result is then a failed one


@dataclass(frozen=True, slots=True)
class Imported:
    """The content of a file: runs that may be stored, the records left out, and what was assumed, in sentences.

    Every record read is in `records` of one run or is one of the `problems`.
    """

    format: str
    runs: tuple[Run, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    records: Mapping[str, tuple[int, ...]]
    """Of each run by its id: how many records of the file went into each of its results."""
    rewritten: bool = False
    """Of a run of ours: it says something else than the file, because the file was not believed."""

    @property
    def measurements(self) -> int:
        return sum(len(result.measurements) for run in self.runs for result in run.results)

    @property
    def read(self) -> int:
        """How many records were read, those that were left out included."""
        return len(self.problems) + sum(map(sum, self.records.values()))


@dataclass(slots=True)
class Draft:
    """Readings and problems collected while a file is read."""

    readings: list[Reading] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def refuse(self, where: str, reason: str) -> None:
        self.problems.append(Problem(where, reason))

    def number_at(self, where: str, value: object) -> float | None:
        """The finite number at this place; anything else is refused."""
        found = number(value)
        if found is None:
            self.refuse(where, f"{value!r} is no finite number")
        return found

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


@dataclass(frozen=True, slots=True)
class Metric:
    """How a number that a format names is stored: its metric, unit, direction and role."""

    name: str
    unit: str
    direction: Direction | None = None
    role: Role = Role.GATE
    scale: float = 1.0  # what the file's number is multiplied by to be in `unit`

    def reading(self, values: tuple[float, ...], *, samples: tuple[float, ...] = (), **placed: Any) -> Reading:
        return Reading(
            metric=self.name,
            unit=self.unit,
            direction=self.direction,
            role=self.role,
            values=tuple(value * self.scale for value in values),
            samples=tuple(value * self.scale for value in samples),
            **placed,
        )

    def failed(self, why: str, **placed: Any) -> Reading:
        """That there is no value, and why."""
        return Reading(metric=self.name, unit=self.unit, direction=self.direction, role=self.role, failed=why, **placed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A foreign format, one row of the table of formats: what it is, how it is recognized, how it is read.

    `identity` says in a sentence what makes two of its records points of one series. `repeats`: what it means if a
    file has two records of one series: further processes of it, or (None) a duplicate that is left out.
    """

    name: str
    title: str
    detect: Callable[[ResultFile], bool]
    read: Callable[[ResultFile, Context], Draft]
    identity: str
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    repeats: str | None = None
    suffixes: tuple[str, ...] = (".json",)
