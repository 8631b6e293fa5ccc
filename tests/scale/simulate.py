"""`make simulate`: a day of a large fleet in fast time, through the real queue code on a real PostgreSQL with fsync.

    python -m tests.scale.simulate --load 0.85     # a day that fits
    python -m tests.scale.simulate --load 1.5      # one that asks for half as much again as there is
    python -m tests.scale.simulate --claims        # how many claims a second, and how the queue's length tells

Time is virtual: nothing waits. What workers do to their machines is left out; all that the queue sees is real.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event, text

from backend.services.base.config import ServiceConfig
from backend.services.base.errors import ServiceError
from backend.services.base.principal import Principal, Scope, Via
from backend.services.queue import dispatch, publishing
from backend.services.queue import request as queue_request
from backend.services.queue.dispatch import WorkerHello
from backend.services.queue.scheduling import Kind
from backend.store.queue import queue
from tests.scale.plans import plan_of_choosing
from tests.scale.world import CRASHES, FAILS, MORNING, SUSPECTS, Agenda, Project, Size, World

ME = Principal(name="simulator", via=Via.TOKEN, scopes=frozenset(Scope))
CONFIG = ServiceConfig(database_url="postgresql://unused", redis_url="redis://unused", data_dir=Path("unused"))
# A healthy worker's heartbeats are left out: its lease is long instead.
HEALTHY = replace(CONFIG, lease_s=7 * 86_400, worker_live_s=7 * 86_400)
CRASHING = replace(CONFIG, worker_live_s=7 * 86_400)
TICK = timedelta(seconds=5)


@dataclass
class Seen:
    """What a simulated day showed."""

    waits_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wait_of_project_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    newest_s: list[float] = field(default_factory=list)
    busy_s: float = 0.0
    used_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    claims: int = 0
    refused: int = 0
    siblings: int = 0
    crashed: int = 0
    expired: int = 0
    superseded: int = 0
    claim_ms: list[float] = field(default_factory=list)
    choose_ms: list[float] = field(default_factory=list)
    served_at: dict[tuple[int, str], datetime] = field(default_factory=dict)
    unserved: dict[str, Any] = field(default_factory=lambda: {"hours": 0.0})
    hours: list[dict[str, Any]] = field(default_factory=list)


class Day:
    """One day, event by event."""

    def __init__(self, engine: Engine, world: World) -> None:
        self.engine = engine
        self.world = world
        self.dice = world.dice
        self.agenda = Agenda()
        self.seen = Seen()
        self.free: dict[str, dict[str, WorkerHello]] = defaultdict(dict)
        self.newest: dict[int, tuple[int, datetime]] = {}
        self.numbers = iter(range(1, 1_000_000))
        for hello in world.workers:
            self.free[hello.testbed][hello.worker] = hello

    def run(self) -> Seen:
        for at, project, kind, commits in self.world.arrivals():
            self.agenda.add(at, self.push, project, kind, commits)
        end = MORNING + timedelta(hours=self.world.size.hours)
        tick_at: datetime | None = None
        told_at = MORNING
        while self.agenda:
            at, (what, *details) = self.agenda.take()
            if at > end:
                break
            if at - told_at > timedelta(hours=1):
                told_at = at
                self.look_around(at)
            what(at, *details)  # type: ignore[operator]
            # The loop is woken by what happened, once for all that happens within a tick.
            if what != self.tick and (tick_at is None or tick_at < at):
                tick_at = at + TICK
                self.agenda.add(tick_at, self.tick)
        return self.seen

    def look_around(self, now: datetime) -> None:
        """Once an hour: how long the queue is, and what choosing reads of it."""
        with self.engine.begin() as c:
            waiting = c.execute(
                text(
                    """SELECT testbed_id, count(*) AS runs, count(DISTINCT (project_id, kind)) AS groups FROM run
                       WHERE state = 'queued' GROUP BY 1 ORDER BY 2 DESC"""
                )
            ).all()
            longest = waiting[0].testbed_id if waiting else 1
            plan = plan_of_choosing(c, longest, now, times=1)
        hour = {"at": f"{now:%H:%M}", "waiting": sum(row.runs for row in waiting), "claims": self.seen.claims}
        if waiting:
            hour |= {"longest": waiting[0].runs, "its_groups": waiting[0].groups, "its_buffers": plan["buffers"]}
        self.seen.hours.append(hour)
        print(hour["at"], f"{self.seen.claims} claims, {hour['waiting']} runs wait", file=sys.stderr, flush=True)

    def look_at_the_end(self, now: datetime) -> dict[str, int]:
        """Those that still wait have waited at least this long: left out, an overload would look like none."""
        left: dict[str, int] = defaultdict(int)
        with self.engine.begin() as c:
            rows = c.execute(
                text("SELECT project_id, testbed_id, kind, requested_at FROM run WHERE state = 'queued'")
            ).all()
        for row in rows:
            left[row.kind] += 1
            self.seen.waits_s[row.kind].append((now - row.requested_at).total_seconds())
            self._unserved(now, (row.project_id, f"{row.kind} {row.testbed_id}"), row.requested_at)
        return left

    # --- what people do ----------------------------------------------------------------------------------------------

    def push(self, now: datetime, project: Project, kind: Kind, commits: int) -> None:
        with self.engine.begin() as c:
            made = [self.world.commit(c, project, on_main=kind is not Kind.PULL_REQUEST) for _ in range(commits)]
            number = None
            if kind is Kind.PULL_REQUEST:
                number = next(self.numbers)
                if self.dice.random() < 0.3:  # pushed to again within the hour: the older commit is dropped
                    again = now + timedelta(minutes=self.dice.uniform(1, 60))
                    self.agenda.add(again, self.push_again, project, number)
            queue_request.request_runs(
                c, project.id, self.world.wanted(project, made), kind=kind, requested_by="simulator", now=now,
                branch="main", pull_request=number,
            )  # fmt: skip
        if kind is Kind.MAIN:
            self.newest[project.id] = (made[-1], now)

    def push_again(self, now: datetime, project: Project, number: int) -> None:
        with self.engine.begin() as c:
            waiting = c.scalars(
                text("SELECT id FROM run WHERE project_id = :p AND pull_request = :n AND state = 'queued'"),
                {"p": project.id, "n": number},
            ).all()
            self.seen.superseded += len(queue.cancel_queued(c, waiting, "superseded", now, "pushed again"))
            commit = self.world.commit(c, project, on_main=False)
            queue_request.request_runs(
                c, project.id, self.world.wanted(project, [commit]), kind=Kind.PULL_REQUEST, requested_by="simulator",
                now=now, branch="main", pull_request=number,
            )  # fmt: skip

    # --- what the service does ---------------------------------------------------------------------------------------

    def tick(self, now: datetime) -> None:
        with self.engine.begin() as c:
            # By the longest lease there is: what is longer than the service's own it takes for a clock that jumped.
            self.seen.expired += len(dispatch.expire_leases(c, HEALTHY, now))
        if not any(self.free.values()):
            return  # with every worker busy there is nothing to choose for
        began = time.perf_counter()
        with self.engine.begin() as c:
            nudges = publishing.choose_ready(c, HEALTHY, now)
        self.seen.choose_ms.append((time.perf_counter() - began) * 1000)
        for nudge in nudges:
            idle = self.free[nudge.testbed]
            if idle:
                self.claim(now, nudge.run_id, idle.pop(self.dice.choice(sorted(idle))))

    # --- what workers do ---------------------------------------------------------------------------------------------

    def claim(self, now: datetime, run_id: str, hello: WorkerHello) -> None:
        crashes = self.dice.random() < CRASHES
        began = time.perf_counter()
        try:
            with self.engine.begin() as c:
                lease = dispatch.lease_run(c, run_id, hello, CRASHING if crashes else HEALTHY, ME, now)
        except ServiceError:
            self.seen.refused += 1
            self.free[hello.testbed][hello.worker] = hello
            return
        self.seen.claim_ms.append((time.perf_counter() - began) * 1000)
        self._note(now, run_id)
        takes_s = self.world.duration_s(lease.suite)
        if crashes:
            self.seen.crashed += 1
            self.agenda.add(now + timedelta(seconds=CONFIG.lease_s + 1), self.look)
            self.agenda.add(now + timedelta(minutes=2), self.come_back, hello)
            return
        self.agenda.add(now + timedelta(seconds=takes_s), self.finish, run_id, hello, now)

    def look(self, now: datetime) -> None:
        """Nothing but a reason to tick."""

    def come_back(self, now: datetime, hello: WorkerHello) -> None:
        with self.engine.begin() as c:
            dispatch.say_hello(c, hello, now, starting=True)
        self.free[hello.testbed][hello.worker] = hello

    def finish(self, now: datetime, run_id: str, hello: WorkerHello, began: datetime) -> None:
        failed = self.dice.random() < FAILS
        self.seen.busy_s += (now - began).total_seconds()
        with self.engine.begin() as c:
            row = c.execute(
                text(
                    "UPDATE run SET state = :state, status = :status, started_at = :began, finished_at = :now, "
                    "received_at = :now, lease_hash = NULL, lease_expires_at = NULL WHERE id = :id "
                    "RETURNING project_id, commit_id, suite, kind"
                ),
                {"state": "failed" if failed else "done", "status": "failed" if failed else "ok", "began": began,
                 "now": now, "id": run_id},
            ).one()  # fmt: skip
            self.seen.used_s[row.project_id] += (now - began).total_seconds()
            if row.kind == Kind.MAIN and self.dice.random() < SUSPECTS:
                project = next(project for project in self.world.projects if project.id == row.project_id)
                wish = queue_request.WantedRun(commit_id=row.commit_id, suite=row.suite, testbed=hello.testbed, spec={})
                queue_request.request_runs(
                    c, project.id, [wish], kind=Kind.CONFIRM, requested_by="simulator", now=now, branch="main",
                    again=True,
                )  # fmt: skip
            following = dispatch.next_of_commit(c, hello.worker, run_id, now)
        if following is None:
            self.free[hello.testbed][hello.worker] = hello
        else:
            self.seen.siblings += 1
            self.claim(now, following, hello)

    def _note(self, now: datetime, run_id: str) -> None:
        with self.engine.begin() as c:
            row = c.execute(
                text("SELECT project_id, testbed_id, commit_id, kind, requested_at FROM run WHERE id = :id"),
                {"id": run_id},
            ).one()
        waited = (now - row.requested_at).total_seconds()
        self.seen.claims += 1
        self.seen.waits_s[row.kind].append(waited)
        if row.kind == Kind.MAIN:
            self.seen.wait_of_project_s[row.project_id].append(waited)
            newest = self.newest.get(row.project_id)
            if newest is not None and newest[0] == row.commit_id:
                self.seen.newest_s.append(waited)
        group = (row.project_id, f"{row.kind} {row.testbed_id}")
        self._unserved(now, group, row.requested_at)
        self.seen.served_at[group] = now

    def _unserved(self, now: datetime, group: tuple[int, str], requested_at: datetime) -> None:
        since = max(requested_at, self.seen.served_at.get(group, requested_at))
        hours = round((now - since).total_seconds() / 3600, 2)
        if hours > self.seen.unserved["hours"]:
            self.seen.unserved = {"hours": hours, "project": group[0], "group": group[1], "until": f"{now:%H:%M}"}


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def simulate(engine: Engine, size: Size, seed: int) -> dict[str, Any]:
    """A day, and what it showed."""
    world = World(size, random.Random(seed))
    # Nothing here waits for a disk: it is the order of things that is looked at.
    event.listen(engine, "connect", _without_waiting)
    engine.dispose()
    with engine.begin() as c:
        world.make(c)
    began = time.monotonic()
    day = Day(engine, world)
    seen = day.run()
    took_s = time.monotonic() - began
    left = day.look_at_the_end(MORNING + timedelta(hours=size.hours))
    with engine.begin() as c:
        runs = c.scalar(text("SELECT count(*) FROM run"))
        twice = _held_twice(c)
    capacity_s = size.workers * size.hours * 3600
    flood, others = world.projects[0].id, [project.id for project in world.projects[1:]]
    return {
        "runs": runs,
        "claims": seen.claims,
        "took_s": round(took_s, 1),
        "workers_busy": round(seen.busy_s / capacity_s, 3),
        "wait_min": {
            kind: {
                "runs": len(seen.waits_s[kind]),
                "median": _minutes(percentile(seen.waits_s[kind], 0.5)),
                "p95": _minutes(percentile(seen.waits_s[kind], 0.95)),
                "longest": _minutes(max(seen.waits_s[kind])),
                "left": left[kind],
            }
            for kind in Kind
            if seen.waits_s.get(kind)
        },
        "newest_main_wait_min": {
            "median": _minutes(percentile(seen.newest_s, 0.5)),
            "p95": _minutes(percentile(seen.newest_s, 0.95)),
        },
        "main_wait_of_the_flooding_project_min": _minutes(percentile(seen.wait_of_project_s[flood], 0.5)),
        "main_wait_of_the_others_min": _minutes(
            percentile((wait for project in others for wait in seen.wait_of_project_s[project]), 0.5)
        ),
        "longest_time_a_group_was_not_served": seen.unserved,
        "share_of_the_flooding_project": round(seen.used_s[flood] / max(1.0, sum(seen.used_s.values())), 3),
        "same_worker_went_on_with_the_commit": round(seen.siblings / max(1, seen.claims), 3),
        "crashed": seen.crashed,
        "leases_run_out": seen.expired,
        "superseded": seen.superseded,
        "refused": seen.refused,
        "held_twice": twice,
        "hours": seen.hours,
        "claim_ms": {"p50": _ms(seen.claim_ms, 0.5), "p99": _ms(seen.claim_ms, 0.99)},
        "choose_ms": {"p50": _ms(seen.choose_ms, 0.5), "p99": _ms(seen.choose_ms, 0.99)},
    }


def _without_waiting(connection: Any, _: object) -> None:
    connection.execute("SET synchronous_commit TO off")
    connection.commit()


def _held_twice(c: Connection) -> int:
    """Workers that hold more than one run."""
    return int(
        c.scalar(
            text(
                "SELECT count(*) FROM (SELECT worker_id FROM run WHERE state IN ('leased', 'running') "
                "GROUP BY worker_id HAVING count(*) > 1) AS twice"
            )
        )
        or 0
    )


def _minutes(seconds: float) -> float:
    return round(seconds / 60, 1)


def _ms(values: Sequence[float], share: float) -> float:
    return round(percentile(values, share), 2)


def main() -> int:
    from tests.scale.claims import measure_claims
    from tests.scale.database import fresh_database

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--load", type=float, default=0.85, help="worker time asked for, as a share of what there is")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--projects", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--claims", action="store_true", help="measure claims a second instead of a day")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to measure claims")
    told = parser.parse_args()
    with fresh_database() as (url, engine):
        if told.claims:
            figures = measure_claims(url, engine, seconds=told.seconds)
        else:
            size = Size(workers=told.workers, projects=told.projects, hours=told.hours, load=told.load)
            figures = simulate(engine, size, told.seed)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
