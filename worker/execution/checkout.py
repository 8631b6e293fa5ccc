"""One mirror per repository, one checkout per run: the exact commit, in a directory that nothing else shares.

A checkout is a separate repository with only that commit in it. It refers to nothing of the worker's, so commit
code can break it, or own it, without reaching the mirror or another run.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from backend.outgoing import AddressRefused, Way, target_of, way_to
from worker.isolation.processes import signal_name

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# user@host:path, the short form of an ssh address.
_SHORT_SSH = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*@[A-Za-z0-9_.][A-Za-z0-9_.-]*:[^:].*")
_SCHEMES = ("https://", "http://", "ssh://", "file:///")
LOCK_POLL_S = 0.1
SSH = "ssh -oBatchMode=yes -oConnectTimeout=20"
MAX_MEMORY_BYTES = 4 << 30
"""Memory for git during a checkout: a few trees that refer to one another make billions of files."""
MAX_FILES = 5_000_000


class CheckoutError(Exception):
    """The commit could not be checked out; the message says why, for the page of the run."""


class CheckoutInterrupted(Exception):
    """A stop was requested while git was busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitLimits:
    """How long git may take, in seconds."""

    lock_s: float = 600.0
    fetch_s: float = 900.0
    checkout_s: float = 600.0


class Mirrors:
    """The mirrored repositories on this machine."""

    def __init__(
        self,
        directory: Path,
        limits: GitLimits | None = None,
        private_hosts: Sequence[str] = (),
        max_bytes: int = 64_000_000_000,
    ) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self.private_hosts = private_hosts
        self.limits = limits or GitLimits()
        self.give_up = threading.Event()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.chmod(0o700)  # the history of every project that is measured here lies in it

    def check_out(self, repository_url: str, commit: str, target: Path, give_up: threading.Event | None = None) -> None:
        """Puts the files of exactly this commit into `target` (which must not exist); raises CheckoutError.

        Setting `give_up` from another thread ends it with CheckoutInterrupted.
        """
        refuse_unusable(repository_url, commit)
        self.give_up = give_up or threading.Event()
        mirror = self.directory / f"{hashlib.sha256(repository_url.encode()).hexdigest()[:24]}.git"
        with self._locked(mirror):
            self._bring_up_to_date(mirror, repository_url, commit)
            self._copy_commit(mirror, commit, target)

    def _bring_up_to_date(self, mirror: Path, repository_url: str, commit: str) -> None:
        if mirror.exists() and not self._is_sound(mirror):
            # Half-written by a machine that lost power: a copy can always be had again.
            shutil.rmtree(mirror)
        if not mirror.exists():
            self._clone(mirror, repository_url)
        if self._has(mirror, commit):
            return
        way = self._way_to(repository_url)
        fetch = ("fetch", "--quiet", "--no-recurse-submodules")
        self._git(mirror, *fetch, "--prune", "origin", limit_s=self.limits.fetch_s, way=way)
        if self._has(mirror, commit):
            return
        # A commit that no branch names any more (a force-pushed pull request) can often still be asked for.
        with contextlib.suppress(CheckoutError):
            self._git(mirror, *fetch, "--no-tags", "origin", commit, limit_s=self.limits.fetch_s, way=way)
        if not self._has(mirror, commit):
            raise CheckoutError(f"commit {commit} is not in {shown_url(repository_url)}: no branch or tag leads to it")

    def _clone(self, mirror: Path, repository_url: str) -> None:
        growing = mirror.with_suffix(".new")
        shutil.rmtree(growing, ignore_errors=True)
        self._git(
            None,
            "clone",
            "--quiet",
            "--mirror",
            "--no-local",
            "--",
            repository_url,
            str(growing),
            limit_s=self.limits.fetch_s,
            way=self._way_to(repository_url),
        )
        growing.rename(mirror)

    def _way_to(self, repository_url: str) -> Way:
        try:
            return way_to(repository_url, self.private_hosts)
        except AddressRefused as refused:
            raise CheckoutError(f"the repository is not fetched: {refused}") from None

    def _refuse_giant(self, mirror: Path, commit: str) -> None:
        """A few megabytes of history may hold files of terabytes: nothing is laid out that has no room here."""
        listed = ["git", "-C", str(mirror), "ls-tree", "-r", "-l", "-z", commit]
        total = files = 0
        with subprocess.Popen(
            listed, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=self._environment(Way()),
        ) as listing:  # fmt: skip
            assert listing.stdout is not None
            for sizes in _sizes_in(listing.stdout):
                total, files = total + sum(sizes), files + len(sizes)
                if total > self.max_bytes or files > MAX_FILES or self.give_up.is_set():
                    listing.kill()
                    break
        if total > self.max_bytes or files > MAX_FILES:
            raise CheckoutError(
                f"commit {commit} has files of more than {total / 1e9:.1f} GB, or more than {files:,} of them; at most "
                f"{self.max_bytes / 1e9:.1f} GB (TIDEMARK_WORKER_RUN_GB) and {MAX_FILES:,} files are laid out here"
            )

    def _copy_commit(self, mirror: Path, commit: str, target: Path) -> None:
        self._refuse_giant(mirror, commit)
        kind = "sha256" if len(commit) == 64 else "sha1"
        template = "--template="  # no hooks, no leftovers of this machine's own template
        self._git(None, "init", "--quiet", template, f"--object-format={kind}", "--", str(target), limit_s=60)
        self._git(
            target,
            "fetch",
            "--quiet",
            "--depth=1",
            "--no-tags",
            "--no-recurse-submodules",
            "--",
            mirror.as_uri(),
            commit,
            limit_s=self.limits.checkout_s,
        )
        self._git(target, "checkout", "--quiet", "--detach", "--force", commit, "--", limit_s=self.limits.checkout_s)
        found = self._git(target, "rev-parse", "--verify", "HEAD^{commit}", limit_s=60).strip()
        if found != commit:
            raise CheckoutError(f"asked for commit {commit}, but git checked out {found}")

    def _is_sound(self, mirror: Path) -> bool:
        try:
            return self._git(mirror, "rev-parse", "--is-bare-repository", limit_s=60).strip() == "true"
        except CheckoutError:
            return False

    def _has(self, mirror: Path, commit: str) -> bool:
        try:
            self._git(mirror, "cat-file", "-e", f"{commit}^{{commit}}", limit_s=60)
        except CheckoutError:
            return False
        return True

    @contextlib.contextmanager
    def _locked(self, mirror: Path) -> Iterator[None]:
        """One at a time per repository; the workers of a machine share mirrors."""
        give_up_at = time.monotonic() + self.limits.lock_s
        with mirror.with_suffix(".lock").open("w") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > give_up_at:
                        raise CheckoutError(
                            f"another run held the mirror of this repository for {self.limits.lock_s:.0f} s"
                        ) from None
                    if self.give_up.wait(LOCK_POLL_S):
                        raise CheckoutInterrupted from None
            yield

    def _git(self, repository: Path | None, *arguments: str, limit_s: float, way: Way | None = None) -> str:
        """`way` for what goes to the network."""
        way = way or Way()
        where = [] if repository is None else ["-C", str(repository)]
        command = [*way.options(), *where, *arguments]
        return run_git(command, environment=self._environment(way), limit_s=limit_s, give_up=self.give_up)

    def _environment(self, way: Way) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "TIDEMARK_"))}
        return {
            **kept,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "GIT_SSH_COMMAND": way.ssh_command(os.environ.get("GIT_SSH_COMMAND", SSH)),
            "GIT_ALLOW_PROTOCOL": "file:http:https:ssh",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_CONFIG_GLOBAL": str(self._configuration()),
            "LC_ALL": "C",
        }

    def _configuration(self) -> Path:
        """Git's settings for this worker: the account's own, plus what a service needs."""
        path = self.directory / "gitconfig"
        if not path.exists():
            # A repository on this machine may belong to somebody else, and a stalled transfer must not last for ever.
            # Any commit of the mirror may be asked for by its id: that is how checkouts are made.
            text = (
                "[include]\n\tpath = ~/.gitconfig\n[safe]\n\tdirectory = *\n[core]\n\thooksPath = /dev/null\n"
                "[gc]\n\tauto = 0\n[http]\n\tlowSpeedLimit = 1000\n\tlowSpeedTime = 60\n"
                "[submodule]\n\trecurse = false\n[uploadpack]\n\tallowAnySHA1InWant = true\n"
                "[advice]\n\tdetachedHead = false\n"
            )
            fresh = path.with_suffix(f".{os.getpid()}")
            fresh.write_text(text)
            fresh.replace(path)
        return path


def _sizes_in(listing: IO[bytes]) -> Iterator[list[int]]:
    """The sizes that `git ls-tree -l` lists, some at a time: mode, kind, id, size, and behind a tab the name."""
    rest = b""
    while chunk := listing.read(65_536):
        *whole, rest = (rest + chunk).split(b"\0")
        said = (entry.partition(b"\t")[0].split()[3] for entry in whole)
        yield [int(size) if size.isdigit() else 0 for size in said]  # a submodule has none


def refuse_unusable(repository_url: str, commit: str) -> None:
    """Addresses and commits come from requests: no part of them may become an option or another protocol."""
    if not COMMIT.fullmatch(commit):
        raise CheckoutError(f"{commit[:80]!r} is not a commit id: 40 or 64 lower-case hexadecimal digits are accepted")
    usable = repository_url.startswith(_SCHEMES) or (
        "://" not in repository_url and "::" not in repository_url and _SHORT_SSH.fullmatch(repository_url)
    )
    try:
        target_of(repository_url)
    except AddressRefused:
        usable = False
    if not usable:
        raise CheckoutError(
            f"repository address {shown_url(repository_url)!r} is not usable: https://, http://, ssh://, "
            "file:/// and user@host:path are accepted"
        )


def shown_url(repository_url: str) -> str:
    """The address without its password."""
    return re.sub(r"(?<=://)[^/@\s]*@", "…@", repository_url)[:300]


def run_git(arguments: list[str], *, environment: dict[str, str], limit_s: float, give_up: threading.Event) -> str:
    """Git's standard output; raises CheckoutError with git's own message if it fails or takes too long."""
    try:
        process = subprocess.Popen(
            ["git", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError:
        raise CheckoutError("git was not found on this worker's PATH") from None
    step = next(word for word in arguments if word in _STEPS)
    if step == "checkout" and hasattr(resource, "prlimit"):
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    give_up_at = time.monotonic() + limit_s
    try:
        output, complaint = _communicate(process, give_up_at, give_up)
    except BaseException as interruption:
        # git starts programs of its own (ssh, remote-https) that must go with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(interruption, subprocess.TimeoutExpired):
            raise CheckoutError(f"git {step} took longer than {limit_s:.0f} s and was stopped") from None
        raise
    if process.returncode != 0:
        code = process.returncode
        ended = f"killed by {signal_name(code)}" if code < 0 else f"exit code {code}"
        words = shown_url(" ".join(complaint.split()))[-600:] or ended
        raise CheckoutError(f"git {step} failed: {words}")
    return output


def _communicate(process: subprocess.Popen[str], give_up_at: float, give_up: threading.Event) -> tuple[str, str]:
    while True:
        try:
            return process.communicate(timeout=0.2)
        except subprocess.TimeoutExpired:
            if time.monotonic() > give_up_at:
                raise
            if give_up.is_set():
                raise CheckoutInterrupted from None


_STEPS = frozenset({"clone", "init", "fetch", "checkout", "rev-parse", "cat-file"})
