"""Several API processes behind one listening socket: the kernel hands each connection to one that waits.

They share nothing else: what one process has written the others hear from PostgreSQL (pages by NOTIFY).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence

from tidemark import processes

STOP_S = 3.8
"""How long a process may take to finish what it is answering; the supervisor gives all of us 4.2 s."""
RESTART_S = 1.0
"""A process that ended by itself is replaced, and not more often than this."""
PYTHON = (sys.executable, "-P", "-m", "tidemark")


def serve_several(listening: socket.socket, count: int) -> None:
    """Runs so many API processes on this socket until SIGINT or SIGTERM; one that dies is replaced."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    children = [_start(listening) for _ in range(count)]
    try:
        while not stop.wait(RESTART_S):
            for place, child in enumerate(children):
                if child.poll() is not None:
                    print(f"API process {child.pid} ended with {child.returncode}; another takes its place", flush=True)
                    children[place] = _start(listening)
    finally:
        _end(children)


def _start(listening: socket.socket) -> subprocess.Popen[bytes]:
    return processes.start(
        [*PYTHON, "serve", "--listening-fd", str(listening.fileno())],
        environment=os.environ,
        output=sys.stdout.fileno(),
        pass_fds=(listening.fileno(),),
    )


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    processes.end(
        [known for child in children if (known := processes.identify(child.pid)) is not None], patience_s=STOP_S
    )
    for child in children:
        child.wait()
