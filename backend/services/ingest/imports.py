"""A foreign result file comes in: read it, see what is new, record each run by the one door, say what came of each.

A run that cannot be taken does not take the others with it; neither does a record within the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection

from backend.contract import Invalid, Run
from backend.importers import FORMATS, RUN_FORMAT, Context, Imported, Unreadable, delivered_bytes, read_file
from backend.regression.terms import Verdict
from backend.services.base.access import Principal
from backend.services.base.errors import InvalidContent, NotFound, ServiceError
from backend.services.ingest.delivery import check_project
from backend.services.ingest.record import Recorded, record_run
from backend.services.judging.verdicts import SeriesVerdict
from backend.store.base import commits as commit_store
from backend.store.base import live as live_store
from backend.store.base import projects as project_store
from backend.store.github import pull_requests as pull_request_store
from backend.store.ingest import imports as store
from backend.store.ingest import record as ingest_store

AUTO = "auto"
RUN = "run"  # tidemark.run/1 itself
MAX_RUNS = 2_000
MAX_PROBLEMS = 1_000
TOLD = frozenset({Verdict.REGRESSION, Verdict.SUSPECT, Verdict.IMPROVEMENT})


class Outcome(StrEnum):
    """What came of one run. `new`: a dry run would store it."""

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
    outcome: Outcome
    error: str | None = None
    summary: Mapping[str, int]
    changed: tuple[SeriesVerdict, ...] = ()
    regressions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A record that could not be taken: where it stands in the file, and why."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportAnswer:
    """What a file held and what became of it. `counts`: stored, duplicate, new, refused, measurements, problems."""

    format: str
    file: str
    dry_run: bool
    counts: Mapping[str, int]
    runs: tuple[ImportedRun, ...]
    problems: tuple[LeftOut, ...]
    notes: tuple[str, ...]


def import_file(
    c: Connection,
    file: str,
    data: bytes,
    context: Context,
    *,
    format_name: str,
    dry_run: bool,
    principal: Principal,
    now: datetime,
) -> ImportAnswer:
    """Store what a file holds and is not stored yet; with `dry_run`, only say what that would be."""
    context = _placed(c, context, may_store=not dry_run)
    imported = _read(file, data, context, format_name)
    for project in {run.project for run in imported.runs} or {context.project}:
        check_project(c, project, principal)
    known = store.stored_runs(c, [run.id for run in imported.runs])
    if dry_run:
        runs = [_told(run, Outcome.DUPLICATE if run.id in known else Outcome.NEW) for run in imported.runs]
    else:
        runs = [_record(c, run, delivered_bytes(imported, run, data), now) for run in imported.runs]
        live_store.notify_work(c)
    return ImportAnswer(
        format=imported.format,
        file=file,
        dry_run=dry_run,
        counts={
            **{outcome.value: sum(run.outcome is outcome for run in runs) for outcome in Outcome},
            "measurements": imported.measurements,
            "problems": len(imported.problems),
        },
        runs=tuple(runs),
        problems=tuple(LeftOut(where=item.where, reason=item.reason) for item in imported.problems[:MAX_PROBLEMS]),
        notes=imported.notes,
    )


def _placed(c: Connection, context: Context, *, may_store: bool) -> Context:
    """What was measured at the head of a pull request belongs to it, whatever its branch is called.

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
    if may_store and trunk is not None and trunk.head_sha is not None:
        ingest_store.ensure_commit(c, project.id, str(context.commit).lower(), [trunk.head_sha], number)
    return replace(context, branch=f"pull/{number}", pull_request=number)


def _read(file: str, data: bytes, context: Context, format_name: str) -> Imported:
    known = {AUTO: None, RUN: RUN_FORMAT, **{name: name for name in FORMATS}}
    if format_name not in known:
        raise NotFound.of("format", format_name, list(known))
    try:
        imported = read_file(file, data, context, known[format_name])
    except Unreadable as error:
        raise InvalidContent(str(error)) from None
    if len(imported.runs) > MAX_RUNS:
        raise InvalidContent(
            f"{file} holds {len(imported.runs)} runs; at most {MAX_RUNS} are taken at once: "
            "`tidemark import` delivers any number, one by one"
        )
    return imported


def _record(c: Connection, run: Run, body: bytes, now: datetime) -> ImportedRun:
    """One run, in a savepoint: what is refused leaves no trace and does not end the transaction."""
    try:
        with c.begin_nested():
            recorded = record_run(c, run, body, now=now)
    except (Invalid, ServiceError) as error:
        return _told(run, Outcome.REFUSED, error=str(error))
    return _told(run, Outcome.STORED if recorded.created else Outcome.DUPLICATE, recorded)


def _told(run: Run, outcome: Outcome, recorded: Recorded | None = None, error: str | None = None) -> ImportedRun:
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
        changed=tuple(verdict for verdict in verdicts if verdict.verdict in TOLD),
        regressions=() if recorded is None else tuple(told.id for told in recorded.regressions),
    )
