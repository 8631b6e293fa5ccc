"""The user that commit code runs as: a named account, or a spare user id that this worker claims for each run."""

from __future__ import annotations

import fcntl
import pwd
import zlib
from pathlib import Path
from typing import IO

from worker.isolation.processes import RunUser

# Beyond the numbers that distributions and systemd give away, and apart from those of the embedded servers.
FIRST_RUN_UID = 58_300
RUN_UIDS = 900
CLAIMS = Path("/run/tidemark/run-users")


def account(name: str) -> RunUser:
    """The account with this name, if commit code may use it."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"this machine has no user {name!r}") from None
    if entry.pw_uid == 0:
        raise ValueError(f"user {name!r} is root itself")
    return RunUser(name=f"user {name!r}", uid=entry.pw_uid, gid=entry.pw_gid)


def claim_spare_user(runs_dir: Path, after: int | None = None) -> tuple[RunUser, IO[str]]:
    """A user id without an account that no other worker on this machine has; the next free one after a given one.
    Whatever runs under it is a run of this worker; the claim ends when the file is closed."""
    CLAIMS.mkdir(parents=True, exist_ok=True, mode=0o700)
    first = zlib.crc32(str(runs_dir.resolve()).encode()) % RUN_UIDS if after is None else after + 1 - FIRST_RUN_UID
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
