"""Across projects: the list of them, how far a new one has come, workers."""

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import orjson
from sqlalchemy import Connection

from backend.services.base.errors import NotFound
from backend.services.base.records import shared_fields
from backend.services.base.scope import find_project, storable
from backend.store.reports import overview as store
from backend.store.reports.overview import FirstRunRow, KnownProject, Project, WorkerRow, WorkerRun

WORKER_LIVE_S = 45
RECENT = timedelta(days=7)
CANARY_RUNS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRun:
    """How far a project has come on its way to the first result; each step is done or has what holds it up."""

    project: str
    worker: str | None  # one that is alive, of a wanted testbed where runs wait
    sync_error: str | None
    so_far: FirstRunRow

    @property
    def worker_connected(self) -> bool:
        return self.worker is not None

    @property
    def commit_seen(self) -> bool:
        return self.so_far.commits > 0

    @property
    def run_requested(self) -> bool:
        return self.so_far.requested > 0

    @property
    def done(self) -> bool:
        return self.so_far.first_result_id is not None


class WorkerState(StrEnum):
    """`held`: a person (or its canary) told it to pause, drain or stay in quarantine."""

    BUSY = "busy"
    IDLE = "idle"
    HELD = "held"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRun:
    id: str
    project: str
    suite: str
    sha: str
    state: str
    since: datetime | None
    progress: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """One reading: how far a fixed workload moved during a run, as a fraction of its value before."""

    run_id: str
    at: datetime | None
    name: str
    before: float | None
    after: float | None
    drift: float | None
    own_noise: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedWorker:
    """Runs, counts, canary and telemetry are of the projects that the reader may see; counts of the last seven days."""

    name: str
    testbed: str
    state: WorkerState
    wanted_state: str
    version: str
    capabilities: Mapping[str, Any]
    protection: str
    started_at: datetime
    last_seen_at: datetime
    current: CurrentRun | None
    done: int
    failed: int
    quarantined: int
    last_run_id: str | None
    last_run_at: datetime | None
    canary: tuple[Canary, ...]  # oldest first; in a list of workers of the newest run only
    canary_now: tuple[Canary, ...]  # of the newest run
    telemetry: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDetail:
    worker: ListedWorker
    runs: tuple[WorkerRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentTestbed:
    """None of its workers was heard of lately; `waiting` runs wait, none is lost. Clears itself when one returns."""

    testbed: str
    last_seen_at: datetime | None
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOverview:
    workers: tuple[ListedWorker, ...]
    silent: tuple[SilentTestbed, ...]
    states: Mapping[str, int]


def list_projects(c: Connection, *, only: Collection[int] | None = None) -> tuple[Project, ...]:
    """Every project, or `only` those of these numbers, by name."""
    return tuple(row for row in store.projects(c) if only is None or row.id in only)


def known_projects(c: Connection, *, only: Collection[int] | None = None) -> tuple[KnownProject, ...]:
    """The same as far as a menu needs them: reads no run and no regression."""
    return tuple(row for row in store.known_projects(c) if only is None or row.id in only)


def summary_of(c: Connection, project_id: int) -> Project | None:
    """One project; None: it was just removed."""
    return next(iter(store.projects(c, project_id)), None)


def first_run(c: Connection, project: str, *, now: datetime | None = None, live_s: int = WORKER_LIVE_S) -> FirstRun:
    """Steps to the first result: which are done, which are missing."""
    found = find_project(c, project)
    row = store.first_run(c, found.id)
    summary = summary_of(c, found.id)
    wanted = set(row.wanted_testbeds)
    live = [
        worker
        for worker in load_workers(c, now=now, live_s=live_s, of={found.slug}).workers
        if worker.state is not WorkerState.GONE and (not wanted or worker.testbed in wanted)
    ]
    return FirstRun(
        project=found.slug,
        worker=live[0].name if live else None,
        sync_error=summary.sync_error if summary else None,
        so_far=row,
    )


def load_workers(
    c: Connection, *, now: datetime | None = None, live_s: int = WORKER_LIVE_S, of: Collection[str] | None = None
) -> WorkerOverview:
    """Every worker, and testbeds that have gone silent. `of`: the projects whose runs and workers are shown;
    None: all."""
    now = now or datetime.now(UTC)
    seen_since = now - timedelta(seconds=live_s)
    workers = tuple(
        _worker(row, seen_since, store.worker_runs(c, row.id, 1, of=of) if row.last_run_id else ())
        for row in _shown_workers(c, now, of)
    )
    return WorkerOverview(
        workers=workers,
        silent=tuple(SilentTestbed(**row._asdict()) for row in store.silent_testbeds(c, seen_since, of=of)),
        states={state.value: sum(worker.state is state for worker in workers) for state in WorkerState},
    )


def _shown_workers(
    c: Connection, now: datetime, of: Collection[str] | None, name: str | None = None
) -> list[WorkerRow]:
    """The workers, without those that belong to other projects, and without the runs of these."""
    rows = store.workers(c, now - RECENT, name, of=of)
    if of is None:
        return rows
    return [
        row if row.run_project in of else row._replace(run_project=None)
        for row in rows
        if row.belongs_to is None or row.belongs_to in of
    ]


def load_worker(
    c: Connection,
    name: str,
    *,
    now: datetime | None = None,
    live_s: int = WORKER_LIVE_S,
    of: Collection[str] | None = None,
) -> WorkerDetail:
    """One worker with its last runs and what its canary read in them. `of`: as of the fleet."""
    now = now or datetime.now(UTC)
    rows = _shown_workers(c, now, of, storable(name))
    if not rows:
        known = _shown_workers(c, now, of)
        raise NotFound.of("worker", name, [row.name for row in known][:20])
    runs = store.worker_runs(c, rows[0].id, CANARY_RUNS, of=of)
    return WorkerDetail(
        worker=_worker(rows[0], now - timedelta(seconds=live_s), runs),
        runs=tuple(run for run, _ in runs),
    )


def _worker(row: WorkerRow, seen_since: datetime, runs: Sequence[tuple[WorkerRun, bytes | None]]) -> ListedWorker:
    documents = [(run, _document(packed)) for run, packed in runs]
    read = [tuple(_canary(run, reading) for reading in document.get("canary") or ()) for run, document in documents]
    return ListedWorker(
        **shared_fields(row, ListedWorker),
        state=_state(row, seen_since),
        current=_current(row),
        canary=tuple(reading for of_run in reversed(read) for reading in of_run),
        canary_now=read[0] if read else (),
        telemetry=(documents[0][1].get("telemetry") or {}) if documents else {},
    )


def _state(row: WorkerRow, seen_since: datetime) -> WorkerState:
    if row.last_seen_at < seen_since:
        return WorkerState.GONE
    if row.run_id is not None:
        return WorkerState.BUSY
    return WorkerState.IDLE if row.wanted_state == "ok" else WorkerState.HELD


def _current(row: WorkerRow) -> CurrentRun | None:
    if row.run_id is None or row.run_project is None or row.run_suite is None or row.run_sha is None:
        return None
    return CurrentRun(
        id=row.run_id,
        project=row.run_project,
        suite=row.run_suite,
        sha=row.run_sha,
        state=row.run_state or "leased",
        since=row.run_since,
        progress=row.run_progress or {},
    )


def _document(packed: bytes | None) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(zlib.decompress(packed)) if packed else {}
    return document


def _canary(run: WorkerRun, reading: Mapping[str, Any]) -> Canary:
    before, after = reading.get("before"), reading.get("after")
    return Canary(
        run_id=run.id,
        at=run.started_at,
        name=reading["name"],
        before=before,
        after=after,
        drift=after / before - 1 if before and after is not None else None,
        own_noise=reading.get("own_noise"),
    )
