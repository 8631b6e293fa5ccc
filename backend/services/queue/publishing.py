"""Choosing the next runs and notifying workers of them, through the broker.

Postgres is the source of truth. A message only says "run so-and-so may be ready"; it may be lost, duplicated or late.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy import Connection

from backend.services.base.config import ServiceConfig
from backend.services.queue.scheduling import A_RUN_S, USE_HALVES_AFTER_S, GroupTurn, share_out, turns
from backend.store.queue import groups as queue_groups
from backend.store.queue import queue as store
from backend.store.queue.queue import TestbedLoad

log = logging.getLogger("tidemark.publishing")

TASK = "tidemark.run"
COUNT_USE_EVERY = timedelta(seconds=10)


class Broker(Protocol):
    """Carries nudges. May raise: only speed depends on it."""

    def nudge(self, queue: str, run_id: str) -> None: ...


class CeleryBroker:
    """Sends tasks by name; the worker's code is never imported here."""

    def __init__(self, redis_url: str) -> None:
        from celery import Celery

        self._app = Celery("tidemark", broker=redis_url, set_as_current=False)
        # A broker that is away must not hold up the housekeeping loop: the next tick tries again.
        self._app.conf.update(
            task_ignore_result=True,
            broker_connection_timeout=2,
            broker_transport_options={"socket_timeout": 2, "socket_connect_timeout": 2, "max_retries": 0},
        )

    def nudge(self, queue: str, run_id: str) -> None:
        self._app.send_task(TASK, args=[run_id], queue=queue, retry=False, ignore_result=True)

    def close(self) -> None:
        self._app.close()


def queue_name(testbed: str, project_id: int | None = None) -> str:
    """The queue on which the workers of a testbed listen. Those whose token is limited to one project have their own,
    so that no message reaches a worker that may not take its run."""
    return f"testbed.{testbed}" if project_id is None else f"testbed.{testbed}:{project_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nudge:
    """`project_id`: it is for a worker that serves only this project."""

    testbed: str
    run_id: str
    project_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeWorkers:
    """The workers of a testbed without an offer: `slots` serve every project, `reserved` only one each."""

    testbed_id: int
    testbed: str
    slots: int
    isolated: int
    reserved: Mapping[int, int]

    @property
    def count(self) -> int:
        return self.slots + sum(self.reserved.values())


def choose_ready(c: Connection, config: ServiceConfig, now: datetime) -> list[Nudge]:
    """Mark as published what idle workers can take now: never more messages than they could start."""
    again_before = now - timedelta(seconds=config.publish_again_s)
    alive_since = now - timedelta(seconds=config.worker_live_s)
    queue_groups.count_use(c, now=now, counted_before=now - COUNT_USE_EVERY, halves_after_s=USE_HALVES_AFTER_S)
    loads = store.testbed_loads(c, alive_since=alive_since, published_since=again_before)
    free = [workers for workers in free_workers(loads) if workers.count]
    chosen = _whose_turn(c, free, again_before=again_before, now=now) if free else []
    if not chosen:
        return []
    asked = {
        workers.testbed_id: [(turn.group.project_id, turn.group.kind, turn.runs, turn.newest_first) for turn in each]
        for workers, each in chosen
    }
    picked = queue_groups.pick(c, asked, again_before=again_before)
    published = queue_groups.publish(c, [run_id for runs in picked.values() for run_id, _ in runs], now)
    return [
        nudge
        for workers, _ in chosen
        for nudge in _address(workers, [each for each in picked[workers.testbed_id] if each[0] in published])
    ]


def free_workers(loads: Iterable[TestbedLoad]) -> list[FreeWorkers]:
    """By testbed. A project's offers count for its own workers first, because its runs went to them."""
    by_testbed: dict[int, list[TestbedLoad]] = {}
    for load in loads:
        by_testbed.setdefault(load.testbed_id, []).append(load)
    free = []
    for testbed_id, each in by_testbed.items():
        own = {load.project_id: load for load in each if load.project_id is not None}
        taken = sum(min(load.idle, load.unclaimed) for load in own.values())
        everyones = next((load for load in each if load.project_id is None), None)
        slots = 0 if everyones is None else max(0, everyones.idle - max(0, everyones.unclaimed - taken))
        free.append(
            FreeWorkers(
                testbed_id=testbed_id,
                testbed=each[0].name,
                slots=slots,
                # Any of them may get the message of a run that only some may have; it is refused then, and sent again.
                isolated=slots if everyones is not None and everyones.isolated else 0,
                reserved={project: max(0, load.idle - load.unclaimed) for project, load in own.items()},
            )
        )
    return free


def _address(workers: FreeWorkers, runs: Iterable[tuple[str, int]]) -> list[Nudge]:
    """Each (run, project) to the project's own workers while they are free, then to everyone's."""
    left = dict(workers.reserved)
    nudges = []
    for run_id, project_id in runs:
        own = left.get(project_id, 0) > 0
        nudges.append(Nudge(testbed=workers.testbed, run_id=run_id, project_id=project_id if own else None))
        if own:
            left[project_id] -= 1
    return nudges


def _whose_turn(
    c: Connection, free: Sequence[FreeWorkers], *, again_before: datetime, now: datetime
) -> list[tuple[FreeWorkers, list[GroupTurn]]]:
    """Which groups of each testbed its free workers serve next; testbeds without a turn are left out."""
    found = queue_groups.read_groups(
        c,
        [(workers.testbed_id, workers.count) for workers in free],
        again_before=again_before,
        now=now,
        halves_after_s=USE_HALVES_AFTER_S,
        a_run_s=A_RUN_S,
    )
    chosen = []
    for workers, (rows, used_s) in zip(free, found, strict=True):
        order = share_out(
            rows,
            used_s,
            slots=workers.slots,
            isolated=workers.isolated,
            now=now,
            reserved=workers.reserved,
        )
        if order:
            chosen.append((workers, turns(order, now)))
    return chosen


def send(broker: Broker, nudges: Iterable[Nudge]) -> int:
    """Send the nudges; returns how many were sent. An unreachable broker costs time, never a run."""
    sent = 0
    for nudge in nudges:
        try:
            broker.nudge(queue_name(nudge.testbed, nudge.project_id), nudge.run_id)
        except Exception as error:
            # Kombu and redis raise many kinds; all mean the same: it will be published again.
            log.warning("the broker did not take run %s (testbed %s): %s", nudge.run_id, nudge.testbed, error)
            break
        sent += 1
    return sent
