"""The housekeeping loop: woken by work, one at a time, quick to stop, and unimpressed by a lost database."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import Engine, text

from backend.services import housekeeping
from backend.services.base.config import ServiceConfig
from backend.services.base.live import publish
from backend.services.queue import dispatch, publishing
from backend.services.queue import request as queue_request
from backend.services.queue.dispatch import Protection, WorkerHello
from backend.services.queue.request import WantedRun
from backend.services.queue.scheduling import Kind
from tidemark.machine.processes import wait_until


@contextmanager
def running(config: ServiceConfig, engine: Engine) -> Iterator[threading.Event]:
    """The loop in a thread, stopped with the block."""
    stop = threading.Event()
    thread = threading.Thread(target=housekeeping.run, args=(config, engine, stop), daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive(), "housekeeping did not stop"


@pytest.fixture
def slow_ticks(service_config: ServiceConfig) -> ServiceConfig:
    """A loop that does something in a test's time only because it is told to."""
    return replace(service_config, tick_s=60.0)


def queue_a_run(engine: Engine, testbed: str = "cpu") -> str:
    now = datetime.now(UTC)
    with engine.begin() as c:
        project = c.scalar(
            text(
                "INSERT INTO project (slug, trusted) VALUES ('a/b', true) "
                "ON CONFLICT (slug) DO UPDATE SET slug = excluded.slug RETURNING id"
            )
        )
        commit = c.scalar(
            text("INSERT INTO commit (project_id, sha) VALUES (:p, md5(random()::text)) RETURNING id"), {"p": project}
        )
        hello = WorkerHello(worker="w", testbed=testbed, version="1", capabilities={}, protection=Protection.USER)
        dispatch.say_hello(c, hello, now)
        wanted = WantedRun(commit_id=commit, suite="gpt", testbed=testbed, spec={})
        (requested,) = queue_request.request_runs(c, project, [wanted], kind=Kind.MAIN, requested_by="test", now=now)
    return requested.run_id


def value(engine: Engine, sql: str, **values: Any) -> Any:
    with engine.connect() as c:
        return c.scalar(text(sql), values)


def is_published(engine: Engine, run_id: str) -> Callable[[], bool]:
    return lambda: bool(value(engine, "SELECT published_at IS NOT NULL FROM run WHERE id = :id", id=run_id))


def has_lock(engine: Engine) -> bool:
    held = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted "
    return bool(value(engine, held + "AND datname = current_database() AND application_name = 'tidemark housekeeping'"))


def test_queued_work_wakes_the_loop_and_reaches_the_broker(
    slow_ticks: ServiceConfig, committing_engine: Engine
) -> None:
    with running(slow_ticks, committing_engine):
        assert wait_until(lambda: has_lock(committing_engine), 10)
        run_id = queue_a_run(committing_engine, "woken")
        assert wait_until(is_published(committing_engine, run_id), 10)
        with (
            Celery("consumer", broker=slow_ticks.redis_url).connection_for_read() as connection,
            connection.SimpleQueue("testbed.woken") as queue,
        ):
            message = queue.get(timeout=5)
            message.ack()
    assert message.payload[0] == [run_id]


def test_two_loops_work_one_at_a_time_and_the_second_takes_over(
    service_config: ServiceConfig, committing_engine: Engine
) -> None:
    quick = replace(service_config, tick_s=0.2)
    with running(quick, committing_engine):
        with running(quick, committing_engine) as first:
            assert wait_until(lambda: has_lock(committing_engine), 10)
            locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            assert value(committing_engine, locks) == 1
            first.set()
        run_id = queue_a_run(committing_engine)
        assert wait_until(is_published(committing_engine, run_id), 10)


def test_a_lost_database_connection_is_made_again(service_config: ServiceConfig, committing_engine: Engine) -> None:
    with running(replace(service_config, tick_s=0.2), committing_engine):
        assert wait_until(lambda: has_lock(committing_engine), 10)
        with committing_engine.begin() as c:
            c.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'tidemark housekeeping' AND datname = current_database()"
                )
            )
        run_id = queue_a_run(committing_engine)
        assert wait_until(is_published(committing_engine, run_id), 15)


def test_a_fetch_that_hangs_neither_stops_the_queue_nor_the_end(
    slow_ticks: ServiceConfig, committing_engine: Engine
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))  # takes connections and never answers
    with committing_engine.begin() as c:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/x.git"
        c.execute(
            text("INSERT INTO project (slug, repository_url, sync_requested_at) VALUES ('h/h', :u, now())"), {"u": url}
        )
    here = replace(slow_ticks, private_hosts=("127.0.0.1",))
    with listener, running(here, committing_engine):
        listener.settimeout(15)
        connection, _ = listener.accept()
        with connection:
            run_id = queue_a_run(committing_engine)
            assert wait_until(is_published(committing_engine, run_id), 10)


def test_old_rows_are_pruned_and_partitions_kept_ahead(
    service_config: ServiceConfig, committing_engine: Engine
) -> None:
    run_id = queue_a_run(committing_engine)
    now = datetime.now(UTC)
    with committing_engine.begin() as c:
        for days in (0, 100):
            at = now - timedelta(days=days)
            publish(c, "run", None, {})
            c.execute(text("UPDATE live_event SET at = :at WHERE id = (SELECT max(id) FROM live_event)"), {"at": at})
            c.execute(
                text(
                    """INSERT INTO run_event (run_id, project_id, at, kind, detail)
                       SELECT id, project_id, :at, 'log', '{}' FROM run WHERE id = :r"""
                ),
                {"r": run_id, "at": at},
            )
            c.execute(
                text("INSERT INTO webhook_delivery (delivery_id, event, received_at) VALUES (:d, 'push', :at)"),
                {"d": str(days), "at": at},
            )
    housekeeping.tidy(committing_engine, service_config, now + timedelta(days=40))
    assert value(committing_engine, "SELECT count(*) FROM run_event") == 0
    housekeeping.tidy(committing_engine, service_config, now)
    for table, column in (("live_event", "at"), ("webhook_delivery", "received_at")):
        assert (
            value(committing_engine, f"SELECT count(*) FROM {table} WHERE {column} < now() - interval '50 days'") == 0
        )
    ahead = f"judgement_{now + timedelta(days=40):%Y_%m}"
    assert value(committing_engine, "SELECT count(*) FROM pg_class WHERE relname = :n", n=ahead) == 1


def test_one_step_that_fails_does_not_keep_the_others_from_being_done(
    service_config: ServiceConfig, committing_engine: Engine
) -> None:
    run_id = queue_a_run(committing_engine)
    with committing_engine.begin() as c:
        c.execute(text("ALTER TABLE run_event RENAME COLUMN detail TO moved"))
        c.execute(text("UPDATE run SET state = 'leased', lease_expires_at = now() - interval '1 hour'"))
    other = queue_a_run(committing_engine)
    broker = publishing.CeleryBroker("redis://127.0.0.1:1/0")
    with committing_engine.begin() as c:
        c.execute(text("INSERT INTO worker (name, testbed_id) SELECT 'w2', id FROM testbed"))
    housekeeping.tick(committing_engine, service_config, broker, datetime.now(UTC))
    broker.close()
    assert value(committing_engine, "SELECT state FROM run WHERE id = :id", id=run_id) == "leased"
    assert is_published(committing_engine, other)()


def test_a_step_that_lost_a_lock_to_somebody_else_keeps_the_loop_and_its_connection(
    service_config: ServiceConfig, committing_engine: Engine
) -> None:
    run_id = queue_a_run(committing_engine)
    with committing_engine.begin() as c:
        # The way of the loop's own statements: PostgreSQL's refusal comes as the driver has it.
        c.execute(
            text(
                """CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS
                   $$ BEGIN RAISE EXCEPTION 'lost to another' USING ERRCODE = 'deadlock_detected'; END $$"""
            )
        )
        c.execute(text("CREATE TRIGGER lose BEFORE INSERT ON queue_share EXECUTE FUNCTION lose()"))
    broker = publishing.CeleryBroker(service_config.redis_url)
    try:
        housekeeping.tick(committing_engine, service_config, broker, datetime.now(UTC))
    finally:
        broker.close()
    assert not is_published(committing_engine, run_id)()


def test_after_the_clock_has_jumped_workers_get_time_to_be_heard(service_config: ServiceConfig) -> None:
    quick = replace(service_config, heartbeat_s=1)
    clock, now = housekeeping._Clock(quick), datetime.now(UTC)
    assert not clock.can_be_relied_on(now), "it has just begun: the database may have been away"
    assert wait_until(lambda: clock.can_be_relied_on(datetime.now(UTC)), 10)
    for jump in (timedelta(hours=1), timedelta(hours=-1)):
        assert not clock.can_be_relied_on(datetime.now(UTC) + jump)
        assert not clock.can_be_relied_on(datetime.now(UTC) + jump)
        assert wait_until(lambda jump=jump: clock.can_be_relied_on(datetime.now(UTC) + jump), 10)
