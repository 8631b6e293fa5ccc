"""From a signed push to a verdict on an open page, through every part of the service but the worker's own code."""

from __future__ import annotations

import json
import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from celery import Celery

from backend.github.signature import sign
from backend.services import housekeeping
from backend.services.base import projects
from tests.backend.api.conftest import run_document
from tests.backend.api.reads.test_events import page
from tests.backend.services.repository.test_sync import Repository

MANIFEST = """
[suite.gpt]
benchmarks = ["gpt.train"]
preset = "cpu"
testbeds = ["push-to-verdict"]
"""


def test_a_push_becomes_a_run_and_the_run_a_verdict_on_an_open_page(live_server: Any, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    sha = repository.commit("first", tidemark_toml=MANIFEST, model="1")
    config = live_server.config
    with live_server.engine.begin() as c:
        projects.save_project(c, "demo/tinygpt", repository_url=repository.url, trusted=True, now=datetime.now(UTC))
    stop = threading.Event()
    beat = threading.Thread(target=housekeeping.run, args=(config, live_server.engine, stop), daemon=True)
    beat.start()
    try:
        with live_server.client("worker") as worker, page(live_server, "?project=demo/tinygpt") as board:
            hello = {"name": "w1", "testbed": "push-to-verdict", "protection": "user", "starting": True}
            assert worker.post("/api/v1/workers", json=hello).json()["state"] == "ok"
            push(live_server, repository)
            run_id = take_message(config.redis_url, "testbed.push-to-verdict")
            lease = worker.post(
                f"/api/v1/runs/{run_id}/lease", json={"worker": "w1", "testbed": hello["testbed"], "protection": "user"}
            ).json()
            assert lease["commit"] == sha and lease["spec"]["benchmarks"] == ["gpt.train"]
            told = {"at": datetime.now(UTC).isoformat(), "kind": "state", "detail": {"step": "execute"}}
            worker.post(f"/api/v1/runs/{run_id}/events", json={"lease": lease["lease"], "events": [told]})
            document = run_document(0, id=run_id, commit=sha, parents=[], testbed=hello["testbed"])
            delivered = worker.put(f"/api/v1/runs/{run_id}", json=document, headers={"Tidemark-Lease": lease["lease"]})
            assert delivered.status_code == 201, delivered.text
            assert delivered.json()["summary"] == {"insufficient": len(delivered.json()["verdicts"])}
            states = []
            while "done" not in states:
                event = board.next()
                if event.kind == "run" and event.data["run_id"] == run_id:
                    states.append(event.data["state"])
            assert states == ["leased", "running", "done"]
            row = worker.get("/api/v1/board", params={"project": "demo/tinygpt"}).json()["rows"][0]
            assert row["sha"] == sha and row["benchmarked"]
    finally:
        stop.set()
        beat.join(10)
    assert not beat.is_alive()


def push(server: Any, repository: Repository) -> None:
    payload = {"ref": "refs/heads/main", "repository": {"full_name": "demo/tinygpt", "clone_url": repository.url}}
    body = json.dumps(payload).encode()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": str(uuid.uuid4()),
        "X-Hub-Signature-256": sign(server.config.github_webhook_secret, body),
    }
    with server.client() as github:
        answer = github.post("/api/v1/webhooks/github", content=body, headers=headers)
    assert answer.json()["outcome"] == "demo/tinygpt: synchronising"


def take_message(redis_url: str, queue: str) -> str:
    with Celery("consumer", broker=redis_url).connection_for_read() as connection:
        deadline = time.monotonic() + 20
        with connection.SimpleQueue(queue) as messages:
            message = messages.get(timeout=max(0.1, deadline - time.monotonic()))
            message.ack()
            return str(message.payload[0][0])
