"""Markup in every text that comes from outside (runs, commits, logs, manifests), and every page is opened: it stays
text, also for a real browser, which would tell of whatever it was made to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser
from sqlalchemy import Engine, text

from backend.api import create_api
from backend.services import housekeeping
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from frontend.app import mount
from tests.attacks.route_table import NAMES, OF_A_PROJECT, routes
from tests.backend.api.conftest import run_document, sha
from tests.backend.services.repository.test_sync import Repository
from tests.conftest import LiveServer, ServeApp

# What a page would hold as an element, or as an attribute that was ended early, if it were not escaped.
OWNED = "<tm-owned>"
EVIL = f"\"'>{OWNED}"
REFRESH = f"{EVIL}<meta http-equiv=refresh content=0>"
SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)>"
MINE = "demo/tinygpt"
READ = "demo/manifests"
# Every text that a manifest has, where it may have any.
MANIFEST = f"""
branches = ["main", '''{EVIL}''']
[suite.evil]
command = '''{EVIL}{SCRIPT}'''
setup = '''{EVIL}{SCRIPT}'''
testbeds = ["cpu"]
paths = ["*", '''{EVIL}''']
env = {{ MARKUP = '''{EVIL}{SCRIPT}''' }}
"""
REFUSED = f"""
[suite.evil]
command = "true"
timeout_s = '''{EVIL}{SCRIPT}'''
"{OWNED}" = 1
"""
POSITIONS = 12


@pytest.fixture
def server(service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp) -> Iterator[LiveServer]:
    config = replace(service_config, requests_per_address=10**9)
    app = create_api(config, committing_engine)
    mount(app, config, committing_engine)
    with serve_app(app, committing_engine, config) as made:
        yield made


def evil_run(position: int) -> dict[str, Any]:
    """A run with markup in each text that its writer chooses. What the contract refuses there is left as it was."""
    document = run_document(position)
    result = document["results"][0]
    result["variant"] = {EVIL: EVIL, "dtype": REFRESH}
    result["error"] = None
    for number, each in enumerate(result["measurements"]):
        each["unit"] = f"{number}{REFRESH}"[:50]
    result["diagnosis"] = {"class": EVIL, "flags": [EVIL]}
    result["correctness"] = {"state": "pass", "reference": EVIL, "checks": [{"name": EVIL, "value": 0.1, "limit": 0.2}]}
    result["roofline"] = {"flop_per_byte": 1.0, "achieved_tflops": 1.0, "bound": EVIL, "share_of_ceiling": 0.5}
    document["environment"] = {"torch": EVIL, "accelerator": EVIL, EVIL: EVIL}
    document["telemetry"] = {"throttle": [EVIL], EVIL: EVIL}
    document["code_under_test"] = {"kind": "implementation", "entry": EVIL}
    document["canary"] = [{"name": EVIL, "before": 1.0, "after": 1.0}]
    return document


def deliver(worker: httpx.Client, document: dict[str, Any]) -> None:
    """Deliver it; a field that may not hold markup is the contract's guard, and is given back its harmless value."""
    harmless = run_document(0)
    for _ in range(20):
        answer = worker.put(f"/api/v1/runs/{document['id']}", json=document)
        if answer.status_code == 201:
            return
        assert answer.status_code == 422, answer.text
        for problem in answer.json()["errors"]:
            field = problem["path"].split(".")[0].split("[")[0]
            if field == "results":
                part = problem["path"].split(".")[1].split("[")[0]
                known = harmless["results"][0].get(part)
                document["results"][0].update({part: known}) if known is not None else document["results"][0].pop(part)
            else:
                document[field] = harmless.get(field) or (document.pop(field) and {})
    pytest.fail(answer.text)


def sync_manifests(server: LiveServer, directory: Path) -> None:
    """A repository whose manifests, file names, branches, authors and messages hold markup."""
    repository = Repository(directory / "repository")
    repository.commit(f"Good {EVIL}{SCRIPT}", tidemark_toml=MANIFEST, **{f"{OWNED}.py": "x"})
    repository.commit(f"Bad {EVIL}", tidemark_toml=REFUSED)
    repository.git("branch", f"feature-{OWNED}")
    with server.engine.begin() as c:
        projects.save_project(
            c, READ, repository_url=repository.url, trusted=True, default_branch="main", now=datetime.now(UTC)
        )
    assert {each.error for each in housekeeping.sync_all(server.engine, server.config)} == {None}
    with server.engine.connect() as c:
        assert c.scalar(text("SELECT count(*) FROM run WHERE spec::text LIKE '%tm-owned%'")) == 1
        assert c.scalar(text("SELECT count(*) FROM commit WHERE manifest_error LIKE '%tm-owned%'")) == 1


def opened_in(browser: Browser, server: LiveServer, paths: Iterable[str]) -> int:
    """How many pages were opened by somebody who may do everything; none of them may do anything by itself."""
    with browser.new_context(extra_http_headers={"Authorization": f"Bearer {server.token('admin')}"}) as context:
        page = context.new_page()
        done: list[str] = []
        page.on("dialog", lambda dialog: (done.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: done.append(f"an error: {error}"))
        page.on("console", lambda message: message.type == "error" and done.append(f"said: {message.text}"))
        page.on("response", lambda got: got.status >= 400 and done.append(f"{got.status} of {got.url}"))
        page.on(
            "request",
            lambda asked: asked.url.startswith((server.url, "data:", "blob:")) or done.append(f"asked for {asked.url}"),
        )
        page.on("popup", lambda _: done.append("another window"))
        opened = 0
        for path in paths:
            answer = page.goto(server.url + path, wait_until="load")
            if answer is None or answer.status != 200:
                done.clear()  # there is no such page, and it said so
                continue
            opened += 1
            page.wait_for_timeout(50)
            assert page.locator("tm-owned, img[onerror], svg[onload]").count() == 0, path
            assert page.url.startswith(server.url), (path, page.url)
            assert done == [], (path, done)
        return opened


def test_markup_stays_text_on_every_page(server: LiveServer, browser: Browser, tmp_path: Path) -> None:
    sync_manifests(server, tmp_path)
    with server.client("worker") as worker:
        for position in range(POSITIONS):
            deliver(worker, evil_run(position))
        failed = run_document(POSITIONS, status="failed", error=REFRESH, log_tail=REFRESH, results=[])
        worker.put(f"/api/v1/runs/{failed['id']}", json=failed)
        worker.post(
            "/api/v1/workers", json={"name": "w1", "testbed": "cpu", "capabilities": {EVIL: EVIL, "trouble": EVIL}}
        )
    with server.engine.begin() as c:
        values = {"evil": REFRESH, "now": datetime.now(UTC)}
        for statement in (
            "UPDATE commit SET message = :evil, author_name = :evil, author_email = :evil, skipped_reason = :evil, "
            "manifest_error = :evil, changed_paths = ARRAY[:evil]",
            "UPDATE run SET error = :evil, log_tail = :evil, requested_by = :evil",
            "UPDATE project SET sync_error = :evil",
            """INSERT INTO pull_request (project_id, number, title, author, state, is_fork, head_sha, base_ref, error)
               SELECT id, 7, :evil, :evil, 'open', true, :evil, :evil, :evil FROM project""",
            """INSERT INTO run_event (run_id, project_id, at, kind, detail)
               SELECT id, project_id, :now, 'log', jsonb_build_object('lines', jsonb_build_array(CAST(:evil AS text)))
               FROM run""",
        ):
            c.execute(text(statement), values)
        series = c.scalars(text("SELECT id FROM series")).all()
        regressions = c.scalars(text("SELECT id FROM regression")).all()
        runs = c.scalars(text("SELECT id FROM run")).all()
        c.execute(text("UPDATE regression SET owner = :evil"), values)
    assert series and regressions, "the change of the history must have been found"
    shown = 0
    with server.client("admin") as person:
        for path in addresses(server, series, regressions, runs):
            page = person.get(path, follow_redirects=True, headers={"accept": "text/html"})
            assert page.status_code < 500, (path, page.text[:500])
            if "text/html" in page.headers["content-type"] or "xml" in page.headers["content-type"]:
                at = page.text.lower().find(OWNED)
                assert at < 0, (path, page.text[max(at - 300, 0) : at + 100])
                shown += "tm-owned" in page.text
    assert shown > 10, "the markup is on the pages, as text"
    first = [*addresses_of(server, MINE, series[:1], regressions[:1], runs[:1])]
    first += [f"{path}?project={READ}" for path in ("/", "/board", "/measuring", "/settings")] + ["/suites/evil"]
    assert opened_in(browser, server, filter(is_page, first)) > 20


@pytest.mark.parametrize(
    "name", ["page.html", "picture.svg", "page.xhtml", "script.js", "page.htm", "x.xml", "pdf.pdf"]
)
def test_a_file_of_a_run_is_downloaded_and_never_shown(server: LiveServer, name: str) -> None:
    """It would run as a page of this service's, with the rights of who opened it."""
    document = run_document(0)
    with server.client("worker") as worker:
        deliver(worker, document)
        stored = worker.put(f"/api/v1/runs/{document['id']}/artifacts/{name}", content=SCRIPT.encode())
        assert stored.status_code == 201
        got = worker.get(f"/api/v1/runs/{document['id']}/artifacts/{name}")
    assert got.headers["content-disposition"].startswith("attachment")
    assert got.headers["x-content-type-options"] == "nosniff"
    assert "script-src 'self'" in got.headers["content-security-policy"]


def is_page(path: str) -> bool:
    """Whether it is one by itself, and no piece or file."""
    pieces = (".svg", ".atom", ".csv", ".ico", ".txt", "/patch", "/cell", "/live", "/healthz", "/readyz")
    return not path.partition("?")[0].endswith(pieces)


def addresses(server: LiveServer, series: Any, regressions: Any, runs: Any) -> Iterator[str]:
    """Every page, with each of the things that it can be about."""
    for project in (MINE, READ):
        yield from addresses_of(server, project, series, regressions, runs)


def addresses_of(server: LiveServer, project: str, series: Any, regressions: Any, runs: Any) -> Iterator[str]:
    names = {**NAMES, "suite": "evil" if project == READ else "tinygpt", "name": "w1", "project": project}
    things = {"series_id": series, "regression_id": regressions, "run_id": runs}
    for method, path in routes(server.app):
        if method != "GET" or path.startswith(("/api/", "/sign-in/", "/openapi", "/metrics")):
            continue
        kind = next((name for name in things if f"{{{name}}}" in path), None)
        for thing in things[kind] if kind else [None]:
            filled = path.replace(f"{{{kind}}}", str(thing))
            for name, value in names.items():
                filled = filled.replace(f"{{{name}:path}}", value).replace(f"{{{name}}}", value)
            query = f"?project={project}" if path in OF_A_PROJECT else ""
            yield filled + query
            if path in ("/board", "/search", "/series", "/regressions", "/compare", "/workers"):
                yield f"{filled}{query}&q={quote(EVIL)}&match={quote(EVIL)}&owner={quote(EVIL)}&testbed={quote(EVIL)}"
    for last in (sha(0), sha(POSITIONS - 1)):
        yield f"/compare?project={project}&base={sha(0)}&head={last}"
    for number in series:
        yield f"/board/cell?project={project}&series={number}&commit={sha(POSITIONS - 1)}"
