"""Secrets that should open nothing any more."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, text

from backend.api import create_api
from backend.services.base import access
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import Unauthenticated
from backend.services.base.principal import Scope
from tests.conftest import LiveServer, ServeApp
from tidemark.machine.datadir import DataDirectory
from tidemark.prepare import ADMIN_TOKEN, _keep_token

NOW = datetime.now(UTC)


def test_a_revoked_admin_secret_of_the_data_directory_stays_revoked_when_the_service_starts_again(
    committing_engine: Engine, tmp_path: Path
) -> None:
    data = DataDirectory.prepare(tmp_path / "data")

    def start() -> str:
        return _keep_token(committing_engine, data, ADMIN_TOKEN, "admin (data directory)", Scope.ADMIN)

    leaked = start()
    assert start() == leaked
    with committing_engine.begin() as c:
        (row,) = access.list_tokens(c)
        access.revoke_token(c, row.id, NOW)
    fresh = start()
    assert fresh != leaked and data.read_private(ADMIN_TOKEN) == fresh and start() == fresh
    with committing_engine.begin() as c:
        asking = {"session": None, "public_read": True, "now": NOW}
        assert access.identify(c, authorization=f"Bearer {fresh}", **asking).may(Scope.ADMIN)  # type: ignore[arg-type]
        with pytest.raises(Unauthenticated, match="was revoked"):
            access.identify(c, authorization=f"Bearer {leaked}", **asking)  # type: ignore[arg-type]


@contextmanager
def signed_in(server: LiveServer) -> Iterator[httpx.Client]:
    with server.engine.begin() as c:
        link = access.create_sign_in_link(c, server.config, NOW)
    with server.client() as browser:
        assert browser.get("/sign-in/" + link.rpartition("/")[2]).status_code == 303
        yield browser


def test_a_stolen_session_ends_when_everybody_is_signed_out(live_server: LiveServer) -> None:
    with signed_in(live_server) as thief, signed_in(live_server) as mine, live_server.client("admin") as admin:
        listed = admin.get("/api/v1/sign-ins").json()["items"]
        assert len(listed) == 2 and not any(thief.cookies["tidemark_session"] in str(each) for each in listed)
        assert admin.delete(f"/api/v1/sign-ins/{listed[0]['id']}").status_code == 204  # the newest: mine
        assert mine.get("/api/v1/tokens").status_code == 401 and thief.get("/api/v1/tokens").status_code == 200
        with live_server.engine.begin() as c:
            unopened = access.create_sign_in_link(c, live_server.config, NOW).rpartition("/")[2]
        assert admin.delete("/api/v1/sign-ins").status_code == 204
        assert thief.get("/api/v1/tokens").status_code == 401
        assert thief.get(f"/sign-in/{unopened}").status_code == 403
        assert admin.get("/api/v1/sign-ins").json()["items"] == []


@pytest.mark.parametrize(
    ("column", "age"), [("expires_at", "0 seconds"), ("last_seen_at", "7 days 1 second")], ids=["too old", "idle"]
)
def test_a_session_that_is_too_old_or_was_not_used_for_a_week_opens_nothing(
    live_server: LiveServer, column: str, age: str
) -> None:
    with signed_in(live_server) as browser:
        assert browser.get("/api/v1/tokens").status_code == 200
        with live_server.engine.begin() as c:
            c.execute(text(f"UPDATE web_session SET {column} = now() - interval '{age}'"))
        assert browser.get("/api/v1/tokens").status_code == 401


def test_using_a_session_makes_it_no_longer(live_server: LiveServer) -> None:
    with signed_in(live_server) as browser, live_server.engine.connect() as c:
        ends = c.scalar(text("SELECT expires_at FROM web_session"))
        c.execute(text("UPDATE web_session SET last_seen_at = now() - interval '2 hours'"))
        c.commit()
        browser.get("/api/v1/tokens")
        live_server.app.state.last_used.write(c)
        assert c.scalar(text("SELECT expires_at FROM web_session")) == ends


def test_a_link_that_many_open_at_once_signs_one_of_them_in(live_server: LiveServer) -> None:
    with live_server.engine.begin() as c:
        secret = access.create_sign_in_link(c, live_server.config, NOW).rpartition("/")[2]

    def open_it(_: int) -> int:
        return httpx.get(f"{live_server.url}/sign-in/{secret}", trust_env=False, timeout=30).status_code

    with ThreadPoolExecutor(10) as pool:
        assert sorted(pool.map(open_it, range(10))) == [303] + [403] * 9
    with live_server.engine.connect() as c:
        assert c.scalar(text("SELECT count(*) FROM web_session")) == 1


def test_a_stream_that_a_token_opened_ends_when_the_token_is_revoked(
    service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp
) -> None:
    closed = replace(service_config, public_read=False, sse_heartbeat_s=0.2)
    with (
        serve_app(create_api(closed, committing_engine), committing_engine, closed) as server,
        server.client("read") as reader,
        reader.stream("GET", "/api/v1/events") as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == ": connected"
        with server.engine.begin() as c:
            c.execute(text("UPDATE api_token SET revoked_at = now()"))
        assert all("data" not in line for line in lines), "and it ends"


@pytest.mark.parametrize(
    "shown", ["Bearer  {}", "bearer {}", "Bearer {}\u00a0", "Basic {}", "{}", "Bearer {}, Bearer {}"]
)
def test_a_revoked_token_is_not_let_in_by_writing_it_otherwise(live_server: LiveServer, shown: str) -> None:
    token = live_server.token("admin")
    with live_server.engine.begin() as c:
        c.execute(text("UPDATE api_token SET revoked_at = now()"))
    said = shown.format(token, token).encode("latin-1")
    answer = httpx.get(
        f"{live_server.url}/api/v1/tokens", headers={b"Authorization": said}, trust_env=False, timeout=60
    )
    assert answer.status_code == 401
