"""The worker's side of the API: hello, lease, heartbeat, events, release, artifacts; over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from backend.services.base import projects
from backend.services.base.principal import Principal, Scope, Via
from backend.services.queue import dispatch
from backend.services.queue import request as queue_request
from backend.services.queue.request import WantedRun
from backend.services.queue.scheduling import Kind
from tests.backend.api.conftest import run_document
from tidemark import __version__

HELLO = {
    "worker": "host-1",
    "testbed": "cpu",
    "version": __version__,
    "capabilities": {"cores": 2},
    "protection": "user",
}
SPEC = {"benchmarks": ["gpt.train"], "timeout_s": 600}


@pytest.fixture
def worker(live_server: Any) -> Iterator[httpx.Client]:
    with live_server.client("worker") as client:
        yield client


@pytest.fixture
def run_id(live_server: Any) -> str:
    with live_server.engine.begin() as c:
        project = c.scalar(
            text(
                "INSERT INTO project (slug, trusted, repository_url) VALUES ('demo/tinygpt', true, 'file:///r') "
                "RETURNING id"
            )
        )
        commit = c.scalar(
            text("INSERT INTO commit (project_id, sha, parents) VALUES (:p, :s, :parents) RETURNING id"),
            {"p": project, "s": "a" * 40, "parents": ["b" * 40]},
        )
        wanted = WantedRun(commit_id=commit, suite="gpt", testbed="cpu", spec=SPEC)
        (requested,) = queue_request.request_runs(
            c, project, [wanted], kind=Kind.MAIN, requested_by="test", now=datetime.now(UTC), branch="main"
        )
    return requested.run_id


def lease(worker: httpx.Client, run_id: str) -> dict[str, Any]:
    answer = worker.post(f"/api/v1/runs/{run_id}/lease", json=HELLO)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def state_of(live_server: Any, run_id: str) -> Any:
    with live_server.engine.connect() as c:
        return c.execute(text("SELECT * FROM run WHERE id = :id"), {"id": run_id}).one()


def test_a_lease_holds_all_that_a_worker_must_know(worker: httpx.Client, run_id: str) -> None:
    answer = lease(worker, run_id)
    secret = answer.pop("lease")
    assert len(secret) >= 40
    assert answer == {
        "run_id": run_id,
        "lease_s": 30,
        "heartbeat_s": 5,
        "attempt": 1,
        "project": "demo/tinygpt",
        "trusted": True,
        "repository_url": "file:///r",
        "commit": "a" * 40,
        "parents": ["b" * 40],
        "branch": "main",
        "pull_request": None,
        "suite": "gpt",
        "testbed": "cpu",
        "spec": SPEC,
    }


def test_the_secret_of_a_lease_is_stored_hashed(worker: httpx.Client, live_server: Any, run_id: str) -> None:
    secret = lease(worker, run_id)["lease"]
    row = state_of(live_server, run_id)
    assert row.lease_hash == dispatch.lease_hash(secret) and secret.encode() not in row.lease_hash


def test_a_run_is_leased_once(worker: httpx.Client, run_id: str) -> None:
    lease(worker, run_id)
    again = worker.post(f"/api/v1/runs/{run_id}/lease", json={**HELLO, "worker": "host-2"})
    assert again.status_code == 409 and "another worker" in again.json()["detail"]


def test_a_run_that_does_not_exist_or_has_ended_is_gone(worker: httpx.Client, live_server: Any, run_id: str) -> None:
    assert worker.post("/api/v1/runs/01JD2Q8Z6WJ4M6R8T0V2X4Y6Z8/lease", json=HELLO).status_code == 410
    with live_server.engine.begin() as c:
        c.execute(text("UPDATE run SET state = 'cancelled' WHERE id = :id"), {"id": run_id})
    ended = worker.post(f"/api/v1/runs/{run_id}/lease", json=HELLO)
    assert ended.status_code == 410 and ended.json()["state"] == "cancelled"


def test_a_worker_of_another_testbed_gets_nothing(worker: httpx.Client, run_id: str) -> None:
    answer = worker.post(f"/api/v1/runs/{run_id}/lease", json={**HELLO, "testbed": "h200"})
    assert answer.status_code == 409 and "'cpu'" in answer.json()["detail"]


def test_code_of_an_untrusted_project_needs_a_worker_that_isolates(
    worker: httpx.Client, live_server: Any, run_id: str
) -> None:
    with live_server.engine.begin() as c:
        c.execute(text("UPDATE project SET trusted = false"))
    refused = worker.post(f"/api/v1/runs/{run_id}/lease", json={**HELLO, "protection": "none"})
    assert refused.status_code == 409 and "not marked trusted" in refused.json()["detail"]
    assert worker.post(f"/api/v1/runs/{run_id}/lease", json={**HELLO, "protection": "user"}).status_code == 200


def test_a_paused_worker_gets_no_runs(worker: httpx.Client, live_server: Any, run_id: str) -> None:
    hello = {"name": "host-1", "testbed": "cpu"}
    assert worker.post("/api/v1/workers", json=hello).json()["state"] == "ok"
    with live_server.engine.begin() as c:
        c.execute(text("UPDATE worker SET wanted_state = 'pause'"))
    assert worker.post("/api/v1/workers", json=hello).json()["state"] == "pause"
    assert worker.post(f"/api/v1/runs/{run_id}/lease", json=HELLO).status_code == 409


def test_a_heartbeat_keeps_the_lease_and_tells_of_a_cancellation(
    worker: httpx.Client, live_server: Any, run_id: str
) -> None:
    secret = lease(worker, run_id)["lease"]
    before = state_of(live_server, run_id).lease_expires_at
    answer = worker.post(f"/api/v1/runs/{run_id}/heartbeat", json={"lease": secret})
    assert answer.json() == {"cancel": False} and state_of(live_server, run_id).lease_expires_at > before
    with live_server.engine.begin() as c:
        person = Principal(name="a person", via=Via.SESSION, scopes=frozenset(Scope))
        dispatch.cancel_run(c, run_id, person, datetime.now(UTC))
    assert worker.post(f"/api/v1/runs/{run_id}/heartbeat", json={"lease": secret}).json() == {"cancel": True}


def test_a_wrong_lease_neither_keeps_tells_nor_releases(worker: httpx.Client, run_id: str) -> None:
    lease(worker, run_id)
    for path, more in (("heartbeat", {}), ("events", {"events": []}), ("release", {"reason": "x"})):
        answer = worker.post(f"/api/v1/runs/{run_id}/{path}", json={"lease": "wrong", **more})
        assert answer.status_code == 409 and answer.json()["state"] == "leased", path


def test_events_are_stored_and_show_as_progress(worker: httpx.Client, live_server: Any, run_id: str) -> None:
    secret = lease(worker, run_id)["lease"]
    at = "2026-11-20T10:00:00Z"
    events = [
        {"at": at, "kind": "state", "detail": {"state": "running", "step": "execute"}},
        {"at": at, "kind": "progress", "detail": {"done": 2, "total": 5, "note": "gpt.train", "eta_s": 12.5}},
        {
            "at": at,
            "kind": "log",
            "detail": {"stream": "stderr", "lines": ["<b>bold</b>", "nul \x00 byte", "x" * 9000]},
        },
    ]
    answer = worker.post(f"/api/v1/runs/{run_id}/events", json={"lease": secret, "events": events})
    assert answer.json() == {"stored": 3}
    row = state_of(live_server, run_id)
    assert row.state == "running"
    assert row.progress == {"step": "execute", "done": 2, "total": 5, "note": "gpt.train", "eta_s": 12.5}
    with live_server.engine.connect() as c:
        lines = c.scalar(text("SELECT detail->'lines' FROM run_event WHERE kind = 'log'"))
    assert lines[0] == "<b>bold</b>" and lines[1] == "nul \ufffd byte" and len(lines[2]) == 4096


@pytest.mark.parametrize(
    ("kind", "detail", "named"),
    [
        ("state", {"step": "dance"}, "events[0].detail.step: 'dance'"),
        ("progress", {"done": -1}, "events[0].detail.done: -1"),
        ("progress", {"eta_s": "soon"}, "events[0].detail.eta_s: 'soon'"),
        ("log", {"lines": "text"}, "events[0].detail.lines"),
        ("log", {"stream": "stdin", "lines": []}, "events[0].detail.stream: 'stdin'"),
        ("log", {"lines": ["x"] * 201}, "at most 200 lines"),
    ],
)
def test_an_event_that_says_nonsense_is_refused_by_its_field(
    worker: httpx.Client, run_id: str, kind: str, detail: dict[str, Any], named: str
) -> None:
    secret = lease(worker, run_id)["lease"]
    event = {"at": "2026-11-20T10:00:00Z", "kind": kind, "detail": detail}
    answer = worker.post(f"/api/v1/runs/{run_id}/events", json={"lease": secret, "events": [event]})
    assert answer.status_code == 400 and named in answer.json()["detail"]


def test_a_released_run_waits_again_and_costs_no_attempt(worker: httpx.Client, live_server: Any, run_id: str) -> None:
    for _ in range(4):
        secret = lease(worker, run_id)["lease"]
        answer = worker.post(f"/api/v1/runs/{run_id}/release", json={"lease": secret, "reason": "shutting down"})
        assert answer.json() == {"run_id": run_id, "state": "queued"}
    row = state_of(live_server, run_id)
    assert row.state == "queued" and row.attempt == 5 and row.lease_hash is None
    assert [attempt["reason"] for attempt in row.attempts] == ["shutting down"] * 4


def test_a_restarted_worker_gives_back_what_it_held(worker: httpx.Client, live_server: Any, run_id: str) -> None:
    secret = lease(worker, run_id)["lease"]
    worker.post("/api/v1/workers", json={"name": "host-1", "testbed": "cpu", "starting": True})
    assert state_of(live_server, run_id).state == "queued"
    assert worker.post(f"/api/v1/runs/{run_id}/heartbeat", json={"lease": secret}).status_code == 409


def test_a_token_of_one_project_does_not_take_the_runs_of_another_away(
    worker: httpx.Client, live_server: Any, run_id: str
) -> None:
    lease(worker, run_id)
    with live_server.engine.begin() as c:
        other = projects.save_project(c, "other/one", repository_url=None, now=datetime.now(UTC)).id
    headers = {"Authorization": f"Bearer {live_server.token('worker', project_id=other)}"}
    body = {"name": "host-1", "testbed": "cpu", "starting": True}
    assert worker.post("/api/v1/workers", json=body, headers=headers).status_code == 409
    with live_server.engine.begin() as c:
        c.execute(text("UPDATE worker SET token_id = NULL"))  # as a worker that nobody's token has spoken for yet
    assert worker.post("/api/v1/workers", json=body, headers=headers).status_code == 200
    assert state_of(live_server, run_id).state == "leased"


def test_what_a_worker_can_do_is_said_in_numbers_that_everybody_can_read(worker: httpx.Client) -> None:
    body = {"name": "host-1", "testbed": "cpu", "capabilities": {"memory": {"bytes": 10**300}}}
    answer = worker.post("/api/v1/workers", json=body)
    assert answer.status_code == 422 and "capabilities.memory.bytes" in answer.json()["detail"]
    assert worker.get("/api/v1/workers").status_code == 200


def test_only_a_worker_token_may_do_this(live_server: Any, run_id: str) -> None:
    path = f"/api/v1/runs/{run_id}/lease"
    with live_server.client() as anonymous, live_server.client("write") as writer:
        nobody = anonymous.post(path, json=HELLO)
        assert nobody.status_code == 401 and nobody.headers["www-authenticate"] == "Bearer"
        assert writer.post(path, json=HELLO).status_code == 403


def test_a_result_that_meets_another_in_the_tables_is_to_be_sent_again_and_then_comes_in(
    worker: httpx.Client, live_server: Any
) -> None:
    """A 409 would be the last word: the worker would set its result aside."""
    with live_server.engine.begin() as c:
        c.execute(
            text(
                """CREATE FUNCTION faster() RETURNS trigger LANGUAGE plpgsql
                   AS 'BEGIN RAISE unique_violation USING MESSAGE = NEW.id; END'"""
            )
        )
        c.execute(text("CREATE TRIGGER faster BEFORE INSERT ON run FOR EACH ROW EXECUTE FUNCTION faster()"))
    document = run_document(0)
    path = f"/api/v1/runs/{document['id']}"
    met = worker.put(path, json=document)
    assert met.status_code == 503 and met.headers["retry-after"], met.text
    with live_server.engine.begin() as c:
        c.execute(text("DROP TRIGGER faster ON run"))
    assert worker.put(path, json=document).status_code == 201


def test_an_artifact_is_stored_once_and_comes_back_as_it_was(
    worker: httpx.Client, live_server: Any, run_id: str
) -> None:
    path = f"/api/v1/runs/{run_id}/artifacts/gpt.train.mllog"
    assert worker.put(path, content=b":::MLLOG {}").status_code == 201
    assert worker.put(path, content=b":::MLLOG {}").status_code == 200
    other = worker.put(path, content=b"something else")
    assert other.status_code == 409 and "different content" in other.json()["detail"]
    got = worker.get(path)
    assert got.content == b":::MLLOG {}"
    assert got.headers["content-disposition"] == 'attachment; filename="gpt.train.mllog"'
    assert got.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", ".hidden", "a..b", "%00", "a%0ab", "x" * 201])
def test_an_artifact_name_cannot_leave_its_directory(worker: httpx.Client, run_id: str, name: str) -> None:
    answer = worker.put(f"/api/v1/runs/{run_id}/artifacts/{name}", content=b"x")
    assert answer.status_code in {400, 404, 422}


def test_an_artifact_that_is_not_there_names_those_that_are(worker: httpx.Client, run_id: str) -> None:
    worker.put(f"/api/v1/runs/{run_id}/artifacts/trace.json.gz", content=b"x")
    answer = worker.get(f"/api/v1/runs/{run_id}/artifacts/trace.json")
    assert answer.status_code == 404 and "trace.json.gz" in answer.json()["detail"]
    assert worker.put("/api/v1/runs/01JD2Q8Z6WJ4M6R8T0V2X4Y6Z8/artifacts/x", content=b"").status_code == 404


def test_the_artifacts_of_a_run_are_bounded_together(live_server: Any, worker: httpx.Client, run_id: str) -> None:
    live_server.app.state.config = replace(live_server.config, max_run_artifact_bytes=10)
    assert worker.put(f"/api/v1/runs/{run_id}/artifacts/one.txt", content=b"1234567").status_code == 201
    refused = worker.put(f"/api/v1/runs/{run_id}/artifacts/two.txt", content=b"1234")
    assert refused.status_code == 413 and "accepted: 10 together" in refused.json()["detail"]
    assert worker.put(f"/api/v1/runs/{run_id}/artifacts/one.txt", content=b"1234567").status_code == 200


def test_a_worker_whose_token_is_limited_to_a_project_listens_by_itself(
    worker: httpx.Client, live_server: Any, run_id: str
) -> None:
    hello = {"name": "host-1", "testbed": "cpu", "capabilities": {"listens_where_told": True}}
    assert worker.post("/api/v1/workers", json=hello).json() == {"state": "ok", "queue": "testbed.cpu"}
    with live_server.engine.begin() as c:
        project = c.scalar(text("SELECT project_id FROM run WHERE id = :id"), {"id": run_id})
        c.execute(text("UPDATE api_token SET revoked_at = now()"))
    limited = live_server.token("worker", project_id=project)
    with httpx.Client(base_url=live_server.url, headers={"Authorization": f"Bearer {limited}"}) as bound:
        assert bound.post("/api/v1/workers", json=hello).json() == {"state": "ok", "queue": f"testbed.cpu:{project}"}
    with live_server.engine.connect() as c:
        assert c.scalar(text("SELECT project_id FROM worker")) == project
