"""The housekeeping loop: syncs, expired leases, nudges to workers, partitions, pruning.

One loop, woken by NOTIFY or every two seconds. Every step can be repeated, and only one loop works at a time: it holds
an advisory lock for as long as its connection lives.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from sqlalchemy import Engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from backend.services.archive import retention
from backend.services.base import artifacts
from backend.services.base.config import ServiceConfig
from backend.services.github import pull_requests
from backend.services.github.outbox import GitHubSender
from backend.services.joint.detector import JointDetectors
from backend.services.judging import policy_change as policies
from backend.services.notify.sender import NotifySender
from backend.services.plans import measuring
from backend.services.queue import dispatch, publishing
from backend.services.queue.publishing import Broker, CeleryBroker
from backend.services.repository import removal, sync
from backend.services.triage import machine_alarms
from backend.store.base import access, live, projects, schema
from backend.store.github import deliveries
from backend.store.github import outbox as github_outbox
from backend.store.notify import outbox as notify_outbox
from backend.store.queue import events as event_store

log = logging.getLogger("tidemark.housekeeping")

LOCK = "tidemark housekeeping"
LOOK_UP_S = 0.25  # how often a waiting loop looks whether it should stop
RETRY_S = 1.0
JUMP_S = 5.0
HEARTBEATS_OF_GRACE = 3
HOURLY_S = 3600.0
GONE = ("08", "57P")  # of PostgreSQL's error codes: the connection failed, the server is being shut down


def utc_now() -> datetime:
    return datetime.now(UTC)


def run(config: ServiceConfig, engine: Engine, stop: threading.Event) -> None:
    """Run until told to stop. If the database is unavailable, wait for it."""
    broker = CeleryBroker(config.redis_url)
    try:
        while not stop.is_set():
            try:
                with _Keeper(config, engine, broker, stop) as keeper:
                    keeper.keep()
            except (psycopg.OperationalError, SQLAlchemyError) as error:
                log.warning("housekeeping lost the database, trying again: %s", _first_line(error))
                stop.wait(RETRY_S)
    finally:
        broker.close()


class _Keeper:
    """The loop on one connection: it listens, holds the lock, and is given up with the connection."""

    def __init__(self, config: ServiceConfig, engine: Engine, broker: Broker, stop: threading.Event) -> None:
        self._config = config
        self._engine = engine
        self._broker = broker
        self._stop = stop
        # Fetching a repository may take minutes; leases and nudges must not wait for it.
        self._syncing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sync")
        self._sync: Future[None] | None = None
        # GitHub may be slow as well, and neither waits for the other.
        self._github_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="github")
        self._github_sending: Future[None] | None = None
        self._github = GitHubSender(engine, config)
        # So may whoever people want to be told by.
        self._notify_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="notify")
        self._notifying: Future[None] | None = None
        self._notify = NotifySender(engine, config)
        # Judging months of history again may take minutes as well.
        self._rejudging = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rejudge")
        self._rejudge: Future[None] | None = None
        # So may the newest runs of a project, which are read when it is judged jointly for the first time.
        self._joint_judges = ThreadPoolExecutor(max_workers=1, thread_name_prefix="joint")
        self._joint_judging: Future[None] | None = None
        self._joint_detectors = JointDetectors()
        # So may writing a month to files.
        self._archiving = ThreadPoolExecutor(max_workers=1, thread_name_prefix="archive")
        self._archive: Future[None] | None = None
        self._next_hourly = 0.0
        self._clock = _Clock(config)

    def __enter__(self) -> "_Keeper":
        url = make_url(self._config.direct_database_url or self._engine.url).set(drivername="postgresql")
        self._connection: psycopg.Connection[Any] = psycopg.connect(
            url.render_as_string(hide_password=False),
            autocommit=True,
            connect_timeout=5,
            application_name="tidemark housekeeping",
        )
        self._connection.execute(f"LISTEN {live.WORK_CHANNEL}")
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._syncing.shutdown(wait=True, cancel_futures=True)
        self._github_thread.shutdown(wait=True, cancel_futures=True)
        self._notify_thread.shutdown(wait=True, cancel_futures=True)
        self._rejudging.shutdown(wait=True, cancel_futures=True)
        self._joint_judges.shutdown(wait=True, cancel_futures=True)
        self._archiving.shutdown(wait=True, cancel_futures=True)
        self._github.close()

    def keep(self) -> None:
        while not self._stop.is_set():
            if self._is_ours():
                self._tick()
            self._wait()

    def _is_ours(self) -> bool:
        row = self._connection.execute(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
            " OR pg_try_advisory_lock(hashtext(%s))",
            [LOCK],
        ).fetchone()
        return bool(row and row[0])

    def _tick(self) -> None:
        now = utc_now()
        tick(self._engine, self._config, self._broker, now, may_expire=self._clock.can_be_relied_on(now))
        if self._sync is None or self._sync.done():
            self._sync = self._syncing.submit(self._sync_all)
        if self._github.is_configured and (self._github_sending is None or self._github_sending.done()):
            self._github_sending = self._github_thread.submit(self._send_to_github)
        if self._notifying is None or self._notifying.done():
            self._notifying = self._notify_thread.submit(self._notify_people)
        if self._rejudge is None or self._rejudge.done():
            self._rejudge = self._rejudging.submit(self._rejudge_due)
        if self._joint_judging is None or self._joint_judging.done():
            self._joint_judging = self._joint_judges.submit(self._judge_jointly)
        if time.monotonic() >= self._next_hourly:
            tidy(self._engine, self._config, utc_now())
            if self._archive is None or self._archive.done():
                self._archive = self._archiving.submit(self._retire)
            self._next_hourly = time.monotonic() + HOURLY_S

    def _send_to_github(self) -> None:
        with _reported("sending to GitHub"):
            self._github.send_due(utc_now, self._stop.is_set)

    def _notify_people(self) -> None:
        with _reported("sending notifications"):
            self._notify.send_due(utc_now, self._stop.is_set)

    def _rejudge_due(self) -> None:
        with _reported("judging again"):
            policies.rejudge_due(self._engine, utc_now, self._stop.is_set)

    def _judge_jointly(self) -> None:
        with _reported("judging all series jointly"):
            self._joint_detectors.catch_up_all(self._engine, utc_now, self._stop.is_set)

    def _retire(self) -> None:
        if self._config.keep_months is not None:
            with _reported("archiving old months"):
                retention.retire(
                    self._engine, self._config.archive_dir, self._config.keep_months, utc_now(), self._stop.is_set
                )

    def _sync_all(self) -> None:
        with _reported("sync"):
            sync_all(self._engine, self._config, utc_now, self._stop.is_set)
        with _reported("pull requests"):
            pull_requests.prepare_all(self._engine, self._config, utc_now, self._stop.is_set)
            pull_requests.confirm_all(self._engine, utc_now)

    def _wait(self) -> None:
        """Until somebody tells of work, the tick is over, or we should stop."""
        until = time.monotonic() + self._config.tick_s
        while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
            told = list(self._connection.notifies(timeout=min(left, LOOK_UP_S), stop_after=1))
            if told:
                return


class _Clock:
    """Says when a lease may be held to have run out.

    After the database was away, and after the clock of this machine has jumped, every lease looks old; workers first
    get the time of a few heartbeats to be heard.
    """

    def __init__(self, config: ServiceConfig) -> None:
        self._grace_s = HEARTBEATS_OF_GRACE * config.heartbeat_s
        self._relied_on_from = time.monotonic() + self._grace_s
        self._last: tuple[datetime, float] | None = None

    def can_be_relied_on(self, now: datetime) -> bool:
        ticking = time.monotonic()
        if self._last is not None:
            jumped_s = (now - self._last[0]).total_seconds() - (ticking - self._last[1])
            if abs(jumped_s) > JUMP_S:
                log.warning("the clock has jumped by %+.0f s; leases get %d s to be renewed", jumped_s, self._grace_s)
                self._relied_on_from = ticking + self._grace_s
        self._last = (now, ticking)
        return ticking >= self._relied_on_from


def tick(engine: Engine, config: ServiceConfig, broker: Broker, now: datetime, *, may_expire: bool = True) -> None:
    """The steps that must be quick: expired leases, nudges for idle workers."""
    if may_expire:
        with _reported("expiring leases"), engine.begin() as c:
            for run_id in dispatch.expire_leases(c, config, now):
                log.warning("run %s: its lease ran out", run_id, extra={"run_id": run_id})
    for what, move_on in measuring.STEPS.items():
        with _reported(what), engine.begin() as c:
            move_on(c, config, now)
    with _reported("alarms of machines"):
        settle_alarms(engine, now)
    with _reported("publishing"):
        with engine.begin() as c:
            nudges = publishing.choose_ready(c, config, now)
        publishing.send(broker, nudges)


def settle_alarms(engine: Engine, now: datetime) -> None:
    """Alarms about machines that last or are over, each in its own transaction."""
    with engine.connect() as c:
        due = machine_alarms.due(c)
    for alarm_id in due:
        with _reported(f"settling alarm {alarm_id}"), engine.begin() as c:
            machine_alarms.settle(c, alarm_id, now)


def sync_all(
    engine: Engine,
    config: ServiceConfig,
    now: Callable[[], datetime] = utc_now,
    is_stopping: Callable[[], bool] = lambda: False,
) -> list[sync.Synced]:
    """Synchronize every project that waits for it, and those that have been silent for long."""
    with engine.begin() as c:
        if config.poll_s:
            projects.request_overdue_syncs(c, synced_before=now() - timedelta(seconds=config.poll_s), now=now())
        waiting = projects.to_sync(c, now() - timedelta(seconds=config.sync_again_s))
    done: list[sync.Synced] = []
    for project in waiting:
        if is_stopping():
            break
        with _reported(f"sync of {project.slug}"):
            done.append(sync.sync_project(engine, config, project, now, is_stopping))
    return done


def tidy(engine: Engine, config: ServiceConfig, now: datetime) -> None:
    """The hourly steps."""
    with _reported("partitions"), engine.begin() as c:
        schema.ensure_partitions(c, now)
    with _reported("loads of projects"), engine.begin() as c:
        policies.measure_load(c, now)
    with _reported("pruning"), engine.begin() as c:
        access.prune(c, now)
        live.prune(c, now - timedelta(days=config.live_event_days))
        event_store.prune_run_events(c, now - timedelta(days=config.run_event_days))
        github_outbox.prune(c, now - timedelta(days=config.github_outbox_days))
        notify_outbox.prune(c, now - timedelta(days=config.github_outbox_days))
        deliveries.prune(c, now - timedelta(days=config.webhook_delivery_days))
    with _reported("pruning artifacts"), engine.begin() as c:
        artifacts.prune(c, config, now)
    with _reported("removing mirrors"), engine.begin() as c:
        removal.remove_stray_mirrors(c, config)


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """One step that fails must not keep the others from being done; a lost database concerns them all."""
    try:
        yield
    except (psycopg.OperationalError, SQLAlchemyError) as error:
        if _is_lost(error):
            raise
        log.exception("%s failed", what)
    except Exception:
        log.exception("%s failed", what)


def _is_lost(error: Exception) -> bool:
    """Whether the connection is gone; a deadlock, or a lock that was not to be had, is one step's own bad luck."""
    if isinstance(error, psycopg.OperationalError):
        return error.sqlstate is None or error.sqlstate.startswith(GONE)
    return bool(getattr(error, "connection_invalidated", False))


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
