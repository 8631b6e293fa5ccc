"""Faults between worker, service, broker and database, with real processes: every run ends exactly once."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
import psycopg
import pytest
from sqlalchemy import make_url, text

from backend.contract import new_run_id
from backend.services import housekeeping
from backend.services.queue import dispatch, publishing
from backend.services.queue import request as queue_request
from backend.services.queue.request import WantedRun
from backend.services.queue.scheduling import Kind
from tests.waiting import until
from tidemark import __version__

RESULT = """
import json, os, time
time.sleep({sleep})
print("measured")
json.dump({{"schema": "tidemark.run/1", "status": "ok", "results": [
    {{"benchmark": "moe.layer", "variant": {{"k": 2}}, "status": "ok", "measurements": [
        {{"metric": "calls", "unit": "1", "direction": "lower", "role": "gate", "value": 5, "exact": True}}]}}]}},
    open(os.environ["TIDEMARK_RUN_JSON"], "w"))
"""


@pytest.fixture
def project(live_server: Any, repository: Any) -> int:
    with live_server.engine.begin() as c:
        found = c.scalar(
            text(
                "INSERT INTO project (slug, trusted, repository_url) VALUES ('northsea/loom', true, :url) RETURNING id"
            ),
            {"url": repository.url},
        )
        c.execute(text("INSERT INTO branch (project_id, name) VALUES (:p, 'main')"), {"p": found})
    return int(found)


@pytest.fixture
def queue_runs(live_server: Any, repository: Any, project: int) -> Callable[..., list[str]]:
    """Queues a run for each of so many new commits; their ids."""

    def queue(number: int = 1, *, sleep: float = 0.0) -> list[str]:
        shas = [
            repository.commit({"bench.py": RESULT.format(sleep=sleep), "n.txt": new_run_id()}) for _ in range(number)
        ]
        with live_server.engine.begin() as c:
            ids = [
                c.scalar(
                    text("INSERT INTO commit (project_id, sha) VALUES (:p, :s) RETURNING id"), {"p": project, "s": sha}
                )
                for sha in shas
            ]
            spec = {"command": f"{sys.executable} bench.py"}
            wanted = [WantedRun(commit_id=int(each), suite="moe", testbed="cpu", spec=spec) for each in ids]
            asked = queue_request.request_runs(
                c, project, wanted, kind=Kind.MAIN, requested_by="test", now=datetime.now(UTC), branch="main"
            )
        return [run.run_id for run in asked]

    return queue


@pytest.fixture
def beat(live_server: Any) -> Iterator[None]:
    """The housekeeping loop, running."""
    stop = threading.Event()
    thread = threading.Thread(target=housekeeping.run, args=(live_server.config, live_server.engine, stop), daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join(20)


@pytest.fixture
def start(start_worker: Any, live_server: Any) -> Callable[..., Any]:
    def begin(name: str = "host-1", **other: Any) -> Any:
        return start_worker(api_url=live_server.url, api_token=live_server.token("worker"), name=name, **other)

    return begin


def ended(live_server: Any, ids: list[str], limit_s: float = 90.0) -> list[Any]:
    """The runs, once all of them have ended."""

    def look() -> list[Any] | None:
        with live_server.engine.connect() as c:
            rows = c.execute(
                text(
                    "SELECT r.*, (SELECT count(*) FROM measurement m WHERE m.run_id = r.id) AS measured "
                    "FROM run r WHERE id = ANY(:ids) ORDER BY id"
                ),
                {"ids": ids},
            ).all()
        is_over = all(row.state in ("done", "failed", "cancelled") for row in rows)
        return list(rows) if is_over else None

    return list(until(look, limit_s))


@pytest.mark.slow
def test_fifty_commits_at_once_are_all_measured_once_by_two_workers(
    beat: None, start: Any, queue_runs: Any, live_server: Any
) -> None:
    start("host-1")
    start("host-2")
    ids = queue_runs(50)
    rows = ended(live_server, ids, 240)
    assert [(row.state, row.measured) for row in rows] == [("done", 1)] * 50
    assert all(row.attempt == 1 for row in rows)
    with live_server.engine.connect() as c:
        assert len(set(c.scalars(text("SELECT worker_id FROM run")))) == 2


def test_a_flushed_broker_in_the_middle_of_a_run_loses_nothing(
    beat: None, start: Any, queue_runs: Any, live_server: Any, broker: str
) -> None:
    import redis

    start()
    ids = queue_runs(4, sleep=0.5)
    client = redis.Redis.from_url(broker)
    until(lambda: _state(live_server, ids[0]) != "queued")
    for _ in range(6):
        client.flushall()
        time.sleep(0.3)
    assert [(row.state, row.measured) for row in ended(live_server, ids)] == [("done", 1)] * 4


def _state(live_server: Any, run_id: str) -> str:
    with live_server.engine.connect() as c:
        return str(c.scalar(text("SELECT state FROM run WHERE id = :id"), {"id": run_id}))


def test_a_message_that_comes_again_while_its_run_goes_on_is_refused_by_the_lease(
    start: Any, queue_runs: Any, live_server: Any, nudge: Any
) -> None:
    """What a broker does with a task that takes longer than its visibility timeout."""
    start("host-1")
    start("host-2")
    (run_id,) = queue_runs(1, sleep=2.0)
    for _ in range(6):
        nudge(run_id)
        time.sleep(0.3)
    (row,) = ended(live_server, [run_id])
    assert (row.state, row.attempt, row.measured) == ("done", 1, 1)


def test_two_workers_that_claim_one_run_at_the_same_moment_get_one_lease(queue_runs: Any, live_server: Any) -> None:
    (run_id,) = queue_runs(1)
    barrier = threading.Barrier(6)

    def claim(number: int) -> int:
        with live_server.client("worker") as client:
            body = {"worker": f"host-{number}", "testbed": "cpu", "version": __version__, "protection": "user"}
            barrier.wait(30)
            return int(client.post(f"/api/v1/runs/{run_id}/lease", json=body).status_code)

    with ThreadPoolExecutor(6) as pool:
        answers = sorted(pool.map(claim, range(6)))
    assert answers == [200] + [409] * 5


def test_a_delivery_sent_twice_and_at_once_is_stored_once(queue_runs: Any, live_server: Any) -> None:
    (run_id,) = queue_runs(1)
    worker = {"worker": "host-1", "testbed": "cpu", "version": __version__, "protection": "user"}
    with live_server.client("worker") as client:
        lease = client.post(f"/api/v1/runs/{run_id}/lease", json=worker).json()
        document = {
            "schema": "tidemark.run/1", "id": run_id, "project": lease["project"], "commit": lease["commit"],
            "suite": "moe", "testbed": "cpu", "worker": "host-1", "attempt": 1, "status": "ok", "branch": "main",
            "started_at": "2026-11-20T12:00:00Z", "finished_at": "2026-11-20T12:00:05Z",
            "results": [{"benchmark": "moe.layer", "variant": {"k": 2}, "status": "ok", "measurements": [
                {"metric": "calls", "unit": "1", "direction": "lower", "role": "gate", "value": 5, "exact": True}]}],
        }  # fmt: skip
        body = json.dumps(document)
        barrier = threading.Barrier(5)

        def deliver(_: int) -> tuple[int, Any]:
            barrier.wait(30)
            headers = {"Content-Type": "application/json", "Tidemark-Lease": lease["lease"]}
            answer = client.put(f"/api/v1/runs/{run_id}", content=body, headers=headers)
            return answer.status_code, answer.json().get("verdicts")

        with ThreadPoolExecutor(5) as pool:
            answers = list(pool.map(deliver, range(5)))
    assert {status for status, _ in answers} <= {200, 201}
    assert len({json.dumps(verdicts, sort_keys=True) for _, verdicts in answers}) == 1
    (row,) = ended(live_server, [run_id])
    assert (row.state, row.measured) == ("done", 1)


def test_a_database_that_drops_every_connection_in_a_delivery_gets_it_again(
    beat: None, start: Any, queue_runs: Any, live_server: Any
) -> None:
    """What a restart of PostgreSQL does to those who talk to it."""
    start()
    ids = queue_runs(3, sleep=0.3)
    address = make_url(live_server.config.database_url).set(drivername="postgresql")
    give_up_at = time.monotonic() + 8
    with psycopg.connect(address.render_as_string(hide_password=False), autocommit=True) as c:
        while time.monotonic() < give_up_at:
            c.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            time.sleep(0.4)
    live_server.engine.dispose()
    assert [(row.state, row.measured) for row in ended(live_server, ids)] == [("done", 1)] * 3


def test_a_result_whose_lease_ran_out_while_the_network_was_away_is_taken_later(
    start: Any, queue_runs: Any, live_server: Any, nudge: Any
) -> None:
    worker = start()
    (run_id,) = queue_runs(1, sleep=1.5)
    nudge(run_id)
    until(lambda: _state(live_server, run_id) == "running")
    worker.process.send_signal(signal.SIGSTOP)  # an hour without a word, as the service sees it
    with live_server.engine.begin() as c:
        assert dispatch.expire_leases(c, live_server.config, datetime.now(UTC) + timedelta(hours=1)) == [run_id]
    worker.process.send_signal(signal.SIGCONT)
    until(lambda: "delivered" in worker.log or "lease is gone" in worker.log)
    with live_server.engine.begin() as c:
        again = publishing.choose_ready(c, live_server.config, datetime.now(UTC) + timedelta(seconds=20))
    for each in again:
        nudge(each.run_id)
    (row,) = ended(live_server, [run_id])
    assert (row.state, row.status, row.measured) == ("done", "ok", 1)


def _is_measuring(worker: psutil.Process) -> bool:
    for process in worker.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "bench.py" in " ".join(process.cmdline()):
                return True
    return False


def test_a_result_that_the_disk_of_the_spool_has_no_room_for_is_delivered_without_its_files(
    start: Any, queue_runs: Any, live_server: Any, nudge: Any
) -> None:
    """No file that the worker writes may grow: what a full disk is to it. The benchmark is under way by then."""
    worker = start()
    process = psutil.Process(worker.process.pid)
    first, second = queue_runs(2, sleep=2.0)
    nudge(first)
    until(lambda: _is_measuring(process))
    _, most = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (0, most))
    (row,) = ended(live_server, [first])
    process.rlimit(psutil.RLIMIT_FSIZE, (most, most))
    nudge(second)
    ended(live_server, [second])
    assert (row.state, row.status, row.measured) == ("done", "ok", 1)

    def files(run_id: str) -> int:
        with live_server.engine.connect() as c:
            return int(c.scalar(text("SELECT count(*) FROM artifact WHERE run_id = :id"), {"id": run_id}) or 0)

    until(lambda: files(second))
    assert files(first) == 0


def test_a_worker_whose_clock_is_wrong_takes_no_run_and_says_so(
    start_worker: Any, queue_runs: Any, live_server: Any, nudge: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Its clock is a day ahead: what it measured would stand at tomorrow."""
    ahead = tmp_path / "ahead"
    ahead.mkdir()
    (ahead / "sitecustomize.py").write_text("import time\n_time = time.time\ntime.time = lambda: _time() + 86400.0\n")
    monkeypatch.setenv("PYTHONPATH", str(ahead))
    worker = start_worker(api_url=live_server.url, api_token=live_server.token("worker"))
    monkeypatch.delenv("PYTHONPATH")
    (run_id,) = queue_runs(1)
    until(lambda: re.search(r"this machine: its clock is 86\d\d\d s ahead of the service's: set it", worker.log))

    def wanted_state() -> str:
        with live_server.engine.connect() as c:
            return str(c.scalar(text("SELECT wanted_state FROM worker")))

    until(lambda: wanted_state() == "quarantine")
    nudge(run_id)
    time.sleep(1.0)
    assert _state(live_server, run_id) == "queued" and worker.process.poll() is None


def test_a_worker_of_another_version_ends_with_what_to_do(start: Any, live_server: Any) -> None:
    worker = start(version="9.9.9")
    assert worker.wait() == 78
    assert (
        f"runs tidemark 9.9.9, this service {__version__}" in worker.log
        and "bring the service up to date" in worker.log
    )


def test_a_worker_leaves_after_its_time_and_finishes_its_run_first(
    start: Any, queue_runs: Any, live_server: Any, nudge: Any
) -> None:
    worker = start(drain_after_s=6.0)
    first, second = queue_runs(2, sleep=7.0)
    nudge(first)
    until(lambda: _state(live_server, first) == "running")
    nudge(second)
    assert worker.wait(90) == 0
    assert (_state(live_server, first), _state(live_server, second)) == ("done", "queued")
    assert "it takes no further run" in worker.log
