"""Callers that send or read slowly, or not at all: they keep nobody from anything, and are closed in the end."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psutil
import pytest

from backend.api import dependencies
from backend.api.edge import connections, incoming
from backend.services.base import access
from tests.backend.api.conftest import run_document
from tests.conftest import LiveServer
from tidemark.machine.processes import wait_until


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience of tests: what takes seconds takes tenths."""
    monkeypatch.setattr(incoming, "GRACE_S", 0.4)
    monkeypatch.setattr(connections, "HEADERS_S", 0.4)
    monkeypatch.setattr(connections, "LOOK_EVERY_S", 0.3)


def connected(server: LiveServer) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=10)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return made


def head(method: str, path: str, length: int | None, *more: str) -> bytes:
    of_body = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", of_body, *more, "", ""]).encode()


def everything(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    answer = b""
    try:
        while part := connection.recv(65536):
            answer += part
    except ConnectionResetError:
        pass
    return answer


LARGE = [
    ("PUT", "/api/v1/runs/01J00000000000000000000000"),
    ("PUT", "/api/v1/runs/01J00000000000000000000000/artifacts/trace.json"),
    ("PUT", "/api/v1/runs/01J00000000000000000000000/session"),
    ("POST", "/api/v1/import/auto"),
    ("POST", "/api/v1/runs/01J00000000000000000000000/events"),
    ("POST", "/api/v1/tokens"),
]


@pytest.mark.parametrize(("method", "path"), LARGE)
@pytest.mark.parametrize("length", [900_000, None])
@pytest.mark.parametrize("secret", [None, "tm_invented"])
def test_a_large_body_of_a_stranger_is_refused_before_it_is_read(
    standing_server: LiveServer, method: str, path: str, length: int | None, secret: str | None
) -> None:
    more = [f"Authorization: Bearer {secret}"] if secret else []
    with connected(standing_server) as stranger:
        stranger.sendall(head(method, path, length, *more))  # and not a byte of the body
        answer = everything(stranger)
    assert answer.startswith(b"HTTP/1.1 401 "), answer
    assert b"connection: close" in answer.lower()


def test_a_token_that_is_revoked_while_a_body_comes_delivers_nothing(live_server: LiveServer) -> None:
    body = json.dumps(run_document(0)).encode().ljust(4_000_000)
    now = datetime.now(UTC)
    with live_server.engine.begin() as c:
        made = access.create_token(c, "soon revoked", ["write"], now=now)
    with connected(live_server) as slow:
        path = "/api/v1/runs/" + run_document(0)["id"]
        slow.sendall(head("PUT", path, len(body), f"Authorization: Bearer {made.token}", "Connection: close"))
        slow.sendall(body[:3_000_000])
        assert wait_until(live_server.config.incoming_dir.exists, 20)  # who sends it is known: the body is read
        with live_server.engine.begin() as c:
            access.revoke_token(c, made.id, now)
        time.sleep(dependencies.KNOWN_S)
        slow.sendall(body[3_000_000:])
        answer = everything(slow)
    assert answer.startswith(b"HTTP/1.1 401 ") and b"was revoked" in answer


def test_thirty_unfinished_bodies_of_49_mb_take_no_memory(live_server: LiveServer) -> None:
    before = psutil.Process().memory_info().rss
    token = live_server.token("worker")
    open_ones = []
    for _ in range(30):
        made = connected(live_server)
        more = ("Authorization: Bearer " + token,)
        made.sendall(head("PUT", "/api/v1/runs/01J00000000000000000000000", 49_000_000, *more))
        for _ in range(8):
            made.sendall(b" " * 500_000)
        open_ones.append(made)
    # 120 MB have come; they are in files.
    assert psutil.Process().memory_info().rss - before < 60_000_000
    for each in open_ones:
        each.close()


@pytest.mark.usefixtures("hasty")
def test_a_body_that_does_not_come_is_given_up(live_server: LiveServer) -> None:
    with connected(live_server) as slow:
        slow.sendall(head("POST", "/api/v1/webhooks/github", 1000) + b"{")
        answer = everything(slow)
    assert answer.startswith(b"HTTP/1.1 408 ") and b"1 bytes of the body" in answer


@pytest.mark.usefixtures("hasty")
def test_a_body_that_trickles_is_given_up(live_server: LiveServer) -> None:
    with connected(live_server) as slow:
        slow.sendall(head("POST", "/api/v1/webhooks/github", 1000))
        for _ in range(100):
            try:
                slow.sendall(b"x")
            except OSError:
                break
            time.sleep(0.02)
        else:
            pytest.fail("a hundred bytes were taken, one at a time")


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("asked_before", [False, True])
@pytest.mark.parametrize("begun", [b"GET / HTTP/1.1\r\nHost: 127", b"G"])
def test_headers_that_do_not_come_end_the_connection(live_server: LiveServer, begun: bytes, asked_before: bool) -> None:
    with connected(live_server) as slow:
        if asked_before:
            slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert slow.recv(65536).startswith(b"HTTP/1.1 200 ")
        slow.sendall(begun)
        everything(slow)  # returns: the other side has closed


@pytest.mark.usefixtures("hasty")
def test_a_connection_on_which_nothing_is_asked_ends(live_server: LiveServer) -> None:
    with connected(live_server) as silent:
        assert everything(silent) == b""


@pytest.mark.usefixtures("hasty")
def test_a_reader_that_does_not_read_is_closed(live_server: LiveServer) -> None:
    run_id = run_document(0)["id"]
    with live_server.client("worker") as worker:
        assert worker.put(f"/api/v1/runs/{run_id}", content=json.dumps(run_document(0))).status_code == 201
        stored = worker.put(f"/api/v1/runs/{run_id}/artifacts/trace.json", content=b"x" * 20_000_000)
        assert stored.status_code == 201
    with connected(live_server) as lazy:
        lazy.sendall(b"GET /api/v1/runs/%s/artifacts/trace.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % run_id.encode())
        lazy.recv(1000)
        assert wait_until(lambda: _ended(lazy), 15)


def _ended(connection: socket.socket) -> bool:
    """Whether the kernel has been told that the other side is gone, though we read nothing."""
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state != 1  # TCP_ESTABLISHED


@pytest.mark.usefixtures("hasty")
def test_an_open_event_stream_is_not_slow(live_server: LiveServer) -> None:
    with connected(live_server) as page:
        page.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        begun, heard = time.monotonic(), b""
        while time.monotonic() < begun + 1.5 or heard.count(b"still here") < 2:
            part = page.recv(1000)
            assert part, "it was closed as a slow one"
            heard += part


def test_what_was_sent_at_a_pace_arrives_whole(live_server: LiveServer) -> None:
    run_id = run_document(0)["id"]
    content = bytes(range(256)) * 20_000

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(content), 300_000):
            yield content[at : at + 300_000]

    with live_server.client("worker") as worker:
        assert worker.put(f"/api/v1/runs/{run_id}", content=json.dumps(run_document(0))).status_code == 201
        path: Any = f"/api/v1/runs/{run_id}/artifacts/trace.bin"
        assert worker.put(path, content=pieces()).status_code == 201
        assert worker.get(path).content == content
    assert not any(live_server.config.incoming_dir.iterdir())
