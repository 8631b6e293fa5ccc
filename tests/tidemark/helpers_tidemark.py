"""What tests of the launcher share: places that every account can enter, and commands run as a person would."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
ORDINARY = pwd.getpwnam("nobody").pw_uid
"""Tests that run as root become this user to see what an ordinary one sees."""


@contextmanager
def place(owner: int | None = None) -> Iterator[Path]:
    """A new directory outside pytest's own, whose parents are closed to other accounts."""
    path = Path(tempfile.mkdtemp(prefix="tidemark-test-"))
    path.chmod(0o711)
    if owner is not None:
        os.chown(path, owner, owner)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def environment(**changes: str | None) -> dict[str, str]:
    """Ours without what would point a command at another service; None removes a variable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    kept |= {name: value for name, value in changes.items() if value is not None}
    return {name: value for name, value in kept.items() if changes.get(name, "") is not None}


def tidemark(*arguments: str, timeout_s: float = 60.0, **variables: str | None) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "tidemark", *arguments],
        env=environment(**variables),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def as_ordinary_user(command: Sequence[str]) -> list[str]:
    """The command as an ordinary user. A test run by root keeps the one right it needs to reach this interpreter, which
    may lie below /root; everything else about the process is that of an ordinary user."""
    if os.geteuid() != 0:
        return list(command)
    right = "+dac_read_search"
    return [
        "setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups",
        f"--inh-caps={right}", f"--ambient-caps={right}", f"--bounding-set=-all,{right}",
        *command,
    ]  # fmt: skip


class Background:
    """A command that keeps running, with what it prints."""

    def __init__(self, command: Sequence[str], log: Path, variables: Mapping[str, str | None] | None = None) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                env=environment(PYTHONUNBUFFERED="1", **(variables or {})),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str, timeout_s: float = 60.0) -> str:
        """What was said until this text appeared."""
        assert until(lambda: text in self.said or self.process.poll() is not None, timeout_s) and text in self.said, (
            f"{text!r} was not said within {timeout_s} s:\n{self.said}"
        )
        return self.said

    def family(self) -> list[psutil.Process]:
        """The process and everything below it."""
        me = psutil.Process(self.process.pid)
        return [me, *me.children(recursive=True)]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def all_gone(family: Sequence[psutil.Process]) -> bool:
    """Whether none of these processes is left (a zombie is gone: it only waits to be counted)."""
    return not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
