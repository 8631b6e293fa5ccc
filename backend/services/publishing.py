"""Choosing the next runs and telling workers of them, through the broker.

Postgres is the truth. A message only says "run so-and-so may be ready"; it may be lost, doubled or late.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy import Connection

from backend.services.config import ServiceConfig
from backend.services.scheduling import A_RUN_S, USE_HALVES_AFTER_S, Group, Turn, share_out, turns
from backend.store import queue as store
from backend.store import queue_groups
from backend.store.queue import TestbedLoad

log = logging.getLogger("tidemark.publishing")

TASK = "tidemark.run"
COUNT_USE_EVERY = timedelta(seconds=10)


class Broker(Protocol):
    """Carries nudges. May raise: nothing depends on it but speed."""

    def nudge(self, testbed: str, run_id: str) -> None: ...


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

    def nudge(self, testbed: str, run_id: str) -> None:
        self._app.send_task(TASK, args=[run_id], queue=queue_name(testbed), retry=False, ignore_result=True)

    def close(self) -> None:
        self._app.close()


def queue_name(testbed: str) -> str:
    return f"testbed.{testbed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nudge:
    testbed: str
    run_id: str


def choose_ready(c: Connection, config: ServiceConfig, now: datetime) -> list[Nudge]:
    """Mark as published what idle workers can take now: never more messages than they could start on."""
    again_before = now - timedelta(seconds=config.publish_again_s)
    alive_since = now - timedelta(seconds=config.worker_live_s)
    queue_groups.count_use(c, now=now, counted_before=now - COUNT_USE_EVERY, halves_after_s=USE_HALVES_AFTER_S)
    loads = store.testbed_loads(c, alive_since=alive_since, published_since=again_before)
    free = [load for load in loads if load.idle > load.unclaimed]
    chosen = _whose_turn(c, free, again_before=again_before, now=now) if free else []
    if not chosen:
        return []
    asked = {
        load.testbed_id: [(turn.group.project_id, turn.group.kind, turn.runs, turn.newest_first) for turn in each]
        for load, each in chosen
    }
    picked = queue_groups.pick(c, asked, again_before=again_before)
    published = queue_groups.publish(c, [run_id for ids in picked.values() for run_id in ids], now)
    return [
        Nudge(testbed=load.name, run_id=run_id)
        for load, _ in chosen
        for run_id in picked[load.testbed_id]
        if run_id in published
    ]


def _whose_turn(
    c: Connection, loads: Sequence[TestbedLoad], *, again_before: datetime, now: datetime
) -> list[tuple[TestbedLoad, list[Turn]]]:
    """Which groups of each testbed its free workers serve next; testbeds without a turn are left out."""
    found = queue_groups.read_groups(
        c,
        [(load.testbed_id, load.idle - load.unclaimed) for load in loads],
        again_before=again_before,
        now=now,
        halves_after_s=USE_HALVES_AFTER_S,
        a_run_s=A_RUN_S,
    )
    chosen = []
    for load, (rows, used_s) in zip(loads, found, strict=True):
        slots = load.idle - load.unclaimed
        # Any worker may get the message of a run that only some may have; it is refused then, and published again.
        isolated = slots if load.isolated else 0
        order = share_out([Group(**asdict(row)) for row in rows], used_s, slots=slots, isolated=isolated, now=now)
        if order:
            chosen.append((load, turns(order, now)))
    return chosen


def send(broker: Broker, nudges: Iterable[Nudge]) -> int:
    """Send the nudges; returns how many went out. A broker that is away costs time, never a run."""
    sent = 0
    for nudge in nudges:
        try:
            broker.nudge(nudge.testbed, nudge.run_id)
        except Exception as error:
            # Kombu and redis raise many kinds; all mean the same: it will be published again.
            log.warning("the broker did not take run %s (testbed %s): %s", nudge.run_id, nudge.testbed, error)
            break
        sent += 1
    return sent
