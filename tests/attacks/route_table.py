"""Every route, asked by everybody: who is let in where. docs/security.md has the table; the tests compare.

    python -m tests.attacks.route_table

prints it. What is asked for is always a thing of one project. "own" and "other" are tokens of that project and of
another one; people have their role in that project, unless the column says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy import Engine, create_engine, text

from backend.api import create_api
from backend.services.base import access, projects
from backend.services.base.config import ServiceConfig
from backend.services.base.principal import MemberRole
from backend.store.base import people, schema
from frontend.app import mount
from tests.backend.api.conftest import run_document, sha
from tests.conftest import LiveServer, running_postgres, scratch_directory, served

MINE, OTHER = "demo/tinygpt", "other/thing"
ULID = "01J00000000000000000000000"
RUN = str(run_document(0)["id"])
WORKER = "w-of-all"

# Those who ask, in the order of the columns: (title, scope, project).
TOKENS = (
    ("read", "read", None),
    ("submit", "submit", None),
    ("write", "write", None),
    ("worker", "worker", None),
    ("approve", "approve", None),
    ("admin", "admin", None),
    ("own read", "read", MINE),
    ("own submit", "submit", MINE),
    ("own write", "write", MINE),
    ("own worker", "worker", MINE),
    ("own approve", "approve", MINE),
    ("other read", "read", OTHER),
    ("other write", "write", OTHER),
    ("other worker", "worker", OTHER),
    ("other approve", "approve", OTHER),
)
# People who are signed in: (title, role, project).
PEOPLE = (
    ("no role", None, None),
    ("viewer", MemberRole.VIEWER, MINE),
    ("submitter", MemberRole.SUBMITTER, MINE),
    ("triager", MemberRole.TRIAGER, MINE),
    ("administrator", MemberRole.ADMIN, MINE),
    ("other administrator", MemberRole.ADMIN, OTHER),
    ("of the service", MemberRole.ADMIN, None),
)
COLUMNS = ("stranger", *(title for title, _, _ in TOKENS), *(title for title, _, _ in PEOPLE))
OTHERS = ("no role", *(title for title in COLUMNS if title.startswith("other ")))
# Who sees a private project: its members, its tokens, who administers the service, and workers.
SEE_PRIVATE = (
    "worker", "admin", "own read", "own submit", "own write", "own worker", "own approve", "viewer", "submitter",
    "triager", "administrator", "of the service",
)  # fmt: skip

# What stands in an address, and what a body needs to be understood: only then is it asked whose it is.
NAMES: Mapping[str, str] = {
    "project": MINE, "run_id": RUN, "session_id": ULID, "bisection_id": ULID, "backfill_id": ULID, "sha": sha(0),
    "format": "csv", "name": WORKER, "number": "7", "suite": "tinygpt", "secret": "invented", "token_id": "99999",
    "rule_id": "99999", "wanted": "csv",
    "version": "0", "path": "x", "sign_in_id": "0" * 16,
    "login": "somebody@example.org", "provider": "nowhere",
}  # fmt: skip
QUERIES: Mapping[str, dict[str, str]] = {
    "/api/v1/compare": {"project": MINE, "base": sha(0), "head": sha(0)},
    "/api/v1/series/{series_id}/explain": {"commit": sha(0)},
    "/api/v1/series/{series_id}/samples": {"commit": sha(0)},
    "/api/v1/events": {"run": RUN},
    "/api/v1/import/{format}": {"testbed": "ci", "commit": sha(0), "dry_run": "true"},
}
OF_A_PROJECT = {
    "/api/v1/board", "/api/v1/commits/{sha}/verdict", "/api/v1/series", "/api/v1/regressions", "/api/v1/sessions",
    "/api/v1/bisections", "/api/v1/backfills", "/api/v1/schedules", "/api/v1/queue", "/api/v1/pull-requests",
    "/api/v1/github/outbox", "/api/v1/import/{format}", "/board", "/board/patch", "/board/cell", "/regressions",
    "/regressions.atom", "/series", "/suites", "/suites/{suite:path}", "/compare", "/rule", "/search", "/pull-requests",
    "/measuring", "/settings", "/settings/members", "/settings/notifications", "/settings/audit",
    "/api/v1/audit", "/workers", "/connect", "/regressions.{wanted}", "/series.{wanted}", "/compare.{wanted}",
}  # fmt: skip
BODIES: Mapping[str, Any] = {
    "/api/v1/run-requests": {"project": MINE, "commit": "main"},
    "/api/v1/sessions": {"project": MINE, "suite": "tinygpt", "base": "main"},
    "/api/v1/backfills": {"project": MINE, "suite": "tinygpt"},
    "/api/v1/pull-requests/{number}/approve": {"project": MINE, "commit": "a" * 40},
    "/api/v1/workers": {"name": "w-new", "testbed": "cpu"},
    "/api/v1/workers/{name}": {"state": "ok"},
    "/api/v1/workers/{name}/next": {"after": RUN},
    "/api/v1/runs/{run_id}/lease": {"worker": "w-new", "testbed": "cpu"},
    "/api/v1/runs/{run_id}/heartbeat": {"lease": "x"},
    "/api/v1/runs/{run_id}/release": {"lease": "x"},
    "/api/v1/runs/{run_id}/events": {"lease": "x", "events": []},
    "/api/v1/runs/{run_id}": run_document(0),
    "/api/v1/runs/{run_id}/session": {"schema": "tidemark.session/1", "id": RUN},
    "/api/v1/regressions/{regression_id}": {"action": "acknowledge"},
    "/api/v1/regressions/{regression_id}/split": {"onset": 0},
    "/api/v1/regressions/{regression_id}/merge": {"into": 2_000_000_000},
    "/api/v1/projects": {"project": MINE},
    "/api/v1/projects/{project:path}/policy": {"policy": {}},
    "/api/v1/projects/{project:path}/policy/preview": {"policy": {}},
    "/api/v1/tokens": {"name": "x", "scopes": ["read"], "project": MINE},
    "/api/v1/members/{login}": {"role": "viewer"},
    "/api/v1/projects/{project:path}/members/{login}": {"role": "viewer"},
    "/api/v1/projects/{project:path}/notifications": {"name": "x", "address": "mailto://example.org?to=a@example.org"},
    "/api/v1/projects/{project:path}/notifications/{rule_id}": {"name": "x"},
}
FORMS: Mapping[str, dict[str, str]] = {
    "/regressions/triage": {"action": "acknowledge", "id": "{regression_id}"},
    "/regressions/{regression_id}/triage": {"action": "acknowledge"},
    "/regressions/{regression_id}/bisect": {"action": "start"},
    "/regressions/{regression_id}/split": {"onset": "0"},
    "/regressions/{regression_id}/merge": {"into": "2000000000"},
    "/connect": {"project": MINE},
    "/connect/secret": {"project": MINE},
    "/connect/run": {"project": MINE},
    "/settings/sync": {"project": MINE},
    "/settings/github": {"project": MINE},
    "/settings/policy/preview": {"project": MINE, "name": "min_change", "value": "5"},
    "/settings/policy/choose": {"project": MINE, "name": "min_change", "value": "5"},
    "/leave": {},
    "/account/sign-out-everywhere": {},
    "/account/browsers/{sign_in_id}/end": {},
    "/measuring/backfills/{backfill_id}/cancel": {},
    "/settings/tokens/{token_id}/revoke": {},
    "/settings/tokens": {"name": "x", "scope": "read", "project": MINE},
    "/settings/private": {"project": MINE, "private": "{private}"},
    "/settings/remove": {"project": MINE},
    "/settings/members": {"project": MINE, "login": "somebody@example.org", "role": "viewer"},
    "/settings/members/remove": {"project": MINE, "login": "nobody@example.org"},
    "/settings/notifications": {"project": MINE, "name": "x", "address": "mailto://example.org?to=a@example.org"},
    "/settings/notifications/test": {"project": MINE, "rule_id": "1"},
    "/settings/notifications/remove": {"project": MINE, "rule_id": "1"},
    "/measuring/backfills": {"project": MINE, "suite": "tinygpt"},
    "/pull-requests/{number}/approve": {"project": MINE, "commit": "a" * 40},
    "/workers/{name}/state": {"state": "ok"},
}


@dataclass(frozen=True)
class Row:
    """One route, and for each column whether it lets in."""

    method: str
    path: str
    lets_in: Mapping[str, bool]

    def line(self) -> str:
        cells = " | ".join("yes" if self.lets_in[column] else "–" for column in COLUMNS)
        return f"| `{self.method} {self.path}` | {cells} |"


def markdown(rows: Iterable[Row]) -> str:
    """The table as docs/security.md has it."""
    head = f"| route | {' | '.join(COLUMNS)} |\n|---{'|:-:' * len(COLUMNS)}|"
    return "\n".join([head, *(row.line() for row in rows)])


def routes(app: FastAPI) -> Iterator[tuple[str, str]]:
    """(method, path) of every route but the files that pages are made of."""

    def walk(found: Iterable[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
        for route in found:
            inner = getattr(route, "original_router", None)
            if inner is not None:
                yield from walk(inner.routes, prefix + route.include_context.prefix)
            elif getattr(route, "methods", None):
                yield from ((method, prefix + route.path) for method in sorted(route.methods - {"HEAD", "OPTIONS"}))

    return (found for found in walk(app.routes) if not found[1].startswith("/static/"))


def fill(server: LiveServer) -> dict[str, str]:
    """A project with a little of everything, and another one; the names of its things."""
    now = datetime.now(UTC)
    with server.client("worker") as worker:
        for position in range(2):
            run = run_document(position)
            assert worker.put(f"/api/v1/runs/{run['id']}", json=run).status_code == 201
        assert worker.post("/api/v1/workers", json={"name": WORKER, "testbed": "cpu"}).status_code == 200
    with server.engine.begin() as c:
        projects.save_project(c, OTHER, now=now)
        key = c.execute(
            text(
                """SELECT p.id AS project, t.id AS testbed, s.id AS series, k.id AS commit
                   FROM project p, testbed t, series s, commit k
                   WHERE p.slug = :slug AND s.project_id = p.id AND k.project_id = p.id AND t.id = s.testbed_id
                   LIMIT 1"""
            ),
            {"slug": MINE},
        ).one()
        values = {**key._asdict(), "id": ULID}
        regression = c.scalar(
            text(
                """INSERT INTO regression (project_id, testbed_id, state, first_bad_position)
                   VALUES (:project, :testbed, 'confirmed', 1) RETURNING id"""
            ),
            values,
        )
        values["regression"] = regression
        for statement in (
            """INSERT INTO session (id, project_id, testbed_id, suite, purpose, base_commit_id, head_commit_id, spec,
                 state, max_rounds, requested_by)
               VALUES (:id, :project, :testbed, 's', 'compare', :commit, :commit, '{}', 'decided', 3, 'x')""",
            """INSERT INTO bisection (id, project_id, testbed_id, regression_id, series_id, suite, spec, state,
                 last_good_commit_id, first_bad_commit_id, candidates, shift, spread, good_level, requested_by)
               VALUES (:id, :project, :testbed, :regression, :series, 's', '{}', 'done', :commit, :commit, '[]', 0.1,
                 0.1, 1, 'x')""",
            """INSERT INTO backfill (id, project_id, testbed_id, suite, spec, first_position, last_position,
                 runs_wanted, state, requested_by)
               VALUES (:id, :project, :testbed, 's', '{}', 0, 1, 1, 'done', 'x')""",
            """INSERT INTO pull_request (project_id, number, state, is_fork, head_sha, base_ref)
               VALUES (:project, 7, 'open', true, 'a', 'main')""",
        ):
            c.execute(text(statement), values)
    return {**NAMES, "private": "", "series_id": str(key.series), "regression_id": str(regression)}


def headers_of_everybody(server: LiveServer) -> dict[str, Callable[[], dict[str, str]]]:
    """By column: what somebody of that kind sends along, made anew for each request."""
    askers: dict[str, Callable[[], dict[str, str]]] = {"stranger": dict}
    with server.engine.begin() as c:
        for title, scope, slug in TOKENS:
            project_id = None if slug is None else projects.find_project(c, slug).id
            made = access.create_token(c, title, [scope], now=datetime.now(UTC), project_id=project_id)
            askers[title] = partial(dict, {"Authorization": f"Bearer {made.token}"})
        for title, role, slug in PEOPLE:
            account = people.signed_in(c, "github", subject=title, login=title, name=title, now=datetime.now(UTC))
            if role is not None:
                project_id = None if slug is None else projects.find_project(c, slug).id
                people.set_role(c, account, project_id, role, datetime.now(UTC))
            askers[title] = partial(_of_a_page, server, account)
    return askers


def ask_everybody(
    server: LiveServer, names: Mapping[str, str], columns: Collection[str] = COLUMNS, *, hidden: bool = False
) -> list[Row]:
    """The table, of these columns ("admin" is one of them). `hidden`: what is not found does not count as let in."""
    askers = headers_of_everybody(server)
    rows = []
    with httpx.Client(base_url=server.url, timeout=30, trust_env=False, verify=False) as client:
        for method, path in routes(server.app):
            told = {
                column: _answer(client, method, path, names, headers())
                for column, headers in askers.items()
                if column in columns
            }
            assert max(told.values()) < 500 or (method == "GET" and path == "/readyz"), (method, path, told)
            # What one may not see is not there; what is not there at all is another matter.
            refused = {401, 403} if told["admin"] == 404 and not hidden else {401, 403, 404}
            rows.append(Row(method, path, {column: status not in refused for column, status in told.items()}))
    return rows


def _of_a_page(server: LiveServer, account: int) -> dict[str, str]:
    """What one of our own pages sends for this person. A session each time: some routes end it."""
    with server.engine.begin() as c:
        session = access.begin_session(c, account, datetime.now(UTC)).session
    return {
        "Cookie": f"{access.SESSION_COOKIE}={session}",
        "Origin": server.url,
        access.CSRF_HEADER: access.csrf_token(session),
    }


def _answer(client: httpx.Client, method: str, path: str, names: Mapping[str, str], headers: Mapping[str, str]) -> int:
    if method == "DELETE":
        names = {**names, "login": "nobody@example.org"}  # so that everybody finds the same
    address = re.sub(r"\{(\w+)(:\w+)?\}", lambda found: names[found[1]], path)
    query = {**({"project": MINE} if method == "GET" and path in OF_A_PROJECT else {}), **QUERIES.get(path, {})}
    if path == "/api/v1/import/{format}":
        query["project"] = MINE
    more: dict[str, Any] = {}
    if method not in ("GET", "DELETE") and path in BODIES:
        more["json"] = BODIES[path]
    elif path in FORMS:
        more["data"] = {name: value.format(**names) for name, value in FORMS[path].items()}
        more["data"]["csrf_token"] = headers.get(access.CSRF_HEADER, "")
    elif method in ("PUT", "POST"):
        more["content"] = b"benchmark,metric,value,unit\nb,step_ms,1.5,ms\n"
    with client.stream(method, address, params=query, headers=dict(headers), **more) as answer:
        if "event-stream" not in answer.headers.get("content-type", ""):
            answer.read()  # so that the connection can be used again
        return answer.status_code


def private_app(config: ServiceConfig, engine: Engine) -> tuple[ServiceConfig, FastAPI]:
    """A service where reading is not public, and guesses are not counted."""
    private = replace(config, public_read=False, refusals_per_address=10**6)
    app = create_api(private, engine)
    mount(app, private, engine)
    return private, app


def main() -> None:
    """Print the table, of a service of our own."""
    with scratch_directory() as directory, running_postgres(directory / "server", durable=False) as postgres:
        url = postgres.url_of("postgres")
        engine = create_engine(url)
        with engine.begin() as c:
            schema.upgrade(c)
        config, app = private_app(
            ServiceConfig(database_url=url, redis_url="redis://127.0.0.1:1/0", data_dir=directory / "data"), engine
        )
        with served(app, engine, config) as server:
            print(markdown(ask_everybody(server, fill(server))))
        engine.dispose()


if __name__ == "__main__":
    main()
