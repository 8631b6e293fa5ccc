"""Backfill: a suite over past commits, when nothing more urgent waits.

A few runs are requested at a time, so that each result can show where the next one is most informative: evenly spread
at first, finer where a change must lie between two measured ones. The suite is taken as a newer commit declares it, so
that a new benchmark can be measured on commits from before it existed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, RowMapping

from backend.contract import new_run_id
from backend.regression.cost import log_cost
from backend.regression.terms import Direction
from backend.regression.thinning import changed_between, next_position
from backend.services.base import live
from backend.services.base.config import ServiceConfig
from backend.services.base.confine import require_in, require_of
from backend.services.base.errors import BadRequest, Conflict, NotFound
from backend.services.base.principal import Principal, Scope
from backend.services.base.projects import find_project
from backend.services.base.savepoints import apart
from backend.services.base.scope import find_commit, find_scope
from backend.services.policy.resolve import policy_book
from backend.services.queue import request as queue_request
from backend.services.queue.request import WantedRun
from backend.services.queue.scheduling import Kind
from backend.services.repository.manifest import ManifestInvalid, Suite
from backend.services.repository.path_patterns import any_counts
from backend.services.repository.requests import check_may_run, manifest_at
from backend.store.plans import backfills as store
from backend.store.queue import queue

AHEAD = 4
"""Runs that wait or run at a time."""
WAITING = ("queued", "leased", "running")
MOST_RUNS = 2_000
NOISES = 4.0
"""So many of its noises apart, two levels differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillWish:
    """The request for a backfill. `since` and `until` name commits of the default branch; None: its ends."""

    project: str
    suite: str
    testbed: str | None = None
    since: str | None = None
    until: str | None = None
    runs: int | None = None
    """At most so many commits; None: all of the range."""
    declared_at: str | None = None
    """The commit whose tidemark.toml declares the suite; None: the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRun:
    position: int
    sha: str | None
    run_id: str
    state: str
    why: str
    """`thin`: evenly spread; `refine`: a change lies near it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillView:
    """A backfill as it is shown."""

    id: str
    project: str
    suite: str
    testbed: str
    state: str
    reason: str
    first_position: int
    last_position: int
    done: int
    total: int
    failed: int
    waiting: int
    requested_by: str
    requested_at: datetime
    finished_at: datetime | None
    runs: tuple[BackfillRun, ...]


def request_backfill(
    c: Connection, wish: BackfillWish, config: ServiceConfig, principal: Principal, now: datetime
) -> BackfillView:
    """Ask for a range; its first runs are queued at once."""
    require_of(c, principal, Scope.SUBMIT, "project", wish.project)
    project = find_project(c, wish.project)
    scope = find_scope(c, wish.project)
    if scope.default_branch is None:
        raise Conflict(f"no commits of {project.slug} are recorded yet")
    newest = find_commit(c, scope, project.default_branch)
    first, last = _range(c, wish, newest.default_position)
    declared = newest if wish.declared_at is None else find_commit(c, scope, wish.declared_at)
    check_may_run(c, config, project, declared)
    suites = {suite.name: suite for suite in manifest_at(config, project, declared.sha).suites}
    if wish.suite not in suites:
        raise NotFound.of("suite", wish.suite, list(suites))
    suite = suites[wish.suite]
    testbed = wish.testbed or suite.testbeds[0]
    testbed_id = queue.testbed_id(c, testbed)
    commits = store.commits_in(c, scope.default_branch.id, first, last, testbed_id=testbed_id, suite=suite.name)
    left = [row for row in commits if not row["measured"] and _may_matter(suite, row["changed_paths"])]
    if not left:
        raise Conflict(f"nothing is left to measure: {suite.name} has run on {testbed} for every commit of the range")
    backfill_id = new_run_id()
    store.insert_backfill(
        c,
        {
            "id": backfill_id,
            "project_id": project.id,
            "testbed_id": testbed_id,
            "suite": suite.name,
            "spec": {**suite.spec(), "paths": list(suite.paths)},
            "first_position": first,
            "last_position": last,
            "runs_wanted": min(len(left), wish.runs or MOST_RUNS, MOST_RUNS),
            "state": "running",
            "requested_by": principal.name,
            "requested_at": now,
        },
    )
    advance(c, backfill_id, now)
    return backfill_view(c, backfill_id)


def _may_matter(suite: Suite, changed_paths: Sequence[str] | None) -> bool:
    try:
        return changed_paths is None or suite.matters(changed_paths)
    except ManifestInvalid:
        return True  # too costly to find out: measured rather than missed


def _range(c: Connection, wish: BackfillWish, newest: int | None) -> tuple[int, int]:
    if wish.runs is not None and wish.runs < 1:
        raise BadRequest.field("runs", wish.runs, f"a whole number from 1 to {MOST_RUNS}")
    scope = find_scope(c, wish.project)
    ends = []
    for name, named, default in (("since", wish.since, 0), ("until", wish.until, newest)):
        if named is None:
            ends.append(default or 0)
            continue
        position = find_commit(c, scope, named).default_position
        if position is None:
            raise BadRequest.field(name, named, "a commit of the default branch")
        ends.append(position)
    first, last = ends
    if first > last:
        raise BadRequest.field("since", wish.since, f"a commit before until ({wish.until or 'the newest'})")
    return first, last


# --- moved on --------------------------------------------------------------------------------------------------------


def advance_all(c: Connection, now: datetime) -> int:
    running = store.running(c)
    for backfill_id in running:
        with apart(c, f"backfill {backfill_id}"):
            advance(c, backfill_id, now)
    return len(running)


def advance(c: Connection, backfill_id: str, now: datetime) -> None:
    """Ask for as many runs as may wait; end where all that is wanted has ended."""
    row = store.lock_backfill(c, backfill_id)
    if row is None or row["state"] != "running" or row["branch_id"] is None:
        return
    asked = store.runs_of(c, backfill_id)
    waiting = sum(1 for run in asked if run["state"] in WAITING)
    if waiting >= AHEAD:
        return
    left = row["runs_wanted"] - len(asked)
    # Looking at every commit of the range costs something; the last few runs of a backfill may wait for days.
    plan = _Plan(c, row, asked) if left > 0 else None
    while plan is not None and waiting < AHEAD and left > 0:
        found = plan.next()
        if found is None:
            # Others have measured the rest meanwhile.
            store.want_no_more(c, backfill_id, row["runs_wanted"] - left)
            left = 0
            break
        position, commit_id, why = found
        spec = {name: value for name, value in row["spec"].items() if name != "paths"}
        wanted = WantedRun(commit_id=commit_id, suite=row["suite"], testbed=row["testbed"], spec=spec)
        (answer,) = queue_request.request_runs(
            c,
            row["project_id"],
            [wanted],
            kind=Kind.BACKFILL,
            requested_by=row["requested_by"],
            now=now,
            branch=row["default_branch"],
        )
        store.add_run(c, backfill_id, position, answer.run_id, created=answer.created, why=why)
        waiting += answer.state in WAITING
        left -= 1
    if not waiting and not left:
        store.end_backfill(c, backfill_id, "done", "", now)
        _publish(c, row, "done")


class _Plan:
    """Where the next run of a backfill tells most."""

    def __init__(self, c: Connection, row: RowMapping, asked: Sequence[RowMapping]) -> None:
        first, last = row["first_position"], row["last_position"]
        commits = store.commits_in(c, row["branch_id"], first, last, testbed_id=row["testbed_id"], suite=row["suite"])
        self._ids = {commit["position"]: commit["commit_id"] for commit in commits}
        self._asked = {run["position"] for run in asked}
        measured = {commit["position"] for commit in commits if commit["measured"]}
        matters = _of_paths(row["spec"].get("paths"))
        self._eligible = [
            commit["position"]
            for commit in commits
            if not commit["measured"] and (commit["changed_paths"] is None or matters(commit["changed_paths"]))
        ]
        self._taken = measured | self._asked
        self._wanted = row["runs_wanted"]
        self._changed = _changes(c, row, self._taken)

    def next(self) -> tuple[int, int, str] | None:
        """(position, commit, why)"""
        found = next_position(self._eligible, self._taken, self._changed, len(self._asked), self._wanted)
        if found is None:
            return None
        position, why = found
        self._taken.add(position)
        self._asked.add(position)
        self._changed = [pair for pair in self._changed if not pair[0] < position < pair[1]]
        return position, self._ids[position], why


def _of_paths(patterns: Sequence[str] | None) -> Callable[[Sequence[str]], bool]:
    return (lambda paths: any_counts(paths, patterns)) if patterns else lambda paths: True


def _changes(c: Connection, row: RowMapping, taken: set[int]) -> list[tuple[int, int]]:
    """Between which measured neighbours a gate metric differs, and nobody was asked for yet."""
    found = set()
    least = math.log1p(policy_book(c, row["project"]).of(suite=row["suite"], testbed=row["testbed"]).min_change)
    where = row["project_id"], row["testbed_id"], row["suite"], row["first_position"], row["last_position"]
    for series in store.levels(c, *where):
        direction = Direction(series["direction"])
        levels = [
            (position, log_cost(value, direction))
            for position, value in zip(series["positions"], series["values"], strict=True)
        ]
        threshold = 0.0 if series["exact"] else max(least, NOISES * (series["noise"] or 0.0))
        found |= set(changed_between(levels, threshold))
    return [(low, high) for low, high in found if not any(low < position < high for position in taken)]


def _publish(c: Connection, row: RowMapping, state: str) -> None:
    payload = {"backfill_id": row["id"], "state": state, "project": row["project"], "testbed": row["testbed"]}
    live.publish(c, "backfill", row["project_id"], payload)


def cancel_backfill(c: Connection, backfill_id: str, principal: Principal, now: datetime) -> BackfillView:
    """Request no more; its waiting runs are withdrawn, a running one may finish."""
    row = store.lock_backfill(c, backfill_id, wait=True)
    if row is None:
        raise NotFound.of("backfill", backfill_id)
    require_in(c, principal, Scope.SUBMIT, row["project_id"])
    if row["state"] != "running":
        raise Conflict(f"backfill {backfill_id} is {row['state']} already", state=row["state"])
    reason = f"cancelled by {principal.name}"
    own = [run["run_id"] for run in store.runs_of(c, backfill_id) if run["created"] and run["state"] == "queued"]
    queue.cancel_queued(c, own, "cancelled", now, reason)
    store.end_backfill(c, backfill_id, "cancelled", reason, now)
    _publish(c, row, "cancelled")
    return backfill_view(c, backfill_id)


# --- shown -----------------------------------------------------------------------------------------------------------


def backfill_view(c: Connection, backfill_id: str) -> BackfillView:
    row = store.find_backfill(c, backfill_id)
    if row is None:
        raise NotFound.of("backfill", backfill_id)
    return _view(c, row)


def list_backfills(
    c: Connection, *, project_id: int | None = None, state: str | None = None, limit: int = 50
) -> list[BackfillView]:
    """The newest first."""
    return [_view(c, row) for row in store.list_backfills(c, project_id=project_id, state=state, limit=limit)]


def _view(c: Connection, row: RowMapping) -> BackfillView:
    runs = store.runs_of(c, row["id"])
    waiting = sum(1 for run in runs if run["state"] in WAITING)
    return BackfillView(
        id=row["id"],
        project=row["project"],
        suite=row["suite"],
        testbed=row["testbed"],
        state=row["state"],
        reason=row["reason"],
        first_position=row["first_position"],
        last_position=row["last_position"],
        done=len(runs) - waiting,
        total=row["runs_wanted"] if row["state"] == "running" else len(runs),
        failed=sum(1 for run in runs if run["state"] == "failed"),
        waiting=waiting,
        requested_by=row["requested_by"],
        requested_at=row["requested_at"],
        finished_at=row["finished_at"],
        runs=tuple(
            BackfillRun(
                position=run["position"],
                sha=run["sha"],
                run_id=run["run_id"],
                state=run["state"] or "gone",
                why=run["why"],
            )
            for run in runs
        ),
    )
