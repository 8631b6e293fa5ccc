"""Keeps the lease of the current run alive, and learns that it is lost or no longer wanted."""

from __future__ import annotations

import logging
import threading

from worker.client import ApiClient, ApiRefusal, ApiUnreachable, LeasedRun
from worker.isolation.processes import Ending, Interrupt

log = logging.getLogger("tidemark.worker")


class LeaseKeeper:
    """Use as a context around the run. Only a clear answer ends a run: an API that is away may only be restarting."""

    def __init__(self, client: ApiClient, leased: LeasedRun, interrupt: Interrupt) -> None:
        self._client = client
        self._leased = leased
        self._interrupt = interrupt
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidemark-heartbeat", daemon=True)

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        self._thread.join(2.0)

    def _run(self) -> None:
        while not self._closing.wait(self._leased.heartbeat_s):
            try:
                cancelled = self._client.heartbeat(self._leased.run_id, self._leased.lease)
            except ApiUnreachable as absence:
                log.warning("no heartbeat for run %s: %s", self._leased.run_id, absence)
                continue
            except ApiRefusal as refusal:
                if refusal.status in (404, 409, 410):
                    log.info("run %s: the lease is gone (%s)", self._leased.run_id, refusal.problem)
                    self._interrupt.give(Ending.LEASE_LOST)
                    return
                log.warning("no heartbeat for run %s: %s", self._leased.run_id, refusal)
                continue
            if cancelled:
                self._interrupt.give(Ending.CANCELLED)
