"""Every button of every page, for people of every role: what may be pressed is what they may do, and nothing else.

Who may do what is the table of docs/security.md, which `tests/attacks/test_route_table.py` holds against the service.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from frontend_site import Site
from sqlalchemy import text

from backend.services.base import access, projects
from backend.services.base.principal import MemberRole
from backend.store.base import people
from tests.frontend.conftest import PROJECT

TABLE = Path(__file__).parents[2] / "docs" / "security.md"
ROLES = {
    "no role": (None, None),
    "viewer": (MemberRole.VIEWER, PROJECT),
    "submitter": (MemberRole.SUBMITTER, PROJECT),
    "triager": (MemberRole.TRIAGER, PROJECT),
    "administrator": (MemberRole.ADMIN, PROJECT),
    "of the service": (MemberRole.ADMIN, None),
}
PAGES = (
    "/", "/board", "/regressions", "/regressions/{regression}", "/runs/{run}", "/series/{series}", "/compare",
    "/workers", "/workers/{worker}", "/measuring", "/pull-requests", "/connect", "/settings", "/settings/members",
    "/settings/notifications", "/settings/audit", "/account", "/rule",
)  # fmt: skip


class Forms(HTMLParser):
    """The forms of a page that change something: where they go, and their buttons with what keeps them from it."""

    def __init__(self) -> None:
        super().__init__()
        self.buttons: list[tuple[str, dict[str, str | None]]] = []
        self._form: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag == "form":
            self._form = said.get("action") if said.get("method") == "post" else None
        elif tag == "button" and self._form is not None and said.get("type") != "button":
            self.buttons.append((said.get("formaction") or self._form or "", said))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None


def rights() -> dict[str, dict[str, bool]]:
    """Of each route of the pages: whether people of each role are let in."""
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    columns = next(line for line in lines if line.startswith("| route |")).strip("| ").split(" | ")
    found = {}
    for line in lines:
        cells = line.strip("| ").split(" | ")
        if cells[0].startswith("`POST /") and len(cells) == len(columns):
            found[cells[0].strip("`")] = dict(zip(columns, (cell == "yes" for cell in cells), strict=True))
    return found


def route_of(action: str, known: dict[str, dict[str, bool]]) -> str:
    path = action.partition("?")[0].partition("#")[0]
    for route in sorted(known, key=lambda route: route.count("{")):
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", route.removeprefix("POST ")), path):
            return route
    raise AssertionError(f"no route of the table takes {action}")


@pytest.fixture
def signed_in(loom: Site) -> Iterator[dict[str, dict[str, str]]]:
    """A cookie for somebody of each role; nobody is left behind."""
    cookies, accounts = {}, []
    with loom.engine.begin() as c:
        for title, (role, slug) in ROLES.items():
            now = datetime.now(UTC)
            account = people.signed_in(c, "github", subject=title, login=title, name=title, now=now)
            accounts.append(account)
            if role is not None:
                people.set_role(c, account, None if slug is None else projects.find_project(c, slug).id, role, now)
            cookies[title] = {"Cookie": f"{access.SESSION_COOKIE}={access.begin_session(c, account, now).session}"}
    yield cookies
    with loom.engine.begin() as c:
        c.execute(text("DELETE FROM account WHERE id = ANY(:ids)"), {"ids": accounts})


def addresses(site: Site) -> list[str]:
    with site.engine.connect() as c:
        names = {
            "regression": c.scalar(text("SELECT min(id) FROM regression WHERE state IN ('confirmed', 'acknowledged')")),
            "run": c.scalar(text("SELECT min(id) FROM run")),
            "series": c.scalar(text("SELECT min(id) FROM series WHERE role = 'gate'")),
            "worker": c.scalar(text("SELECT min(name) FROM worker")),
        }
    assert all(names.values()), names
    return [path.format(**names) for path in PAGES]


def test_what_may_be_pressed_is_what_somebody_of_the_role_may_do(
    loom: Site, signed_in: dict[str, dict[str, str]]
) -> None:
    known, pressed, wrong = rights(), set[tuple[str, str]](), []
    for role, cookie in signed_in.items():
        for path in addresses(loom):
            answer = httpx.get(
                loom.url + path, params={"project": PROJECT}, headers={**cookie, "Accept": "text/html"}, timeout=30
            )
            assert answer.status_code in (200, 403, 404), (role, path, answer.status_code)
            forms = Forms()
            forms.feed(answer.text)
            for action, said in forms.buttons:
                route = route_of(action, known)
                if "disabled" in said:
                    if not (said.get("title") or said.get("aria-describedby")):
                        wrong.append(f"{path}, {role}: {route} is disabled and does not say why")
                    continue
                pressed.add((role, route))
                if not known[route][role] and not route.startswith("POST /account/browsers"):
                    wrong.append(f"{path}, {role}: {route} may be pressed and is refused")
    assert not wrong, "\n".join(sorted(set(wrong)))
    for route in ("POST /regressions/{regression_id}/triage", "POST /regressions/triage"):
        assert {role for role, at in pressed if at == route} == {"triager", "administrator", "of the service"}
    assert ("viewer", "POST /settings/members") not in pressed
    assert ("administrator", "POST /settings/members") in pressed
