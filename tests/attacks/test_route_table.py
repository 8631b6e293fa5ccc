"""Every route is asked by everybody: strangers, tokens of each scope, and tokens of another project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from sqlalchemy import Engine, text

from backend.services.base.config import ServiceConfig
from tests.attacks.route_table import (
    COLUMNS,
    MINE,
    OTHER,
    OTHERS,
    SEE_PRIVATE,
    Row,
    ask_everybody,
    fill,
    markdown,
    private_app,
)
from tests.backend.api.conftest import run_document
from tests.conftest import LiveServer, ServeApp

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
# What a token of another project may be answered, because it is about that one or about nobody:
ABOUT_NOBODY = (
    "GET /openapi.json", "GET /healthz", "GET /readyz", "GET /api/v1/schema/run.json", "GET /favicon.ico", "GET /",
    "GET /robots.txt", "GET /sign-in", "POST /leave", "GET /api/v1/projects", "POST /api/v1/workers",
    "GET /account", "POST /account/sign-out-everywhere", "GET /api/v1/sign-ins", "DELETE /api/v1/sign-ins",
    "GET /api/v1/tokens", "DELETE /api/v1/tokens/{token_id}", "DELETE /api/v1/sign-ins/{sign_in_id}",
    "POST /settings/tokens/{token_id}/revoke", "POST /account/browsers/{sign_in_id}/end",
    "GET /api/v1/workers/{name}", "GET /workers/{name}",  # works for all, and names the runs of who asks alone
    "GET /sign-in/with/{provider}", "GET /sign-in/done/{provider}",
)  # fmt: skip


@pytest.fixture
def server(service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp) -> Iterator[LiveServer]:
    config, app = private_app(service_config, committing_engine)
    with serve_app(app, committing_engine, config) as made:
        yield made


@pytest.fixture
def rows(server: LiveServer) -> list[Row]:
    return ask_everybody(server, fill(server))


def test_who_is_let_in_where_is_what_the_document_says(rows: list[Row]) -> None:
    written = DOCUMENT.read_text()
    for row in rows:
        assert row.line() in written, f"docs/security.md lacks {row.line()}"
    assert markdown(rows) in written
    wrong = [f"{row.method} {row.path}" for row in rows if any(row.lets_in[title] for title in OTHERS)]
    assert sorted(wrong) == sorted(set(wrong) & set(ABOUT_NOBODY)), set(wrong) - set(ABOUT_NOBODY)


def test_a_private_project_is_there_for_nobody_but_its_own(server: LiveServer) -> None:
    names = fill(server)
    with server.engine.begin() as c:
        c.execute(text("UPDATE project SET private = true WHERE slug = :slug"), {"slug": MINE})
    outside = set(COLUMNS) - set(SEE_PRIVATE)
    for row in ask_everybody(server, {**names, "private": "yes"}, {*outside, "admin"}, hidden=True):
        let_in = {title for title in outside if row.lets_in[title]}
        assert not let_in or f"{row.method} {row.path}" in ABOUT_NOBODY, (row.method, row.path, let_in)
    with server.client("worker") as worker:
        assert worker.get("/api/v1/board", params={"project": MINE}).status_code == 200


def test_a_token_of_one_project_hears_of_no_other(server: LiveServer) -> None:
    fill(server)
    with server.engine.connect() as c:
        other = c.scalar(text("SELECT id FROM project WHERE slug = :slug"), {"slug": OTHER})
    token = server.token("write", project_id=other)
    with server.client() as client:
        client.headers["Authorization"] = f"Bearer {token}"
        listed = client.get("/api/v1/projects").json()["items"]
        assert [each["slug"] for each in listed] == [OTHER]
        for path in ("/", "/board", "/regressions", "/series", "/suites", "/settings", "/search?q=step", "/rule"):
            page = client.get(path, follow_redirects=True)
            assert MINE not in page.text, path
        # Nor by naming both, nor whether there is one of that name.
        for query in (f"project={OTHER}&project={MINE}", f"project={MINE}&project={OTHER}", "project=no/such"):
            assert client.get(f"/api/v1/regressions?{query}").status_code == 403
        assert client.get("/api/v1/regressions").status_code == 403
        assert client.get(f"/api/v1/regressions?project={OTHER}").status_code == 200


@pytest.mark.parametrize("spelling", ["+{}", "{}.0", "%20{}", "{}%20", "0{}", "00_{}"])
def test_no_spelling_of_a_number_gets_round_it(server: LiveServer, spelling: str) -> None:
    """What reads a path takes "+5", "5.0" and " 5" for 5."""
    names = fill(server)
    with server.engine.connect() as c:
        other = c.scalar(text("SELECT id FROM project WHERE slug = :slug"), {"slug": OTHER})
    token = server.token("write", project_id=other)
    series, regression = (spelling.format(names[name]) for name in ("series_id", "regression_id"))
    with server.client() as client:
        client.headers["Authorization"] = f"Bearer {token}"
        for path in (f"/api/v1/series/{series}", f"/series/{series}", f"/api/v1/regressions/{regression}"):
            answer = client.get(path)
            assert answer.status_code in (403, 404, 422), (path, answer.text[:300])


def test_a_worker_s_name_belongs_to_its_token(server: LiveServer) -> None:
    hello = {"name": "w1", "testbed": "h200"}
    with server.client("worker") as owner, server.client("worker", "read") as thief, server.client("admin") as admin:
        assert owner.post("/api/v1/workers", json=hello).status_code == 200
        trouble = {**hello, "testbed": "mine", "capabilities": {"trouble": "lost GPU"}, "starting": True}
        refused = thief.post("/api/v1/workers", json=trouble)
        assert refused.status_code == 409 and "another token" in refused.json()["detail"]
        run = run_document(0)
        lease = thief.post(f"/api/v1/runs/{run['id']}/lease", json={"worker": "w1", "testbed": "mine"})
        assert lease.status_code == 409 and "another token" in lease.json()["detail"]
        told = admin.get("/api/v1/workers/w1").json()["worker"]
        assert (told["testbed"], told["wanted_state"]) == ("h200", "ok")
        with server.engine.begin() as c:
            c.execute(text("UPDATE api_token SET revoked_at = now() WHERE name = 'test worker'"))
        assert thief.post("/api/v1/workers", json=hello).status_code == 200  # its token has been replaced


@pytest.mark.parametrize("number", [1e30, -1e30, 2**63, 10**400])
def test_a_number_that_no_reader_takes_is_refused(server: LiveServer, number: float) -> None:
    with server.client("worker") as worker:
        hello = {"name": "w1", "testbed": "cpu", "capabilities": {"deep": [{"x": number}]}}
        assert worker.post("/api/v1/workers", json=hello).status_code in (400, 422)
        document = run_document(0, environment={"x": number})
        assert worker.put(f"/api/v1/runs/{document['id']}", json=document).status_code in (400, 422)
        assert worker.get("/api/v1/workers").status_code == 200


def test_a_bisection_is_answered_as_it_is_described(server: LiveServer) -> None:
    names = fill(server)
    with server.engine.begin() as c:
        of_range = {"sha": "aa", "commit_id": 1, "position": 1, "parents": [], "untouched": False, "probability": 0.5}
        c.execute(text("UPDATE bisection SET candidates = CAST(:those AS jsonb)"), {"those": json.dumps([of_range])})
    with server.client("read") as reader:
        described = reader.get("/openapi.json").json()["paths"]["/api/v1/bisections/{bisection_id}"]["get"]
        wanted = described["responses"]["200"]["content"]["application/json"]["schema"]
        answered = reader.get(f"/api/v1/bisections/{names['bisection_id']}").json()
    assert "candidates" in answered, answered
    assert answered["candidates"] == [["aa", 0.5]]
    jsonschema.validate(answered, wanted)
