"""Several API processes behind one listening socket: the one with the fewest busy connections takes the next.

What one process has written the others hear from PostgreSQL (pages by NOTIFY). For Prometheus they count together, in
files of a directory that lasts as long as the service.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import partial
from tempfile import TemporaryDirectory

from prometheus_client.multiprocess import mark_process_dead

from backend.connection_counts import AWAY, ConnectionCounts
from tidemark.machine import processes
from tidemark.refusal import Refusal

STOP_S = 3.8
"""How long a process may take to finish what it is answering; the supervisor gives all of us 4.2 s."""
RESTART_S = 1.0
"""A process that ended by itself is replaced, and not more often than this."""
PYTHON = (sys.executable, "-P", "-m", "tidemark")


def serve_several(listening: socket.socket, count: int, *, after_fd: int | None = None) -> None:
    """Runs so many API processes on this socket until SIGINT or SIGTERM; one that dies is replaced. `Refusal`: one died
    before any could serve."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with TemporaryDirectory(prefix="tidemark-metrics-") as counted, ConnectionCounts.file_for(count) as connections:
        start = partial(_start, listening, after_fd, counted, connections.fileno())
        children = [start(place) for place in range(count)]
        counts, served = ConnectionCounts(connections.fileno(), 0), False
        try:
            while not stop.wait(RESTART_S):
                served = served or min(counts.all()) < AWAY
                for place, child in enumerate(children):
                    if child.poll() is not None:
                        if not served:
                            raise Refusal(f"an API process ended with {child.returncode} before any could serve")
                        said = f"API process {child.pid} ended with {child.returncode}; another takes its place"
                        print(said, flush=True)
                        # Its streams are open no more; what it has counted stays counted.
                        mark_process_dead(child.pid, counted)  # type: ignore[no-untyped-call]
                        ConnectionCounts(connections.fileno(), place).write(AWAY)
                        children[place] = start(place)
        finally:
            _end(children)


def _start(
    listening: socket.socket, after_fd: int | None, counted: str, connections_fd: int, place: int
) -> subprocess.Popen[bytes]:
    given = {"--listening-fd": listening.fileno(), "--connections-fd": connections_fd}
    if after_fd is not None:
        given["--after-fd"] = after_fd
    return processes.start(
        [*PYTHON, "serve", "--place", str(place), *(str(word) for option in given.items() for word in option)],
        environment={**os.environ, "PROMETHEUS_MULTIPROC_DIR": counted},
        output=sys.stdout.fileno(),
        pass_fds=tuple(given.values()),
    )


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    processes.end(
        [known for child in children if (known := processes.identify(child.pid)) is not None], patience_s=STOP_S
    )
    for child in children:
        child.wait()
