"""The page of what is measured besides new commits: read by anyone, asked for and called off by who may write."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from frontend_site import Site, form
from sqlalchemy import text

from backend.services import housekeeping
from backend.services.base import projects
from backend.services.sessions import request as confirm
from backend.services.sessions.request import Purpose, SessionRequest

SLUG = "northsea/loom"
TOML = """
[suite.own]
command = "python bench.py"
[[schedule]]
name = "nightly"
at = "03:30"
"""


@pytest.fixture
def site(own_site: Site, tmp_path: Path) -> Site:
    path = tmp_path / "loom"
    path.mkdir()
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-C", str(path)]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    for number in range(6):
        (path / "tidemark.toml").write_text(TOML)
        (path / "bench.py").write_text(f"# {number}")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"Commit {number}"], check=True)
    with own_site.engine.begin() as c:
        projects.save_project(c, SLUG, repository_url=path.as_uri(), trusted=True, now=datetime.now(UTC))
    (synced,) = housekeeping.sync_all(own_site.engine, own_site.config)
    assert synced.error is None
    with own_site.engine.begin() as c:
        c.execute(text("DELETE FROM run"))
        commit = c.scalar(text("SELECT max(id) FROM commit"))
        testbed = c.scalar(text("SELECT id FROM testbed WHERE name = 'cpu'"))
        request = SessionRequest(
            project_id=projects.find_project(c, SLUG).id,
            testbed_id=testbed,
            suite="own",
            purpose=Purpose.COMPARE,
            base_commit_id=commit,
            head_commit_id=commit,
            spec={"command": "true"},
            requested_by="ada",
            base_setup={},
            head_setup={"pip": "torch==2.14.0 <b>now</b>"},
            max_rounds=6,
        )
        confirm.request_session(c, request, datetime.now(UTC))
    return own_site


def test_comparisons_and_schedules_are_shown_with_their_text_escaped(site: Site) -> None:
    page = httpx.get(f"{site.url}/measuring?project={SLUG}", headers={"Accept": "text/html"}, timeout=30).text
    assert "torch==2.14.0" in page and "<b>now</b>" not in page
    assert "nightly" in page and "03:30" in page and "waiting" in page
    section = page.partition('id="backfills"')[2].partition("</section>")[0]
    assert "/cancel" not in section
    assert re.findall(r"<button[^>]*>", section) and all(
        "disabled" in it for it in re.findall(r"<button[^>]*>", section)
    )


def test_a_backfill_is_asked_for_watched_and_called_off(site: Site, owner: httpx.Client) -> None:
    begun = form(owner, site, "/measuring/backfills", project=SLUG, suite="own", runs="3")
    assert begun.status_code == 200 and "0 of 3" in begun.text, begun.text
    (path,) = set(re.findall(r'action="(/measuring/backfills/[0-9A-Z]{26}/cancel)"', begun.text))
    ended = form(owner, site, path)
    assert "cancelled" in ended.text and "/cancel" not in ended.text
    again = form(owner, site, path)
    assert again.status_code == 409 and "cancelled already" in again.text


def test_a_suite_that_nobody_declares_is_refused_with_those_that_are(site: Site, owner: httpx.Client) -> None:
    refused = form(owner, site, "/measuring/backfills", project=SLUG, suite="other")
    assert refused.status_code == 404 and "own" in refused.text


def test_who_is_not_signed_in_changes_nothing(site: Site) -> None:
    fields = {"project": SLUG, "suite": "own", "csrf_token": ""}
    answer = httpx.post(f"{site.url}/measuring/backfills", data=fields, headers={"Accept": "text/html"}, timeout=30)
    assert answer.status_code in (401, 403)
    with site.engine.connect() as c:
        assert c.scalar(text("SELECT count(*) FROM backfill")) == 0


def test_what_is_measured_and_its_form_fit_a_phone_and_need_no_mouse(site: Site, visit: Callable[..., Any]) -> None:
    page = visit(site, signed_in=True, width=390, height=800).page()
    for path in ("/measuring",):
        page.goto(site.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(each["id"], [node["html"][:160] for node in each["nodes"]]) for each in found] == [], path
