"""Several API processes behind one listening socket: the kernel hands each connection to one that waits.

They share nothing else: what one process has written the others hear from PostgreSQL (pages by NOTIFY).
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

STOP_S = 10.0
"""How long a process may take to finish what it is answering."""
RESTART_S = 1.0
"""A process that ended by itself is replaced, and not more often than this."""
PYTHON = (sys.executable, "-P", "-m", "tidemark")


def serve_several(listening: socket.socket, processes: int) -> None:
    """Runs so many API processes on this socket until SIGINT or SIGTERM; one that dies is replaced."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    children = [_start(listening) for _ in range(processes)]
    try:
        while not stop.wait(RESTART_S):
            for place, child in enumerate(children):
                if child.poll() is not None:
                    print(f"API process {child.pid} ended with {child.returncode}; another takes its place", flush=True)
                    children[place] = _start(listening)
    finally:
        _end(children)


def _start(listening: socket.socket) -> subprocess.Popen[bytes]:
    # A process group of its own: Ctrl-C reaches us, and we say to each when to stop.
    return subprocess.Popen(
        [*PYTHON, "serve", "--listening-fd", str(listening.fileno())],
        pass_fds=(listening.fileno(),),
        start_new_session=True,
    )


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.terminate()
    deadline = time.monotonic() + STOP_S
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
