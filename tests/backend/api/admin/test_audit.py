"""The audit trail over the API: what is in it, who reads it, and its exports."""

from __future__ import annotations

import csv
import io
import json

from tests.backend.people_of_tests import browser, make_project
from tests.conftest import LiveServer


def do_things(server: LiveServer) -> None:
    with server.client("admin") as admin:
        assert admin.post("/api/v1/projects", json={"project": "a/b", "private": True}).status_code == 201
        assert admin.post("/api/v1/projects", json={"project": "c/d"}).status_code == 201
        made = admin.post("/api/v1/tokens", json={"name": "=ci()", "scopes": ["submit"], "project": "a/b"}).json()
        assert admin.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
        assert admin.patch("/api/v1/projects/a/b/policy", json={"policy": {"min_change": 0.1}}).status_code == 200
        secret = {"project": "c/d", "github": {"webhook_secret": "0123456789abcdef0123456789abcdef"}}
        assert admin.post("/api/v1/projects", json=secret).status_code == 200


def test_what_was_done_is_there_with_who_and_how(live_server: LiveServer) -> None:
    do_things(live_server)
    with live_server.client("admin") as admin:
        trail = admin.get("/api/v1/audit").json()["items"]
    assert [it["action"] for it in reversed(trail)] == [
        "project.save", "project.save", "token.create", "token.revoke", "policy.change", "project.save"]  # fmt: skip
    assert {(it["actor"].rpartition(" ")[0], it["via"]) for it in trail} == {("token test admin", "token")}
    assert trail[1]["detail"] == {"before": {}, "after": {"min_change": 0.1}}
    assert "0123456789abcdef" not in str(trail)


def test_who_administers_a_project_reads_its_part_alone(live_server: LiveServer) -> None:
    do_things(live_server)
    with browser(live_server, "ada", a_b="admin") as ada, browser(live_server, "bob", a_b="triager") as bob:
        mine = ada.get("/api/v1/audit", params={"project": "a/b"}).json()["items"]
        assert {it["project"] for it in mine} == {"a/b"} and len(mine) == 4
        assert ada.get("/api/v1/audit").status_code == 403
        assert ada.get("/api/v1/audit", params={"project": "c/d"}).status_code == 403
        assert bob.get("/api/v1/audit", params={"project": "a/b"}).status_code == 403


def test_the_exports_hold_the_same(live_server: LiveServer) -> None:
    make_project(live_server.engine, "x/y")
    do_things(live_server)
    with live_server.client("admin") as admin:
        listed = admin.get("/api/v1/audit").json()["items"]
        lines = admin.get("/api/v1/audit", params={"format": "jsonl"})
        table = admin.get("/api/v1/audit", params={"format": "csv"})
        paged = admin.get("/api/v1/audit", params={"limit": 2}).json()
        second = admin.get("/api/v1/audit", params={"limit": 2, "cursor": paged["next"]}).json()["items"]
    assert [json.loads(line)["id"] for line in lines.text.splitlines()] == [it["id"] for it in listed]
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert [int(row["id"]) for row in rows] == [it["id"] for it in listed]
    assert rows[-3]["subject"].startswith("'=ci()")  # no formula of a spreadsheet
    assert table.headers["content-type"].startswith("text/csv") and "attachment" in table.headers["content-disposition"]
    assert [it["id"] for it in second] == [it["id"] for it in listed[2:4]]
