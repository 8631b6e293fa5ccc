"""The worker against the real service: what one says, the other understands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from backend.services.queue import publishing
from backend.services.queue import request as queue_request
from backend.services.queue.publishing import CeleryBroker, Nudge
from backend.services.queue.request import WantedRun
from backend.services.queue.scheduling import Kind
from tests.waiting import until

RESULT = """
import json, os
print('::tidemark-progress {"done": 1, "total": 1, "note": "moe.layer", "eta_s": 0}')
print("measured")
out = os.environ["TIDEMARK_RUN_JSON"]
open(os.path.join(os.path.dirname(out), "moe.layer.mllog"), "w").write(":::MLLOG {}")
json.dump({"schema": "tidemark.run/1", "status": "ok", "results": [
    {"benchmark": "moe.layer", "variant": {"k": 2}, "preset": "cpu", "status": "ok", "measurements": [
        {"metric": "step_ms", "unit": "ms", "direction": "lower", "role": "gate", "value": 5.0, "processes": [5.0]}]}]},
    open(out, "w"))
"""


@pytest.fixture
def queue_run(live_server: Any, repository: Any) -> Callable[..., str]:
    """Registers the repository's project and queues a run of a new commit; its id."""

    def queue(program: str, spec: Mapping[str, Any] | None = None, *, trusted: bool = True) -> str:
        sha = repository.commit({"bench.py": program})
        with live_server.engine.begin() as c:
            project = c.scalar(
                text(
                    "INSERT INTO project (slug, trusted, repository_url) VALUES ('northsea/loom', :trusted, :url) "
                    "ON CONFLICT (slug) DO UPDATE SET trusted = :trusted RETURNING id"
                ),
                {"url": repository.url, "trusted": trusted},
            )
            commit = c.scalar(
                text("INSERT INTO commit (project_id, sha, parents) VALUES (:p, :s, '{}') RETURNING id"),
                {"p": project, "s": sha},
            )
            wish = WantedRun(
                commit_id=commit, suite="moe", testbed="cpu", spec=spec or {"command": f"{sys.executable} bench.py"}
            )
            (requested,) = queue_request.request_runs(
                c, project, [wish], kind=Kind.MAIN, requested_by="test", now=datetime.now(UTC), branch="main"
            )
        return requested.run_id

    return queue


@pytest.fixture
def worker(start_worker: Any, live_server: Any) -> Iterator[Any]:
    yield start_worker(api_url=live_server.url, api_token=live_server.token("worker"), isolation="auto")


@pytest.fixture
def row_of(live_server: Any) -> Callable[[str], Any]:
    def look(run_id: str) -> Any:
        with live_server.engine.connect() as c:
            return c.execute(text("SELECT * FROM run WHERE id = :id"), {"id": run_id}).one()

    return look


def ended(row_of: Callable[[str], Any], run_id: str) -> Any:
    return until(lambda: (row := row_of(run_id)).state in ("done", "failed", "cancelled") and row)


def test_a_queued_run_is_measured_and_stored_with_its_events_and_artifacts(
    worker: Any, queue_run: Any, nudge: Any, row_of: Any, live_server: Any
) -> None:
    run_id = queue_run(RESULT)
    nudge(run_id)
    assert ended(row_of, run_id).state == "done", worker.log
    until(lambda: len(_names(live_server, run_id)) == 2)
    assert _names(live_server, run_id) == ["moe.layer.mllog", "worker.log.txt"]
    with live_server.engine.connect() as c:
        events = c.execute(text("SELECT kind, detail FROM run_event WHERE run_id = :id ORDER BY id"), {"id": run_id})
        told = [(kind, detail) for kind, detail in events]
    assert [detail["step"] for kind, detail in told if kind == "state"] == ["checkout", "execute", "deliver"]
    assert [detail["done"] for kind, detail in told if kind == "progress"] == [1]
    assert [detail["lines"] for kind, detail in told if kind == "log"] == [["measured"]]


def _names(live_server: Any, run_id: str) -> list[str]:
    with live_server.engine.connect() as c:
        return list(c.scalars(text("SELECT name FROM artifact WHERE run_id = :id ORDER BY name"), {"id": run_id}))


def test_a_worker_of_one_project_hears_what_is_offered_to_it_alone(
    start_worker: Any, queue_run: Any, row_of: Any, live_server: Any, broker: str
) -> None:
    run_id = queue_run(RESULT)
    token = live_server.token("worker", project_id=row_of(run_id).project_id)
    worker = start_worker(api_url=live_server.url, api_token=token, isolation="auto")

    def offer() -> list[Nudge]:
        with live_server.engine.begin() as c:
            return publishing.choose_ready(c, live_server.config, datetime.now(UTC))

    nudges = until(offer)
    assert [nudge.project_id for nudge in nudges] == [row_of(run_id).project_id]
    carrier = CeleryBroker(broker)
    assert publishing.send(carrier, nudges) == 1
    carrier.close()
    assert ended(row_of, run_id).state == "done", worker.log


def test_a_crash_is_stored_as_a_failed_run_with_its_reason(
    worker: Any, queue_run: Any, nudge: Any, row_of: Any
) -> None:
    run_id = queue_run("raise ValueError('shapes differ')")
    nudge(run_id)
    row = ended(row_of, run_id)
    assert row.status == "failed", worker.log
    assert "exit code 1: ValueError: shapes differ" in row.error


def test_a_cancelled_run_ends_as_cancelled(
    worker: Any, queue_run: Any, nudge: Any, row_of: Any, live_server: Any
) -> None:
    run_id = queue_run("import time; time.sleep(600)")
    nudge(run_id)
    until(lambda: row_of(run_id).state == "running")
    with live_server.client("write") as client:
        assert client.post(f"/api/v1/runs/{run_id}/cancel").status_code == 200
    assert ended(row_of, run_id).state == "cancelled"


def test_a_stopped_worker_puts_its_run_back_into_the_queue(
    worker: Any, queue_run: Any, nudge: Any, row_of: Any
) -> None:
    run_id = queue_run("import time; time.sleep(600)")
    nudge(run_id)
    until(lambda: row_of(run_id).state == "running")
    worker.process.terminate()
    assert worker.wait() == 0
    row = row_of(run_id)
    assert (row.state, row.attempt) == ("queued", 2)


@pytest.mark.torch
def test_a_registered_benchmark_measures_the_code_of_the_commit(
    worker: Any, queue_run: Any, nudge: Any, row_of: Any, live_server: Any
) -> None:
    spec = {"benchmarks": ["gpt.train"], "preset": "cpu", "processes": 1, "timeout_s": 120}
    run_id = queue_run("", spec)
    nudge(run_id)
    row = until(lambda: (row := row_of(run_id)).state in ("done", "failed") and row, limit_s=120)
    assert row.status == "ok", (row.error, worker.log)
    with live_server.client("read") as client:
        answer = client.get(f"/api/v1/runs/{run_id}")
    stated = json.dumps(answer.json())
    assert "step_over_yardstick" in stated
    assert "foreign_cpu_share" in stated
