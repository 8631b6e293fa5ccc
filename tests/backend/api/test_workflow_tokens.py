"""GitHub's own tokens at our door: they deliver to their project and do nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from backend.api import create_api
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.store.base import projects as project_store
from tests.backend.api.conftest import run_document
from tests.backend.github.test_oidc import AUDIENCE, Issuer, issuer

__all__ = ["issuer"]
NOW = datetime.now(UTC)


@pytest.fixture
def server(
    issuer: Issuer,
    service_config: ServiceConfig,
    committing_engine: Engine,
    serve_app: Any,
) -> Iterator[Any]:
    config = replace(service_config, github_oidc_issuer=issuer.url, public_url=AUDIENCE)
    with committing_engine.begin() as c:
        projects.save_project(c, "northsea/loom", repository_url="https://github.com/northsea/loom.git", now=NOW)
        projects.save_project(c, "northsea/other", repository_url=None, now=NOW)
    with serve_app(create_api(config, committing_engine), committing_engine, config) as made:
        yield made


def put(server: Any, token: str, project: str = "northsea/loom") -> httpx.Response:
    run = run_document(0, project=project, commit="a" * 40)
    return bearer(server, token).put(f"/api/v1/runs/{run['id']}", content=json.dumps(run))


def bearer(server: Any, token: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=30, trust_env=False, verify=False)


def test_a_workflow_delivers_to_its_project_without_a_stored_secret(server: Any, issuer: Issuer) -> None:
    assert put(server, issuer.token()).status_code == 201
    csv = "benchmark,metric,value,unit\nb,step_ms,1.5,ms\n"
    stated = {"project": "northsea/loom", "testbed": "ci", "commit": "a" * 40}
    imported = bearer(server, issuer.token()).post("/api/v1/import/csv", params=stated, content=csv)
    assert imported.status_code == 200 and imported.json()["counts"]["stored"] == 1


def test_a_workflow_delivers_to_no_other_project(server: Any, issuer: Issuer) -> None:
    assert put(server, issuer.token(), "northsea/other").status_code == 403
    assert put(server, issuer.token(), "new/project").status_code == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/api/v1/tokens"), ("POST", "/api/v1/run-requests"), ("PATCH", "/api/v1/regressions/1")],
)
def test_a_workflow_may_do_nothing_else(server: Any, issuer: Issuer, method: str, path: str) -> None:
    bodies = {
        "/api/v1/tokens": {"name": "x", "scopes": ["admin"]},
        "/api/v1/run-requests": {"project": "northsea/loom", "commit": "main"},
        "/api/v1/regressions/1": {"action": "acknowledge"},
    }
    answer = bearer(server, issuer.token()).request(method, path, json=bodies[path])
    assert answer.status_code == 403 and "workflow of northsea/loom" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": "somebody else"}, "another audience"),
        ({"exp": 1}, "expired"),
        ({"repository": "evil/loom"}, "the repository of no project here"),
        # Named like a project here, but not its repository.
        ({"repository": "northsea/other"}, "the repository of no project here"),
    ],
)
def test_a_token_that_is_not_right_is_refused_with_the_reason(
    server: Any, issuer: Issuer, claims: dict[str, Any], said: str
) -> None:
    answer = put(server, issuer.token(**claims))
    assert answer.status_code == 401 and said in answer.json()["detail"]


def test_the_rules_of_the_project_decide_which_refs_may_deliver(server: Any, issuer: Issuer) -> None:
    with server.engine.begin() as c:
        found = project_store.find(c, "northsea/loom")
        assert found is not None
        project_store.set_setting(c, found.id, "oidc", {"refs": ["refs/heads/main"], "environments": ["bench"]})
    assert "ref 'refs/heads/x'" in put(server, issuer.token(ref="refs/heads/x", environment="bench")).text
    assert "environment None" in put(server, issuer.token()).text
    assert put(server, issuer.token(environment="bench")).status_code == 201
