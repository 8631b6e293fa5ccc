"""The directory of one run: checkout, a home, a place for temporary files, and where results go. Deleted afterwards.

The worker owns the directory itself; a run owns what is in it, and can put nothing else next to that.
"""

from __future__ import annotations

import hashlib
import os
import site
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

from worker.isolation.environment import PrivateDirectories
from worker.isolation.owned import give_to, remove
from worker.isolation.processes import RunUser

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

    def give_to(self, user: RunUser) -> None:
        """Gives the user every part, and the way through the directory that they stand in."""
        os.chown(self.root, -1, user.gid)
        self.root.chmod(0o710)
        for part in (self.checkout, self.home, self.temporary, self.out, self.compile_cache, self.venv):
            if part.exists():
                give_to(user, part)

    def renew_out(self, user: RunUser | None) -> None:
        """An empty place for results, instead of the one that has been used."""
        remove(self.out)
        self.out.mkdir(mode=0o700)
        if user is not None:
            give_to(user, self.out)

    @property
    def checkout(self) -> Path:
        return self.root / "checkout"

    @property
    def private(self) -> PrivateDirectories:
        return PrivateDirectories(home=self.home, temporary=self.temporary, compile_cache=self.compile_cache)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def temporary(self) -> Path:
        """Where TMPDIR points: below the root, or, if that is too long for sockets, to a short separate place."""
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
        """Caches of torch.compile, Triton and the driver: empty at first, so every run compiles what it measures."""
        return self.root / "compiled"

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def run_json(self) -> Path:
        return self.out / "run.json"

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


def remove_stale(runs_dir: Path) -> int:
    """Clears what an earlier life of this worker left behind; how many directories there were."""
    stale = list(runs_dir.iterdir())
    for path in stale:
        RunDir(path).remove()
    return len(stale)
