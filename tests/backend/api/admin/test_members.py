"""Members over the API: what each role may do, and what becomes of it at once."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from backend.services.base import access
from tests.backend.api.conftest import run_document
from tests.backend.people_of_tests import browser, make_project, signed_in
from tests.conftest import LiveServer

MEMBERS = "/api/v1/projects/a/b/members"


def test_an_administrator_of_a_project_gives_and_takes_roles_there_alone(live_server: LiveServer) -> None:
    make_project(live_server.engine, "a/b")
    make_project(live_server.engine, "c/d")
    with browser(live_server, "ada@example.org", a_b="admin") as ada:
        given = ada.put(f"{MEMBERS}/Bob@Example.org", json={"role": "triager"})
        assert [(it["login"], it["role"]) for it in given.json()["items"]] == [
            ("bob@example.org", "triager"), ("ada@example.org", "admin")]  # fmt: skip
        assert ada.put("/api/v1/projects/c/d/members/bob", json={"role": "viewer"}).status_code == 403
        assert ada.put("/api/v1/members/bob", json={"role": "viewer"}).status_code == 403
        assert ada.delete(f"{MEMBERS}/bob@example.org").status_code == 204
        assert ada.delete(f"{MEMBERS}/bob@example.org").status_code == 404
        trail = ada.get("/api/v1/audit", params={"project": "a/b", "action": "member."}).json()["items"]
        assert [(it["action"], it["detail"]) for it in trail] == [
            ("member.remove", {"before": "triager"}), ("member.set", {"role": "triager"})]  # fmt: skip


def test_a_role_that_is_taken_back_ends_at_the_next_request(live_server: LiveServer) -> None:
    make_project(live_server.engine, "a/b", private=True)
    with browser(live_server, "ada@example.org", a_b="admin") as ada, browser(live_server, "bob", a_b="viewer") as bob:
        assert bob.get(MEMBERS).status_code == 200
        assert ada.delete(f"{MEMBERS}/bob").status_code == 204
        assert bob.get(MEMBERS).status_code == 404


@pytest.mark.parametrize(
    ("login", "body", "status"),
    [
        ("bob@example.org", {"role": "owner"}, 422),
        ("bob@example.org", {"role": "viewer", "provider": "facebook"}, 422),
        ("not a login", {"role": "viewer"}, 422),
        ("-bob", {"role": "viewer"}, 400),
        ("bob", {"role": "viewer"}, 200),
    ],
)
def test_a_login_and_a_role_must_be_such(
    live_server: LiveServer, login: str, body: dict[str, str], status: int
) -> None:
    make_project(live_server.engine, "a/b")
    with live_server.client("admin") as admin:
        assert admin.put(f"{MEMBERS}/{login}", json=body).status_code == status


def test_the_service_keeps_an_administrator(live_server: LiveServer) -> None:
    with browser(live_server, "ada@example.org", everywhere="admin") as ada:
        for refused in (
            ada.delete("/api/v1/members/ada@example.org"),
            ada.put("/api/v1/members/ada@example.org", json={"role": "viewer"}),
        ):
            assert refused.status_code == 409 and "one administrator" in refused.json()["detail"]
        assert ada.put("/api/v1/members/bob", json={"role": "admin"}).status_code == 200
        assert ada.delete("/api/v1/members/ada@example.org").status_code == 204


def test_who_acknowledges_is_named_and_may_name_another(live_server: LiveServer) -> None:
    with live_server.client("write") as ci:
        for position in range(2):
            ci.put(f"/api/v1/runs/{run_document(position)['id']}", json=run_document(position))
    with live_server.engine.begin() as c:
        number = c.scalar(
            text(
                """INSERT INTO regression (project_id, testbed_id, state, first_bad_position)
                   SELECT p.id, t.id, 'confirmed', 1 FROM project p, testbed t WHERE t.name = 'cpu' RETURNING id"""
            )
        )
    there = f"/api/v1/regressions/{number}"
    with (
        browser(live_server, "ada@example.org", demo_tinygpt="triager") as ada,
        browser(live_server, "bob@example.org", demo_tinygpt="submitter") as bob,
    ):
        mine = ada.patch(there, json={"action": "acknowledge"})
        assert mine.json()["regression"]["owner"] == "Ada"
        his = ada.patch(there, json={"action": "acknowledge", "assignee": "bob@example.org"})
        assert his.json()["regression"]["owner"] == "Bob" and his.json()["events"][-1]["actor"] == "Ada"
        assert ada.patch(there, json={"action": "acknowledge", "assignee": "nobody"}).status_code == 404
        assert ada.patch(there, json={"action": "release", "assignee": "bob@example.org"}).status_code == 400
        assert bob.patch(there, json={"action": "release"}).status_code == 403
    with live_server.client("admin") as admin:
        actor, trail = (
            "Ada (ada@example.org)",
            admin.get("/api/v1/audit", params={"action": "regression."}).json()["items"],
        )
        assert [(it["actor"], it["subject"], it["detail"].get("owner")) for it in trail] == [
            (actor, f"R-{number}", "Bob"), (actor, f"R-{number}", None)]  # fmt: skip


def test_a_session_does_nothing_without_the_page_s_own_token(live_server: LiveServer) -> None:
    make_project(live_server.engine, "a/b")
    with browser(live_server, "ada@example.org", a_b="admin") as ada:
        session = ada.cookies[access.SESSION_COOKIE]
        with signed_in(live_server.url, session) as forged:
            del forged.headers[access.CSRF_HEADER]
            assert forged.put(f"{MEMBERS}/bob", json={"role": "admin"}).status_code == 403
