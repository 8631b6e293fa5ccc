"""Schedules: suites that run at set times, and canaries for a project's dependencies.

A project declares them in the tidemark.toml of its newest commit. Every slot is served once, however many loops look at
the clock; of missed slots (nothing was running) only the last is made up.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, RowMapping

from backend.services.base.config import ServiceConfig
from backend.services.base.errors import NotFound, ServiceError, Unavailable
from backend.services.base.principal import IMPLIED, Principal, Scope, Via
from backend.services.base.projects import find_project
from backend.services.base.savepoints import apart, is_lost, met_another
from backend.services.base.scope import find_commit, find_scope
from backend.services.plans.compare_setups import Wish, request_comparison
from backend.services.queue import request as queue_request
from backend.services.queue.request import WantedRun
from backend.services.queue.scheduling import Kind
from backend.services.repository.manifest import Manifest, Suite
from backend.services.repository.requests import branch_of, check_may_run, manifest_at
from backend.services.repository.schedule_manifest import Schedule
from backend.store.plans import schedules as store
from backend.store.plans.schedules import SlotOutcome

log = logging.getLogger("tidemark.schedule")

TRY_AGAIN_AFTER = timedelta(hours=1)
TRY_AGAIN_SOON = timedelta(seconds=20)
"""After two transactions met in the same rows: nothing is wrong with the schedule, and the other is done by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSlot:
    """The last turn of a schedule, and what came of it."""

    slot_at: datetime
    served_at: datetime
    outcome: str
    runs: tuple[str, ...]
    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    project: str
    schedule: Schedule
    next_at: datetime
    last: LastSlot | None


def list_schedules(c: Connection, project_id: int | None = None) -> list[ScheduleView]:
    return [
        ScheduleView(
            project=row["project"],
            schedule=Schedule.model_validate(row["definition"]),
            next_at=row["next_at"],
            last=None
            if row["slot_at"] is None
            else LastSlot(
                slot_at=row["slot_at"],
                served_at=row["served_at"],
                outcome=row["outcome"],
                runs=tuple(row["run_ids"]),
                sessions=tuple(row["session_ids"]),
            ),
        )
        for row in store.list_schedules(c, project_id)
    ]


def serve_due(c: Connection, config: ServiceConfig, now: datetime) -> int:
    """Serve every schedule whose turn has come; how many."""
    due = store.due(c, now)
    for row in due:
        try:
            with c.begin_nested():
                _serve_one(c, row, config, now)
        except Exception as error:
            if is_lost(c):
                raise
            _put_off(c, row, error, now)
    return len(due)


def _put_off(c: Connection, row: RowMapping, error: Exception, now: datetime) -> None:
    """Postpone a slot that cannot be served now, and note why."""
    again_at = now + (TRY_AGAIN_SOON if met_another(error) else TRY_AGAIN_AFTER)
    what = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'}"
    with apart(c, f"schedule {row['name']} of {row['project']}"):
        log.warning(
            "schedule %s of %s could not be served (%s); next try at %s UTC",
            row["name"], row["project"], what, f"{again_at:%Y-%m-%d %H:%M:%S}",
        )  # fmt: skip
        if store.take_slot(c, row["project_id"], row["name"], row["next_at"], now):
            outcome = SlotOutcome(f"could not be served ({what[:300]}); tried again at {again_at:%H:%M:%S}")
            store.end_slot(c, row["project_id"], row["name"], row["next_at"], outcome)
        store.set_next(c, row["project_id"], row["name"], again_at)


def _serve_one(c: Connection, row: RowMapping, config: ServiceConfig, now: datetime) -> None:
    schedule = Schedule.model_validate(row["definition"])
    # After a long absence the last slot is served, not every one that was missed.
    slot_at = _last_slot(schedule, row["next_at"], now)
    if store.take_slot(c, row["project_id"], schedule.name, slot_at, now):
        _serve(c, row, schedule, slot_at, config, now)
    store.set_next(c, row["project_id"], schedule.name, schedule.next_after(now))


def _last_slot(schedule: Schedule, first: datetime, now: datetime) -> datetime:
    slot = first
    while (following := schedule.next_after(slot)) <= now:
        slot = following
    return slot


def _serve(
    c: Connection, row: RowMapping, schedule: Schedule, slot_at: datetime, config: ServiceConfig, now: datetime
) -> None:
    try:
        with c.begin_nested():
            outcome = _request(c, row["project"], schedule, config, now)
    except Unavailable:
        raise  # nothing is wrong with the schedule: it is tried again
    except ServiceError as error:
        outcome = SlotOutcome(f"nothing was requested: {error}")
        log.warning("schedule %s of %s: %s", schedule.name, row["project"], error)
    store.end_slot(c, row["project_id"], schedule.name, slot_at, outcome)


def _request(c: Connection, slug: str, schedule: Schedule, config: ServiceConfig, now: datetime) -> SlotOutcome:
    """Request what the schedule is about."""
    project = find_project(c, slug)
    branch = schedule.branch or project.default_branch
    commit = find_commit(c, find_scope(c, slug), schedule.commit or branch)
    check_may_run(c, config, project, commit)
    suites = _chosen(manifest_at(config, project, commit.sha), schedule)
    by = f"schedule {schedule.name}"
    if schedule.against:
        sessions = []
        clock = Principal(name=by, scopes=IMPLIED[Scope.SUBMIT], project_id=project.id, via=Via.TOKEN)
        for suite in suites:
            for testbed in schedule.testbeds or suite.testbeds:
                wish = Wish(
                    project=slug,
                    suite=suite.name,
                    testbed=testbed,
                    base=commit.sha,
                    head=commit.sha,
                    base_setup={},
                    head_setup=schedule.against,
                )
                sessions.append(request_comparison(c, wish, config, clock, now, schedule=schedule.name))
        sentence = f"{len(sessions)} sessions of {commit.sha[:12]} against its other environment"
        return SlotOutcome(sentence, sessions=sessions)
    wanted = [
        WantedRun(commit_id=commit.id, suite=suite.name, testbed=testbed, spec=suite.spec())
        for suite in suites
        for testbed in schedule.testbeds or suite.testbeds
    ]
    answers = queue_request.request_runs(
        c,
        project.id,
        wanted,
        kind=Kind.SCHEDULED,
        requested_by=by,
        now=now,
        branch=branch if schedule.commit is None else branch_of(c, project, commit),
        pull_request=None if schedule.commit is None else commit.pull_request,
        again=schedule.again,
    )
    runs = [answer.run_id for answer in answers if answer.created]
    there = len(answers) - len(runs)
    sentence = f"{len(runs)} runs of {commit.sha[:12]}" + (f"; {there} stood already" if there else "")
    return SlotOutcome(sentence, runs=runs)


def _chosen(found: Manifest, schedule: Schedule) -> list[Suite]:
    suites = {suite.name: suite for suite in found.suites}
    unknown = [name for name in schedule.suites if name not in suites]
    if unknown:
        raise NotFound.of("suite", unknown[0], list(suites))
    return [suites[name] for name in schedule.suites] if schedule.suites else list(found.suites)
