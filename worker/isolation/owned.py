"""The one rule for directories whose content a run decides: nothing in there is reached by a path.

The worker may be root, and code of a commit may have put a link, a pipe or a device wherever the worker is about to
look. So a directory is opened by its name in a place where only the worker writes, without following a link; what is
in it is opened, read, removed or given away relative to that descriptor; and a file counts only when it is a plain one
that belongs to the run. Copies of a run's files are made as the run's own user, who can read no more than it could.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from worker.isolation.processes import RunUser

log = logging.getLogger("tidemark.worker")

COPY_LIMIT_S = 600.0
REMOVE_LIMIT_S = 600.0
MAX_LISTED = 10_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe without a writer would hold an ordinary open for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_ON_LINUX = sys.platform.startswith("linux")
_REFLINK = ("--reflink=auto",) if _ON_LINUX else ()


class NotOfTheRun(Exception):
    """Something else is in the place of a file of the run; the message says what."""


@contextmanager
def opened(place: Path, *below: str) -> Iterator[int]:
    """A directory as a descriptor: `place` by its path (only the worker writes above it), then name by name."""
    descriptor = os.open(place, _DIRECTORY)
    try:
        for name in below:
            deeper = os.open(name, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_file(directory: int, name: str, owner: RunUser | None) -> Iterator[int]:
    """A plain file of the run's as a descriptor; raises FileNotFoundError, or NotOfTheRun for everything else."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError as refusal:
        raise NotOfTheRun(f"cannot be read: {refusal.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotOfTheRun("is not a file")
        # A hard link to somebody else's file, read by root, would tell what the commit may not know.
        if owner is not None and status.st_uid != owner.uid:
            raise NotOfTheRun("belongs to another user")
        yield descriptor
    finally:
        os.close(descriptor)


def read_file(directory: int, name: str, owner: RunUser | None, limit_bytes: int) -> bytes:
    """The bytes of a file of the run's; NotOfTheRun when it has more than the limit or is no such file."""
    with opened_file(directory, name, owner) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > limit_bytes:
            raise NotOfTheRun(f"has {size} bytes; at most {limit_bytes} are accepted")
        return b"".join(_pieces(descriptor, limit_bytes))


def copy_file(directory: int, name: str, owner: RunUser | None, target: Path, limit_bytes: int) -> int:
    """Copies a file of the run's to where only the worker writes; its size. One that grows meanwhile is cut."""
    copied = 0
    with opened_file(directory, name, owner) as descriptor, target.open("xb") as copy:
        for piece in _pieces(descriptor, limit_bytes):
            copied += copy.write(piece)
    return copied


def _pieces(descriptor: int, limit_bytes: int) -> Iterator[bytes]:
    while limit_bytes > 0 and (piece := os.read(descriptor, min(1 << 20, limit_bytes))):
        yield piece
        limit_bytes -= len(piece)


def names_in(directory: int) -> tuple[list[str], bool]:
    """Names in a directory, in order, and whether that is all of them."""
    names: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(names) == MAX_LISTED:
                return sorted(names), False
            names.append(entry.name)
    return sorted(names), True


def size_of(place: Path) -> int:
    """Bytes below a directory, links not followed. What cannot be looked at counts as nothing."""
    total = 0
    for _, _, names, directory in os.fwalk(place, follow_symlinks=False):
        for name in names:
            with suppress(OSError):
                total += os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
    return total


def give_to(user: RunUser, place: Path) -> None:
    """Makes a directory that the worker made, with everything below (links themselves, never what they point to), the
    user's own, and closed to others. Not for one that code of a commit has already been in."""
    with opened(place) as directory:
        if os.fstat(directory).st_uid != os.geteuid():
            raise PermissionError(f"{place} is not the worker's to give away")
        for _, directories, files, below in os.fwalk(".", dir_fd=directory, follow_symlinks=False):
            for name in (*directories, *files):
                os.chown(name, user.uid, user.gid, dir_fd=below, follow_symlinks=False)
        os.fchmod(directory, 0o700)
        os.fchown(directory, user.uid, user.gid)


def copy_tree(source: Path, target: Path, user: RunUser | None = None) -> None:
    """An exact copy in a new directory, links as links; on file systems that can, it shares its blocks until one side
    is written to. With a user, it is read with only that user's rights, and a file of another user's ends it."""
    target.mkdir(mode=0o700)
    identity: dict[str, Any] = {} if user is None else {"user": user.uid, "group": user.gid, "extra_groups": []}
    if user is not None:
        os.chown(target, user.uid, user.gid)
    with opened(source) as directory:
        subprocess.run(
            ["cp", "-a", *_REFLINK, "--", f"/proc/self/fd/{directory}/." if _ON_LINUX else f"{source}/.", "."],
            cwd=target, pass_fds=(directory,), check=True, capture_output=True, timeout=COPY_LIMIT_S, **identity,
        )  # fmt: skip
    if user is None and os.geteuid() == 0:
        # `cp` has made it, too, the user's of the run that the source is of; it is the worker's to give away.
        os.chown(target, 0, 0, follow_symlinks=False)


def remove(place: Path) -> None:
    """Removes what has this name, whatever the run did to it; `place` is in a directory of the worker's.

    `rm` goes from directory to directory without following a link, and through thousands of nested ones."""
    if not _is_there(place):
        return
    _in(place.parent, "rm", "-rf", "--", place.name)
    if os.geteuid() != 0 and _is_there(place) and not place.is_symlink():
        # A directory without write permission keeps what is in it from everybody but root. `chmod` follows a link.
        _in(place.parent, "chmod", "-R", "u+rwx", "--", place.name)
        _in(place.parent, "rm", "-rf", "--", place.name)
    if _is_there(place):
        log.warning("%s could not be removed entirely", place)


def remove_in(directory: int, name: str) -> None:
    """Removes a directory inside one of the run's, as far as it can be; a link in its place stays as it is."""
    with suppress(OSError, RecursionError):
        shutil.rmtree(name, ignore_errors=True, dir_fd=directory)


def _is_there(place: Path) -> bool:
    return os.path.lexists(place)


def _in(directory: Path, *command: str) -> None:
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(command, cwd=directory, check=False, capture_output=True, timeout=REMOVE_LIMIT_S)
