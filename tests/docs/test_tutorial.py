"""The tutorial is walked as it is written: commands are taken from the Markdown, in order, and each has to work."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from tidemark.machine import ports
from tidemark.machine.processes import wait_until

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
START = "make up"


def commands() -> list[str]:
    return re.findall(r"^    (\S.*)$", (ROOT / "docs/tutorial.md").read_text(), re.MULTILINE)


@pytest.fixture
def place() -> Iterator[Path]:
    """Outside pytest's own directories, which the embedded servers' account cannot enter."""
    path = Path(tempfile.mkdtemp(prefix="tidemark-tutorial-"))
    path.chmod(0o711)
    yield path
    rmtree(path, ignore_errors=True)


def test_every_command_of_the_tutorial_works_in_the_order_in_which_it_is_given(place: Path) -> None:
    first, *then = commands()
    assert first == START and len(then) >= 5
    port = ports.private_port()
    url = f"http://127.0.0.1:{port}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    environment |= {"TIDEMARK_DATA_DIR": str(place / "data"), "TIDEMARK_URL": url, "PYTHONUNBUFFERED": "1"}
    environment["PATH"] = f"{PROGRAMS}:{environment['PATH']}"
    log = place / "up.log"
    with log.open("wb") as output:
        up = subprocess.Popen(started_by_make(port), cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        wait_until(lambda: "Tidemark runs at" in log.read_text() or up.poll() is not None, 90)
        assert "Sign in, once, with:" in log.read_text(), log.read_text()
        for command in then:
            done = subprocess.run(
                here(command), cwd=place, env=environment, capture_output=True, text=True, timeout=120, check=False
            )
            speaks = command.endswith(("compare a.json b.json", "doctor"))  # noise, or advice: the status says so
            assert done.returncode in ((0, 1) if speaks else (0,)), f"{command}\n{done.stdout}{done.stderr}"
            assert done.stdout + done.stderr and "Traceback" not in done.stderr, f"{command}\n{done.stderr}"
        assert {"a.json", "b.json"} <= {path.name for path in place.iterdir()}
    finally:
        up.send_signal(signal.SIGINT)  # Ctrl-C
        assert up.wait(60) == 0, log.read_text()


def started_by_make(port: int) -> list[str]:
    """What `make up` runs once everything is installed, from the Makefile; the demo has tests of its own."""
    recipe = re.search(
        r"^up:.*\n\t@exec \$\(VENV\)/bin/(.+) \$\(ARGS\)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert recipe is not None
    return [*shlex.split(f"{PROGRAMS}/{recipe[1]}"), "--port", str(port), "--no-demo"]


def here(command: str) -> list[str]:
    """The same with the environment that runs the tests, wherever that is."""
    program, *words = shlex.split(command)
    assert program.startswith(".venv/bin/"), command
    return [str(PROGRAMS / program.removeprefix(".venv/bin/")), *words]
