"""Which reads may come from the replica, what everybody sees then, and that pages go on without it.

The replica of these tests is a database of its own that stays as it was made: what comes from it can be told from what
comes from the primary. How far a real one is behind is tested in tests/cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import httpx
import pytest
from sqlalchemy import Engine, bindparam, create_engine, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import OperationalError

from backend.api import create_api
from backend.services.base import access, live, projects
from backend.services.base.config import ServiceConfig
from backend.services.base.reads import OWN_ACTION_COOKIE, Reads, for_rights, may_lag
from backend.store.base import owners
from frontend.app import mount
from tests.attacks.route_table import PEOPLE, ask_everybody, fill
from tests.conftest import LiveServer, ServeApp, copy_of
from tidemark.machine import ports
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.machine.processes import wait_until

NOW = datetime.now(UTC)
NOBODY = "postgresql+psycopg://nobody@127.0.0.1:{port}/none?connect_timeout=1"


@pytest.fixture
def behind(template: str, postgres: EmbeddedPostgres, administer: Callable[[str], None]) -> Iterator[Engine]:
    """A replica that has nothing yet."""
    with copy_of(template, postgres, administer) as url:
        engine = create_engine(url)
        yield engine
        engine.dispose()


@pytest.fixture
def with_replica(
    service_config: ServiceConfig, committing_engine: Engine, behind: Engine, serve_app: ServeApp
) -> Iterator[LiveServer]:
    config = replace(service_config, read_database_url="of the engine below")
    app = create_api(config, committing_engine, behind)
    with serve_app(app, committing_engine, config) as server:
        assert wait_until(lambda: app.state.reads.status.in_use, 20)
        with committing_engine.begin() as c:
            projects.save_project(c, "only/primary", now=datetime.now(UTC))
        yield server


def sees_primary(client: httpx.Client) -> bool:
    return client.get("/api/v1/projects/only/primary").status_code == 200


@pytest.mark.parametrize(
    ("method", "headers", "cookies", "may"),
    [
        ("GET", {}, {}, True),
        ("HEAD", {}, {"tidemark_session": "x"}, True),
        ("GET", {"authorization": "Bearer x"}, {}, False),
        ("GET", {}, {OWN_ACTION_COOKIE: "1"}, False),
        ("POST", {}, {}, False),
        ("PUT", {}, {}, False),
    ],
)
def test_only_what_somebody_looks_at_who_has_not_just_acted_may_lag(
    method: str, headers: dict[str, str], cookies: dict[str, str], may: bool
) -> None:
    assert may_lag(method, headers, cookies) is may


def test_who_looks_reads_the_replica_and_a_program_the_primary(with_replica: LiveServer) -> None:
    with with_replica.client() as page, with_replica.client("read") as program:
        assert not sees_primary(page)
        assert sees_primary(program)


def _signed_in(server: LiveServer, client: httpx.Client) -> str:
    with server.engine.begin() as c:
        session = access.sign_in(c, access.create_sign_in_link(c, server.config, NOW).rsplit("/", 1)[1], NOW).session
    client.cookies.set(access.SESSION_COOKIE, session)
    return session


def _copied(server: LiveServer, behind: Engine, *tables: str) -> None:
    """What these tables hold now is on the replica."""
    with server.engine.connect() as primary, behind.begin() as replica:
        for table in tables:
            rows = primary.execute(text(f"SELECT to_jsonb(t) FROM {table} t")).scalars()
            for row in rows:
                replica.execute(
                    text(
                        f"""INSERT INTO {table} OVERRIDING SYSTEM VALUE
                            SELECT * FROM jsonb_populate_record(CAST(NULL AS {table}), :row)"""
                    ).bindparams(bindparam("row", row, JSONB))
                )


RIGHTS = "account", "member", "web_session"


def test_who_signed_in_is_known_before_the_replica_knows_and_who_signed_out_no_longer_while_it_still_does(
    with_replica: LiveServer, behind: Engine
) -> None:
    with with_replica.client() as page:
        session = _signed_in(with_replica, page)
        assert page.get("/api/v1/audit").status_code == 200
        _copied(with_replica, behind, *RIGHTS)
        with with_replica.engine.begin() as c:
            access.sign_out(c, session)
        assert page.get("/api/v1/audit").status_code == 401


def test_a_role_that_was_taken_away_opens_nothing_that_the_replica_still_shows(
    with_replica: LiveServer, behind: Engine
) -> None:
    with with_replica.client() as page:
        _signed_in(with_replica, page)
        _copied(with_replica, behind, *RIGHTS)
        assert page.get("/api/v1/audit").status_code == 200
        with with_replica.engine.begin() as c:
            c.execute(text("DELETE FROM member"))
        assert page.get("/api/v1/audit").status_code == 403


@pytest.mark.parametrize("change", ["UPDATE project SET private = true", "DELETE FROM project"])
def test_a_project_that_became_private_or_is_gone_is_shown_to_nobody_from_the_replica(
    with_replica: LiveServer, behind: Engine, change: str
) -> None:
    with with_replica.engine.begin() as c:
        c.execute(text("INSERT INTO testbed (name) VALUES ('cpu')"))
        c.execute(
            text(
                """INSERT INTO regression (project_id, testbed_id, state, first_bad_position)
                   SELECT p.id, t.id, 'confirmed', 1 FROM project p, testbed t"""
            )
        )
        number = c.execute(text("SELECT id FROM regression")).scalar_one()
    _copied(with_replica, behind, "project", "testbed", "regression")
    with with_replica.client() as page:

        def answer() -> int:
            return page.get(f"/api/v1/regressions/{number}").status_code

        assert sees_primary(page) and answer() == 200
        with with_replica.engine.begin() as c:
            c.execute(text(change))
        assert not sees_primary(page) and answer() == 404
        assert page.get("/api/v1/projects").json()["items"] == []


def test_rights_are_judged_by_the_replica_only_while_the_primary_is_away_and_not_for_long(
    behind: Engine, committing_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads(create_engine(NOBODY.format(port=ports.private_port())), behind)
    reads.look()
    with reads.connect(may_lag=True) as c, for_rights(c) as judged:
        assert judged is c
    monkeypatch.setattr("backend.services.base.reads.PRIMARY_AWAY_S", 0.0)
    with reads.connect(may_lag=True) as c, pytest.raises(OperationalError), for_rights(c):
        pass


def test_who_changes_something_reads_the_primary_for_a_while(with_replica: LiveServer) -> None:
    with with_replica.client() as page:
        answer = page.post("/api/v1/projects", json={})  # refused, but who knows what was done before that
        assert OWN_ACTION_COOKIE in answer.cookies
        assert "max-age=15" in answer.headers["set-cookie"].lower()
        assert sees_primary(page)


def test_without_a_replica_nobody_gets_a_cookie_for_it(live_server: LiveServer) -> None:
    with live_server.client() as page:
        assert "set-cookie" not in page.post("/api/v1/projects", json={}).headers


def test_an_open_page_hears_of_an_event_when_the_replica_has_it(with_replica: LiveServer, behind: Engine) -> None:
    with with_replica.engine.begin() as c:
        first = live.publish(c, "worker", None, {"worker": "w1"})
    with (
        with_replica.client() as page,
        page.stream("GET", "/api/v1/events", headers={"Last-Event-ID": str(first)}) as stream,
    ):
        lines = stream.iter_lines()
        assert "connected" in next(lines)
        with with_replica.engine.begin() as c:
            second = live.publish(c, "worker", None, {"worker": "w2"})
        heard = []
        for line in lines:
            heard.append(line)
            if line.startswith(": ") and len(heard) > 6:  # heartbeats of 0.2 s
                break
        assert not any(line.startswith("event:") for line in heard)
        with behind.begin() as c:
            c.execute(
                text("INSERT INTO live_event (id, kind, payload) OVERRIDING SYSTEM VALUE VALUES (:id, 'worker', '{}')"),
                {"id": second},
            )
        assert any(line == f"id: {second}" for line in lines)


def test_every_page_and_every_read_is_answered_by_a_server_that_cannot_write(
    service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp
) -> None:
    read_only = create_engine(
        committing_engine.url, connect_args={"options": "-c default_transaction_read_only=on"}, pool_size=10
    )
    app = create_api(service_config, committing_engine, read_only)
    mount(app, service_config, committing_engine)
    try:
        with serve_app(app, committing_engine, service_config) as server:
            assert wait_until(lambda: app.state.reads.status.in_use, 20)
            people = {"stranger", "admin", *(title for title, _, _ in PEOPLE)}
            rows = ask_everybody(server, fill(server), people)  # it fails where anything answers with 500 or 503
            assert sum(row.method == "GET" for row in rows) > 40
    finally:
        read_only.dispose()


def test_pages_go_on_when_the_replica_is_gone_and_readyz_says_so(
    service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp
) -> None:
    gone = create_engine(NOBODY.format(port=ports.private_port()))
    app = create_api(service_config, committing_engine, gone)
    with serve_app(app, committing_engine, service_config) as server, server.client() as page:
        assert page.get("/api/v1/projects").status_code == 200
        told = page.get("/readyz").json()
        assert told["ready"] and "does not answer" in told["notes"][0]
        assert "tidemark_replica_in_use 0.0" in page.get("/metrics").text


def test_a_replica_that_dies_between_two_looks_is_replaced_at_once(committing_engine: Engine, behind: Engine) -> None:
    reads = Reads(committing_engine, behind)
    reads.look()
    assert reads.engine is behind
    reads.replica = create_engine(NOBODY.format(port=ports.private_port()))
    with reads.connect(may_lag=True) as c:
        assert c.engine is committing_engine
    assert reads.status is not None and not reads.status.in_use


def test_pages_are_read_from_the_replica_while_the_primary_is_away(behind: Engine) -> None:
    reads = Reads(create_engine(NOBODY.format(port=ports.private_port())), behind)
    reads.look()
    with reads.connect(may_lag=True) as c:
        assert c.engine is behind


def test_statements_stay_prepared_on_the_primary_where_rights_are_judged(engine: Engine, behind: Engine) -> None:
    Reads(engine, behind)
    with engine.begin() as c:
        for _ in range(8):  # so often that the driver prepares it too, and forgets all where that is rolled back
            c.execute(text("SELECT 1"))
        assert owners.owner_of(c, "project", "no/such") is None
    with behind.connect() as page:
        for _ in range(2):
            with for_rights(page) as judged:
                judged.execute(text("SELECT 1"))
                names = judged.execute(text("SELECT name FROM pg_prepared_statements WHERE name LIKE 'tidemark-%'"))
                assert names.all()


def test_where_no_database_answers_none_is_opened_early_and_nothing_fails() -> None:
    nowhere = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    Reads(nowhere, nowhere).open_early()
    assert nowhere.pool.checkedin() == 0  # type: ignore[attr-defined]


def test_a_service_has_a_connection_before_anybody_asks(
    service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp
) -> None:
    early = create_engine(committing_engine.url, pool_size=2, max_overflow=0)
    with serve_app(create_api(service_config, early), early, service_config):
        # Nobody has asked for anything; the hub listens on a connection of its own.
        assert wait_until(lambda: early.pool.checkedin() > 0, 30)  # type: ignore[attr-defined]
    early.dispose()
