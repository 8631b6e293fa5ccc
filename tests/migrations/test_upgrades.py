"""A filled database of an earlier version becomes one of this version, and nothing that was said is lost or changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, create_engine, text
from starlette.routing import compile_path

from backend.api import create_api
from backend.services.base.config import ServiceConfig
from backend.services.judging.policy_change import rejudge_due
from backend.store.base import schema
from frontend.app import mount
from tests.attacks.route_table import routes
from tests.conftest import LiveServer, ServeApp
from tests.filled import AT_FIRST, filled_database, said
from tidemark import database as commands
from tidemark.machine.postgres import EmbeddedPostgres


def names(answer: httpx.Response) -> set[str]:
    """The pages of this service that a page links to, by path and query."""
    found = re.findall(r'href="(/[^"#]*)', answer.text)
    return {path.replace("&amp;", "&") for path in found if not path.startswith(("/static/", "/api/", "//"))}


NO_PAGES = {
    *(
        "/healthz",
        "/readyz",
        "/metrics",
        "/favicon.ico",
        "/robots.txt",
        "/sign-in/{secret}",
        "/sign-in/with/{provider}",
    ),
    *("/sign-in/done/{provider}", "/account"),  # of who is signed in
    *("/board/cell", "/board/patch", "/runs/{run_id}/live", "/badge/{project:path}.svg"),
}


class Upgraded:
    """The database, what it said before, and the service that runs on it."""

    def __init__(self, engine: Engine, before: dict[str, list[Any]], server: LiveServer) -> None:
        self.engine, self.before, self.server = engine, before, server


@pytest.fixture(scope="module")
def upgraded(
    postgres: EmbeddedPostgres,
    administer: Callable[[str], None],
    serve_app: ServeApp,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Upgraded]:
    directory = tmp_path_factory.mktemp("upgraded")
    with filled_database(postgres, administer, directory) as url, ExitStack() as stack:
        engine = create_engine(url)
        stack.callback(engine.dispose)
        with engine.connect() as c:
            before = said(c, AT_FIRST)
            assert schema.revisions(c)[0] == "0016"
        commands.make_ready(url)
        config = ServiceConfig(database_url=url, redis_url="redis://127.0.0.1:1/0", data_dir=directory)
        app = create_api(config, engine)
        mount(app, config, engine)
        yield Upgraded(engine, before, stack.enter_context(serve_app(app, engine, config)))


def test_every_verdict_and_every_regression_is_what_it_was(upgraded: Upgraded) -> None:
    with upgraded.engine.connect() as c:
        at, head = schema.revisions(c)
        after = said(c)
    assert at == head
    for what, rows in upgraded.before.items():
        assert len(rows) > 0 and after[what] == rows, what


def test_every_page_opens(upgraded: Upgraded) -> None:
    """Every link is followed, one of each kind of address, and every kind of page must have been seen."""
    pages = {
        path: compile_path(path)[0]
        for method, path in routes(upgraded.server.app)
        if method == "GET" and not path.startswith("/api/")
    }
    seen: dict[str, str] = {}
    waiting, known = ["/", "/settings", "/measuring", "/pull-requests", "/suites/moe", "/search?q=router"], set()
    with upgraded.server.client("admin") as client:
        while waiting:
            path = waiting.pop(0)
            kind = next((route for route, regex in pages.items() if regex.match(path.partition("?")[0])), None)
            if kind is None or kind in seen or path in known:
                continue
            known.add(path)
            answer = client.get(path, headers={"Accept": "text/html"}, follow_redirects=True)
            assert answer.status_code == 200, (path, answer.text[:500])
            seen[kind] = path
            waiting += sorted(names(answer))
    assert set(pages) - set(seen) <= NO_PAGES


def test_what_waits_is_judged_by_what_was_remembered(upgraded: Upgraded) -> None:
    """The states of the series are read as they were written, and the policy that was chosen is applied."""
    judged = rejudge_due(upgraded.engine, lambda: datetime.now(UTC))
    assert len(judged) > 0
    with upgraded.engine.connect() as c:
        found = c.execute(text("SELECT state, count(*) FROM regression GROUP BY state")).all()
    assert {row.state for row in found} == {row[1] for row in upgraded.before["regressions"]}
