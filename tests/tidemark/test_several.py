"""`tidemark serve --workers 2`: two processes on one address; one that dies is replaced; all end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Engine

from tidemark import ports


@pytest.fixture
def served(committing_engine: Engine, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = ports.private_port()
    environment = {
        **os.environ,
        "TIDEMARK_DATABASE_URL": committing_engine.url.render_as_string(hide_password=False),
        "TIDEMARK_REDIS_URL": "redis://127.0.0.1:1/0",
        "TIDEMARK_DATA_DIR": str(tmp_path),
    }
    command = [sys.executable, "-m", "tidemark", "serve", "--port", str(port), "--workers", "2"]
    child = subprocess.Popen(command, env=environment)
    try:
        yield child, port
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()


def answered(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as response:
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
    served: tuple[subprocess.Popen[bytes], int],
) -> None:
    child, port = served
    parent = psutil.Process(child.pid)
    assert until(lambda: answered(port) and len(parent.children()) == 2)
    first = parent.children()[0].pid
    os.kill(first, signal.SIGKILL)
    assert until(lambda: len(parent.children()) == 2 and first not in [p.pid for p in parent.children()])
    assert until(lambda: answered(port))
    children = parent.children()
    child.terminate()
    assert child.wait(30) == 0
    assert until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in children), 10)
