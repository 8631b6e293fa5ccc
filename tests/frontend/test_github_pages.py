"""Pages about GitHub: pull requests with the approval of a fork's exact commit, and a project's settings there."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from frontend_site import Site, form
from sqlalchemy import text

from backend.services.base import access, projects
from backend.store.github import pull_requests

SLUG = "northsea/loom"
HEAD = "a" * 40


@pytest.fixture
def site(own_site: Site) -> Site:
    with own_site.engine.begin() as c:
        url = "https://github.com/northsea/loom.git"
        saved = projects.save_project(c, SLUG, repository_url=url, now=datetime.now(UTC))
        for number, is_fork, title in ((7, True, "Faster <b>router</b>"), (8, False, "Another")):
            values = {
                "project_id": saved.id, "number": number, "title": title, "author": "bob", "state": "open",
                "is_fork": is_fork, "head_sha": HEAD, "base_ref": "main", "updated_at": datetime.now(UTC),
            }  # fmt: skip
            pull_requests.save(c, values)
    return own_site


def row(site: Site) -> Any:
    with site.engine.connect() as c:
        return c.execute(text("SELECT * FROM pull_request WHERE number = 7")).one()


def test_a_fork_waits_with_a_button_and_is_approved_at_exactly_the_commit_that_was_shown(
    site: Site, owner: httpx.Client
) -> None:
    page = owner.get("/pull-requests").text
    assert "waits for an approval" in page and f"Approve {HEAD[:7]}" in page and "<b>router</b>" not in page
    assert page.count("Approve a") == 1 and "https://github.com/northsea/loom/pull/7/files" in page
    other = form(owner, site, "/pull-requests/7/approve", project=SLUG, commit="b" * 40)
    assert other.status_code == 409 and row(site).approved_sha is None
    answer = form(owner, site, "/pull-requests/7/approve", project=SLUG, commit=HEAD)
    assert answer.status_code == 200 and re.search(r"approved by (<[^>]+>)?administrator", answer.text), answer.text
    assert (row(site).approved_sha, row(site).approved_by) == (HEAD, "administrator")


def test_nobody_else_approves(site: Site, owner: httpx.Client) -> None:
    anonymous = httpx.post(f"{site.url}/pull-requests/7/approve", data={"project": SLUG, "commit": HEAD})
    assert anonymous.status_code in (401, 403)
    forged = owner.post(
        "/pull-requests/7/approve", data={"project": SLUG, "commit": HEAD, "csrf_token": "made up"},
        headers={"Origin": site.url},
    )  # fmt: skip
    assert forged.status_code == 403 and row(site).approved_sha is None
    assert "sign in" in httpx.get(f"{site.url}/pull-requests").text


def test_who_may_write_has_no_button_and_does_not_approve(site: Site) -> None:
    with site.engine.begin() as c:
        tokens = {
            scope: access.create_token(c, scope, [scope], now=datetime.now(UTC)).token for scope in ("write", "approve")
        }
    for scope, status in (("write", 403), ("approve", 303)):
        headers = {"Authorization": f"Bearer {tokens[scope]}"}
        page = httpx.get(f"{site.url}/pull-requests", headers=headers, params={"project": SLUG}).text
        assert (f"Approve {HEAD[:7]}" in page) is (scope == "approve")
        said = {"project": SLUG, "commit": HEAD}
        assert httpx.post(f"{site.url}/pull-requests/7/approve", headers=headers, data=said).status_code == status
        assert row(site).approved_by == (None if scope == "write" else "approve")


def test_the_settings_say_whose_workflows_may_deliver_and_what_github_is_told(site: Site, owner: httpx.Client) -> None:
    saved = form(
        owner, site, "/settings/github", project=SLUG, issues="yes", approval_label="go", refs="refs/heads/main\n\n",
        environments="gpu", repository="northsea/benchmarks", repository_id="42",
    )  # fmt: skip
    assert saved.status_code == 200 and "refs/heads/main" in saved.text and 'value="go"' in saved.text
    settings = site.client.get(f"/api/v1/projects/{SLUG}").json()["settings"]
    assert settings["github"] == {"issues": True, "approval_label": "go"}
    assert settings["oidc"] == {
        "refs": ["refs/heads/main"], "environments": ["gpu"], "repository": "northsea/benchmarks",
        "repository_id": "42",
    }  # fmt: skip
    wrong = form(owner, site, "/settings/github", project=SLUG, refs="main")
    assert wrong.status_code == 400 and "a whole ref, such as refs/heads/main" in wrong.text
    form(owner, site, "/settings/github", project=SLUG)
    assert site.client.get(f"/api/v1/projects/{SLUG}").json()["settings"] == {"github": {}}


@pytest.mark.parametrize("change", [{"oidc": {"refs": ["main"]}}, {"oidc": {"branches": []}}, {"github": {"x": 1}}])
def test_the_api_refuses_rules_that_could_not_be_met(site: Site, change: dict[str, Any]) -> None:
    answer = site.client.post("/api/v1/projects", json={"project": SLUG, **change})
    assert answer.status_code in (400, 422), answer.text


def test_pull_requests_and_settings_fit_a_phone_and_need_no_mouse(site: Site, visit: Callable[..., Any]) -> None:
    page = visit(site, signed_in=True, width=390, height=800).page()
    for path in ("/pull-requests", "/settings"):
        page.goto(site.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(each["id"], [node["html"][:160] for node in each["nodes"]]) for each in found] == [], path
