"""A worker's page: whoever administers the service tells the worker what to do, and nobody else does."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import httpx
import pytest
from frontend_site import Site
from sqlalchemy import text

from backend.services.base import access


@pytest.fixture
def site(own_site: Site) -> Site:
    with own_site.engine.begin() as c:
        c.execute(text("INSERT INTO testbed (name) VALUES ('bench')"))
        c.execute(
            text("INSERT INTO worker (name, testbed_id) SELECT :name, id FROM testbed WHERE name = 'bench'"),
            {"name": "box-1"},
        )
    return own_site


def wanted_state(site: Site) -> str:
    with site.engine.connect() as c:
        return str(c.execute(text("SELECT wanted_state FROM worker WHERE name = 'box-1'")).scalar_one())


def test_an_administrator_holds_a_worker_and_lets_it_go_on(site: Site) -> None:
    with httpx.Client(
        base_url=site.url, headers={"Accept": "text/html"}, follow_redirects=True, timeout=30, verify=False
    ) as owner:
        owner.get(site.sign_in_link())
        page = owner.get("/workers/box-1").text
        token = re.search(r'<meta name="csrf" content="([^"]+)">', page)
        assert token is not None and 'value="pause"' in page and 'value="ok"' not in page
        told = {"csrf_token": token[1], "state": "quarantine"}
        after = owner.post("/workers/box-1/state", data=told, headers={"Origin": site.url})
        assert wanted_state(site) == "quarantine"
        assert 'value="ok"' in after.text and 'value="quarantine"' not in after.text
        owner.post("/workers/box-1/state", data={**told, "state": "ok"}, headers={"Origin": site.url})
        assert wanted_state(site) == "ok"
        assert owner.post("/workers/nobody/state", data=told, headers={"Origin": site.url}).status_code == 404


def test_nobody_else_tells_a_worker_anything(site: Site) -> None:
    assert "/workers/box-1/state" not in httpx.get(f"{site.url}/workers/box-1").text
    anonymous = httpx.post(f"{site.url}/workers/box-1/state", data={"state": "drain"})
    assert anonymous.status_code in (401, 403)
    with site.engine.begin() as c:
        secret = access.create_token(c, "ci", [access.Scope.WRITE], now=datetime.now(UTC)).token
    writer = {"Authorization": f"Bearer {secret}"}
    assert httpx.post(f"{site.url}/workers/box-1/state", data={"state": "drain"}, headers=writer).status_code == 403
    assert wanted_state(site) == "ok"


def test_a_worker_of_a_private_project_is_named_only_to_those_who_see_that_project(site: Site) -> None:
    site.client.post("/api/v1/projects", json={"project": "northsea/open"})
    site.client.post("/api/v1/projects", json={"project": "northsea/hidden", "private": True})
    with site.engine.begin() as c:
        c.execute(
            text(
                """UPDATE worker SET last_seen_at = now(), project_id = p.id FROM project p
                   WHERE p.slug = 'northsea/hidden' AND name = 'box-1'"""
            )
        )
    stranger = httpx.Client(base_url=site.url, headers={"Accept": "text/html"}, timeout=30, verify=False)
    for path in ("/workers", "/workers/box-2", "/api/v1/workers/box-2", "/?project=northsea/open"):
        assert "box-1" not in stranger.get(path).text, path
    stranger.follow_redirects = True
    stranger.get(site.sign_in_link())
    assert "box-1" in stranger.get("/workers").text
    assert "box-1" in stranger.get("/workers/box-2").text


def test_what_a_shared_worker_ran_for_a_private_project_is_not_counted_for_strangers(site: Site) -> None:
    site.client.post("/api/v1/projects", json={"project": "northsea/hidden", "private": True})
    for slug in ("northsea/open", "northsea/hidden"):
        name = slug.rpartition("/")[2]
        document = {
            "schema": "tidemark.run/1", "id": f"RUN-{name}", "project": slug, "commit": "a" * 40, "branch": "main",
            "suite": "gpt", "suite_version": "1.0.0", "testbed": "bench", "worker": "box-1", "status": "ok",
            "started_at": "2026-03-01T00:00:00Z", "environment": {"torch": "2.13.0", "hash": "sha256:0"}, "results": [],
        }  # fmt: skip
        site.put(document)
    stranger = httpx.Client(base_url=site.url, timeout=30, verify=False)
    seen = {who: who.get("/api/v1/workers/box-1") for who in (stranger, site.client)}
    assert "RUN-hidden" not in seen[stranger].text
    assert [answer.json()["worker"]["done"] for answer in seen.values()] == [1, 2]
    assert [answer.json()["worker"]["last_run_id"] for answer in seen.values()] == ["RUN-open", "RUN-hidden"]


def test_canary_telemetry_and_queue_of_a_private_project_are_not_shown_to_strangers(site: Site) -> None:
    site.client.post("/api/v1/projects", json={"project": "northsea/hidden", "private": True})
    for slug, temperature in (("northsea/open", 41.0), ("northsea/hidden", 87.0)):
        name = slug.rpartition("/")[2]
        document = {
            "schema": "tidemark.run/1", "id": f"RUN-{name}", "project": slug, "commit": "a" * 40, "branch": "main",
            "suite": "gpt", "suite_version": "1.0.0", "testbed": "bench", "worker": "box-1", "status": "ok",
            "started_at": "2026-03-01T00:00:00Z", "environment": {"torch": "2.13.0", "hash": "sha256:0"}, "results": [],
            "canary": [{"name": f"{name}_gemm", "before": 100.0, "after": 101.0}],
            "telemetry": {"temperature_c": {"max": temperature}},
        }  # fmt: skip
        site.put(document)
    with site.engine.begin() as c:
        c.execute(text("UPDATE worker SET last_seen_at = now()"))
        c.execute(
            text(
                """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, kind, requested_at)
                   SELECT 'RUN-waiting', project_id, commit_id, testbed_id, suite, 'queued', 'main', now()
                   FROM run WHERE id = 'RUN-hidden'"""
            )
        )
    stranger = httpx.Client(base_url=site.url, headers={"Accept": "text/html"}, timeout=30, verify=False)
    for path in ("/workers", "/workers/box-1", "/api/v1/workers", "/api/v1/workers/box-1", "/api/v1/queue"):
        answer = stranger.get(path).text
        assert not [
            word for word in ("RUN-hidden", "RUN-waiting", "hidden_gemm", ">87<", '"max":87') if word in answer
        ], path
    page = stranger.get("/workers").text
    assert "0 waiting, 0 in progress" in page and "<dt>done</dt><dd><b>1</b>" in page and ">41<" in page
    stranger.follow_redirects = True
    stranger.get(site.sign_in_link())
    page = stranger.get("/workers").text
    assert "1 waiting, 0 in progress" in page and "<dt>done</dt><dd><b>2</b>" in page and ">87<" in page
