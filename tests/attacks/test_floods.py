"""Many callers at once: everybody is answered or told when to come back, and results come in meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import httpx
import pytest
from sqlalchemy import Engine, create_engine, text

from backend.api import admission, create_api
from backend.services.base.config import ServiceConfig
from tests.attacks.flood import Connection, flood
from tests.attacks.limits import kept_to
from tests.backend.api.conftest import run_document
from tests.conftest import LiveServer, ServeApp
from tests.loops import in_a_loop_of_its_own
from tidemark.machine.processes import wait_until

JSON_ONLY = ("/api/v1/board?project=demo/tinygpt", "/api/v1/regressions", "/api/v1/queue")


@pytest.fixture
def small(service_config: ServiceConfig, serve_app: ServeApp) -> Iterator[LiveServer]:
    """A service with as many connections as places, and few of both."""
    config = replace(
        service_config,
        reads_at_once=3,
        writes_at_once=2,
        waiting_requests=50,
        wait_s=5.0,
        requests_per_address=10**9,
    )
    engine = create_engine(config.database_url, pool_size=config.connections, max_overflow=0, pool_timeout=3)
    with serve_app(create_api(config, engine), engine, config) as server:
        yield server
    engine.dispose()


def test_fifty_reads_with_one_token_at_once_are_all_answered(small: LiveServer) -> None:
    token = small.token("read")

    async def burst() -> list[int]:
        connections = [Connection(small.url, {"Authorization": f"Bearer {token}"}) for _ in range(50)]
        answers = await asyncio.gather(*(each.ask("GET", "/api/v1/queue") for each in connections))
        for each in connections:
            each.close()
        return [answer.status for answer in answers]

    assert set(in_a_loop_of_its_own(burst()) + in_a_loop_of_its_own(burst())) == {200}


def test_in_a_flood_everybody_is_answered_or_told_when_to_come_back_and_results_come_in(small: LiveServer) -> None:
    with small.client("worker") as worker:
        assert worker.put(f"/api/v1/runs/{run_document(0)['id']}", json=run_document(0)).status_code == 201
    report = in_a_loop_of_its_own(flood(small.url, small.token("worker"), readers=150, seconds=4, paths=JSON_ONLY))
    assert not report.unanswered, report
    assert report.answered > 0 and report.told_to_come_back > 0 and report.delivered > 0, report
    assert set(report.statuses) <= {200, 503}


def test_health_says_so_when_no_connection_is_to_be_had(small: LiveServer) -> None:
    held = [small.engine.connect() for _ in range(small.config.connections)]
    try:
        with small.client() as stranger:
            refused = stranger.get("/healthz")
            assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
    finally:
        for connection in held:
            connection.close()
    with small.client() as stranger:
        assert stranger.get("/healthz").status_code == 200


def test_health_says_so_when_requests_are_not_done(small: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "STUCK_S", 0.3)
    with small.engine.begin() as c, ThreadPoolExecutor() as pool:
        c.execute(text("LOCK TABLE project IN ACCESS EXCLUSIVE MODE"))
        waiting = [pool.submit(httpx.get, f"{small.url}/api/v1/projects", timeout=20) for _ in range(4)]
        with small.client() as stranger:
            assert wait_until(lambda: stranger.get("/healthz").status_code == 503, 10)
            assert "no request of reading was done" in stranger.get("/healthz").json()["detail"]
        c.rollback()
        assert [each.result().status_code for each in waiting] == [200] * 4


def test_reading_with_a_token_waits_for_nobody_who_uses_it_too(
    live_server: LiveServer, committing_engine: Engine
) -> None:
    """The note of when it was last used was once written within each request, which locked the token's row."""
    token = live_server.token("read")
    with committing_engine.begin() as c:
        c.execute(text("SELECT * FROM api_token FOR UPDATE"))
        answer = httpx.get(
            f"{live_server.url}/api/v1/queue", headers={"Authorization": f"Bearer {token}"}, timeout=5, trust_env=False
        )
    assert answer.status_code == 200


def test_when_a_token_was_last_used_is_written_all_the_same(live_server: LiveServer, committing_engine: Engine) -> None:
    with live_server.client("read") as reader:
        reader.get("/api/v1/queue")
    with committing_engine.begin() as c:
        assert c.scalar(text("SELECT last_used_at FROM api_token")) is None
        live_server.app.state.last_used.write(c)
        assert c.scalar(text("SELECT last_used_at FROM api_token")) is not None


@pytest.mark.parametrize("secret", [None, "read"])
def test_who_asks_too_often_is_told_when_to_come_back(
    service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp, secret: str | None
) -> None:
    strict = replace(service_config, requests_per_address=20, requests_per_token=20)
    with serve_app(create_api(strict, committing_engine), committing_engine, strict) as server:
        with server.client(*([secret] if secret else [])) as caller:
            answers = [caller.get("/api/v1/queue") for _ in range(25)]
            refused = kept_to(20, answers)
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            assert refused.json()["type"] == "urn:tidemark:problem:too-many-requests"
            assert caller.get("/healthz").status_code == 200
        with server.client("worker") as another:
            assert another.get("/api/v1/queue").status_code == 200


def test_guessing_tokens_ends_soon(
    service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp
) -> None:
    strict = replace(service_config, refusals_per_address=10)
    with serve_app(create_api(strict, committing_engine), committing_engine, strict) as server:
        with server.client() as guesser:
            guesses = [
                guesser.get("/api/v1/queue", headers={"Authorization": f"Bearer tm_{number}"}) for number in range(12)
            ]
        kept_to(10, guesses, answered=401)


def test_a_made_up_cookie_makes_nobody_another_caller(
    service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp
) -> None:
    strict = replace(service_config, requests_per_address=20)
    with serve_app(create_api(strict, committing_engine), committing_engine, strict) as server:
        with server.client() as stranger:
            cookies = [name for number in range(12) for name in (f"a={number}", f"tidemark_session={number}")]
            answers = [stranger.get("/api/v1/queue", headers={"Cookie": cookie}) for cookie in cookies]
        kept_to(20, answers)


@contextmanager
def streams(server: LiveServer, number: int, **headers: str) -> Iterator[list[socket.socket]]:
    """So many pages that listen for events, opened together."""
    with ExitStack() as opened:
        host, port = server.url.removeprefix("http://").split(":")
        pages = [opened.enter_context(socket.create_connection((host, int(port)), timeout=20)) for _ in range(number)]
        said = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        for page in pages:
            page.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: {host}:{port}\r\n{said}\r\n".encode())
        yield pages


def answers(pages: list[socket.socket]) -> Counter[str]:
    return Counter(page.recv(4096).decode().split("\r\n")[0].split()[1] for page in pages)


@pytest.fixture
def few_streams(service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp) -> Iterator[LiveServer]:
    config = replace(service_config, streams=70, streams_per_address=40, streams_per_token=10)
    with serve_app(create_api(config, committing_engine), committing_engine, config) as server:
        yield server


def test_five_hundred_event_streams_of_one_address_leave_the_others_theirs(
    service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp
) -> None:
    with serve_app(create_api(service_config, committing_engine), committing_engine, service_config) as server:
        with streams(server, 500) as pages:
            said = answers(pages)  # 503: so many at once had no place in the line
            assert said["200"] == 100 and set(said) <= {"200", "429", "503"}, said
            # A proxy on this machine says whose request it is.
            with streams(server, 5, **{"X-Forwarded-For": "192.0.43.8"}) as others:
                assert answers(others) == {"200": 5}
            assert httpx.get(f"{server.url}/api/v1/queue", timeout=10, trust_env=False).status_code == 200
        # They hung up: their places are there again.
        assert wait_until(lambda: server.app.state.hub.open_streams == 0, 20)
        with streams(server, 20) as pages:
            assert answers(pages) == {"200": 20}


def test_who_has_enough_streams_is_told_when_to_come_back(few_streams: LiveServer) -> None:
    token = few_streams.token("read")
    with streams(few_streams, 15, Authorization=f"Bearer {token}") as pages:
        assert answers(pages) == {"200": 10, "429": 5}
        with few_streams.client("read") as reader:
            refused = reader.get("/api/v1/events")
            assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0
            assert (
                refused.json()["detail"] == "10 event streams of this token are open already; close some of its pages"
            )
        with streams(few_streams, 35) as more:
            assert answers(more) == {"200": 30, "429": 5}


def test_an_address_that_is_made_up_each_time_does_not_get_all_of_them(few_streams: LiveServer) -> None:
    with ExitStack() as opened:
        said: Counter[str] = Counter()
        for number in range(20):
            of = {"X-Forwarded-For": f"192.0.43.{number}"}
            said += answers(opened.enter_context(streams(few_streams, 4, **of)))
        assert said == {"200": 70, "503": 10}
