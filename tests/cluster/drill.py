"""Results are delivered and pages looked at while one thing after the other is killed; then everything is counted."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psutil

from backend.services.base.reads import MAX_LAG_S
from tests.backend.api.conftest import run_document
from tests.cluster.servers import Cluster, ask

DELIVERERS = 3
GIVE_UP_S = 90.0
LOOK_EVERY_S = 0.1
FIRST_RUN = datetime(2025, 1, 1, tzinfo=UTC)
"""A minute from run to run, so that none is of the future: such runs are refused."""


@dataclass
class Deliveries:
    """What a few clients delivered: each sends one run after the other, and each again until it is acknowledged."""

    url: str
    token: str
    prefix: str = "DRILL0"
    project: str = "drill/p"
    acknowledged: dict[str, int] = field(default_factory=dict)
    """{run: measurements in it}"""
    again: int = 0
    """Attempts that were not acknowledged."""
    longest_s: float = 0.0
    """From the first attempt of a run to its acknowledgement."""
    wrong: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._deliver, args=(number,)) for number in range(DELIVERERS)]
        for thread in threads:
            thread.start()
        return threads

    def _deliver(self, number: int) -> None:
        with httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=15) as client:
            for position in itertools.count():
                if self.stopping.is_set():
                    return
                started = FIRST_RUN + timedelta(minutes=position)
                run = run_document(
                    position, id=f"01{self.prefix}{number}{position:017d}", project=f"{self.project}{number}",
                    started_at=started.isoformat(), finished_at=(started + timedelta(seconds=30)).isoformat(),
                )  # fmt: skip
                began = time.monotonic()
                while (answer := self._put(client, run)) is None or answer.status_code >= 500:
                    self.again += 1
                    if time.monotonic() - began > GIVE_UP_S:
                        self.wrong.append(f"{run['id']} was not taken within {GIVE_UP_S:.0f} s")
                        return
                    time.sleep(0.1)
                if answer.is_error:
                    self.wrong.append(f"{run['id']}: {answer.status_code} {answer.text[:200]}")
                    return
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                self.acknowledged[run["id"]] = len(run["results"][0]["measurements"])

    def _put(self, client: httpx.Client, run: dict[str, Any]) -> httpx.Response | None:
        with contextlib.suppress(httpx.HTTPError):
            return client.put(f"/api/v1/runs/{run['id']}", json=run)
        return None


@dataclass
class Looks:
    """Somebody who looks at the board all the time."""

    url: str
    statuses: Counter[str] = field(default_factory=Counter)
    longest_without_s: float = 0.0
    stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self._look)
        thread.start()
        return thread

    def _look(self) -> None:
        with httpx.Client(base_url=self.url, timeout=15) as client:
            well_at = time.monotonic()
            while not self.stopping.wait(LOOK_EVERY_S):
                try:
                    status = str(client.get("/board", params={"project": "drill/p0"}).status_code)
                except httpx.HTTPError as error:
                    status = type(error).__name__
                self.statuses[status] += 1
                if status == "200":
                    well_at = time.monotonic()
                self.longest_without_s = max(self.longest_without_s, time.monotonic() - well_at)


@dataclass
class Struck:
    """One fault, and what was seen until the next."""

    what: str
    acknowledged: int
    again: int
    pages: int
    pages_failed: int


@dataclass
class Found:
    """The outcome; `wrong` must be empty."""

    pgbouncer: bool
    struck: list[Struck] = field(default_factory=list)
    acknowledged: int = 0
    stored: int = 0
    lost: int = 0
    again: int = 0
    longest_delivery_s: float = 0.0
    pages: int = 0
    pages_failed: int = 0
    longest_without_page_s: float = 0.0
    lag_seen_s: float = 0.0
    wrong: list[str] = field(default_factory=list)


def drill(cluster: Cluster, seconds: float) -> Found:
    """Let it run for so long between one fault and the next."""
    found = Found(pgbouncer=cluster.pgbouncer is not None)
    deliveries, looks = Deliveries(cluster.url, cluster.token), Looks(cluster.url)
    threads = deliveries.start()
    cluster.keep_for(20, lambda: len(deliveries.acknowledged) >= DELIVERERS)
    threads.append(looks.start())
    faults = {
        "nothing": lambda: None,
        "an API process killed": cluster.children["api-0"].kill,
        "all API processes killed": lambda: [cluster.children[f"api-{n}"].kill() for n in range(cluster.apis)],
        "the housekeeper killed": lambda: _kill_housekeeper(cluster, found),
        **({"PgBouncer killed": cluster.children["pgbouncer"].kill} if found.pgbouncer else {}),
        "the replica lags": lambda: _hold_replica_back(cluster, found),
        "the replica killed": cluster.lose_replica,
        "the replica is back": cluster.await_replica,
        "the primary killed, the replica promoted": cluster.fail_over,
    }
    try:
        for what, strike in faults.items():
            before = len(deliveries.acknowledged), deliveries.again, looks.statuses.copy()
            strike()
            cluster.keep_for(seconds)
            # It must go on, whatever it was.
            if not cluster.keep_for(
                60, lambda n=len(deliveries.acknowledged): len(deliveries.acknowledged) > n + DELIVERERS
            ):
                found.wrong.append(f"no results are taken any more: {what}")
                break
            pages = looks.statuses - before[2]
            failed = pages.total() - pages["200"]
            taken, again = len(deliveries.acknowledged) - before[0], deliveries.again - before[1]
            found.struck.append(Struck(what, taken, again, pages.total(), failed))
    finally:
        deliveries.stopping.set()
        looks.stopping.set()
        while any(thread.is_alive() for thread in threads):
            cluster.keep_for(0.2)
    found.again, found.longest_delivery_s = deliveries.again, round(deliveries.longest_s, 1)
    found.pages, found.pages_failed = looks.statuses.total(), looks.statuses.total() - looks.statuses["200"]
    found.longest_without_page_s = round(looks.longest_without_s, 1)
    found.wrong += deliveries.wrong
    _count(cluster, deliveries, found)
    return found


def _kill_housekeeper(cluster: Cluster, found: Found) -> None:
    """The one that works; another must take over."""
    before = cluster.keeps_house()
    for number in range(cluster.beats):
        child = cluster.children[f"beat-{number}"]
        if child.process is not None and before & _ports(child.process.pid):
            child.kill()
    if not cluster.keep_for(20, lambda: bool(now := cluster.keeps_house()) and now.isdisjoint(before)):
        found.wrong.append("nobody keeps house after the housekeeper was killed")


def _ports(pid: int) -> set[int]:
    """The ports of this machine that the process talks from."""
    return {connection.laddr.port for connection in psutil.Process(pid).net_connections("tcp")}


def _hold_replica_back(cluster: Cluster, found: Found) -> None:
    """It receives and does not replay, until its readers must have noticed."""
    ports = cluster.api_ports
    if not cluster.keep_for(20, lambda: all("from it" in _said_of_replica(cluster, port) for port in ports)):
        found.wrong.append(f"the replica is not read from: {_said_of_replica(cluster)}")
    ask(cluster.replica.url, "SELECT pg_wal_replay_pause()")
    try:
        cluster.keep_for(MAX_LAG_S + 2)
        said = _said_of_replica(cluster)
        if "from the primary" in said and " s behind" in said:
            found.lag_seen_s = float(said.partition(" s behind")[0].split()[-1])
        else:
            found.wrong.append(f"/readyz says of a replica that is held back: {said}")
    finally:
        ask(cluster.replica.url, "SELECT pg_wal_replay_resume()")


def _said_of_replica(cluster: Cluster, port: int | None = None) -> str:
    """What /readyz says of it."""
    return next((note for note in (cluster.ready(port) or {}).get("notes", ()) if "replica" in note), "nothing")


def _count(cluster: Cluster, deliveries: Deliveries, found: Found) -> None:
    """Every acknowledged run is there once, with all its measurements."""
    server = cluster.replica if cluster.promoted else cluster.primary
    rows = ask(
        server.url,
        "SELECT run.id, run.state, count(m.run_id) FROM run LEFT JOIN measurement m ON m.run_id = run.id GROUP BY 1, 2",
    )
    stored = {run: (state, measurements) for run, state, measurements in rows}
    found.acknowledged, found.stored = len(deliveries.acknowledged), len(stored)
    for run, measurements in deliveries.acknowledged.items():
        if run not in stored:
            found.lost += 1
            found.wrong.append(f"{run} was acknowledged and is lost")
        elif stored[run][1] != measurements:
            found.wrong.append(f"{run} has {stored[run][1]} measurements of {measurements}")
