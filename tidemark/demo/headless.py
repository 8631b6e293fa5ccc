"""The demo without a browser: everything in a separate directory, the findings compared with what was planted."""

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
from tidemark.demo.repository import DemoRepository, Planted
from tidemark.machine import ports
from tidemark.machine.datadir import ADMIN_TOKEN
from tidemark.machine.supervisor import Supervisor
from tidemark.refusal import Refusal
from tidemark.settings import Settings, read_settings
from tidemark.up import Up, up

Say = Callable[[str], None]

ASK_EVERY_S = 2.0
WAITING = {"queued", "running", "empty"}
OPEN = {"confirmed", "acknowledged"}


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
    """Result of the demo: what was planted, what was found, and how long it took. `runs` are commit and suite."""

    planted: Sequence[Planted]
    wanted: frozenset[tuple[str, str]]
    measured: frozenset[tuple[str, str]]
    failed: frozenset[tuple[str, str]]
    confirmed: Sequence[FoundRegression]
    seconds: float
    subjects: Mapping[str, str] = field(repr=False)

    @property
    def hits(self) -> list[FoundRegression]:
        """The first finding of each planted commit."""
        found = (next((one for one in self.confirmed if one.commit == planted.sha), None) for planted in self.planted)
        return [one for one in found if one is not None]

    @property
    def false(self) -> list[FoundRegression]:
        """Everything confirmed that was not planted, and whatever names a planted commit a second time."""
        hits = self.hits
        return [one for one in self.confirmed if not any(one is hit for hit in hits)]

    @property
    def missed(self) -> list[str]:
        """Planted changes that were not found, as sentences."""
        by_commit = {hit.commit: hit for hit in self.hits}
        return [sentence for planted in self.planted for sentence in _lacking(planted, by_commit.get(planted.sha))]

    @property
    def right(self) -> bool:
        return self.measured == self.wanted and not (self.failed or self.false or self.missed)

    def as_dict(self) -> dict[str, Any]:
        return {
            "right": self.right,
            "planted": [{"suite": one.suite, "commit": one.sha, "fixed_by": one.fixed_by} for one in self.planted],
            "measured": len(self.measured),
            "wanted": len(self.wanted),
            "found": [_as_dict(found) for found in self.hits],
            "missed": self.missed,
            "false": [_as_dict(found) for found in self.false],
            "failed": [f"{suite} at {sha}" for sha, suite in sorted(self.failed)],
            "seconds": round(self.seconds, 1),
        }

    def report(self) -> str:
        lines = [f"measured {len(self.measured)} of {len(self.wanted)} runs in {self.seconds:.0f} s"]
        lines += [
            f"planted  {one.sha[:10]} makes {one.suite} slower: {self.subjects.get(one.sha, '')}"
            for one in self.planted
        ]
        lines += [f"failed   {suite} at {sha[:10]} {self.subjects.get(sha, '')}" for sha, suite in sorted(self.failed)]
        lines += [f"found    {self._line(found)}" for found in self.hits]
        lines += [f"missed   {sentence}" for sentence in self.missed]
        lines += [f"false    {self._line(found)}" for found in self.false]
        lines.append(
            "right: exactly the planted regressions, their commits, their cause and what fixed them"
            if self.right
            else "wrong: see above"
        )
        return "\n".join(lines)

    def _line(self, found: FoundRegression) -> str:
        change = "" if found.change is None else f"{found.change:+.0%} "
        fixed = f", by {found.fixed_by[:10]}" if found.fixed_by else ""
        subject = self.subjects.get(found.commit, found.title)
        return f"{found.commit[:10]} {change}cause {found.cause}, {found.state}{fixed}: {subject}"


def _lacking(planted: Planted, hit: FoundRegression | None) -> list[str]:
    if hit is None:
        return [f"{planted.sha[:10]} made {planted.suite} slower and was not confirmed"]
    lacking = []
    if hit.cause != "code":
        lacking.append(f"the cause of {planted.sha[:10]} is code; it says {hit.cause}")
    said = f"{hit.state}, by {hit.fixed_by[:10]}" if hit.fixed_by else hit.state
    if planted.fixed_by is None:
        if hit.state not in OPEN:
            lacking.append(f"nothing fixed {planted.sha[:10]}; it says {said}")
    elif hit.state != "fixed" or hit.fixed_by != planted.fixed_by:
        lacking.append(f"{planted.fixed_by[:10]} fixed it; it says {said}")
    return lacking


def run(*, keep: Path | None = None, timeout_s: float = 1200.0, say: Say = print) -> DemoOutcome:
    """Measures the demo from nothing and ends everything again; the directory is removed unless it is to be kept."""
    place = keep or Path(tempfile.mkdtemp(prefix="tidemark-demo-"))
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="tidemark-demo-expected-") as other:
            expected = repository.build(Path(other) / "tinygpt")
        watcher = _Watcher(expected, began, timeout_s, say)
        settings = _settings_of_our_own(place)
        up(settings, demo=True, say=lambda line: say(f"  {line}" if line else ""), then=watcher)
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
        self._measured: frozenset[tuple[str, str]] = frozenset()
        self._failed: frozenset[tuple[str, str]] = frozenset()
        self._busy = 1
        self.outcome: DemoOutcome | None = None

    def __call__(self, running: Up, supervisor: Supervisor) -> None:
        service = Service(url=running.url, token=running.data.read_private(ADMIN_TOKEN))
        supervisor.watch(until=lambda: self._is_over(service))
        supervisor.check_stop()
        self.outcome = DemoOutcome(
            planted=self._expected.planted,
            wanted=self._expected.runs,
            measured=self._measured,
            failed=self._failed,
            confirmed=[
                FoundRegression.of(item)
                for item in service.regressions(500, project=SLUG)["items"]
                if item.get("confirmed_at") is not None
            ],
            seconds=time.monotonic() - self._began,
            subjects={commit.sha: commit.subject for commit in self._expected.commits},
        )

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
        self._measured, self._failed = read_board(board)
        summary = board.get("summary") or {}
        self._busy = int(summary.get("queued") or 0) + int(summary.get("running") or 0)
        if len(self._measured) != self._told:
            self._told = len(self._measured)
            self._say(f"{self._told} of {len(self._expected.runs)} runs measured, {now - self._began:.0f} s")
        return self._measured >= self._expected.runs and self._busy == 0


def read_board(board: Mapping[str, Any]) -> tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]]:
    """Commit and suite of what is measured, and of what failed, as the board's JSON tells it."""
    suites = [column["suite"] for column in board["columns"]]
    states = {
        (row["sha"], suites[column], state)
        for row in board["rows"]
        for column, state in zip(row["cells"]["column"], row["cells"]["state"], strict=True)
        if state not in WAITING
    }
    failed = frozenset((sha, suite) for sha, suite, state in states if state == "failed")
    return frozenset((sha, suite) for sha, suite, _ in states), failed


def _as_dict(found: FoundRegression) -> dict[str, Any]:
    return {
        "commit": found.commit,
        "cause": found.cause,
        "state": found.state,
        "change": found.change,
        "fixed_by": found.fixed_by,
        "title": found.title,
    }
