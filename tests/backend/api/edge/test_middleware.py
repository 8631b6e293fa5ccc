"""The outermost layer: Host, size, headers, problems, sign-in, metrics; over real HTTP."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text

from backend.api import create_api, shapes
from backend.api.edge.middleware import SECURITY_HEADERS, body_limit, host_name
from backend.contract import MAX_BODY_BYTES
from backend.services.base import access
from backend.services.base.config import ServiceConfig
from backend.store.ingest.record import RUN_LOCK
from tests.backend.api.conftest import run_document
from tidemark import __version__


@pytest.fixture
def client(live_server: Any) -> Iterator[httpx.Client]:
    with live_server.client() as made:
        yield made


def raw_exchange(url: str, request: bytes) -> bytes:
    """What the server answers to exactly these bytes."""
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer


def is_problem(answer: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = dict(answer.json())
    assert document["status"] == status and document["type"] == f"urn:tidemark:problem:{slug}"
    assert document["title"] and document["detail"] and document["request_id"] == answer.headers["x-request-id"]
    return document


def test_every_kind_of_error_is_a_problem_document(live_server: Any, client: httpx.Client) -> None:
    assert "'/nope'" in is_problem(client.get("/nope"), 404, "not-found")["detail"]
    refused = client.delete("/healthz")
    assert "accepted: GET" in is_problem(refused, 405, "method-not-allowed")["detail"]
    assert refused.headers["allow"] == "GET"
    refused = client.delete("/api/v1/runs/01J00000000000000000000000")
    assert "accepted: GET, PUT" in is_problem(refused, 405, "method-not-allowed")["detail"]
    assert refused.headers["allow"] == "GET, PUT"
    is_problem(client.post("/api/v1/workers", json={"name": "w", "testbed": "cpu"}), 401, "unauthenticated")
    with live_server.client("read") as reader:
        is_problem(reader.post("/api/v1/workers", json={"name": "w", "testbed": "cpu"}), 403, "forbidden")
    with live_server.client("admin") as admin:
        wrong = is_problem(admin.post("/api/v1/workers", json={"name": "w", "testbett": "cpu"}), 422, "invalid-content")
        assert {error["path"] for error in wrong["errors"]} == {"body.testbed", "body.testbett"}
        headers = {"content-type": "application/json"}
        torn = admin.post("/api/v1/workers", content=b'{"name": ', headers=headers)
        assert "not JSON" in is_problem(torn, 400, "bad-request")["detail"]
    is_problem(client.get("/api/v1/series/99999999999"), 422, "invalid-content")
    is_problem(client.get("/api/v1/series/1"), 404, "not-found")


def test_a_host_that_is_not_ours_is_refused_before_anything_else(client: httpx.Client) -> None:
    refused = client.get("/healthz", headers={"host": "evil.example"})
    assert "'evil.example'" in is_problem(refused, 421, "unknown-host")["detail"]
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1", "[::1]:8000"):
        assert client.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("header", "name"),
    [("a.b:80", "a.b"), ("A.b", "a.b"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("", ""), ("a:b", "a:b")],
)
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert host_name(header) == name


def test_every_answer_carries_the_security_headers_and_its_id(client: httpx.Client) -> None:
    for path in ("/healthz", "/nope", "/api/v1/schema/run.json"):
        answer = client.get(path, headers={"x-request-id": "my-id.1"})
        assert answer.headers["x-request-id"] == "my-id.1"
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers[name] == value
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert "script-src 'self';" in policy and "unsafe-eval" not in policy and "frame-ancestors 'none'" in policy
    assert client.get("/healthz", headers={"x-request-id": "<script>"}).headers["x-request-id"] != "<script>"


def test_answers_are_compressed_for_who_can_read_that(client: httpx.Client) -> None:
    packed = client.get("/api/v1/schema/run.json")
    plain = client.get("/api/v1/schema/run.json", headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert packed.json() == plain.json()


@pytest.mark.parametrize("stated", [["gzip"], ["br, gzip"], ["identity", "GZIP"], ["x" * 9000]])
def test_a_compressed_body_is_refused_in_words(live_server: Any, stated: list[str]) -> None:
    run = run_document(0)
    packed = gzip.compress(json.dumps(run).encode())
    headers = [("Content-Encoding", value) for value in stated]
    with live_server.client("write") as writer:
        answer = writer.put(f"/api/v1/runs/{run['id']}", content=packed, headers=headers)
        is_problem(answer, 415, "unsupported-media-type")
        assert "accepted: identity, or no such header" in answer.json()["detail"] and len(answer.text) < 1000


@pytest.mark.parametrize("stated", ["", "identity"])
def test_a_body_that_is_not_compressed_may_say_so(live_server: Any, stated: str) -> None:
    run, headers = run_document(0), {"Content-Encoding": stated}
    with live_server.client("write") as writer:
        assert writer.put(f"/api/v1/runs/{run['id']}", json=run, headers=headers).status_code == 201
        assert writer.get("/healthz", headers={"Content-Encoding": "gzip"}).status_code == 200


def test_an_imported_file_may_be_compressed_in_a_way_that_is_known(live_server: Any) -> None:
    def imported(encoding: str) -> httpx.Response:
        packed = gzip.compress(json.dumps(run_document(0)).encode())
        with live_server.client("write") as writer:
            return writer.post(
                "/api/v1/import/run",
                params={"project": "demo/tinygpt"},
                content=packed,
                headers={"Content-Encoding": encoding},
            )

    assert imported("gzip").json()["counts"]["stored"] == 1
    refused = imported("br")
    is_problem(refused, 415, "unsupported-media-type")
    assert "accepted: identity, gzip, zstd" in refused.json()["detail"]


def test_a_body_that_says_it_is_too_large_is_not_read(live_server: Any) -> None:
    head = b"POST /api/v1/workers HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999999999\r\nConnection: close\r\n\r\n"
    answer = raw_exchange(live_server.url, head)
    assert answer.startswith(b"HTTP/1.1 413 ") and b"at most 1048576 are accepted" in answer


def test_a_body_of_unknown_length_is_stopped_at_the_limit(live_server: Any) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * 65536

    with live_server.client("admin") as admin:
        answer = admin.post("/api/v1/workers", content=endless(), headers={"content-type": "application/json"})
    is_problem(answer, 413, "too-large")


def test_who_hangs_up_within_a_body_is_no_error_of_ours(live_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    head = b"PUT /api/v1/runs/HUNG-UP-01 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf of"
    deadline = time.monotonic() + 10
    with caplog.at_level(logging.INFO, logger="tidemark.api"):
        with socket.create_connection(("127.0.0.1", int(live_server.url.rpartition(":")[2]))) as hasty:
            hasty.sendall(head)
        while "HUNG-UP-01" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.02)
    assert [record.levelname for record in caplog.records] == ["INFO"] and ": 499 (" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "limit"),
    [
        ("PUT", "/api/v1/runs/x", MAX_BODY_BYTES),
        ("PUT", "/api/v1/runs/x/artifacts/y", 60_000_000),
        ("POST", "/api/v1/runs/x/events", 4 * 1024 * 1024),
        ("POST", "/api/v1/webhooks/github", 25 * 1024 * 1024),
        ("POST", "/api/v1/tokens", 1024 * 1024),
        ("POST", "/anything", 1024 * 1024),
    ],
)
def test_how_large_a_body_may_be(service_config: ServiceConfig, method: str, path: str, limit: int) -> None:
    assert body_limit(method, path, replace(service_config, max_body_bytes=60_000_000)) == limit


def test_health_needs_nothing_and_readiness_everything(
    client: httpx.Client, service_config: ServiceConfig, serve_app: Any
) -> None:
    assert client.get("/healthz").json() == {"status": "ok", "version": service_config.version}
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json() == {
        "ready": True,
        "checks": {"database": "ok", "schema": "ok", "broker": "ok"},
        "notes": [],
    }
    away = replace(service_config, redis_url="redis://127.0.0.1:1/0", database_url="postgresql://x@127.0.0.1:1/x")
    engine = create_engine(away.database_url)
    with serve_app(create_api(away, engine), engine, away) as server, server.client() as stranger:
        assert stranger.get("/healthz").status_code == 200
        state = stranger.get("/readyz")
        assert state.status_code == 503 and not state.json()["ready"]
        assert "does not answer" in state.json()["checks"]["database"]
        assert "does not answer" in state.json()["checks"]["broker"]
        refused = stranger.get("/api/v1/board", params={"project": "a/b"})
        assert is_problem(refused, 503, "unavailable") and refused.headers["retry-after"] == "2"


def test_metrics_count_requests_by_route_and_show_the_queue(client: httpx.Client) -> None:
    client.get("/healthz")
    client.get("/no/such/thing")
    client.get("/api/v1/series/12")
    page = client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    assert 'tidemark_http_requests_total{method="GET",route="/healthz",status="200"} 1.0' in page.text
    assert 'route="/api/v1/series/{series_id}",status="404"' in page.text
    assert 'route="(none)",status="404"' in page.text and "/no/such/thing" not in page.text
    assert f'tidemark_info{{version="{__version__}"}} 1.0' in page.text


@pytest.mark.parametrize("capabilities", ['{"a": "\\u0000"}', '{"a": "\\ud800"}', '{"a": NaN}', '{"a": 1e999}'])
def test_what_the_store_cannot_keep_is_refused_not_an_error_of_ours(live_server: Any, capabilities: str) -> None:
    body = f'{{"name": "w", "testbed": "cpu", "capabilities": {capabilities}}}'
    with live_server.client("worker") as worker:
        answer = worker.post("/api/v1/workers", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in {400, 422}, answer.text
        odd = worker.post("/api/v1/workers", content='{"name": "\\ud800", "testbed": "cpu"}')
        assert odd.status_code == 422


# --- who may ---------------------------------------------------------------------------------------------------------


def sign_in(live_server: Any, client: httpx.Client) -> str:
    """Open a sign-in link; returns the session, as its cookie holds it."""
    with live_server.engine.begin() as c:
        link = access.create_sign_in_link(c, live_server.config, datetime.now(UTC))
    answer = client.get("/sign-in/" + link.rpartition("/")[2])
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie
    assert answer.headers["cache-control"] == "no-store" and answer.headers["referrer-policy"] == "no-referrer"
    return str(client.cookies[access.SESSION_COOKIE])


def test_a_signed_in_page_acts_with_its_csrf_token_and_origin_only(live_server: Any, client: httpx.Client) -> None:
    session = sign_in(live_server, client)
    body = {"name": "ci", "scopes": ["write"]}
    token, ours = access.csrf_token(session), live_server.url
    for headers in (
        {},
        {"X-CSRF-Token": token},
        {"X-CSRF-Token": token, "Origin": "http://evil.example"},
        {"X-CSRF-Token": "wrong", "Origin": ours},
        {"Origin": ours},
    ):
        is_problem(client.post("/api/v1/tokens", json=body, headers=headers), 403, "forbidden")
    made = client.post("/api/v1/tokens", json=body, headers={"X-CSRF-Token": token, "Origin": ours})
    assert made.status_code == 201 and made.json()["token"].startswith("tm_")


def test_a_session_may_read_what_only_administrators_may_until_it_ends(live_server: Any, client: httpx.Client) -> None:
    session = sign_in(live_server, client)
    assert client.get("/api/v1/tokens").status_code == 200
    with live_server.engine.begin() as c:
        access.sign_out(c, session)
    assert client.get("/api/v1/tokens").status_code == 401


def test_a_used_or_invented_link_signs_nobody_in(live_server: Any, client: httpx.Client) -> None:
    is_problem(client.get("/sign-in/invented"), 403, "forbidden")
    assert access.SESSION_COOKIE not in client.cookies


def test_without_public_reading_everything_but_health_needs_a_token(
    service_config: ServiceConfig, committing_engine: Any, serve_app: Any
) -> None:
    private = replace(service_config, public_read=False)
    with serve_app(create_api(private, committing_engine), committing_engine, private) as server:
        with server.client() as stranger:
            assert stranger.get("/healthz").status_code == 200
            for path in ("/metrics", "/api/v1/events", "/api/v1/series/1", "/api/v1/board?project=a/b"):
                is_problem(stranger.get(path), 401, "unauthenticated")
        with server.client("read") as reader:
            assert reader.get("/metrics").status_code == 200 and reader.get("/api/v1/series/1").status_code == 404


@pytest.mark.parametrize("expires_at", ["2030-01-01T00:00:00", "9999-12-31T23:59:59-12:00"])
def test_a_token_expires_at_a_time_that_is_the_same_for_everybody(live_server: Any, expires_at: str) -> None:
    with live_server.client("admin") as admin:
        body = {"name": "ci", "scopes": ["read"], "expires_at": expires_at}
        is_problem(admin.post("/api/v1/tokens", json=body), 422, "invalid-content")
        assert admin.get("/api/v1/tokens").status_code == 200


def test_a_result_that_waits_too_long_for_another_is_asked_to_come_again(
    service_config: ServiceConfig, database: str, serve_app: Any
) -> None:
    engine = create_engine(database, connect_args={"options": "-c lock_timeout=200"})
    body = {**run_document(0), "id": "WAITING-01"}
    with (
        serve_app(create_api(service_config, engine), engine, service_config) as server,
        engine.connect() as other,
        server.client("write") as writer,
    ):
        lock = text("SELECT pg_advisory_xact_lock(hashtext(:lock), hashtext(:run))")
        other.execute(lock, {"lock": RUN_LOCK, "run": body["id"]})
        refused = writer.put("/api/v1/runs/WAITING-01", json=body)
        assert is_problem(refused, 503, "unavailable") and refused.headers["retry-after"] == "2"
        other.rollback()
        assert writer.put("/api/v1/runs/WAITING-01", json=body).status_code == 201
    engine.dispose()


def test_a_full_disk_of_the_database_is_called_so(service_config: ServiceConfig, database: str, serve_app: Any) -> None:
    engine = create_engine(database)
    with (
        engine.begin() as c,
        serve_app(create_api(service_config, engine), engine, service_config) as server,
        server.client("write") as writer,
    ):
        raising = "BEGIN RAISE disk_full USING MESSAGE = 'could not extend file'; END"
        c.execute(text(f"CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ {raising} $$"))
        c.execute(text("CREATE TRIGGER fill BEFORE INSERT ON run FOR EACH ROW EXECUTE FUNCTION fill()"))
        c.commit()
        refused = writer.put("/api/v1/runs/FULLDISK-01", json={**run_document(0), "id": "FULLDISK-01"})
        assert "disk of the database is full" in is_problem(refused, 503, "unavailable")["detail"]
    engine.dispose()


def test_tokens_are_made_listed_and_revoked_by_administrators(live_server: Any) -> None:
    with live_server.client("admin") as admin, live_server.client("write") as writer:
        made = admin.post("/api/v1/tokens", json={"name": "ci", "scopes": ["write"]}).json()
        (listed,) = [item for item in admin.get("/api/v1/tokens").json()["items"] if item["name"] == "ci"]
        assert made["token"] not in json.dumps(listed) and listed["hint"] == made["hint"]
        is_problem(writer.post("/api/v1/tokens", json={"name": "x", "scopes": ["admin"]}), 403, "forbidden")
        past = (datetime.now(UTC) - timedelta(days=1)).isoformat()
        is_problem(
            admin.post("/api/v1/tokens", json={"name": "x", "scopes": ["read"], "expires_at": past}), 400, "bad-request"
        )
        headers = {"Authorization": f"Bearer {made['token']}"}
        assert admin.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
        is_problem(admin.get("/api/v1/events", headers=headers), 401, "unauthenticated")
        is_problem(admin.delete(f"/api/v1/tokens/{made['id']}"), 404, "not-found")


def test_projects_are_registered_by_administrators(live_server: Any) -> None:
    body = {"project": "a/b", "repository_url": "https://example.org/a/b.git"}
    with live_server.client("admin") as admin, live_server.client("write") as writer:
        is_problem(writer.post("/api/v1/projects", json=body), 403, "forbidden")
        assert admin.post("/api/v1/projects", json=body).status_code == 201
        assert admin.post("/api/v1/projects", json={**body, "default_branch": "dev"}).status_code == 200
        refused = admin.post("/api/v1/projects", json={"project": "a/b", "repository_url": "file:///etc"})
        assert "file:// only for trusted projects" in is_problem(refused, 400, "bad-request")["detail"]


def test_an_unexpected_error_is_told_without_its_details(
    live_server: Any, client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    @live_server.app.get("/broken")
    def broken() -> None:
        raise RuntimeError("a secret detail")

    with caplog.at_level(logging.CRITICAL, logger="tidemark.api"):
        answer = client.get("/broken")
    assert "secret" not in is_problem(answer, 500, "internal-error")["detail"]


def test_a_path_that_is_not_of_its_form_is_answered_in_words_with_an_example(live_server: Any) -> None:
    with live_server.client("admin") as admin:
        for path, said in (
            ("/api/v1/runs/foo", "such as 01JD2Q8Z6WJ4M6R8T0V2X4Y6Z8"),
            ("/api/v1/sessions/foo", "a ULID: 26 digits"),
            ("/api/v1/commits/HEAD/verdict?project=a/b", "in lower-case hexadecimal, such as 3f2a9c1"),
        ):
            problem = is_problem(admin.get(path), 422, "invalid-content")
            assert said in problem["detail"] and "^" not in problem["detail"]
        refused = is_problem(admin.put("/api/v1/runs/foo", json={}), 422, "invalid-content")
        assert refused["errors"][0]["path"] == "path.run_id" and "8 to 64 letters" in refused["detail"]


def test_every_pattern_has_its_words(live_server: Any) -> None:
    def patterns(node: Any) -> Iterator[str]:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node if isinstance(node, list) else ()):
            if key == "pattern" and isinstance(value, str):
                yield value
            yield from patterns(value)

    with live_server.client() as anyone:
        described = anyone.get("/openapi.json").json()
    asked = {name: schema for name, schema in described["components"]["schemas"].items() if name.endswith("Body")}
    wordless = {each for part in (described["paths"], asked) for each in patterns(part) if each not in shapes.WORDS}
    assert not wordless
