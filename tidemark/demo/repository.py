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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from importlib import resources
from pathlib import Path

from tidemark.refusal import Refusal

BRANCH = "main"
MOST_COMMITS = 20
LEAST_COMMITS = 12


class StoryPart(StrEnum):
    """What a commit is for in the story."""

    CLIMB = "climb"  # makes training faster
    PLATEAU = "plateau"  # changes nothing that costs time: the baseline
    DOCUMENTATION = "documentation"  # touches nothing that is measured
    GUILTY = "guilty"  # looks innocent, makes attention leave its fast path
    ON_TOP = "on_top"  # harmless again, on the slow level
    FIX = "fix"
    AFTER = "after"


STORY: Mapping[StoryPart, tuple[int, ...]] = {
    StoryPart.CLIMB: (1, 2, 3, 4, 5, 6),
    StoryPart.PLATEAU: (7, 8, 9, 10, 12, 13, 14),
    StoryPart.DOCUMENTATION: (11,),
    StoryPart.GUILTY: (15,),
    StoryPart.ON_TOP: (16, 17, 18),
    StoryPart.FIX: (19,),
    StoryPart.AFTER: (20, 21),
}
# The least that still tells the story: five commits on the fast level before the guilty one, and three runs on each
# level after it. More commits go to the plateau first, then on top, then into the climb.
SHORTEST: Mapping[StoryPart, int] = {StoryPart.CLIMB: 2, StoryPart.PLATEAU: 4, StoryPart.ON_TOP: 2}
GROWS_FIRST = (StoryPart.PLATEAU, StoryPart.ON_TOP, StoryPart.CLIMB)


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
    """A commit that was made, and its part in the story."""

    sha: str
    part: StoryPart
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRepository:
    """The repository and what is planted in it."""

    path: Path
    commits: tuple[DemoCommit, ...]

    def of(self, part: StoryPart) -> tuple[DemoCommit, ...]:
        return tuple(commit for commit in self.commits if commit.part is part)

    @property
    def guilty(self) -> DemoCommit:
        return self.of(StoryPart.GUILTY)[0]

    @property
    def fix(self) -> DemoCommit:
        return self.of(StoryPart.FIX)[0]

    @property
    def measured(self) -> tuple[DemoCommit, ...]:
        return tuple(commit for commit in self.commits if commit.part is not StoryPart.DOCUMENTATION)


def plan(measured: int = MOST_COMMITS) -> list[tuple[StoryPart, tuple[int, ...]]]:
    """The commits of a demo with this many measured ones: the part of each, and the patches it is made of.

    A shorter demo joins neighbours, so that the code at every later commit is the same as in the longest one.
    """
    if not LEAST_COMMITS <= measured <= MOST_COMMITS:
        raise Refusal(
            f"a demo of {measured} commits cannot be made; between {LEAST_COMMITS} (five for a baseline, three on each "
            f"level) and {MOST_COMMITS} are possible"
        )
    counts = {part: SHORTEST.get(part, len(patches)) for part, patches in STORY.items()}
    spare = measured - LEAST_COMMITS
    for part in GROWS_FIRST:
        more = min(spare, len(STORY[part]) - counts[part])
        counts[part] += more
        spare -= more
    commits = [
        (part, group)
        for part, patches in STORY.items()
        for group in (_climb_in if part is StoryPart.CLIMB else _even)(patches, counts[part])
    ]
    return sorted(commits, key=lambda commit: commit[1][-1])


def read_patches() -> dict[int, Patch]:
    """The history by number."""
    folder = resources.files("tidemark.demo") / "history"
    return {
        patch.number: patch
        for entry in folder.iterdir()
        if entry.name.endswith(".patch")
        for patch in [_parse(int(entry.name[:4]), entry.read_text(encoding="utf-8"))]
    }


def build(path: Path, measured: int = MOST_COMMITS) -> DemoRepository:
    """Makes the repository; it appears at its place whole, or not at all."""
    patches = read_patches()
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        _git(draft, "init", "--quiet", "--template=", f"--initial-branch={BRANCH}")
        commits = tuple(_commit(draft, part, [patches[number] for number in group]) for part, group in plan(measured))
        shutil.rmtree(path, ignore_errors=True)
        draft.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return DemoRepository(path=path, commits=commits)


def _commit(repository: Path, part: StoryPart, patches: Sequence[Patch]) -> DemoCommit:
    for patch in patches:
        _git(repository, "apply", "--index", "--whitespace=nowarn", "-", stdin=patch.text)
    last = patches[-1]
    message = last.message
    if len(patches) > 1:
        message = f"{last.message}\nAlso:\n" + "".join(f"- {patch.subject}\n" for patch in patches[:-1])
    _git(
        repository,
        *("commit", "--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim", "--file=-"),
        stdin=message,
        environment={
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", last.author), ("EMAIL", last.address), ("DATE", last.date))
        },
    )
    sha = _git(repository, "rev-parse", "HEAD").strip()
    return DemoCommit(sha=sha, part=part, subject=last.subject)


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


def _even(patches: tuple[int, ...], groups: int) -> list[tuple[int, ...]]:
    """Neighbours joined into so many groups, the earlier ones the longer."""
    size, rest = divmod(len(patches), groups)
    found, begin = [], 0
    for index in range(groups):
        end = begin + size + (index < rest)
        found.append(patches[begin:end])
        begin = end
    return found


def _climb_in(patches: tuple[int, ...], steps: int) -> list[tuple[int, ...]]:
    """The first patch alone (the code from scratch), the rest in even groups."""
    return [patches[:1], *_even(patches[1:], steps - 1)]


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
