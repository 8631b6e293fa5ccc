"""Whose turn it is. Pure: the queue asks it what to hand out, and its page asks it what will happen and why.

Runs wait in groups (one project's runs of one kind on one testbed), each in order of request with parents before
children. A group's urgency is the priority of its kind, and rises while nothing of it is served, so that nothing waits
for ever. Among groups of about the same urgency the project goes first that has used the testbed least.
"""

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from backend.store.queue.groups import RunGroup


class Kind(StrEnum):
    """Why a run was requested; decides which goes first."""

    CONFIRM = "confirm"
    PULL_REQUEST = "pull_request"
    MAIN = "main"
    SCHEDULED = "scheduled"
    BACKFILL = "backfill"


PRIORITY: Mapping[Kind, int] = {
    Kind.CONFIRM: 40,
    Kind.PULL_REQUEST: 30,
    Kind.MAIN: 20,
    Kind.SCHEDULED: 15,
    Kind.BACKFILL: 10,
}

# A backfill that nobody serves stands beside main after two hours, beside pull requests after four.
POINTS_AN_HOUR = 5.0
# Levels closer than this count as equal, and the fair share between projects decides.
BAND = 5.0
# What one more run counts for until it is known how long it took; and how fast use is forgotten.
A_RUN_S = 300.0
USE_HALVES_AFTER_S = 3600.0
# While the oldest run of main has waited this long, every second minute belongs to the newest commit.
BACKLOG_AFTER = timedelta(minutes=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTurn:
    """How many runs of a group go next, and from which end of it."""

    group: RunGroup
    runs: int
    newest_first: bool


def urgency(group: RunGroup, served_at: datetime | None, now: datetime) -> float:
    """The priority of the kind, and 5 points more for every hour that nothing of the group was served."""
    since = group.oldest_at if served_at is None else max(group.oldest_at, served_at)
    unserved_h = max(0.0, (now - since).total_seconds() / 3600)
    return PRIORITY[Kind(group.kind)] + POINTS_AN_HOUR * unserved_h


def share_out(
    groups: Iterable[RunGroup],
    used_s: Mapping[int, float],
    *,
    slots: int,
    isolated: int,
    now: datetime,
    reserved: Mapping[int, int] | None = None,
) -> list[RunGroup]:
    """The groups that the next free workers serve, in order; a group comes once for each of its runs.

    `used_s`: worker seconds of each project on this testbed, lately. `slots`: free workers that serve every project;
    `isolated`: how many of them may run the code of projects that are not trusted. `reserved`: free workers that serve
    one project only, by project; its runs go to them first, so that the others stay free for its neighbours.
    """
    used = dict(used_s)
    left = {_key(group): group.waiting for group in groups}
    served = {_key(group): group.served_at for group in groups}

    def standing(group: RunGroup) -> tuple[float, float, datetime]:
        band = math.floor(urgency(group, served[_key(group)], now) / BAND)
        return (-band, used.get(group.project_id, 0.0), group.oldest_at)

    waiting = [(standing(group), _key(group), group) for group in groups if group.waiting > 0]
    heapq.heapify(waiting)
    own = dict(reserved or {})
    order: list[RunGroup] = []
    while waiting and (slots > 0 or any(own.values())):
        stood, key, group = heapq.heappop(waiting)
        has_own = own.get(group.project_id, 0) > 0
        if not has_own and (slots <= 0 or (not group.trusted and isolated <= 0)):
            continue
        stands = standing(group)
        if stands != stood:  # its project was given something meanwhile
            heapq.heappush(waiting, (stands, key, group))
            continue
        order.append(group)
        if has_own:
            own[group.project_id] -= 1
        else:
            slots -= 1
            isolated -= not group.trusted
        used[group.project_id] = used.get(group.project_id, 0.0) + A_RUN_S
        served[key] = now
        left[key] -= 1
        if left[key]:
            heapq.heappush(waiting, (standing(group), key, group))
    return order


def turns(order: Iterable[RunGroup], now: datetime) -> list[GroupTurn]:
    """The same, group by group."""
    counted: dict[tuple[int, str], tuple[RunGroup, int]] = {}
    for group in order:
        counted[_key(group)] = (group, counted.get(_key(group), (group, 0))[1] + 1)
    return [
        GroupTurn(group=group, runs=runs, newest_first=takes_newest(group, now)) for group, runs in counted.values()
    ]


def takes_newest(group: RunGroup, now: datetime) -> bool:
    """Whether the newest commit of main goes before its ancestors: it would not be measured for as long as more is
    pushed than can be measured. Every second minute still belongs to the oldest."""
    return group.kind == Kind.MAIN and now - group.oldest_at > BACKLOG_AFTER and int(now.timestamp() // 60) % 2 == 0


def _key(group: RunGroup) -> tuple[int, str]:
    return (group.project_id, group.kind)
