"""A foreign result file arrives: parse it, see what is new, record each run as usual, and report each outcome.

A run that cannot be stored does not prevent the others; neither does a record within the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection

from backend.contract import Invalid, Measurement, Run, to_json, variant_key
from backend.importers import (
    CONTENT_ID,
    FORMATS,
    RUN_FORMAT,
    Context,
    Imported,
    Problem,
    SkipReason,
    Unreadable,
    delivered_bytes,
    read_file,
    reasons,
)
from backend.regression.terms import Verdict
from backend.services.base.errors import InvalidContent, NotFound, ServiceError
from backend.services.base.principal import Principal
from backend.services.ingest import placing
from backend.services.ingest.answer import Recorded
from backend.services.ingest.claims import check_claims, check_project
from backend.services.ingest.record import record_run, warning_of_commit, warning_of_project
from backend.services.judging.outcome import SeriesVerdict
from backend.services.judging.together import RecordedTogether
from backend.store.base import commits as commit_store
from backend.store.base import live as live_store
from backend.store.base import projects as project_store
from backend.store.github import pull_requests as pull_request_store
from backend.store.ingest import imports as store
from backend.store.ingest import record as ingest_store

AUTO = "auto"
RUN = "run"  # tidemark.run/1 itself
MAX_RUNS = 2_000
MAX_PROBLEMS = 10_000
# What is stored in one savepoint and one transaction.
MOST_RUNS_AT_ONCE = 50
MOST_RESULTS_AT_ONCE = 500
REPORTED = frozenset({Verdict.REGRESSION, Verdict.SUSPECT, Verdict.IMPROVEMENT})


class ImportOutcome(StrEnum):
    """Outcome of importing one run. `new`: a dry run would store it."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    NEW = "new"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """One run of the file. `summary` counts its verdicts by kind; `changed` are those that are not `unchanged`."""

    run_id: str
    project: str
    commit: str
    suite: str
    testbed: str
    started_at: str | None
    results: int
    measurements: int
    outcome: ImportOutcome
    error: str | None = None
    summary: Mapping[str, int]
    warnings: tuple[str, ...] = ()
    changed: tuple[SeriesVerdict, ...] = ()
    regressions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Counts of the records of a file: every one that was read is in one of the other three."""

    read: int
    stored: int
    duplicate: int
    left_out: int
    reasons: tuple[SkipReason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportAnswer:
    """Content of an imported file and its outcome. `counts`: runs by outcome, measurements, problems."""

    format: str
    file: str
    dry_run: bool
    counts: Mapping[str, int]
    records: Records
    runs: tuple[ImportedRun, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """A result file of another tool. `context`: what its sender says about it; `format_name`: a format, or `auto`."""

    name: str
    data: bytes
    context: Context
    format_name: str = AUTO


Between = Callable[[Connection], None]
"""Called between two pieces of an import."""


def go_on(_: Connection) -> None:
    """Nothing: all pieces are of one transaction."""


def import_file(
    c: Connection,
    file: ForeignFile,
    *,
    dry_run: bool,
    principal: Principal,
    now: datetime,
    between: Between = go_on,
) -> ImportAnswer:
    """Store what a file contains and is not stored yet. With `dry_run` everything is done and rolled back: the answer
    is what an import would have returned.

    `between` is called after each batch and may commit: what is stored by then stays, whatever happens to the
    rest, and the same import continues there when repeated.
    """
    check_project(c, file.context.project, principal)
    if not dry_run:
        done = _read_import(c, file, principal, now).record_all(between)
        live_store.notify_work(c)
        return done.answer(file.name, dry_run=False)
    with c.begin_nested() as savepoint:
        done = _read_import(c, file, principal, now).record_all(go_on)
        savepoint.rollback()
    return done.answer(file.name, dry_run=True)


def _read_import(c: Connection, file: ForeignFile, principal: Principal, now: datetime) -> _Import:
    imported = _read(file, _placed(c, file.context))
    for project in {run.project for run in imported.runs}:
        check_project(c, project, principal)
    return _Import(c, imported, file.data, principal, now)


class _Import:
    """The runs of a file on their way in."""

    def __init__(self, c: Connection, imported: Imported, data: bytes, principal: Principal, now: datetime) -> None:
        self.c, self.imported, self.data, self.principal, self.now = c, imported, data, principal, now
        self.runs: list[ImportedRun] = []
        self.problems = list(imported.problems)
        self.stored = self.duplicate = 0
        projects = {run.project for run in imported.runs}
        self.new_projects = {project for project in projects if project_store.find(c, project) is None}

    def record_all(self, between: Between) -> _Import:
        known = store.stored_runs(self.c, [run.id for run in self.imported.runs])
        waiting = store.waiting_runs(self.c, known)
        new = []
        for run in placing.in_order(self.c, self.imported.runs, self.now):
            if run.id in known and run.id.startswith(CONTENT_ID):
                self._knew(run, known[run.id], waiting.get(run.id))
            else:
                new.append(run)
        for piece in _pieces(new):
            self.record(piece)
            between(self.c)
        return self

    def record(self, runs: Sequence[Run]) -> None:
        """Runs in one savepoint; where one of them is refused, each in its own: what is refused leaves no trace and
        does not end the transaction."""
        try:
            with self.c.begin_nested():
                together = RecordedTogether()
                done = [self._recorded(run, run, together) for run in runs]
                together.write(self.c)
        except (Invalid, ServiceError):
            for run in runs:
                self.record_alone(run)
            return
        for run, recorded in zip(runs, done, strict=True):
            self._took(run, recorded, [])

    def record_alone(self, run: Run) -> None:
        """Record a run without the measurements that do not fit their series."""
        left: list[Problem] = []
        try:
            try:
                with self.c.begin_nested():
                    recorded = self._recorded(run, run)
            except Invalid:
                fitting, left = self._fitting(run)
                if not left or not fitting.results:
                    raise
                with self.c.begin_nested():
                    recorded = self._recorded(run, fitting)
        except (Invalid, ServiceError) as error:
            self.problems += [Problem(_name(run), str(error))] * self._records(run)
            self.runs.append(_imported(run, ImportOutcome.REFUSED, error=str(error)))
            return
        self._took(run, recorded, left)

    def _knew(self, run: Run, measurements: int, awaited: str | None) -> None:
        """A run that is there already, with so many measurements: what did not fit its series then does not now.
        `awaited`: the branch that is to have its commit, if it waits for that."""
        whole = measurements >= sum(len(result.measurements) for result in run.results)
        left = [] if whole else self._fitting(run)[1]
        self.duplicate += self._records(run) - len(left)
        self.problems += left
        warnings = () if awaited is None else (warning_of_commit(run.commit, awaited),)
        self.runs.append(replace(_imported(run, ImportOutcome.DUPLICATE), warnings=warnings))

    def _recorded(self, run: Run, fitting: Run, together: RecordedTogether | None = None) -> Recorded:
        """The digest is of all that the file says, so that bringing the same again is no conflict."""
        check_claims(self.c, run, self.principal)
        body = delivered_bytes(self.imported, run, self.data)
        return record_run(
            self.c,
            fitting,
            body,
            now=self.now,
            principal=self.principal,
            document=to_json(fitting),
            together=together,
        )

    def _took(self, run: Run, recorded: Recorded, left: Sequence[Problem]) -> None:
        records = self._records(run) - len(left)
        self.problems += left
        self.stored += records if recorded.created else 0
        self.duplicate += 0 if recorded.created else records
        taken = _imported(run, ImportOutcome.STORED if recorded.created else ImportOutcome.DUPLICATE, recorded)
        if run.project in self.new_projects and recorded.created:  # it may have been made to place the commits
            self.new_projects.remove(run.project)
            warnings = dict.fromkeys((warning_of_project(run.project), *taken.warnings))
            taken = replace(taken, warnings=tuple(warnings))
        self.runs.append(taken)

    def _records(self, run: Run) -> int:
        return sum(self.imported.records[run.id])

    def _fitting(self, run: Run) -> tuple[Run, list[Problem]]:
        """The run without the measurements whose series have another unit or direction, and those."""
        kinds = store.kinds_of_series(self.c, run)
        results, left = [], []
        for result in run.results:
            kept = []
            for measurement in result.measurements:
                kind = kinds.get((result.benchmark, variant_key(result.variant), result.preset, measurement.metric))
                why = None if kind is None else _unlike(measurement, kind)
                if why is None:
                    kept.append(measurement)
                else:
                    where = f"{_name(run)} {result.benchmark} {measurement.metric}"
                    left.append(Problem(where, why))
            if kept or not result.measurements:
                results.append(replace(result, measurements=tuple(kept)))
        return replace(run, results=tuple(results)), left

    def answer(self, file: str, *, dry_run: bool) -> ImportAnswer:
        outcome = {ImportOutcome.STORED: ImportOutcome.NEW} if dry_run else {}
        runs = [replace(run, outcome=outcome.get(run.outcome, run.outcome)) for run in self.runs]
        return ImportAnswer(
            format=self.imported.format,
            file=file,
            dry_run=dry_run,
            counts={
                **{outcome.value: sum(run.outcome is outcome for run in runs) for outcome in ImportOutcome},
                "measurements": self.imported.measurements,
                "problems": len(self.problems),
            },
            records=Records(
                read=self.imported.read,
                stored=self.stored,
                duplicate=self.duplicate,
                left_out=len(self.problems),
                reasons=reasons(self.problems),
            ),
            runs=tuple(runs),
            problems=tuple(self.problems[:MAX_PROBLEMS]),
            notes=self.imported.notes,
        )


def _pieces(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    """The runs, as many together as are stored within a second or so."""
    piece: list[Run] = []
    for run in runs:
        results = sum(len(member.results) for member in (*piece, run))
        if piece and (len(piece) == MOST_RUNS_AT_ONCE or results > MOST_RESULTS_AT_ONCE):
            yield piece
            piece = []
        piece.append(run)
    if piece:
        yield piece


def _placed(c: Connection, context: Context) -> Context:
    """Place a run at the head of a pull request on that pull request, whatever its branch is called.

    The head of a fork may not have been fetched: it counts as a child of the branch it wants to join, so that there is
    something to compare it with.
    """
    project = project_store.find(c, context.project)
    number = None
    if project is not None and context.commit:
        number = pull_request_store.number_of_head(c, project.id, context.commit.lower())
    if project is None or number is None:
        return context
    found = pull_request_store.find(c, project.id, number)
    trunk = commit_store.branches(c, project.id).get(found.base_ref if found is not None else project.default_branch)
    if trunk is not None and trunk.head_sha is not None:
        ingest_store.ensure_commit(c, project.id, str(context.commit).lower(), [trunk.head_sha], number)
    return replace(context, branch=f"pull/{number}", pull_request=number)


def _read(file: ForeignFile, context: Context) -> Imported:
    """What the file holds. `context`: its own, completed by what the service knows of its project."""
    known = {AUTO: None, RUN: RUN_FORMAT, **{name: name for name in FORMATS}}
    if file.format_name not in known:
        raise NotFound.of("format", file.format_name, list(known))
    try:
        imported = read_file(file.name, file.data, context, known[file.format_name])
    except Unreadable as error:
        raise InvalidContent(str(error)) from None
    if not imported.runs:
        found = imported.problems or ["it is empty", *imported.notes]
        raise InvalidContent(f"nothing of {file.name} can be used: {imported.read} records, the first: {found[0]}")
    if len(imported.runs) > MAX_RUNS:
        raise InvalidContent(
            f"{file.name} holds {len(imported.runs)} runs; at most {MAX_RUNS} are taken at once: "
            "`tidemark import` delivers any number"
        )
    return imported


def _unlike(measurement: Measurement, kind: store.ImportedSeries) -> str | None:
    """Why a measurement does not fit its series: a history in ms says nothing about a value in s."""
    for name, stated, known in (
        ("unit", measurement.unit, kind.unit),
        ("direction", measurement.direction.value, kind.direction),
        ("exact", measurement.exact, kind.exact),
    ):
        if stated != known:
            return f"{name} is {stated!r}, and {known!r} in this series so far (--suite or --variant begins another)"
    return None


def _name(run: Run) -> str:
    return f"{run.suite} at {run.commit[:10]}"


def _imported(
    run: Run, outcome: ImportOutcome, recorded: Recorded | None = None, error: str | None = None
) -> ImportedRun:
    verdicts = () if recorded is None else recorded.verdicts
    return ImportedRun(
        run_id=run.id,
        project=run.project,
        commit=run.commit,
        suite=run.suite,
        testbed=run.testbed,
        started_at=run.started_at,
        results=len(run.results),
        measurements=sum(len(result.measurements) for result in run.results),
        outcome=outcome,
        error=error,
        summary={} if recorded is None else recorded.summary,
        warnings=() if recorded is None else recorded.warnings,
        changed=tuple(verdict for verdict in verdicts if verdict.verdict in REPORTED),
        regressions=() if recorded is None else tuple(told.id for told in recorded.regressions),
    )
