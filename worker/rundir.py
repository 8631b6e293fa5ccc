"""The directory of one run: checkout, a home, a place for temporary files, and where results go. Gone afterwards."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import site
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger("tidemark.worker")


# A socket's path has room for 107 characters, and data loaders put theirs about 40 below TMPDIR.
LONGEST_TMPDIR = 60


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths below one directory that is the run's own."""

    root: Path

    def create(self) -> None:
        self.remove()
        self.root.mkdir(mode=0o700)
        for part in (self.home, self.temporary, self.out, self.compile_cache):
            part.mkdir(mode=0o700)

    @property
    def checkout(self) -> Path:
        return self.root / "checkout"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def temporary(self) -> Path:
        """Where TMPDIR points: below the root, or, where that is too long for sockets, at a short place of its own."""
        inside = self.root / "tmp"
        if len(str(inside)) <= LONGEST_TMPDIR:
            return inside
        return Path(tempfile.gettempdir(), f"tidemark-{hashlib.sha256(str(self.root).encode()).hexdigest()[:16]}")

    @property
    def venv(self) -> Path:
        return self.root / "venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def compile_cache(self) -> Path:
        """What torch.compile, Triton and the driver keep: begins empty, so that every run compiles what it measures."""
        return self.root / "compiled"

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def run_json(self) -> Path:
        return self.out / "run.json"

    @property
    def log(self) -> Path:
        return self.root / "worker.log.txt"

    @property
    def all(self) -> tuple[Path, ...]:
        """The directories that make up the run, each with everything below it."""
        return (self.root, self.temporary) if not self.temporary.is_relative_to(self.root) else (self.root,)

    def remove(self) -> None:
        for directory in self.all:
            remove(directory)

    def make_environment(self) -> Path:
        """A virtual environment of the run's own, on top of the worker's: what a setup command installs is seen first,
        what the worker has (torch, the suite) is seen next, and nothing is installed into the worker's. Its Python."""
        place = self.venv
        venv.EnvBuilder(with_pip=False, symlinks=True).create(place)
        library = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        lines = [f"import site; site.addsitedir({below!r})\n" for below in site.getsitepackages()]
        (library / "worker.pth").write_text("".join(lines))
        python = self.python
        pip = place / "bin" / "pip"
        pip.write_text('#!/bin/sh\nexec "${0%/*}/python" -m pip "$@"\n')
        pip.chmod(0o755)
        return python


def remove(root: Path) -> None:
    """Removes a run's directory whatever its code did to it; never follows a link out of it."""
    if not root.is_symlink() and not root.exists():
        return
    if root.is_symlink() or not root.is_dir():
        root.unlink()
        return
    _remove_what_can_be(root)
    if root.exists():
        _open_directories(root)
        _remove_what_can_be(root)
    if root.exists():
        log.warning("%s could not be removed entirely", root)


def _remove_what_can_be(root: Path) -> None:
    try:
        shutil.rmtree(root, ignore_errors=True)
    except RecursionError:
        # Thousands of directories inside one another; rm goes through them without recursion.
        subprocess.run(["rm", "-rf", "--", str(root)], check=False, capture_output=True)


def _open_directories(root: Path) -> None:
    """A directory without write permission keeps what is in it from being removed."""
    unvisited = [str(root)]
    while unvisited:
        place = unvisited.pop()
        try:
            os.chmod(place, 0o700)
            with os.scandir(place) as entries:
                unvisited += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as failure:
            log.warning("%s could not be opened: %s", place, failure)


def remove_stale(runs_dir: Path) -> int:
    """Clears what an earlier life of this worker left behind; how many directories there were."""
    stale = list(runs_dir.iterdir())
    for path in stale:
        RunDir(path).remove()
    return len(stale)
