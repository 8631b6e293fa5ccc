"""Caches of a worker between runs, within a limit of bytes: checkouts, and what setup commands built.

An entry is a directory that is either complete or absent, found by a key made of everything it was built from. The
least recently used one goes first. Nothing here is ever used in place: a run gets its own copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from worker.isolation.owned import copy_tree, remove, size_of
from worker.isolation.processes import RunUser

log = logging.getLogger("tidemark.worker")

SIZE_FILE = "size"


def key_of(parts: Mapping[str, object]) -> str:
    """A name for everything that something was built from."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSize:
    entries: int
    bytes: int
    limit_bytes: int


class Cache:
    """Directories by key. They belong to one worker: nothing else writes here."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.chmod(0o700)
        for unfinished in directory.glob("new-*"):
            remove(unfinished)

    def restore(self, key: str, targets: Mapping[str, Path]) -> bool:
        """Copies the parts of an entry to where a run wants them; False where there is no such entry."""
        entry = self.directory / key
        if not (entry / SIZE_FILE).exists():
            return False
        try:
            for part, target in targets.items():
                if (entry / part).is_dir():
                    remove(target)
                    copy_tree(entry / part, target)
        except (OSError, subprocess.SubprocessError) as failure:
            log.warning("the output kept from an earlier run cannot be used and is built again: %s", failure)
            for target in targets.values():
                remove(target)
            remove(entry)
            return False
        os.utime(entry)
        return True

    def keep(self, key: str, parts: Mapping[str, Path], user: RunUser | None = None) -> None:
        """Keeps copies of directories under this key, if they fit; what cannot be kept is simply not there later.
        Where code of a commit has been in them, they are copied as its user."""
        if self.limit_bytes <= 0 or (self.directory / key).exists():
            return
        try:
            size = sum(size_of(part) for part in parts.values())
        except (OSError, RecursionError) as failure:
            log.info("nothing is kept of this run: its directories cannot be measured (%s)", type(failure).__name__)
            return
        if size > self.limit_bytes:
            log.info("nothing is kept of this run: %.1f GB are more than the cache may hold", size / 1e9)
            return
        self.trim(self.limit_bytes - size)
        growing = self.directory / f"new-{uuid.uuid4().hex}"
        try:
            growing.mkdir(mode=0o700)
            for name, part in parts.items():
                if part.is_dir():
                    copy_tree(part, growing / name, user)
            (growing / SIZE_FILE).write_text(str(size))
            growing.rename(self.directory / key)
        except (OSError, subprocess.SubprocessError) as failure:
            log.warning("what this run built cannot be kept for the next: %s", failure)
            remove(growing)

    def trim(self, limit_bytes: int) -> None:
        """Removes what was used longest ago until no more than so many bytes are left."""
        entries = sorted(self._entries(), key=lambda entry: entry[0])
        total = sum(size for _, size, _ in entries)
        for _, size, entry in entries:
            if total <= limit_bytes:
                return
            remove(entry)
            total -= size

    def size(self) -> CacheSize:
        entries = self._entries()
        return CacheSize(entries=len(entries), bytes=sum(size for _, size, _ in entries), limit_bytes=self.limit_bytes)

    def _entries(self) -> list[tuple[float, int, Path]]:
        found = []
        for entry in self.directory.iterdir():
            with contextlib.suppress(OSError, ValueError):
                found.append((entry.stat().st_mtime, int((entry / SIZE_FILE).read_text()), entry))
        return found


def trim_mirrors(directory: Path, limit_bytes: int) -> list[str]:
    """Removes the mirrors that were used longest ago until the rest fits; those in use stay. Their names."""
    mirrors = sorted(
        ((mirror.stat().st_mtime, size_of(mirror), mirror) for mirror in directory.glob("*.git")),
        key=lambda each: each[0],
    )
    total = sum(size for _, size, _ in mirrors)
    removed = []
    # The newest is the one that a run has just asked for.
    for _, size, mirror in mirrors[:-1]:
        if total <= limit_bytes:
            break
        with mirror.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(mirror, ignore_errors=True)
        total -= size
        removed.append(mirror.name)
    if removed:
        log.info("mirrors: %d of repositories not used lately were removed to stay within the limit", len(removed))
    return removed
