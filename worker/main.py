"""The worker process: says hello, takes runs from the queue of its testbed, and stops cleanly when asked to."""

from __future__ import annotations

import compileall
import contextlib
import ctypes
import fcntl
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import SecurityWarning
from celery.signals import setup_logging
from celery.worker import state as celery_state

from worker.client import ApiClient, ApiRefusal, ApiUnreachable, DesiredState
from worker.config import WorkerConfig
from worker.delivery.deliver import Deliverer
from worker.delivery.spool import Spool
from worker.execution.rundir import remove_stale
from worker.isolation.processes import end_strays
from worker.isolation.protection import Sandbox, describe, establish
from worker.job import JobRunner, Switch
from worker.observe import capabilities

log = logging.getLogger("tidemark.worker")

TASK = "tidemark.run"
EXIT_REFUSED = 78
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
ONE_WISH_S = 1.0
PR_SET_DUMPABLE = 4
# How long the broker keeps a message that was taken but not acknowledged. Longer runs are offered again and refused by
# their lease; a lost worker's runs come back through the lease, not through this.
VISIBILITY_TIMEOUT_S = 300


def run(config: WorkerConfig) -> int:
    """Works until told to stop; returns the exit status. Settings are up to the caller; the environment is not read."""
    quieten_libraries()
    try:
        prepare_directories(config)
        with only_one(config.own_dir / "lock"):
            return Worker(config).work()
    except (SetupRefused, OSError) as refusal:
        log.error("worker %s cannot work: %s", config.name, refusal)
        return EXIT_REFUSED


class SetupRefused(Exception):
    """This worker cannot work as it is set up; the message says why and what to do."""


class Worker:
    """One worker's parts, put together."""

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        keep_own_memory_private()
        ended = end_strays(config.runs_dir)
        stale = remove_stale(config.runs_dir)
        if ended or stale:
            log.info("cleared %d processes and %d directories of an earlier start", ended, stale)
        self.sandbox: Sandbox = establish(config.isolation, config.run_user, config.runs_dir, config)
        if self.sandbox.user is not None:
            compile_suite()
        self.client = ApiClient(config.api_url, config.api_token, version=config.version)
        self.spool = Spool(config.spool_dir)
        self.deliverer = Deliverer(self.client, self.spool)
        self.machine = capabilities(config.data_dir)
        self.job = JobRunner(config, self.client, self.sandbox, self.spool, self.deliverer, self.capabilities)
        self.switch = Switch()
        self.desired_state = DesiredState.OK
        self.queue = config.queue
        self.listens_where_told = True  # as long as the service has told at the start
        self.drain_at = None if config.drain_after_s is None else time.monotonic() + config.drain_after_s
        self.exit_code = 0
        self.reported_trouble: str | None = None

    def work(self) -> int:
        log.info(
            "worker %s %s, testbed %s, protection %s",
            self.config.name, self.config.version, self.config.testbed, describe(self.sandbox),
        )  # fmt: skip
        self._watch_signals()
        # What an earlier life measured goes first: the hello gives up whatever that life still held.
        if self.spool.size().waiting:
            self.deliverer.deliver_waiting()
        if not self._say_first_hello():
            return 0
        self.deliverer.start()
        threading.Thread(target=self._keep_alive, name="tidemark-keep-alive", daemon=True).start()
        try:
            return self._consume()
        finally:
            self.switch.stop()
            self.deliverer.close(limit_s=1.0)
            self.client.close()

    def capabilities(self) -> dict[str, Any]:
        size, kept = self.spool.size(), self.job.cache.size()
        return {
            **self.machine,
            **({"trouble": self.job.trouble} if self.job.trouble else {}),
            "cache": {"entries": kept.entries, "bytes": kept.bytes, "limit_bytes": kept.limit_bytes},
            "listens_where_told": self.listens_where_told,
            "protection_reason": self.sandbox.reason,
            "spool": {
                "waiting": size.waiting,
                "waiting_bytes": size.waiting_bytes,
                "set_aside": size.set_aside,
            },
        }

    # --- hello and keep-alive ----------------------------------------------------------------------------------------

    def _say_first_hello(self) -> bool:
        """Registers, however long the API is away; False when told to stop meanwhile."""
        wait_s = 0.5
        while not self.switch.stopping.is_set():
            try:
                self._hello(starting=True)
                return True
            except ApiUnreachable as absence:
                log.warning("the API at %s does not answer yet: %s", self.config.api_url, absence)
            except ApiRefusal as refusal:
                if not refusal.may_pass or refusal.status in (401, 403):
                    raise SetupRefused(f"{self.config.api_url} refused it: {refusal}") from None
                log.warning("%s", refusal)
            self.switch.stopping.wait(wait_s)
            wait_s = min(5.0, wait_s * 1.5)
        return False

    def _keep_alive(self) -> None:
        while not self.switch.stopping.wait(self.config.keep_alive_s):
            self._is_time_to_leave()
            try:
                self._hello(starting=False)
            except ApiRefusal as refusal:
                if refusal.is_outdated:
                    # The service was brought up to date meanwhile: what is measured is still delivered.
                    log.error("this worker leaves after the current run: %s", refusal.problem)
                    self.exit_code = EXIT_REFUSED
                    self._drain()
                    return
                log.warning("could not say that this worker is alive: %s", refusal)
            except ApiUnreachable as failure:
                log.warning("could not say that this worker is alive: %s", failure)
            except OSError as failure:
                log.error("the spool cannot be read: %s", failure)

    def _hello(self, *, starting: bool) -> None:
        if (trouble := self.job.trouble) != self.reported_trouble:
            log.log(logging.ERROR if trouble else logging.INFO, "this machine: %s", trouble or "all is well again")
            self.reported_trouble = trouble
        welcome = self.client.register(
            name=self.config.name,
            testbed=self.config.testbed,
            version=self.config.version,
            capabilities=self.capabilities(),
            protection=self.sandbox.protection,
            starting=starting,
        )
        state = welcome.state
        if starting:
            self.queue, self.listens_where_told = welcome.queue or self.queue, welcome.queue is not None
        if self.desired_state is DesiredState.DRAIN:
            return  # leaving is not taken back
        if state is not self.desired_state:
            log.info("the service asks this worker to be: %s", state)
        self.desired_state = state
        if state is DesiredState.DRAIN:
            self._drain()

    def _drain(self) -> None:
        """The run in progress is finished; no other is begun."""
        self.desired_state = DesiredState.DRAIN
        self._leave_after_this_run()

    def _is_time_to_leave(self) -> bool:
        if self.drain_at is None or time.monotonic() < self.drain_at:
            return False
        if self.desired_state is not DesiredState.DRAIN:
            log.info("this worker was to leave after %.0f s: it takes no further run", self.config.drain_after_s)
            self._drain()
        return True

    # --- runs --------------------------------------------------------------------------------------------------------

    def _consume(self) -> int:
        def carry_out(run_id: object) -> None:
            self._on_task(run_id)

        # Whoever started the worker has said how it logs; Celery would set the level of everything.
        setup_logging.connect(leave_logging_alone)
        app = make_app(self.config, self.queue)
        app.task(name=TASK)(carry_out)
        consumer = without_signal_handlers(app.Worker)(
            app=app,
            queues=[self.queue],
            pool="solo",
            concurrency=1,
            hostname=f"{self.config.name}@tidemark",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        )
        log.info("waiting for runs in queue %s", self.queue)
        try:
            consumer.start()
        finally:
            app.close()
        was_asked_to = self.switch.stopping.is_set() or self.desired_state is DesiredState.DRAIN
        return self.exit_code if was_asked_to else int(consumer.exitcode or 0)

    def _on_task(self, run_id: object) -> None:
        """A nudge: a run of this id may be ready. Nothing that goes wrong here may end the worker."""
        if not isinstance(run_id, str):
            log.error("a message names no run: %.100r", run_id)
            return
        following: str | None = run_id
        while following is not None and self._takes_runs():
            run_id, following = following, None
            try:
                following = self.job.carry_out(run_id, self.switch.new_run())
            except Exception:
                log.exception("run %s failed in the worker itself; its lease will run out", run_id)

    def _takes_runs(self) -> bool:
        if self.switch.stopping.is_set() or self._is_time_to_leave() or self.desired_state is not DesiredState.OK:
            return False
        return self.job.is_fit()

    # --- stopping ----------------------------------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        """Signals are heeded by a thread: a handler could interrupt this one while it holds the lock it then needs."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._heed_signals, args=(reader,), name="tidemark-signals", daemon=True).start()

    def _heed_signals(self, reader: int) -> None:
        seen: set[int] = set()
        first_at = 0.0
        while True:
            for number in os.read(reader, 16):
                if number not in STOP_SIGNALS:
                    continue
                # Ctrl-C in a terminal and the SIGTERM of a supervisor that heard it too are one wish, not two.
                if number in seen or (seen and time.monotonic() - first_at > ONE_WISH_S):
                    os._exit(1)  # the shim notices that this process is gone, and kills what it started
                first_at = first_at if seen else time.monotonic()
                seen.add(number)
                self.switch.stop()
                self._leave_after_this_run()

    def _leave_after_this_run(self) -> None:
        celery_state.should_stop = 0


class WorkerApp(Celery):  # type: ignore[misc]
    """Celery, but quick to come back: by default it would look for a restarted broker only every half minute."""

    def connection_for_read(self, *arguments: Any, **options: Any) -> Any:
        connection = super().connection_for_read(*arguments, **options)
        connection.ensure_connection = partial(
            connection.ensure_connection, interval_start=0.2, interval_step=0.3, interval_max=2.0
        )
        return connection


def make_app(config: WorkerConfig, queue: str) -> Celery:
    app = WorkerApp("tidemark", broker=config.redis_url, set_as_current=False)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
            "socket_keepalive": True,
            "socket_connect_timeout": 5,
        },
        task_queues=None,
        task_default_queue=queue,
    )
    return app


def compile_suite() -> None:
    """The user that runs the suite cannot keep its byte code, and would compile it in every fresh process."""
    spec = find_spec("benchmarks")
    for location in (spec.submodule_search_locations or []) if spec is not None else []:
        compileall.compile_dir(location, quiet=2)


def quieten_libraries() -> None:
    """Their everyday lines (every request, every message) would bury the few that matter."""
    for name in ("httpx", "httpcore", "celery", "kombu"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Root starts this worker so that the code of commits can run as somebody else.
    warnings.filterwarnings("ignore", category=SecurityWarning)


def leave_logging_alone(**_: Any) -> None:
    """Celery does not configure logging once another handler is registered for it."""


def without_signal_handlers(worker_class: Any) -> Any:
    """Celery's worker without the handlers it brings along: they would let a run of an hour end before they act."""
    return type("Worker", (worker_class,), {"install_platform_tweaks": lambda self, worker: None})


def prepare_directories(config: WorkerConfig) -> None:
    """Makes them; the way to a run's directory is open to the user that its code runs as, the rest is not."""
    config.data_dir.mkdir(parents=True, exist_ok=True, mode=0o711)
    for directory in (config.own_dir, config.runs_dir):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o711)


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Two workers of one name would clear away each other's runs."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupRefused(
                f"another worker of the name {lock.parent.name!r} is running with {lock.parent.parent}; "
                "give this one another name"
            ) from None
        yield


def keep_own_memory_private() -> None:
    """Code of a commit that runs as the same user could otherwise read the token in this process's environment."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
