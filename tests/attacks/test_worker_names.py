"""Somebody delivers results as a machine of others: what is learnt of a machine would be learnt from strangers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import httpx

from backend.services.base import access
from tests.backend.api.conftest import run_document, sha
from tests.conftest import LiveServer


@contextmanager
def caller(server: LiveServer, name: str, scope: str) -> Iterator[httpx.Client]:
    """Somebody with a token that nobody else has."""
    with server.engine.begin() as c:
        token = access.create_token(c, name, [scope], now=datetime.now(UTC)).token
    with httpx.Client(
        base_url=server.url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, verify=False
    ) as client:
        yield client


def register(client: httpx.Client, name: str) -> None:
    hello = {"name": name, "testbed": "cpu", "capabilities": {}}
    assert client.post("/api/v1/workers", json=hello).status_code == 200


def test_a_worker_with_a_token_of_its_own_is_named_by_that_token_alone(live_server: LiveServer) -> None:
    with caller(live_server, "one", "worker") as owner, caller(live_server, "two", "worker") as another:
        register(owner, "gpu-1")
        register(another, "gpu-2")
        forged = run_document(0, worker="gpu-1")
        for scope in ("worker", "write"):
            with caller(live_server, "other", scope) as stranger:
                refused = stranger.put(f"/api/v1/runs/{forged['id']}", json=forged)
                assert refused.status_code == 403, refused.text
                assert "may not deliver results of worker 'gpu-1'" in refused.json()["detail"]
        refused = another.put(f"/api/v1/runs/{forged['id']}", json=forged)
        assert refused.status_code == 403
        assert owner.put(f"/api/v1/runs/{forged['id']}", json=forged).status_code == 201


def test_a_name_that_no_worker_has_is_free(live_server: LiveServer) -> None:
    """As CI names its machines."""
    with live_server.client("write") as ci:
        for position, name in enumerate(("runner-1", None)):
            run = run_document(position, worker=name)
            assert ci.put(f"/api/v1/runs/{run['id']}", json=run).status_code == 201


def test_the_name_is_free_again_when_its_token_was_revoked(live_server: LiveServer) -> None:
    with caller(live_server, "one", "worker") as owner, live_server.client("admin") as admin:
        register(owner, "gpu-1")
        run = run_document(0, worker="gpu-1")
        (token,) = [each for each in admin.get("/api/v1/tokens").json()["items"] if each["scopes"] == ["worker"]]
        assert admin.delete(f"/api/v1/tokens/{token['id']}").status_code in (200, 204)
        with live_server.client("write") as ci:
            assert ci.put(f"/api/v1/runs/{run['id']}", json=run).status_code == 201


def test_an_import_is_no_way_around(live_server: LiveServer) -> None:
    with caller(live_server, "one", "worker") as owner, caller(live_server, "other", "write") as stranger:
        register(owner, "gpu-1")
        measured = {"name": "BM_Gemm", "real_time": 1.0, "cpu_time": 1.0, "time_unit": "ns", "iterations": 1}
        body = json.dumps({"context": {"host_name": "gpu-1"}, "benchmarks": [measured]}).encode()
        place = {"project": "demo/tinygpt", "commit": sha(0), "testbed": "cpu", "file": "results.json"}
        answer = stranger.post("/api/v1/import/google-benchmark", params=place, content=body)
        assert "may not deliver results of worker" in answer.text
