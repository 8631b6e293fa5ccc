"""One run's path through a worker: lease, execute, store, deliver; or hand it back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from structlog.contextvars import bound_contextvars

from worker.client import ApiClient, ApiRefusal, ApiUnreachable, LeasedRun
from worker.config import WorkerConfig
from worker.delivery.deliver import Deliverer
from worker.delivery.spool import Parcel, Spool
from worker.events import EventSender
from worker.execution.caches import Cache, trim_mirrors
from worker.execution.checkout import Mirrors
from worker.execution.execute import Execution, MachineFailed, Product, RunInterrupted
from worker.execution.rundir import RunDir, remove_stale
from worker.execution.session import SessionExecution, is_session
from worker.health import clock_trouble, disk_trouble
from worker.isolation.owned import remove
from worker.isolation.processes import Ending, Interrupt
from worker.isolation.protection import Sandbox
from worker.lease import LeaseKeeper

log = logging.getLogger("tidemark.worker")

# A stopping worker has two seconds; what the API does not take in this time runs out with the lease.
RELEASE_LIMIT_S = 1.0


class JobRunner:
    """Executes runs, one at a time."""

    def __init__(
        self,
        config: WorkerConfig,
        client: ApiClient,
        sandbox: Sandbox,
        spool: Spool,
        deliverer: Deliverer,
        capabilities: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.config = config
        self.client = client
        self.sandbox = sandbox
        self.spool = spool
        self.deliverer = deliverer
        self.capabilities = capabilities
        self.mirrors = Mirrors(config.mirrors_dir, private_hosts=config.private_hosts, max_bytes=config.run_limit_bytes)
        self.cache = Cache(config.cache_dir, config.cache_limit_bytes)
        self.gpu_trouble: str | None = None
        """A lost GPU comes back with a reset at best: until it is mended and the worker started again."""

    @property
    def trouble(self) -> str | None:
        """The machine's fault, during which it takes no runs; None if there is none."""
        return (
            self.gpu_trouble
            or clock_trouble(self.client.clock_ahead_s)
            or disk_trouble(self.config.runs_dir, self.config.min_free_bytes)
        )

    def carry_out(self, run_id: str, interrupt: Interrupt) -> str | None:
        """The whole path of one run. Returns when it is delivered, handed back, or safe in the spool; with the id of
        another suite of the same commit, if this worker is to continue with that."""
        with bound_contextvars(run_id=run_id):
            return self._carry_out(run_id, interrupt)

    def _carry_out(self, run_id: str, interrupt: Interrupt) -> str | None:
        leased = self._lease(run_id)
        if leased is None:
            return None
        log.info("run %s: %s of %s, attempt %d", run_id, leased.suite, leased.commit[:12], leased.attempt)
        self.sandbox = self.sandbox.renewed(self.config.runs_dir)
        # Always the same place: what a setup command builds often has its own path in it, and is kept for later.
        run_dir = RunDir(self.config.runs_dir / "now")
        try:
            with LeaseKeeper(self.client, leased, interrupt):
                try:
                    product = self._execute(leased, run_dir, interrupt)
                except MachineFailed as failure:
                    self.gpu_trouble = str(failure)
                    self._hand_over(leased, f"worker {self.config.name}: {failure}")
                    return None
                if product is None:
                    self._give_back(leased, interrupt.reason)
                    return None
                is_settled = self._deliver(leased, product, interrupt)
        finally:
            run_dir.remove()
            remove_stale(self.config.runs_dir)  # also what the run left beside its own directory
            remove(self.config.collected_dir)
            trim_mirrors(self.config.mirrors_dir, self.config.mirrors_limit_bytes)
        # A heartbeat that crossed the delivery finds the lease gone: that is no reason to stop.
        return self._next(leased.run_id) if is_settled and interrupt.reason is not Ending.STOPPED else None

    def is_fit(self) -> bool:
        """Whether this machine can be trusted with a run; caches that can be rebuilt make room first."""
        if self.gpu_trouble is None and self.trouble is not None:
            self.cache.trim(0)
            trim_mirrors(self.config.mirrors_dir, 0)
        if self.trouble is not None:
            log.error("no run is taken: %s", self.trouble)
        return self.trouble is None

    def _next(self, run_id: str) -> str | None:
        try:
            return self.client.next_run(self.config.name, run_id)
        except (ApiUnreachable, ApiRefusal) as failure:
            log.info("the next suite of this commit could not be requested: %s", failure)
            return None

    def _hand_over(self, leased: LeasedRun, reason: str) -> None:
        """This machine failed, not the commit: another worker measures it, and the attempt counts as lost."""
        log.error("run %s goes to another worker: %s", leased.run_id, reason)
        try:
            self.client.release(leased.run_id, leased.lease, reason, lost=True)
        except (ApiUnreachable, ApiRefusal) as failure:
            log.warning("run %s could not be handed over, its lease will run out: %s", leased.run_id, failure)

    def _lease(self, run_id: str) -> LeasedRun | None:
        try:
            leased = self.client.lease(
                run_id,
                worker=self.config.name,
                testbed=self.config.testbed,
                version=self.config.version,
                capabilities=self.capabilities(),
                protection=self.sandbox.protection,
            )
        except (ApiUnreachable, ApiRefusal) as failure:
            # The run is still queued, and will be offered again.
            log.warning("run %s could not be leased: %s", run_id, failure)
            return None
        if leased is None:
            log.info("run %s is not to be had (any more)", run_id)
        return leased

    def _execute(self, leased: LeasedRun, run_dir: RunDir, interrupt: Interrupt) -> Product | None:
        """Execute the run; None when it was interrupted."""

        def send(events: Any) -> None:
            self.client.events(leased.run_id, leased.lease, events)

        with EventSender(send, self.config.event_interval_s) as events:
            kind = SessionExecution if is_session(leased) else Execution
            sandbox = self.sandbox.for_project(trusted=leased.trusted)
            execution = kind(self.config, self.mirrors, sandbox, leased, run_dir, events, interrupt, self.cache)
            try:
                product = execution.carry_out()
            except RunInterrupted:
                return None
            if interrupt.reason in (Ending.LEASE_LOST, Ending.CANCELLED):
                return None
            events.state("deliver")
            return product

    def _give_back(self, leased: LeasedRun, reason: Ending | None) -> None:
        if reason is Ending.LEASE_LOST:
            log.warning("run %s was stopped and its result discarded: its lease was lost", leased.run_id)
            return
        words = "cancelled" if reason is Ending.CANCELLED else f"worker {self.config.name} was stopped"
        try:
            self.client.release(leased.run_id, leased.lease, words, limit_s=RELEASE_LIMIT_S)
            log.info("run %s was handed back: %s", leased.run_id, words)
        except (ApiUnreachable, ApiRefusal) as failure:
            log.warning("run %s could not be handed back, its lease will run out: %s", leased.run_id, failure)

    def _deliver(self, leased: LeasedRun, product: Product, interrupt: Interrupt) -> bool:
        settled = self.deliverer.hand_over(self._keep(leased, product))
        give_up_at = time.monotonic() + self.config.delivery_wait_s
        while not settled.wait(0.1):
            if interrupt.reason is Ending.STOPPED:
                settled.wait(RELEASE_LIMIT_S)
                break
            if time.monotonic() > give_up_at:
                break
        if not settled.is_set():
            log.warning("run %s stays in the spool; it is delivered once the API answers", leased.run_id)
        return settled.is_set()

    def _keep(self, leased: LeasedRun, product: Product) -> Parcel:
        try:
            return self.spool.put(leased.run_id, leased.attempt, leased.lease, product.body, product.artifacts)
        except OSError as failure:
            # A full disk must not cost the result: it is held in memory instead, and delivered without its files.
            log.error("the spool cannot take run %s, which is kept in memory: %s", leased.run_id, failure)
            return Parcel(
                run_id=leased.run_id,
                attempt=leased.attempt,
                lease=leased.lease,
                body=product.body,
                artifacts=(),
                place=None,
            )


class Switch:
    """Interrupts the run in progress, if there is one, and records whether the worker is to stop."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._current: Interrupt | None = None

    def new_run(self) -> Interrupt:
        self._current = Interrupt()
        if self.stopping.is_set():
            self._current.give(Ending.STOPPED)
        return self._current

    def stop(self) -> None:
        """Called by signal handlers."""
        self.stopping.set()
        if self._current is not None:
            self._current.give(Ending.STOPPED)
