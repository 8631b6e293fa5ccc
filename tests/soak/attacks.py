"""The hostile part of a soak: commits that attack the worker or the service that reads them, and floods from outside.

A commit either measures what any commit would, or ends with a reason; nothing beside its run may be touched."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.attacks.flood import Report, read_for
from tests.attacks.planting import PLANTING

SECRET = "nobody's business"
FLOOD_S = 5.0
READERS = 150
STREAMS = 150
BODIES = 30

# What a commit does before it measures as the others do. GUARDED is a file that is none of its business.
CODE = {
    "links in place of logs, home and results": """
for name in ("worker.log.txt", "home", "out/worker.log.txt", "out/trace.json"):
    plant(os.path.join(TOP, name), lambda place: os.symlink(GUARDED, place))
""",
    "pipes in place of logs and results": """
for name in ("worker.log.txt", "out/worker.log.txt", "out/notes.txt", "out/run.json"):
    plant(os.path.join(TOP, name), os.mkfifo)
os.unlink(os.environ["TIDEMARK_RUN_JSON"])
""",
    "its results a link to another directory": """
plant(OUT, lambda place: os.symlink(os.path.dirname(GUARDED), place))
""",
    "a fork bomb in bounds": """
import time
for _ in range(100):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
""",
    "a result as large as a disk": """
open(os.environ["TIDEMARK_RUN_JSON"], "w").truncate(1 << 40)
raise SystemExit
""",
    "a result of millions of lists": """
with open(os.environ["TIDEMARK_RUN_JSON"], "w") as file:
    file.write('{"schema": "tidemark.run/1", "more": [' + "[]," * 2_000_000 + "[]]}")
raise SystemExit
""",
    "a log without end": """
for number in range(20_000): print("x" * 500, number)
""",
    "a thousand directories inside one another": """
here = os.getcwd()
for _ in range(1000): os.mkdir("d"); os.chdir("d")
os.chdir(here)
""",
}
MANIFESTS = {
    "an integer of 5,000 digits": f"timeout_s = {'9' * 5000}",
    "40 kB of a.a.a": ".".join("a" * 20_000) + " = 1",
    "a pattern of nothing but wildcards": f"paths = ['{'*?' * 5000}']",
}


def program(name: str, guarded: Path, honest: str) -> str:
    """bench.py of a hostile commit."""
    return f"GUARDED = {str(guarded)!r}\n{PLANTING}{CODE[name]}\n{honest}"


def guard(directory: Path) -> Path:
    """A file, in a directory of its own, that the commits know of."""
    room = directory / "guarded"
    room.mkdir(mode=0o700)
    (room / "secret").write_text(SECRET)
    return room / "secret"


def flaws_of(guarded: Path) -> list[str]:
    """What was done to it."""
    if not guarded.is_file() or guarded.read_text() != SECRET:
        return ["a commit changed a file that is none of its business"]
    beside = sorted(entry.name for entry in guarded.parent.iterdir())
    return [] if beside == ["secret"] else [f"beside the guarded file stands {beside}"]


class Floods:
    """Readers, event streams and unfinished bodies, all of them strangers, a few seconds at a time."""

    def __init__(self, port: int, project: str) -> None:
        self.port = port
        self.paths = (f"/api/v1/board?project={project}", "/api/v1/queue", f"/board?project={project}", "/")
        self.report = Report()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        for what in (self._readers, self._held_open):
            thread = threading.Thread(target=what, daemon=True)
            thread.start()
            self._threads.append(thread)

    def said(self) -> dict[str, int]:
        """How many got which answer; those without one asked while the service was dead."""
        for thread in self._threads:
            thread.join(60)
        counted = Counter({str(status): number for status, number in self.report.statuses.items()})
        counted["none"] = sum(self.report.unanswered.values())
        return dict(sorted(counted.items()))

    def _readers(self) -> None:
        url = f"http://127.0.0.1:{self.port}"
        asyncio.run(read_for(url, self.report, readers=READERS, seconds=FLOOD_S, paths=self.paths))

    def _held_open(self) -> None:
        stream = f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n"
        body = (
            f"PUT /api/v1/runs/01SOAK000000000000000000000 HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            "Content-Length: 49000000\r\n\r\n" + "x" * 65_536
        )
        with ExitStack() as opened, suppress(OSError):
            for said in (*[stream] * STREAMS, *[body] * BODIES):
                connection = opened.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=5))
                connection.sendall(said.encode())
            time.sleep(FLOOD_S)
