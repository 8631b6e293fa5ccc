"""A repository is connected in the browser: from the empty service to a run that waits."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from frontend_people import MINE, add_projects, signed_in
from frontend_site import Site
from playwright.sync_api import Browser, expect
from sqlalchemy import text

from backend.services.base import projects

MANIFEST = '[suite.own]\ncommand = "python bench.py"\ntestbeds = ["cpu"]\n'


def commit(repository: Path, manifest: str) -> None:
    repository.mkdir(exist_ok=True)
    (repository / "tidemark.toml").write_text(manifest)
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "Measure"]):
        identity = ["-c", "user.name=Mara", "-c", "user.email=mara@loom.example"]
        subprocess.run(["git", *identity, *command], cwd=repository, check=True)


@pytest.mark.browser
def test_from_an_empty_service_to_a_run_that_waits(own_site: Site, visit: Callable[..., Any], tmp_path: Path) -> None:
    commit(tmp_path / "loom", MANIFEST.replace("testbeds", "testbed"))
    page = visit(own_site, signed_in=True).open("/")
    page.get_by_role("link", name="Connect a repository").click()
    page.get_by_label("Name here").fill("northsea/loom")
    page.get_by_label("Address of the repository").fill(f"file://{tmp_path / 'loom'}")
    page.get_by_label("Trusted").check()
    page.get_by_role("button", name="Connect").click()
    expect(page.locator("#repository")).to_contain_text("It is being read")
    own_site.sync("northsea/loom")
    page.reload()
    expect(page.locator("#manifest")).to_contain_text("line 3")
    expect(page.get_by_role("button", name="Measure the newest commit")).to_be_disabled()

    commit(tmp_path / "loom", MANIFEST)
    own_site.sync("northsea/loom")
    page.reload()
    expect(page.locator("#manifest tbody")).to_contain_text("python bench.py")
    page.get_by_role("button", name="Make a secret").click()
    secret = page.locator("#made").inner_text()
    expect(page.locator("#webhook")).to_contain_text("its own secret")
    with own_site.engine.connect() as c:
        assert c.scalar(text("SELECT webhook_secret FROM project")) == secret
        trail = c.execute(text("SELECT action, detail FROM audit_event ORDER BY id")).all()
    assert [row.action for row in trail].count("project.save") == 2 and secret not in json.dumps(
        [r.detail for r in trail]
    )

    page.get_by_role("button", name="Measure the newest commit").click()
    page.wait_for_url("**/runs/*")
    expect(page.locator("h1")).to_contain_text("own")


REFUSED = (
    ("a b", "https://github.com/northsea/gale", "letters, digits"),
    ("northsea/gale", "https://user:secret@github.com/northsea/gale", "credentials do not belong"),
    ("northsea/gale", "git://github.com/northsea/gale", "https://"),
    ("northsea/gale", "file:///etc", "trusted"),
    ("open/one", "https://github.com/northsea/gale", "no other project has"),
)


@pytest.mark.browser
def test_what_is_refused_stands_beside_what_was_typed(own_site: Site, browser: Browser) -> None:
    add_projects(own_site)
    page = browser.new_context().new_page()
    page.goto(own_site.sign_in_link())
    page.goto(f"{own_site.url}/connect")
    for name, address, says in REFUSED:
        page.get_by_label("Name here").fill(name)
        page.get_by_label("Address of the repository").fill(address)
        page.get_by_role("button", name="Connect").click()
        expect(page.get_by_role("alert")).to_contain_text(says)
        expect(page.get_by_label("Name here")).to_have_value(name)
    page.context.close()


@pytest.mark.browser
def test_who_administers_one_project_connects_no_other_and_strangers_none(own_site: Site, browser: Browser) -> None:
    add_projects(own_site)
    with signed_in(own_site, browser, "ada", northsea_loom="admin") as ada:
        assert (ada.goto(f"{own_site.url}/connect?project={MINE}") or pytest.fail()).status == 200
        assert (ada.goto(f"{own_site.url}/connect") or pytest.fail()).status == 403
    with signed_in(own_site, browser, "tom", northsea_loom="triager") as tom:
        assert (tom.goto(f"{own_site.url}/connect?project={MINE}") or pytest.fail()).status == 403
    assert own_site.client.post("/connect", data={"project": "x/y"}, headers={"Authorization": ""}).status_code == 401


def test_a_form_of_another_page_connects_nothing(own_site: Site, browser: Browser) -> None:
    page = browser.new_context().new_page()
    page.goto(own_site.sign_in_link())
    answer = page.request.post(f"{own_site.url}/connect", form={"project": "x/y", "csrf_token": "made up"})
    assert answer.status == 403
    with own_site.engine.connect() as c:
        assert c.scalar(text("SELECT count(*) FROM project")) == 0
    page.context.close()


def test_a_page_that_shows_a_secret_once_is_kept_by_no_cache(own_site: Site) -> None:
    with own_site.engine.begin() as c:
        projects.save_project(c, MINE, now=datetime.now(UTC))
    made = own_site.client.post("/connect/secret", data={"project": MINE})
    assert "was created" in made.text and made.headers["cache-control"] == "no-store"
