"""The queue for people: what runs, what waits, why it waits, and roughly when it will begin.

The order is predicted with the rule that assigns runs (`scheduling`), the times from how long suites took recently.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from sqlalchemy import Connection

from backend.services.base.errors import BadRequest
from backend.services.base.records import shared_fields
from backend.services.base.scope import find_project
from backend.services.queue.scheduling import A_RUN_S, PRIORITY, USE_HALVES_AFTER_S, Kind, share_out
from backend.store.queue import view as store
from backend.store.queue.groups import RunGroup
from backend.store.queue.view import QueueRow, WorkersRow
from backend.store.reports import overview as overview_store

WORKER_LIVE_S = 45
COUNTED = timedelta(days=7)
OFFERED_FOR = timedelta(seconds=10)
MAX_QUEUE = 500
OF_EACH_GROUP = 100
RUN_STATES = ("queued", "leased", "running", "done", "failed", "cancelled", "superseded")
LARGE_SHARE = 0.5
WORDS = {
    Kind.CONFIRM: "confirming",
    Kind.PULL_REQUEST: "of pull requests",
    Kind.MAIN: "of main",
    Kind.SCHEDULED: "scheduled",
    Kind.BACKFILL: "of a backfill",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueItem:
    """A run in progress or waiting. `reason`: why it has not begun; `before`: how many runs of its testbed go first.
    Times are estimates from the suite's recent runs, or from what runs on this testbed usually take."""

    run_id: str
    project: str
    suite: str
    testbed: str
    sha: str
    message: str
    branch: str | None
    pull_request: int | None
    state: str
    kind: str
    priority: int
    attempt: int
    requested_by: str
    requested_at: datetime
    leased_at: datetime | None
    worker: str | None
    progress: Mapping[str, Any]
    cancel_requested: bool
    before: int | None
    reason: str
    starts_in_s: float | None
    done_in_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """`counts`: runs by state: all that wait or are in progress, and of the finished ones those requested in the
    last week. `items`: those in progress first, then in the order in which they will be taken."""

    counts: Mapping[str, int]
    items: tuple[QueueItem, ...]
    waiting_s: float | None  # until everything listed is done, as far as known


def queue(
    c: Connection,
    *,
    project: str | None = None,
    testbed: str | None = None,
    of: Collection[str] | None = None,
    limit: int = 100,
    now: datetime | None = None,
    live_s: int = WORKER_LIVE_S,
) -> Queue:
    """The queue: runs in progress, runs waiting, why, and for roughly how long. `of`: the projects whose runs are shown
    and counted; None: all."""
    if not 1 <= limit <= MAX_QUEUE:
        raise BadRequest.field("limit", limit, f"1 to {MAX_QUEUE}")
    now = now or datetime.now(UTC)
    found = None if project is None else find_project(c, project)
    shown_projects = of if found is None else {found.slug}
    counts = overview_store.run_counts(c, now - COUNTED, of=shown_projects)
    items = [
        item
        for item in _all_items(c, now, live_s)
        if (shown_projects is None or item.project in shown_projects) and (testbed is None or item.testbed == testbed)
    ]
    at_work = [item for item in items if item.state != "queued"]
    waiting = sorted((item for item in items if item.state == "queued"), key=lambda item: item.before or 0)
    shown = (at_work + waiting)[:limit]
    ends = [item.done_in_s for item in shown]
    return Queue(
        counts={state: counts.get(state, 0) for state in RUN_STATES},
        items=tuple(shown),
        waiting_s=max((end for end in ends if end is not None), default=None) if None not in ends else None,
    )


def _all_items(c: Connection, now: datetime, live_s: int) -> list[QueueItem]:
    """Every testbed by itself: whoever waits for one waits for the runs of all projects before it."""
    rows = store.open_runs(c, OF_EACH_GROUP)
    workers = store.workers(c, now - timedelta(seconds=live_s))
    items: list[QueueItem] = []
    for testbed_id in dict.fromkeys(row.testbed_id for row in rows):
        used_s = store.used_s(
            c,
            testbed_id,
            again_before=now - OFFERED_FOR,
            now=now,
            halves_after_s=USE_HALVES_AFTER_S,
            a_run_s=A_RUN_S,
        )
        of_testbed = [row for row in rows if row.testbed_id == testbed_id]
        items += _foretell(of_testbed, workers.get(of_testbed[0].testbed), used_s, now)
    return items


def _foretell(
    rows: Sequence[QueueRow], workers: WorkersRow | None, used_s: Mapping[int, float], now: datetime
) -> list[QueueItem]:
    """One testbed: let its workers take the runs in their order. None where nothing has a past to go by."""
    known = [row.usual_s for row in rows if row.usual_s is not None]
    usually_s = median(known) if known else None
    rows = [row if row.usual_s is not None else row._replace(usual_s=usually_s) for row in rows]
    at_work = [row for row in rows if row.state != "queued"]
    lanes: list[float | None] = [_left(row, now) for row in at_work]
    items = [
        _item(row, None, None, left, f"on {row.worker or 'a worker'}") for row, left in zip(at_work, lanes, strict=True)
    ]
    takes = 0 if workers is None else workers.takes
    lanes += [0.0] * (takes - len(lanes))
    ahead: list[QueueRow] = []
    for row in _in_order([row for row in rows if row.state == "queued"], used_s, now):
        stuck = _stuck(row, workers)
        starts = done = None
        if stuck is None and lanes:
            lane = _soonest(lanes)
            starts = lanes[lane]
            done = lanes[lane] = None if starts is None or row.usual_s is None else starts + row.usual_s
        reason = stuck or _why(row, ahead, takes - len(at_work), used_s, now)
        items.append(_item(row, len(ahead), starts, done, reason))
        ahead.append(row)
    return [replace(item, reason="being cancelled") if item.cancel_requested else item for item in items]


def _in_order(rows: Iterable[QueueRow], used_s: Mapping[int, float], now: datetime) -> list[QueueRow]:
    """As they will be handed out: those offered to a worker already, then group by group as their turns come."""
    offered, groups = [], dict[tuple[int, str], list[QueueRow]]()
    for row in rows:
        if row.published_at is not None and now - row.published_at < OFFERED_FOR:
            offered.append(row)
        else:
            groups.setdefault((row.project_id, row.kind), []).append(row)
    waiting = [
        RunGroup(
            project_id=project_id,
            kind=kind,
            trusted=True,
            waiting=len(of_group),
            oldest_at=of_group[0].requested_at,
            served_at=of_group[0].served_at,
        )
        for (project_id, kind), of_group in groups.items()
    ]
    slots = sum(group.waiting for group in waiting)
    fronts = {key: iter(of_group) for key, of_group in groups.items()}
    order = share_out(waiting, used_s, slots=slots, isolated=slots, now=now)
    return offered + [next(fronts[group.project_id, group.kind]) for group in order]


def _soonest(lanes: Sequence[float | None]) -> int:
    """The lane that is free first; one of unknown end is free last."""
    return min(range(len(lanes)), key=lambda lane: (lanes[lane] is None, lanes[lane] or 0.0))


def _left(row: QueueRow, now: datetime) -> float | None:
    """Seconds until a run at work is done: what its worker says, else what the suite usually takes."""
    said = (row.progress or {}).get("eta_s")
    if isinstance(said, int | float):
        return float(said)
    if row.usual_s is None or row.started_at is None:
        return None
    return max(0.0, row.usual_s - (now - row.started_at).total_seconds())


def _stuck(row: QueueRow, workers: WorkersRow | None) -> str | None:
    """Why no worker that there is can take the run; None when one can."""
    if workers is None:
        return f"waits for a first worker of {row.testbed}"
    if workers.takes == 0:
        counted = ((workers.gone, "silent"), (workers.held, "held back"))
        parts = [f"{count} {'is' if count == 1 else 'are'} {what}" for count, what in counted if count]
        return f"waits for a worker of {row.testbed}: {', '.join(parts)}"
    if workers.takes == len(workers.bound) and row.project_id not in workers.bound:
        return (
            f"the tokens of all workers of {row.testbed} are limited to other projects: start one with a token of "
            f"{row.project}, or of no project"
        )
    if not row.trusted and workers.isolated == 0:
        return (
            f"{row.project} is not marked trusted, and no worker of {row.testbed} isolates the code of commits: "
            "trust the project, or start a worker as root or with an image for containers"
        )
    return None


def _why(row: QueueRow, ahead: Sequence[QueueRow], idle: int, used_s: Mapping[int, float], now: datetime) -> str:
    if row.published_at is not None and now - row.published_at < OFFERED_FOR:
        turn = "offered to a worker"
    elif not ahead:
        turn = "next in line"
    elif len(ahead) < idle:
        turn = "an idle worker takes it"
    else:
        turn = f"{len(ahead)} before it{_which(row, ahead)}{_share(row, ahead, used_s)}"
    return turn if row.attempt == 1 else f"{turn}; attempt {row.attempt}, because the one before did not end"


def _which(row: QueueRow, ahead: Sequence[QueueRow]) -> str:
    """Those before it by what makes them go first."""
    counted = Counter(other.kind for other in ahead)
    urgent = [
        f"{counted[kind]} {WORDS[kind]}" for kind in Kind if counted[kind] and PRIORITY[kind] > PRIORITY[Kind(row.kind)]
    ]
    own = sum(other.project_id == row.project_id and other.kind == row.kind for other in ahead)
    earlier = [f"{own} requested earlier"] if own else []
    return f": {', '.join([*urgent, *earlier])}" if urgent or earlier else ""


def _share(row: QueueRow, ahead: Sequence[QueueRow], used_s: Mapping[int, float]) -> str:
    """That its project has had most of this testbed lately, where that is why others go first."""
    total = sum(used_s.values())
    share = used_s.get(row.project_id, 0.0) / total if total else 0.0
    others = any(other.project_id != row.project_id and other.kind == row.kind for other in ahead)
    if share < LARGE_SHARE or not others:
        return ""
    return f"; {row.project} has used {share * 100:.0f} % of {row.testbed} lately, others take their turns"


def _item(row: QueueRow, before: int | None, starts: float | None, done: float | None, reason: str) -> QueueItem:
    return QueueItem(
        **{**shared_fields(row, QueueItem), "progress": row.progress or {}},
        run_id=row.id,
        leased_at=row.started_at,
        before=before,
        reason=reason,
        starts_in_s=starts,
        done_in_s=done,
    )
