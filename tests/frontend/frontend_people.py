"""People who are signed in to a site, in a browser of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from frontend_site import Site
from playwright.sync_api import Browser, Page

from backend.services.base import access, projects
from tests.backend.people_of_tests import person

MINE = "northsea/loom"


def add_projects(site: Site) -> None:
    """A private one, and one that everybody sees."""
    with site.engine.begin() as c:
        projects.save_project(c, MINE, private=True, now=datetime.now(UTC))
        projects.save_project(c, "open/one", now=datetime.now(UTC))


@contextmanager
def signed_in(site: Site, browser: Browser, login: str, **roles: str) -> Iterator[Page]:
    with site.engine.begin() as c:
        session = access.begin_session(c, person(c, login, **roles), datetime.now(UTC), f"Firefox of {login}").session
    context = browser.new_context()
    context.add_cookies([{"name": access.SESSION_COOKIE, "value": session, "url": site.url, "sameSite": "Strict"}])
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    assert problems == []
    context.close()
