"""How many claims a second the queue bears, beside what one fsynced INSERT takes; and that its length does not tell.

A claim is what stands between "waits" and "is mine": chosen by the housekeeping loop, then leased by its worker. How
many there can be is measured with as many callers as the machine bears, each with its next claim as soon as it has one:
how long one takes then says how many wait beside it. How long a claim takes is measured at stated rates, with arrivals
by chance, from the moment the claim was due.
"""

from __future__ import annotations

import multiprocessing
import queue as queues
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
from sqlalchemy import Connection, Engine, create_engine, text

from backend.contract import new_run_id
from backend.services.base.errors import ServiceError
from backend.services.queue import dispatch, publishing
from backend.services.queue.scheduling import PRIORITY, Kind, share_out
from backend.store.queue import groups as queue_groups
from tests.scale.plans import plan_of_choosing
from tests.scale.simulate import HEALTHY, ME, percentile
from tests.scale.world import SUITES, Size, World

PROCESSES = 2
# Two callers for each of two cores keep them busy; more only wait for each other.
THREADS_AT_FULL_SPEED, THREADS_AT_A_RATE = 2, 4
LENGTHS = (1_000, 20_000, 100_000)
# A hundred workers that measure for five minutes each claim a third of a run a second, a thousand of them three.
RATES = (50, 100, 250)
PACED_S = 6.0
# Connections plan a statement anew the first five times; those of a service did so long ago.
WARM_AFTER_S = 1.0
# What was offered may wait longer for its turn here than it would for a worker.
OFFERED = replace(HEALTHY, publish_again_s=3600)


def measure_claims(
    url: str,
    engine: Engine,
    *,
    seconds: float,
    lengths: Sequence[int] = LENGTHS,
    rates: Sequence[float] = RATES,
) -> dict[str, Any]:
    """Claims a second with the longest queue, how long one takes at each rate, and what choosing costs at each
    length."""
    world = World(Size(), random.Random(1))
    with engine.begin() as c:
        world.make(c)
    plans, there = {}, 0
    for length in lengths:
        with engine.begin() as c:
            _fill(c, world, length - there)
            there = length
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
            c.execute(text("VACUUM ANALYZE run"))
        plans[str(length)] = _plan(engine)
    insert_ms = _fsynced_insert(engine)
    claims = _claim(url, engine, world, seconds)
    paced = [{"asked_per_s": rate, **_claim(url, engine, world, PACED_S, rate=rate)} for rate in rates]
    for each in (claims, *paced):
        each["p99_in_fsynced_inserts"] = round(each["claim_ms"]["p99"] / insert_ms["p50"], 1)
    return {
        "fsynced_insert_ms": insert_ms,
        "as_many_as_go": {"in_flight": PROCESSES * THREADS_AT_FULL_SPEED, **claims},
        "at_a_rate": paced,
        "choosing_by_length_of_the_queue": plans,
    }


def _fill(c: Connection, world: World, runs: int) -> None:
    now = datetime.now(UTC)
    testbeds = {row.name: row.id for row in c.execute(text("SELECT id, name FROM testbed"))}
    kinds = [Kind.MAIN] * 5 + [Kind.PULL_REQUEST] * 2 + [Kind.BACKFILL] * 3
    rows = []
    commits = {project.id: world.commit(c, project, on_main=True) for project in world.projects}
    for run_id in sorted(new_run_id() for _ in range(runs)):
        project, kind = world.dice.choice(world.projects), world.dice.choice(kinds)
        rows.append(
            {
                "id": run_id, "project": project.id, "commit": commits[project.id],
                "testbed": testbeds[world.dice.choice(project.testbeds)], "suite": world.dice.choice(SUITES)[0],
                "kind": kind.value, "priority": PRIORITY[kind],
                "at": now - timedelta(seconds=world.dice.random() * 600),
            }
        )  # fmt: skip
    for start in range(0, len(rows), 5000):
        c.execute(
            text(
                "INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, kind, priority, requested_at) "
                "VALUES (:id, :project, :commit, :testbed, :suite, 'queued', :kind, :priority, :at)"
            ),
            rows[start : start + 5000],
        )


def _plan(engine: Engine) -> dict[str, Any]:
    """What choosing for a testbed costs: time, buffers, and how PostgreSQL goes about it."""
    now = datetime.now(UTC)
    with engine.begin() as c:
        plan = plan_of_choosing(c, 1, now)
        ((rows, used_s),) = queue_groups.read_groups(
            c, [(1, 5)], again_before=now - timedelta(seconds=10), now=now, halves_after_s=3600, a_run_s=300
        )
    share_out(rows, used_s, slots=5, isolated=5, now=now)
    return {"groups": len(rows), **plan}


def _fsynced_insert(engine: Engine) -> dict[str, float]:
    """One row in a transaction of its own: what a promise costs on this disk."""
    with engine.begin() as c:
        c.execute(text("CREATE TABLE scale_insert (id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz)"))
    times = []
    for _ in range(300):
        began = time.perf_counter()
        with engine.begin() as c:
            c.execute(text("INSERT INTO scale_insert (at) VALUES (now())"))
        times.append((time.perf_counter() - began) * 1000)
    return {"p50": round(percentile(times, 0.5), 2), "p99": round(percentile(times, 0.99), 2)}


def _claim(url: str, engine: Engine, world: World, seconds: float, rate: float | None = None) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    offered: Any = context.Queue()
    told: Any = context.Queue()
    ready, stop = context.Semaphore(0), context.Event()
    leasers = [
        context.Process(
            target=_lease,
            args=(url, world.workers, offered, told, ready, stop, None if rate is None else rate / PROCESSES),
        )
        for _ in range(PROCESSES)
    ]
    for leaser in leasers:
        leaser.start()
    for _ in leasers:
        ready.acquire(timeout=60)
    before = _claimed(engine)
    began, cpu = time.monotonic(), _cpu_s()
    choose_ms: list[float] = []
    chosen = 0
    while time.monotonic() - began < seconds:
        with engine.begin() as c:
            # Those that were claimed end at once, so that their workers are free again.
            c.execute(text("UPDATE run SET state = 'done' WHERE state = 'leased'"))
        started = time.perf_counter()
        with engine.begin() as c:
            nudges = publishing.choose_ready(c, OFFERED, datetime.now(UTC))
        choose_ms.append((time.perf_counter() - started) * 1000)
        chosen += len(nudges)
        for nudge in nudges:
            offered.put((nudge.testbed, nudge.run_id))
        while offered.qsize() > PROCESSES * THREADS_AT_A_RATE and time.monotonic() - began < seconds:
            time.sleep(0.001 if rate is None else 0.02)
    took_s = time.monotonic() - began
    cpu_s = _cpu_s() - cpu
    stop.set()
    said = [told.get(timeout=60) for _ in leasers]
    for leaser in leasers:
        leaser.join(30)
    with engine.begin() as c:
        # Those that were offered and not claimed wait as before.
        c.execute(text("UPDATE run SET published_at = NULL WHERE state = 'queued' AND published_at IS NOT NULL"))
    claims = [claim for each, _, _ in said for claim in each]
    warm_from = min((at for at, _ in claims), default=0.0) + WARM_AFTER_S
    claim_ms = [took_ms for at, took_ms in claims if at >= warm_from]
    return {
        "claims": len(claims),
        "claims_per_s": round(len(claims) / took_s),
        "refused": sum(refused for _, refused, _ in said),
        **({} if rate is None else {"found_nothing_offered": sum(nothing for _, _, nothing in said)}),
        "cpu_ms_a_claim": round(cpu_s * 1000 / max(1, len(claims)), 2),
        "cores_used": round(cpu_s / took_s, 2),
        "claims_per_s_of_two_cores": round(2 * len(claims) / cpu_s),
        "claim_ms": {"p50": round(percentile(claim_ms, 0.5), 2), "p99": round(percentile(claim_ms, 0.99), 2)},
        # Once for all testbeds and free workers. Nobody waits for it who has work.
        "choosing": {
            "runs_a_time": round(chosen / max(1, len(choose_ms)), 1),
            "ms": {"p50": round(percentile(choose_ms, 0.5), 2), "p99": round(percentile(choose_ms, 0.99), 2)},
        },
        "twice": len(claims) - _claimed(engine) + before,
    }


def _claimed(engine: Engine) -> int:
    with engine.connect() as c:
        return int(c.scalar(text("SELECT count(*) FROM run WHERE state IN ('done', 'leased')")) or 0)


def _cpu_s() -> float:
    """Of this process and everything below it, PostgreSQL included."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
        except psutil.Error:
            continue
    return total


def _lease(url: str, hellos: Sequence[Any], offered: Any, told: Any, ready: Any, stop: Any, rate: float | None) -> None:
    """A process that leases what is offered, as the API does for its callers: with a thread for each at a time.

    With a rate, claims fall due by chance, so many a second, whether or not those before them are through.
    """
    count = THREADS_AT_FULL_SPEED if rate is None else THREADS_AT_A_RATE
    engine = create_engine(url, pool_size=count)
    by_testbed: dict[str, list[Any]] = {}
    for hello in hellos:
        by_testbed.setdefault(hello.testbed, []).append(hello)
    claims: list[tuple[float, float]] = []
    counted = {"refused": 0, "nothing": 0}
    due_now: queues.SimpleQueue[tuple[float, str, str]] = queues.SimpleQueue()

    def pace(rate: float) -> None:
        dice = random.Random(rate)
        due = time.perf_counter()
        while not stop.is_set():
            due += dice.expovariate(rate)
            try:
                testbed, run_id = offered.get_nowait()
            except queues.Empty:
                try:
                    testbed, run_id = offered.get(timeout=0.2)
                except queues.Empty:
                    continue
                if (now := time.perf_counter()) > due:
                    counted["nothing"] += 1
                    due = now
            time.sleep(max(0.0, due - time.perf_counter()))
            due_now.put((due, testbed, run_id))

    def work(number: int) -> None:
        dice = random.Random(number)
        with engine.connect() as c:
            c.execute(text("SELECT 1"))
        while not stop.is_set():
            try:
                if rate is None:
                    testbed, run_id = offered.get(timeout=0.2)
                    began = time.perf_counter()
                else:
                    began, testbed, run_id = due_now.get(timeout=0.2)
            except queues.Empty:
                continue
            try:
                with engine.begin() as c:
                    dispatch.lease_run(c, run_id, dice.choice(by_testbed[testbed]), HEALTHY, ME, datetime.now(UTC))
            except ServiceError:
                counted["refused"] += 1
                continue
            claims.append((began, (time.perf_counter() - began) * 1000))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    threads += [] if rate is None else [threading.Thread(target=pace, args=(rate,))]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    ready.release()
    for thread in threads:
        thread.join()
    told.put((claims, counted["refused"], counted["nothing"]))
    engine.dispose()
