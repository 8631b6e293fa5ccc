"""Delivers parcels from the spool to the API, however long it is away, and logs the outcome of each."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from worker.client import ApiClient, ApiRefusal, ApiUnreachable
from worker.delivery.spool import Parcel, Spool, artifact_name

log = logging.getLogger("tidemark.worker")

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0


class Fate(StrEnum):
    DELIVERED = "delivered"
    REFUSED = "refused"
    WAITING = "waiting"
    API_AWAY = "api_away"


@dataclass(slots=True)
class Patience:
    """Exponential back-off with jitter, so that a hundred workers do not return to a restarted API at once."""

    failures: int = 0
    not_before: float = 0.0

    def fail(self, at_least_s: float | None) -> float:
        ceiling_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**self.failures)
        wait_s = max(at_least_s or 0.0, random.uniform(ceiling_s / 2, ceiling_s))
        self.failures += 1
        self.not_before = time.monotonic() + wait_s
        return wait_s


class Deliverer:
    """A thread that empties the spool. A parcel that fails does not delay the others."""

    def __init__(self, client: ApiClient, spool: Spool) -> None:
        self._client = client
        self._spool = spool
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._patience: dict[str, Patience] = {}
        self._settled: dict[str, threading.Event] = {}
        self._homeless: list[Parcel] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="tidemark-deliver", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, limit_s: float) -> None:
        """Stops after the delivery in progress; the rest stays in the spool."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(limit_s)

    def hand_over(self, parcel: Parcel) -> threading.Event:
        """Delivers the parcel as soon as possible; the event is set once it is delivered or refused permanently."""
        settled = threading.Event()
        with self._lock:
            self._settled[_key(parcel)] = settled
            if parcel.place is None:
                self._homeless.append(parcel)
        self._wake.set()
        return settled

    def deliver_waiting(self) -> None:
        """One round over everything that is waiting and due."""
        with self._lock:
            homeless = list(self._homeless)
        for parcel in [*homeless, *self._spool.waiting()]:
            patience = self._patience.setdefault(_key(parcel), Patience())
            if self._closing.is_set() or time.monotonic() < patience.not_before:
                continue
            fate = self._attempt(parcel, patience)
            if fate is Fate.API_AWAY:
                return  # the others would only wait for the same answer that does not come
            if fate is Fate.WAITING:
                continue
            with self._lock:
                self._homeless = [other for other in self._homeless if other is not parcel]
                settled = self._settled.pop(_key(parcel), None)
            self._patience.pop(_key(parcel), None)
            if settled is not None:
                settled.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.clear()
            try:
                self.deliver_waiting()
            except OSError as failure:
                log.error("the spool cannot be read: %s", failure)
            self._wake.wait(self._next_due_s())

    def _next_due_s(self) -> float:
        due = [patience.not_before - time.monotonic() for patience in self._patience.values() if patience.failures]
        return max(0.05, min([5.0, *due]))

    def _attempt(self, parcel: Parcel, patience: Patience) -> Fate:
        try:
            answer = self._client.put_run(parcel.run_id, parcel.lease, parcel.body)
        except ApiUnreachable as absence:
            wait_s = patience.fail(None)
            log.warning("run %s waits in the spool, next try in %.1f s: %s", parcel.run_id, wait_s, absence)
            return Fate.API_AWAY
        except ApiRefusal as refusal:
            if refusal.may_pass:
                wait_s = patience.fail(refusal.retry_after_s)
                log.warning("run %s waits in the spool, next try in %.1f s: %s", parcel.run_id, wait_s, refusal)
                return Fate.WAITING
            self._refuse(parcel, refusal)
            return Fate.REFUSED
        left = self._deliver_artifacts(parcel)
        if left is Fate.WAITING:
            patience.fail(None)
            return Fate.WAITING
        self._spool.remove(parcel)
        log.info("run %s delivered: %s", parcel.run_id, _verdicts(answer))
        return Fate.DELIVERED

    def _deliver_artifacts(self, parcel: Parcel) -> Fate:
        for file in parcel.artifacts:
            try:
                self._client.put_artifact(parcel.run_id, parcel.lease, artifact_name(file), file)
            except ApiUnreachable as absence:
                log.warning("run %s: artifact %s waits: %s", parcel.run_id, artifact_name(file), absence)
                return Fate.WAITING
            except ApiRefusal as refusal:
                if refusal.may_pass:
                    log.warning("run %s: artifact %s waits: %s", parcel.run_id, artifact_name(file), refusal)
                    return Fate.WAITING
                # The run is in; a page without its log is better than a parcel that never settles.
                log.error("run %s: artifact %s was refused: %s", parcel.run_id, artifact_name(file), refusal)
            except OSError as failure:
                log.error("run %s: artifact %s cannot be read: %s", parcel.run_id, artifact_name(file), failure)
        return Fate.DELIVERED

    def _refuse(self, parcel: Parcel, refusal: ApiRefusal) -> None:
        """Sets the result aside with the reason. A content the API will not have still ends the run: failed."""
        if parcel.place is not None and parcel.place.exists():
            self._spool.set_aside(parcel.place, str(refusal))
        else:
            log.error("run %s could not be kept: %s", parcel.run_id, refusal)
        if refusal.status in (400, 413, 422):
            self._deliver_reason(parcel, refusal)

    def _deliver_reason(self, parcel: Parcel, refusal: ApiRefusal) -> None:
        body = failed_instead(parcel.body, f"the service refused the result: {refusal.problem}")
        if body is None:
            return
        try:
            self._client.put_run(parcel.run_id, parcel.lease, body)
        except (ApiUnreachable, ApiRefusal) as failure:
            log.error("run %s: the refusal of its result could not be reported either: %s", parcel.run_id, failure)


def failed_instead(body: bytes, error: str) -> bytes | None:
    """The same run without results, as a failed one; None if it was one already."""
    document: dict[str, Any] = json.loads(body)
    if document.get("status") == "failed" and not (document.get("results") or document.get("turns")):
        return None
    if "turns" in document:
        return json.dumps(document | {"status": "failed", "error": error[:4000], "turns": []}).encode()
    kept = (
        "schema", "id", "project", "commit", "parents", "branch", "pull_request", "suite", "testbed", "worker",
        "attempt", "started_at", "finished_at",
    )  # fmt: skip
    return json.dumps(
        {name: document[name] for name in kept if name in document}
        | {"status": "failed", "error": error[:4000], "log_tail": document.get("log_tail") or "", "results": []}
    ).encode()


def _key(parcel: Parcel) -> str:
    return f"{parcel.run_id}-{parcel.attempt}"


def _verdicts(answer: Mapping[str, Any]) -> str:
    summary = answer.get("summary")
    if not isinstance(summary, dict):
        return str(answer.get("status", "accepted"))
    counted = ", ".join(f"{count} {verdict}" for verdict, count in summary.items() if count)
    return counted or "no verdicts"
