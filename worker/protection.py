"""What keeps the code of a commit away from everything else on this machine, found out by trying it.

`user`: commit code runs as an unprivileged user, in a view of the file system where closed directories (such as root's
home) hold only what the run needs. It takes root to set up. Without it the protection is `none`, and only projects
marked trusted run.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import sys
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from worker.config import Isolation
from worker.output import Stream
from worker.processes import Command, Interrupt, RunUser, run_command

PROBE_LIMIT_S = 60.0
# Beyond the numbers that distributions and systemd give away, and apart from those of the embedded servers.
FIRST_RUN_UID = 58_300
RUN_UIDS = 900
CLAIMS = Path("/run/tidemark/run-users")


class Protection(StrEnum):
    NONE = "none"
    USER = "user"
    CONTAINER = "container"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The protection in force, why it is that one, and what a command needs to be started under it."""

    protection: Protection
    reason: str
    user: RunUser | None = None
    readable: tuple[Path, ...] = ()
    claim: IO[str] | None = field(default=None, repr=False, compare=False)
    """Held open as long as the user number is this worker's."""

    def view(self, *writable: Path) -> dict[str, dict[str, bool]]:
        """The file system as the run sees it: {closed directory: {what it needs in there: may it write to it}}."""
        if self.user is None:
            return {}
        return view_for(self.user, {**dict.fromkeys(self.readable, False), **dict.fromkeys(writable, True)})


def establish(isolation: Isolation, run_user: str | None, runs_dir: Path) -> Sandbox:
    """The best protection this machine allows; raises PermissionError when less than was asked for."""
    if isolation is Isolation.NONE:
        return Sandbox(protection=Protection.NONE, reason="switched off in this worker's settings")
    sandbox = _try_user(run_user, runs_dir)
    if sandbox.protection is Protection.NONE and isolation is Isolation.USER:
        raise PermissionError(f"protection 'user' was asked for, but {sandbox.reason}")
    return sandbox


def _try_user(run_user: str | None, runs_dir: Path) -> Sandbox:
    if os.geteuid() != 0:
        return Sandbox(protection=Protection.NONE, reason="only root can start code as another user")
    claim: IO[str] | None = None
    try:
        if run_user is None:
            try:
                user, claim = claim_spare_user(runs_dir)
            except OSError:
                user = account("nobody")  # no place on this machine to claim a number of one's own
        else:
            user = account(run_user)
    except ValueError as flaw:
        return Sandbox(protection=Protection.NONE, reason=str(flaw))
    sandbox = Sandbox(
        protection=Protection.USER,
        reason=f"commit code runs as {user.name}",
        user=user,
        readable=tuple(interpreter_paths()),
        claim=claim,
    )
    failure = _probe(sandbox, runs_dir)
    if failure is not None:
        return Sandbox(protection=Protection.NONE, reason=f"{user.name} cannot run a benchmark here: {failure}")
    return sandbox


def account(name: str) -> RunUser:
    """The account of this name, if commit code may have it."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"this machine has no user {name!r}") from None
    if entry.pw_uid == 0:
        raise ValueError(f"user {name!r} is root itself")
    return RunUser(name=f"user {name!r}", uid=entry.pw_uid, gid=entry.pw_gid)


def claim_spare_user(runs_dir: Path) -> tuple[RunUser, IO[str]]:
    """A user number without an account that no other worker of this machine has, the same at every start where it can
    be. Whatever runs as it is this worker's run; the claim ends when the file is closed."""
    CLAIMS.mkdir(parents=True, exist_ok=True, mode=0o700)
    first = zlib.crc32(str(runs_dir.resolve()).encode()) % RUN_UIDS
    for step in range(RUN_UIDS):
        uid = FIRST_RUN_UID + (first + step) % RUN_UIDS
        if _has_account(uid):
            continue
        claim = (CLAIMS / str(uid)).open("w")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
            continue
        return RunUser(name=f"user number {uid}", uid=uid, gid=uid, exclusive=True), claim
    raise ValueError("this machine has no user number to spare")


def _has_account(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _probe(sandbox: Sandbox, runs_dir: Path) -> str | None:
    """Tries what a run does (start this Python, import, write its directory); what stood in the way."""
    assert sandbox.user is not None
    wanted = [name for name in ("benchmarks", "torch") if find_spec(name) is not None]
    program = (
        "import importlib.util, pathlib, sys\n"
        "missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]\n"
        "pathlib.Path('probe').write_text('x')\n"
        "sys.exit('cannot import ' + ', '.join(missing) if missing else 0)\n"
    )
    said: list[str] = []

    def listen(stream: Stream, line: str) -> None:
        said.append(line)

    with tempfile.TemporaryDirectory(prefix="probe-", dir=runs_dir) as directory:
        run_dir = Path(directory).resolve()
        os.chown(run_dir, sandbox.user.uid, sandbox.user.gid)
        try:
            command = Command(
                argv=(sys.executable, "-P", "-c", program, *wanted),
                cwd=run_dir,
                environment={"PATH": os.defpath, "HOME": str(run_dir)},
                timeout_s=PROBE_LIMIT_S,
                user=sandbox.user,
                view=sandbox.view(run_dir),
            )
            outcome = run_command(command, listen, Interrupt())
        except OSError as failure:
            return str(failure)
    if outcome.succeeded:
        return None
    return outcome.error or (said[-1] if said else f"exit code {outcome.exit_code}")


def interpreter_paths() -> Iterable[Path]:
    """Where this Python, its packages and the editable projects on its path live."""
    candidates = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).parent}
    candidates.add(Path(sys.executable).resolve().parent)
    for name in ("benchmarks", "torch"):
        spec = find_spec(name)
        for location in (spec.submodule_search_locations or []) if spec is not None else []:
            candidates.add(Path(location).resolve())
    return sorted(path for path in candidates if path.is_dir())


def view_for(user: RunUser, needed: Mapping[Path, bool]) -> dict[str, dict[str, bool]]:
    """Which directories stand in the user's way to what it needs. Empty when everything is open to it anyway."""
    view: dict[str, dict[str, bool]] = {}
    for path, writable in needed.items():
        for spelling in dict.fromkeys((path.absolute(), path.resolve())):
            closed = first_closed(spelling, user)
            if closed is not None:
                view.setdefault(str(closed), {})[str(spelling)] = writable
    return view


def first_closed(path: Path, user: RunUser) -> Path | None:
    """The topmost directory above `path` that the user may not pass through; None when the way is open."""
    for parent in reversed(path.parents):
        if not may_pass(parent, user):
            return parent
    return None


def may_pass(directory: Path, user: RunUser) -> bool:
    """Whether the user may go through a directory, by its mode. The probe has the last word on what this misses."""
    status = directory.stat()
    if status.st_uid == user.uid:
        return bool(status.st_mode & 0o100)
    if status.st_gid == user.gid:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)


def give_to(user: RunUser, directory: Path) -> None:
    """Makes everything below (links themselves, never what they point to) the user's own, and closed to others."""
    unvisited = [str(directory)]
    while unvisited:
        with os.scandir(unvisited.pop()) as entries:
            for entry in entries:
                os.chown(entry.path, user.uid, user.gid, follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    unvisited.append(entry.path)
    os.chown(directory, user.uid, user.gid, follow_symlinks=False)
    os.chmod(directory, 0o700)


def describe(sandbox: Sandbox) -> str:
    return f"{sandbox.protection} ({sandbox.reason})"
