"""Sites for the pages' tests: one with a history that many only read, and a fresh one for those that change it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

sys.path.insert(0, str(Path(__file__).parent))  # the helpers beside this file

import frontend_history as history
from frontend_site import Site, running_site

from tests.conftest import copy_of

PROJECT = "northsea/loom"
COMMITS = 26
SUITES = ("gpt", "moe")
GUILTY, FIXED_AT, HOSTILE_AT, FAILED_AT, UNMEASURED = 18, 16, 21, 20, 23
STEPS = (
    history.Step("moe.layer", GUILTY, 1.24, phase="forward", only={"experts": 64}),
    history.Step("gpt.train", 10, 1.12, until=FIXED_AT, phase="backward", only={"impl": "math"}),
)


def add_history(site: Site, directory: Path) -> None:
    """The project with its commits, and the runs of all but one of them."""
    commits = history.make_repository(directory / "loom", COMMITS, hostile_at=HOSTILE_AT)
    site.add_project(PROJECT, directory / "loom", commits)
    for commit in commits:
        if commit.index == UNMEASURED:
            continue
        for suite in SUITES:
            options: dict[str, Any] = {"steps": STEPS, "environment": "2.13.0" if commit.index < 14 else "2.13.1"}
            if (commit.index, suite) == (FAILED_AT, "gpt"):
                options["failed"] = "RuntimeError: expected <b>scale</b> of shape [14336, 1]"
            document = history.run_document(PROJECT, commit, suite, **options)
            site.put(document)
            if suite == "moe" and commit.index in (GUILTY - 1, GUILTY):
                site.put_kernels(document, fused=commit.index < GUILTY)


@pytest.fixture(scope="session")
def loom(
    template: str, postgres: Any, administer: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A site with the whole history. Tests only read it."""
    directory = tmp_path_factory.mktemp("loom")
    with copy_of(template, postgres, administer) as url, running_site(url, directory / "data") as site:
        add_history(site, directory)
        yield site


@pytest.fixture
def own_site(template: str, postgres: Any, administer: Callable[[str], None], tmp_path: Path) -> Iterator[Site]:
    """An empty site of this test's own."""
    with copy_of(template, postgres, administer) as url, running_site(url, tmp_path / "data") as site:
        yield site


@pytest.fixture
def owner(site: Site) -> Iterator[httpx.Client]:
    """Who is signed in as an administrator of the test's `site`, without a browser."""
    with httpx.Client(
        base_url=site.url, headers={"Accept": "text/html"}, follow_redirects=True, timeout=30, verify=False
    ) as client:
        client.get(site.sign_in_link())
        yield client


# --- the browser -----------------------------------------------------------------------------------------------------


class Reader:
    """A person at a browser. What the console complains about is collected; `closed` fails the test for it."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self.url = url
        self.complaints: list[str] = []

    def page(self) -> Page:
        page = self.context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def open(self, path: str) -> Page:
        page = self.page()
        page.goto(self.url + path)
        return page


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Reader]]:
    """`visit(site, signed_in=True, width=…, dark=…)`: a browser of its own on the site. No complaint may be left."""
    readers: list[Reader] = []

    def enter(site: Site, *, signed_in: bool = False, width: int = 1440, height: int = 1000, **options: Any) -> Reader:
        context = browser.new_context(
            viewport={"width": width, "height": height}, base_url=site.url, locale="en-GB", timezone_id="UTC", **options
        )
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        reader = Reader(context, site.url)
        readers.append(reader)
        if signed_in:
            page = context.new_page()
            page.goto(site.sign_in_link())
            page.close()
        return reader

    yield enter
    for reader in readers:
        reader.context.close()
    assert [complaint for reader in readers for complaint in reader.complaints] == []
