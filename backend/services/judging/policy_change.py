"""The policy of a project: what was chosen, and judging again after a change.

Thresholds come from the built-in rules, the project's tidemark.toml, and what was chosen in the interface or by the
API; the later ones win. Every change is judged again in the background, series by series, and says how far it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from backend.records import uncollected
from backend.regression.policy import PolicyError, PolicyRow, parse_overrides, require_threshold
from backend.services.base import live, projects
from backend.services.base.confine import require_of
from backend.services.base.errors import BadRequest
from backend.services.base.principal import Principal, Scope
from backend.services.judging import rejudging
from backend.services.judging.stored_runs import StoredRuns
from backend.services.people import audit
from backend.services.people.audit import Did
from backend.services.policy.resolve import book_of
from backend.services.policy.versions import PolicyVersion, note_version, versions_of
from backend.store.base import projects as project_store
from backend.store.base.projects import ProjectRow
from backend.store.judging import series as series_store
from backend.store.policy import policies as store
from backend.store.policy.policies import Watched

log = logging.getLogger("tidemark.policies")

PREVIEW_DAYS = 90
LOAD_DAYS = 7
AT_A_TIME = 20
POINTS_AT_A_TIME = 10_000
"""Series and points that are judged again in one transaction, at most, unless one series has more: a result that
arrives for one of the series waits for all of them."""

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far judging again has come."""

    requested_at: datetime
    finished_at: datetime | None
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectPolicy:
    """The thresholds of a project, by where they come from, and what has become of the last change."""

    project: str
    declared: Table
    chosen: Table
    effective: tuple[PolicyRow, ...]
    """Of a series that no scoped override matches."""
    versions: tuple[PolicyVersion, ...]
    """Which policy was in force from when on, and who changed it; the newest first."""
    points_per_week: int
    rejudging: Progress | None
    rejudging_late: int
    """Series that are still to be judged again because a point arrived very late."""


# --- what is in force ------------------------------------------------------------------------------------------------


def policy_of(c: Connection, slug: str) -> ProjectPolicy:
    project = projects.find_project(c, slug)
    tables = store.tables(c, project.id)
    return ProjectPolicy(
        project=project.slug,
        declared=tables.declared,
        chosen=tables.chosen,
        effective=tuple(book_of(project.slug, tables).general.describe()),
        versions=versions_of(project.settings),
        points_per_week=int(tables.points_per_week),
        rejudging=progress_of(project),
        rejudging_late=series_store.waiting_again(c, project.id),
    )


def progress_of(project: ProjectRow) -> Progress | None:
    """Of the last time its series were judged again; None: never."""
    known = project.settings.get("rejudge")
    if known is None:
        return None
    finished = known.get("finished_at")
    return Progress(
        requested_at=datetime.fromisoformat(known["requested_at"]),
        finished_at=None if finished is None else datetime.fromisoformat(finished),
        done=known["done"],
        total=known["total"],
    )


def changed_table(chosen: Table, change: Table) -> dict[str, Any]:
    """The policy chosen after a change: thresholds are set, null ones are unset; `override` as a whole."""
    table = {name: value for name, value in {**chosen, **change}.items() if value is not None and value != []}
    try:
        for name, value in change.items():
            if value is None and name not in chosen and name != "override":
                require_threshold(name)  # one that is mistyped takes nothing back, and would not say so
        parse_overrides(table)
    except PolicyError as error:
        raise BadRequest(str(error), field="policy") from None
    return table


# --- a change of policy ----------------------------------------------------------------------------------------------


def change(c: Connection, slug: str, wanted: Table, *, by: Principal, now: datetime) -> ProjectPolicy:
    """Choose thresholds, and have everything of the last days judged again by them."""
    require_of(c, by, Scope.ADMIN, "project", slug)
    project = projects.find_project(c, slug)
    known = store.tables(c, project.id).chosen
    table = changed_table(known, wanted)
    if table != known:
        chosen = {"table": table, "by": by.name, "at": now.isoformat()} if table else None
        project_store.set_setting(c, project.id, "policy", chosen)
        note_version(c, project.id, project.slug, by=by.name, now=now)
        request_rejudging(c, project.id, now)
        audit.record(c, by, Did.CHANGED_POLICY, slug, now=now, project=slug, before=known, after=table)
    return policy_of(c, slug)


def request_rejudging(c: Connection, project_id: int, now: datetime) -> None:
    """Have the project's series judged again, in the background, from where the last days begin."""
    since = now - timedelta(days=PREVIEW_DAYS)
    total = len(store.watched_since(c, project_id, since))
    asked = {"requested_at": now.isoformat(), "since": since.isoformat(), "after": 0, "done": 0, "total": total}
    _save_progress(c, project_id, asked if total else {**asked, "finished_at": now.isoformat()})


def rejudge_due(
    engine: Engine, now: Callable[[], datetime], is_stopping: Callable[[], bool] = lambda: False
) -> list[int]:
    """Judge again what waits for it, some series in each transaction. Returns the series judged."""
    done = _rejudge_late(engine, now, is_stopping)
    with engine.connect() as c:
        waiting = store.to_rejudge(c)
    for project_id in waiting:
        while not is_stopping():
            requested_at, batch = _next_batch(engine, project_id)
            if not batch:
                with engine.begin() as c:
                    _finish(c, project_id, requested_at, now())
                break
            runs = StoredRuns(now())
            for together in judged_together(batch):
                if is_stopping():
                    return done
                done += _rejudge(engine, project_id, requested_at, together, runs, now())
    return done


def _rejudge_late(engine: Engine, now: Callable[[], datetime], is_stopping: Callable[[], bool]) -> list[int]:
    """Series in which a point arrived very late."""
    done: list[int] = []
    while not is_stopping():
        with engine.begin() as c:
            found = rejudging.rejudge_next_late(c, now())
        if found is None:
            break
        done.append(found)
    return done


def _next_batch(engine: Engine, project_id: int) -> tuple[str, list[Watched]]:
    """The next series to judge again, and the request it is part of: a newer request begins anew."""
    with engine.connect() as c:
        asked = _asked(c, project_id)
        if asked is None:
            return "", []
        since = datetime.fromisoformat(asked["since"])
        return asked["requested_at"], store.watched_since(c, project_id, since, after=asked["after"], limit=AT_A_TIME)


def judged_together(batch: Sequence[Watched]) -> Iterator[list[Watched]]:
    """The series of each transaction: they follow each other, and are judged again from the same position."""
    for first, found in groupby(batch, key=lambda w: w.first_position):
        series = list(found)
        points = max((w.series.state_position or first) - first for w in series) + 1
        size = max(1, POINTS_AT_A_TIME // max(1, points))  # none, where all that is left cannot be judged
        for at in range(0, len(series), size):
            yield series[at : at + size]


def _rejudge(
    engine: Engine, project_id: int, requested_at: str, together: Sequence[Watched], runs: StoredRuns, now: datetime
) -> list[int]:
    """Series in one transaction; where one of several cannot be judged again, each by itself. That one keeps its
    verdicts, and does not keep the others waiting."""
    ids = [w.series.id for w in together]
    judged = []
    try:
        with uncollected(), engine.begin() as c:
            rejudging.rejudge_side_by_side(c, ids, together[0].first_position, runs=runs, now=now)
        judged = ids
    except (psycopg.Error, SQLAlchemyError):
        raise
    except Exception:
        if len(ids) > 1:
            return [found for w in together for found in _rejudge(engine, project_id, requested_at, [w], runs, now)]
        log.exception("series %d could not be judged again", ids[0])
    with engine.begin() as c:
        asked = _asked(c, project_id, lock=True)
        if asked is not None and asked["requested_at"] == requested_at:
            _save_progress(c, project_id, {**asked, "after": ids[-1], "done": asked["done"] + len(ids)})
    return judged


def _asked(c: Connection, project_id: int, *, lock: bool = False) -> dict[str, Any] | None:
    """The request to judge again. `lock`: to note progress, which must not take the place of a newer request."""
    project = project_store.by_id(c, project_id, lock=lock)
    return None if project is None else project.settings.get("rejudge")


def _finish(c: Connection, project_id: int, requested_at: str, now: datetime) -> None:
    asked = _asked(c, project_id, lock=True)
    if asked is not None and asked["requested_at"] == requested_at:
        _save_progress(c, project_id, {**asked, "done": asked["total"], "finished_at": now.isoformat()})


def _save_progress(c: Connection, project_id: int, asked: dict[str, Any]) -> None:
    project_store.set_setting(c, project_id, "rejudge", asked)
    shown = {name: asked.get(name) for name in ("done", "total", "finished_at")}
    live.publish(c, "project", project_id, {"rejudging": shown})


def measure_load(c: Connection, now: datetime) -> None:
    """How many points each project judges in a week: its false-alarm budget is spread over them."""
    store.measure_load(c, now - timedelta(days=LOAD_DAYS), now)
