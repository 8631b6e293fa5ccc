"""`tidemark serve --workers 2`: two processes on one address; one that dies is replaced; all end together."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.client import HTTPResponse
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest
from sqlalchemy import Engine

from backend.services.base import access
from tidemark import __version__
from tidemark.machine import ports


@pytest.fixture
def gate() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """What the processes wait for: the end they read from, and the one that is closed."""
    reading, writing = os.pipe()
    with open(reading, "rb") as theirs, open(writing, "wb") as ours:
        yield theirs, ours


@pytest.fixture
def served(
    committing_engine: Engine, tmp_path: Path, gate: tuple[BinaryIO, BinaryIO]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = ports.private_port()
    environment = {
        **os.environ,
        "TIDEMARK_DATABASE_URL": committing_engine.url.render_as_string(hide_password=False),
        "TIDEMARK_REDIS_URL": "redis://127.0.0.1:1/0",
        "TIDEMARK_DATA_DIR": str(tmp_path),
    }
    command = [sys.executable, "-m", "tidemark", "serve", "--port", str(port), "--workers", "2"]
    child = subprocess.Popen(
        [*command, "--after-fd", str(gate[0].fileno())], env=environment, pass_fds=[gate[0].fileno()]
    )
    try:
        yield child, port
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()


def answered(port: int, timeout_s: float = 5) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=timeout_s) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def until(holds: Callable[[], bool], limit_s: float = 60.0) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.1)
    return False


def test_two_processes_answer_one_address_and_one_that_dies_is_replaced(
    served: tuple[subprocess.Popen[bytes], int], gate: tuple[BinaryIO, BinaryIO]
) -> None:
    child, port = served
    parent = psutil.Process(child.pid)
    assert not until(lambda: answered(port, timeout_s=1), 4), "they wait to be let through"
    gate[1].close()
    assert until(lambda: answered(port) and len(parent.children()) == 2)
    first = parent.children()[0].pid
    os.kill(first, signal.SIGKILL)
    assert until(lambda: len(parent.children()) == 2 and first not in [p.pid for p in parent.children()])
    assert until(lambda: answered(port))
    children = parent.children()
    child.terminate()
    assert child.wait(30) == 0
    assert until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in children), 10)


def test_what_one_process_is_told_every_open_page_hears_and_they_count_together(
    served: tuple[subprocess.Popen[bytes], int], gate: tuple[BinaryIO, BinaryIO], committing_engine: Engine
) -> None:
    gate[1].close()
    child, port = served
    parent = psutil.Process(child.pid)
    assert until(lambda: answered(port) and len(parent.children()) == 2)
    with committing_engine.begin() as c:
        made = access.create_token(c, "pages and workers", ("read", "worker"), now=datetime.now(UTC))
    asked = {"Authorization": f"Bearer {made.token}", "Content-Type": "application/json"}
    here = f"http://127.0.0.1:{port}"
    pages: list[HTTPResponse] = []

    def connected() -> list[int]:
        """Open pages of each process."""
        return [
            sum(link.status == "ESTABLISHED" and link.laddr.port == port for link in process.net_connections())
            for process in parent.children()
        ]

    def one_more() -> bool:
        request = urllib.request.Request(f"{here}/api/v1/events", headers=asked)
        pages.append(urllib.request.urlopen(request, timeout=30))
        return all(connected())

    assert until(one_more), "the kernel gave every page to one process"
    hello = json.dumps({"name": "w1", "testbed": "cpu", "version": __version__, "starting": True}).encode()
    told = urllib.request.Request(f"{here}/api/v1/workers", hello, asked)
    with urllib.request.urlopen(told, timeout=30) as answer:
        assert answer.status == 200
    for page in pages:
        assert any(b"event: worker" in line for line in iter(page.readline, b"")), "a page did not hear of it"

    def figures() -> str:
        with urllib.request.urlopen(urllib.request.Request(f"{here}/metrics", headers=asked), timeout=30) as page:
            return str(page.read().decode())

    for _ in range(6):  # whoever answers, it answers for both
        assert f"tidemark_event_streams {len(pages)}.0" in figures()
    asked_before = figures()
    assert 'tidemark_live_workers{testbed="cpu"} 1.0' in asked_before
    name = 'tidemark_http_requests_total{method="GET",route="/metrics",status="200"} '
    assert f"{name}6.0" in asked_before
    for page in pages:
        page.close()
    assert until(lambda: "tidemark_event_streams 0.0" in figures())


@pytest.mark.parametrize(
    ("workers", "database_url", "said"),
    [
        ("1", None, "TIDEMARK_DATABASE_URL is not set"),
        ("2", None, "TIDEMARK_DATABASE_URL is not set"),
        ("2", "nonsense://nobody", "an API process ended with 1 before any could serve"),
    ],
)
def test_what_can_never_serve_ends(workers: str, database_url: str | None, said: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TIDEMARK_DATABASE_URL"}
    environment |= {"TIDEMARK_REDIS_URL": "redis://127.0.0.1:1/0", "TIDEMARK_DATA_DIR": str(tmp_path)}
    environment |= {} if database_url is None else {"TIDEMARK_DATABASE_URL": database_url}
    command = [sys.executable, "-m", "tidemark", "serve", "--port", str(ports.private_port()), "--workers", workers]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1 and said in ended.stderr, ended.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_taken_port_is_refused_in_words(workers: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TIDEMARK_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
        "TIDEMARK_REDIS_URL": "redis://127.0.0.1:1/0",
        "TIDEMARK_DATA_DIR": str(tmp_path),
    }
    with socket.create_server(("127.0.0.1", 0)) as mine:
        port = str(mine.getsockname()[1])
        command = [sys.executable, "-m", "tidemark", "serve", "--port", port, "--workers", workers]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1 and f"port {port} on 127.0.0.1 is taken" in ended.stderr, ended.stderr
