"""The demo without a browser: everything in a directory of its own, the findings held against what was planted."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark.connected.remote import Service
from tidemark.demo import repository
from tidemark.demo.project import SLUG
from tidemark.demo.repository import DemoRepository
from tidemark.machine import ports
from tidemark.machine.datadir import ADMIN_TOKEN
from tidemark.machine.supervisor import Supervisor
from tidemark.refusal import Refusal
from tidemark.settings import Settings, read_settings
from tidemark.up import Up, up

Say = Callable[[str], None]

ASK_EVERY_S = 2.0
WAITING = {"queued", "running", "empty"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRegression:
    """One regression that the service confirmed."""

    commit: str
    cause: str | None
    state: str
    change: float | None
    title: str
    fixed_by: str | None

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> FoundRegression:
        return cls(
            commit=str(item.get("commit") or ""),
            cause=item.get("cause"),
            state=str(item.get("state")),
            change=item.get("change"),
            title=str(item.get("title") or ""),
            fixed_by=(item.get("fixed_by") or {}).get("sha"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOutcome:
    """What was planted, what was found, and how long it took."""

    planted: str
    fix: str
    measured: int
    wanted: int
    confirmed: Sequence[FoundRegression]
    failed: Sequence[str]
    seconds: float
    subjects: Mapping[str, str] = field(repr=False)

    @property
    def hits(self) -> list[FoundRegression]:
        return [found for found in self.confirmed if found.commit == self.planted]

    @property
    def false(self) -> list[FoundRegression]:
        """Everything confirmed that was not planted, and whatever names the planted commit a second time."""
        return [found for found in self.confirmed if found.commit != self.planted] + self.hits[1:]

    @property
    def missed(self) -> list[str]:
        """What should have been seen and was not, as sentences."""
        if not self.hits:
            return [f"{self.planted[:10]} made it slower and was not confirmed"]
        hit = self.hits[0]
        lacking = []
        if hit.cause != "code":
            lacking.append(f"the cause of {self.planted[:10]} is code; it says {hit.cause}")
        if hit.state != "fixed" or hit.fixed_by != self.fix:
            said = f"{hit.state}, by {hit.fixed_by[:10]}" if hit.fixed_by else hit.state
            lacking.append(f"{self.fix[:10]} fixed it; it says {said}")
        return lacking

    @property
    def right(self) -> bool:
        return self.measured == self.wanted and not self.failed and not self.false and not self.missed

    def as_dict(self) -> dict[str, Any]:
        return {
            "right": self.right,
            "planted": self.planted,
            "fix": self.fix,
            "measured": self.measured,
            "wanted": self.wanted,
            "found": [_as_dict(found) for found in self.hits[:1]],
            "missed": self.missed,
            "false": [_as_dict(found) for found in self.false],
            "failed": list(self.failed),
            "seconds": round(self.seconds, 1),
        }

    def report(self) -> str:
        lines = [f"measured {self.measured} of {self.wanted} commits in {self.seconds:.0f} s"]
        lines += [f"failed   {sha[:10]} {self.subjects.get(sha, '')}" for sha in self.failed]
        lines += [f"found    {self._line(found)}" for found in self.hits[:1]]
        lines += [f"missed   {sentence}" for sentence in self.missed]
        lines += [f"false    {self._line(found)}" for found in self.false]
        lines.append(
            "right: exactly the planted regression, its commit, its cause and its fix"
            if self.right
            else "wrong: see above"
        )
        return "\n".join(lines)

    def _line(self, found: FoundRegression) -> str:
        change = "" if found.change is None else f"{found.change:+.0%} "
        fixed = f", by {found.fixed_by[:10]}" if found.fixed_by else ""
        subject = self.subjects.get(found.commit, found.title)
        return f"{found.commit[:10]} {change}cause {found.cause}, {found.state}{fixed}: {subject}"


def run(commits: int, *, keep: Path | None = None, timeout_s: float = 600.0, say: Say = print) -> DemoOutcome:
    """Measures the demo from nothing and ends everything again; the directory is removed unless it is to be kept."""
    place = keep or Path(tempfile.mkdtemp(prefix="tidemark-demo-"))
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="tidemark-demo-expected-") as other:
            expected = repository.build(Path(other) / "tinygpt", commits)
        watcher = _Watcher(expected, began, timeout_s, say)
        settings = _settings_of_our_own(place)
        up(settings, demo_commits=commits, say=lambda line: say(f"  {line}" if line else ""), then=watcher)
        if watcher.outcome is None:
            raise Refusal("interrupted; nothing is known")
        return watcher.outcome
    finally:
        if keep is None:
            shutil.rmtree(place, ignore_errors=True)


def _settings_of_our_own(place: Path) -> Settings:
    return read_settings(data_dir=place, port=ports.private_port(), host="127.0.0.1")


class _Watcher:
    """Waits, while everything is kept alive, until every commit is measured; then asks what was found."""

    def __init__(self, expected: DemoRepository, began: float, timeout_s: float, say: Say) -> None:
        self._expected = expected
        self._began = began
        self._timeout_s = timeout_s
        self._say = say
        self._asked_at = 0.0
        self._told = -1
        self._states: dict[str, str] = {}
        self._busy = 1
        self.outcome: DemoOutcome | None = None

    def __call__(self, running: Up, supervisor: Supervisor) -> None:
        service = Service(url=running.url, token=running.data.read_private(ADMIN_TOKEN))
        supervisor.watch(until=lambda: self._is_over(service))
        supervisor.check_stop()
        confirmed = [
            FoundRegression.of(item)
            for item in service.regressions(500, project=SLUG)["items"]
            if item.get("confirmed_at") is not None
        ]
        states = self._states
        self.outcome = DemoOutcome(
            planted=self._expected.guilty.sha,
            fix=self._expected.fix.sha,
            measured=self._measured,
            wanted=len(self._expected.measured),
            confirmed=confirmed,
            failed=[commit.sha for commit in self._expected.measured if states.get(commit.sha) == "failed"],
            seconds=time.monotonic() - self._began,
            subjects={commit.sha: commit.subject for commit in self._expected.commits},
        )

    @property
    def _measured(self) -> int:
        return sum(self._states.get(commit.sha, "empty") not in WAITING for commit in self._expected.measured)

    def _is_over(self, service: Service) -> bool:
        now = time.monotonic()
        if now - self._began > self._timeout_s:
            self._say(f"gave up after {self._timeout_s:.0f} s")
            return True
        if now - self._asked_at < ASK_EVERY_S:
            return False
        self._asked_at = now
        try:
            board = service.get("/api/v1/board", project=SLUG, limit=100)
        except Refusal:
            return False  # not there yet, or being restarted
        self._read(board)
        if self._measured != self._told:
            self._told = self._measured
            self._say(f"{self._measured} of {len(self._expected.measured)} commits measured, {now - self._began:.0f} s")
        return self._measured == len(self._expected.measured) and self._busy == 0

    def _read(self, board: Mapping[str, Any]) -> None:
        self._states = {
            row["sha"]: next((state for state in row["cells"]["state"] if state in WAITING), row["cells"]["state"][0])
            for row in board["rows"]
            if row["cells"]["state"]
        }
        summary = board.get("summary") or {}
        self._busy = int(summary.get("queued") or 0) + int(summary.get("running") or 0)


def _as_dict(found: FoundRegression) -> dict[str, Any]:
    return {
        "commit": found.commit,
        "cause": found.cause,
        "state": found.state,
        "change": found.change,
        "fixed_by": found.fixed_by,
        "title": found.title,
    }
