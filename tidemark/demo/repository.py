"""Makes the demo's git repository from the patches in `history/`, the same to the last byte every time.

Each patch is one commit as its author wrote it. What Tidemark should find in them is said here and nowhere else, so
that `tidemark demo --headless` can hold its findings against it.
"""

from __future__ import annotations

import email
import email.policy
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib import resources
from pathlib import Path

from backend.services.repository import manifest
from tidemark.refusal import Refusal

BRANCH = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """A patch that makes a suite slower and does not say so, by number; `fixed_by` takes it back, where one does."""

    suite: str
    patch: int
    fixed_by: int | None = None


SLOWDOWNS = (
    Slowdown(suite="gpt", patch=14, fixed_by=21),  # attention leaves its fast path
    Slowdown(suite="moe", patch=19),  # outputs of experts summed by a product with zeros and ones
)
SPEEDUP = 17  # attention skips blocks that the mask hides
DOCUMENTATION = 10  # touches nothing that is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One commit as it was written."""

    number: int
    author: str
    address: str
    date: str  # ISO 8601
    subject: str
    body: str
    text: str

    @property
    def message(self) -> str:
        return f"{self.subject}\n\n{self.body}".strip() + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCommit:
    """A commit that was made, and the suites whose files it touches."""

    sha: str
    subject: str
    suites: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A planted change: the commit that made a suite slower, and the one that ended it, where one did."""

    suite: str
    sha: str
    fixed_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRepository:
    """The repository and what is planted in it; the commits are those of the patches, in order."""

    path: Path
    commits: tuple[DemoCommit, ...]

    @property
    def planted(self) -> tuple[Planted, ...]:
        return tuple(
            Planted(
                suite=slowdown.suite,
                sha=self.of(slowdown.patch).sha,
                fixed_by=self.of(slowdown.fixed_by).sha if slowdown.fixed_by else None,
            )
            for slowdown in SLOWDOWNS
        )

    @property
    def runs(self) -> frozenset[tuple[str, str]]:
        """The commits and suites that are to be measured."""
        return frozenset((commit.sha, suite) for commit in self.commits for suite in commit.suites)

    def of(self, patch: int) -> DemoCommit:
        return self.commits[patch - 1]


def read_patches() -> list[Patch]:
    """The history, oldest first."""
    folder = resources.files("tidemark.demo") / "history"
    found = [
        _parse(int(entry.name[:4]), entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".patch")
    ]
    return sorted(found, key=lambda patch: patch.number)


def build(path: Path) -> DemoRepository:
    """Makes the repository; it appears at its place whole, or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        _git(draft, "init", "--quiet", "--template=", f"--initial-branch={BRANCH}")
        commits = tuple(_commit(draft, patch) for patch in read_patches())
        shutil.rmtree(path, ignore_errors=True)
        draft.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return DemoRepository(path=path, commits=commits)


def _commit(repository: Path, patch: Patch) -> DemoCommit:
    _git(repository, "apply", "--index", "--whitespace=nowarn", "-", stdin=patch.text)
    changed = _git(repository, "diff", "--cached", "--name-only").split()
    _git(
        repository,
        *("commit", "--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim", "--file=-"),
        stdin=patch.message,
        environment={
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", patch.author), ("EMAIL", patch.address), ("DATE", patch.date))
        },
    )
    suites = manifest.parse((repository / manifest.FILE_NAME).read_text(encoding="utf-8")).suites
    return DemoCommit(
        sha=_git(repository, "rev-parse", "HEAD").strip(),
        subject=patch.subject,
        suites=frozenset(suite.name for suite in suites if suite.matters(changed)),
    )


def _parse(number: int, text: str) -> Patch:
    _, _, mail = text.partition("\n")  # the first line is git's own mark of a mail
    head, separator, changes = mail.partition("\ndiff --git ")
    message = email.message_from_string(head + "\n", policy=email.policy.default)
    sender = message["From"].addresses[0]
    return Patch(
        number=number,
        author=sender.display_name,
        address=sender.addr_spec,
        date=parsedate_to_datetime(message["Date"]).isoformat(),
        subject=str(message["Subject"]),
        body=message.get_content().strip(),
        text=f"{separator.lstrip()}{changes}",
    )


def _git(
    repository: Path, *arguments: str, stdin: str | None = None, environment: Mapping[str, str] | None = None
) -> str:
    # Nobody's own settings: the same bytes, so the same hashes, on every machine.
    clean = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(repository),
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null", *arguments],
        cwd=repository,
        env={**clean, **(environment or {})},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Refusal(f"git {arguments[0]} failed in {repository}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout
