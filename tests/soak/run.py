"""`make soak`: pushes against four workers while something breaks every few seconds, every third commit is hostile and
strangers flood the service; then every run must have ended
exactly once, with its own result or with a reason, and nothing may be left running.

    python -m tests.soak.run --minutes 10 --seed 1

With `--calm` nothing is broken: pushes, open pages and readers for as long, and at the end how memory, descriptors and
connections went, with their slopes. What grows for sure is wrong.

    python -m tests.soak.run --calm --minutes 30
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import text

from tests.soak import attacks, trends
from tests.soak.faults import Struck, strike
from tests.soak.stack import LEASE_S, SLUG, WORKERS, Repository, Stack, expected_value

# Without these nobody takes a run back: they have a time of their own to return.
ON_THE_WAY_BACK = ("kill_beat", "kill_api", "kill_postgres", "restart_postgres", "kill_machine")

HOSTILE_SHARE = 0.35

Say = Callable[[str], None]


@dataclass
class Figures:
    """What a soak found; `wrong` must be empty."""

    seed: int
    seconds: float
    drained_s: float = 0.0
    commits: int = 0
    skipped: int = 0
    requested: int = 0
    measured: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    attempts_lost: int = 0
    handed_back: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    hostile: dict[str, int] = field(default_factory=dict)
    """Commits by what they tried."""
    refused: int = 0
    """Of them, those whose manifest was refused."""
    flooded: dict[str, int] = field(default_factory=dict)
    """Requests of the floods by status; none: the service was dead."""
    restarts: int = 0
    recovery_median_s: float | None = None
    recovery_longest_s: float | None = None
    set_aside: int = 0
    delivered_without_files: int = 0
    """The disk had no room for them: the result was kept in memory."""
    left_processes: int = 0
    pages_read: int = 0
    trends: list[trends.Trend] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def soak(directory: Path, *, seconds: float, seed: int, drain_s: float, say: Say, calm: bool = False) -> Figures:
    """Pushes, and faults unless `calm`, for so long; then quiet until the queue is empty; then the count."""
    chance = random.Random(seed)
    figures = Figures(seed=seed, seconds=seconds)
    stack = Stack(directory)
    struck: list[Struck] = []
    try:
        stack.start()
        repository = Repository(directory / "repository")
        registered = json.dumps({
            "project": SLUG, "repository_url": repository.path.as_uri(), "trusted": True,
        }).encode()  # fmt: skip
        assert stack.ask("/api/v1/projects", registered) is not None
        guarded, floods = attacks.guard(directory), attacks.Floods(stack.port, SLUG)
        if calm:
            watched = trends.calm_weather(stack, repository, chance, seconds, say)
            figures.pages_read, figures.trends = watched.pages, watched.trends
            figures.wrong += watched.wrong
        else:
            _rough_weather(stack, repository, chance, seconds, struck, Hostility(guarded, floods), say)
        say(f"{len(repository.shas)} commits pushed, {len(struck)} faults; waiting for the queue to empty")
        began = time.monotonic()
        _announce(stack, repository, time.monotonic() + 60)
        if not _drained(stack, repository, time.monotonic() + drain_s, say):
            figures.wrong.append(f"the queue was not empty {drain_s:.0f} s after the last fault")
        figures.drained_s = round(time.monotonic() - began, 1)
        if not calm:
            floods.begin()  # once more where nothing is broken: the others may all have met a dead service
        figures.flooded = floods.said()
        if figures.flooded.get("500"):
            figures.wrong.append(f"{figures.flooded['500']} requests of the floods were answered 500")
        _count(stack, repository, struck, figures)
        figures.wrong += attacks.flaws_of(guarded)
    finally:
        left = stack.close()
    figures.left_processes = len(left)
    figures.wrong += [f"still running: {process}" for process in left]
    figures.restarts = sum(max(0, child.restarts) for child in stack.children.values())
    figures.faults = dict(sorted(Counter(fault.name for fault in struck).items()))
    return figures


@dataclass
class Hostility:
    """What the attacks of a soak have at hand."""

    guarded: Path
    floods: attacks.Floods
    untried: list[str] = field(default_factory=list)

    def next_attack(self, chance: random.Random) -> str:
        """Each once before any comes again."""
        if not self.untried:
            self.untried = [*attacks.CODE, *attacks.MANIFESTS]
            chance.shuffle(self.untried)
        return self.untried.pop()


def _rough_weather(
    stack: Stack,
    repository: Repository,
    chance: random.Random,
    seconds: float,
    struck: list[Struck],
    hostility: Hostility,
    say: Say,
) -> None:
    end_at = time.monotonic() + seconds
    many_at = end_at - seconds * 0.6
    next_push = next_fault = next_word = 0.0
    next_flood = time.monotonic() + chance.uniform(5, 15)
    announced = False
    while time.monotonic() < end_at:
        now = time.monotonic()
        if now >= next_push:
            # Once, a whole branch is merged.
            whole, many_at = now > many_at, float("inf") if now > many_at else many_at
            for _ in range(50 if whole and seconds >= 300 else chance.randint(1, 2)):
                if chance.random() < HOSTILE_SHARE:
                    repository.attack(hostility.next_attack(chance), hostility.guarded)
                else:
                    repository.commit()
            announced = stack.push(repository.shas[-1])
            next_push = now + chance.uniform(4, 14)
        elif not announced:
            announced = stack.push(repository.shas[-1])
        if now >= next_fault:
            done = strike(stack, chance)
            struck += [done] if done is not None else []
            next_fault = now + chance.uniform(2, 8)
        if now >= next_flood:
            hostility.floods.begin()
            next_flood = now + chance.uniform(15, 40)
        if now >= next_word:
            say(f"{end_at - now:4.0f} s to go, {len(repository.shas)} commits, {len(struck)} faults")
            next_word = now + 30
        time.sleep(0.1)


def _announce(stack: Stack, repository: Repository, until: float) -> None:
    while not stack.push(repository.shas[-1]) and time.monotonic() < until:
        time.sleep(0.5)


def _drained(stack: Stack, repository: Repository, until: float, say: Say) -> bool:
    next_word = 0.0
    while time.monotonic() < until:
        seen = _all_seen(stack, repository)  # asked first: a commit that is seen later has runs that are not counted
        answer = stack.ask(f"/api/v1/queue?project={SLUG}")
        if answer is not None:
            counts = answer["counts"]
            total = sum(counts.values())
            still = counts["queued"] + counts["leased"] + counts["running"]
            if not still and not _waiting_in_spools(stack) and seen:
                return True
            if time.monotonic() > next_word:
                say(f"{still} of {total} runs still to end")
                next_word = time.monotonic() + 15
        time.sleep(0.5)
    return False


def _all_seen(stack: Stack, repository: Repository) -> bool:
    """Whether every commit is known, with its runs requested or the reason why it has none."""
    with stack.engine().connect() as c:
        seen = c.scalar(
            text("""SELECT count(*) FROM commit WHERE skipped_reason IS NOT NULL OR manifest_error IS NOT NULL
                     OR id IN (SELECT commit_id FROM run)""")
        )
    return seen == len(repository.shas)


def _spools(stack: Stack) -> list[Path]:
    return [stack.directory / "workers" / name / "spool" for name in WORKERS]


def _waiting_in_spools(stack: Stack) -> int:
    return sum(1 for spool in _spools(stack) if spool.is_dir() for entry in spool.iterdir() if entry.name != "aside")


_RUNS = text(
    """SELECT r.id, r.suite, r.state, r.status, r.error, r.attempts, k.sha,
         (SELECT array_agg(m.value) FROM measurement m WHERE m.run_id = r.id) AS values,
         (SELECT count(*) FROM artifact a WHERE a.run_id = r.id) AS files,
         (SELECT count(*) FROM judgement j WHERE j.run_id = r.id AND j.superseded_at IS NULL) AS judgements
       FROM run r JOIN commit k ON k.id = r.commit_id WHERE r.session_id IS NULL ORDER BY r.requested_at, r.id"""
)


def _count(stack: Stack, repository: Repository, struck: list[Struck], figures: Figures) -> None:
    """Compares what was asked for with what there is."""
    with stack.engine().connect() as c:
        rows = c.execute(_RUNS).all()
        skipped = set(c.scalars(text("SELECT sha FROM commit WHERE skipped_reason IS NOT NULL")))
        refused = set(c.scalars(text("SELECT sha FROM commit WHERE manifest_error IS NOT NULL")))
    by_manifest = {sha for sha, name in repository.hostile.items() if name in attacks.MANIFESTS}
    if refused - by_manifest or by_manifest - refused - skipped:
        figures.wrong.append(f"manifests were refused of {refused}, and should have been of {by_manifest}")
    skipped |= refused
    figures.skipped, figures.refused = len(skipped), len(refused)
    figures.hostile = dict(sorted(Counter(repository.hostile.values()).items()))
    figures.commits, figures.requested = len(repository.shas), len(rows)
    figures.set_aside = sum(len(list((spool / "aside").glob("*"))) for spool in _spools(stack))
    seen = Counter((row.sha, row.suite) for row in rows)
    for sha in (sha for sha in repository.shas if sha not in skipped):
        for suite in ("alpha", "beta"):
            if seen[sha, suite] != 1:
                figures.wrong.append(f"{suite} of {sha[:8]} was requested {seen[sha, suite]} times")
    for row in rows:
        figures.wrong += _flaws(row)
    figures.measured = sum(row.state == "done" and row.status == "ok" for row in rows)
    figures.delivered_without_files = sum(row.state == "done" and row.status == "ok" and not row.files for row in rows)
    reasons = Counter(_kind_of(row.error) for row in rows if row.status != "ok")
    figures.failed = dict(sorted(reasons.items()))
    lost = [attempt for row in rows for attempt in row.attempts]
    figures.attempts_lost = sum(bool(attempt.get("lost")) for attempt in lost)
    figures.handed_back = len(lost) - figures.attempts_lost
    recoveries = _recoveries(lost, struck)
    if recoveries:
        figures.recovery_median_s, figures.recovery_longest_s = round(median(recoveries), 1), round(max(recoveries), 1)


def _flaws(row: Any) -> list[str]:
    """What is wrong with one run."""
    name = f"{row.suite} of {row.sha[:8]} ({row.state}, {row.status})"
    if row.state not in ("done", "failed"):
        return [f"{name} has not ended"]
    if row.status != "ok":
        flaws = [] if row.error else [f"{name} has no reason"]
        return flaws + ([f"{name} has values: {row.values}"] if row.status == "failed" and row.values else [])
    flaws = []
    if row.values != [expected_value(row.sha, row.suite)]:
        flaws.append(f"{name} has {row.values} instead of {expected_value(row.sha, row.suite)}")
    if row.judgements != 1:
        flaws.append(f"{name} has {row.judgements} judgements")
    return flaws


def _kind_of(error: str | None) -> str:
    """The reason without its numbers and names."""
    for kind in ("given up after", "was killed by SIGKILL", "was killed because memory ran out", "was lost"):
        if error and kind in error:
            return kind
    return (error or "no reason")[:60]


def _recoveries(lost: list[dict[str, Any]], struck: list[Struck]) -> list[float]:
    """Seconds from the kill of a worker to the moment its run was back in the queue, where nothing else was broken
    meanwhile that the way back leads over."""
    found = []
    for attempt in lost:
        ended = datetime.fromisoformat(attempt["ended_at"]).timestamp()
        before = [fault for fault in struck if fault.at <= ended]
        own = [fault for fault in before if fault.victim in (attempt["worker"], "everything")]
        if not attempt.get("lost") or not own or own[-1].name != "kill_worker":
            continue
        since = own[-1].at
        if not any(fault.at >= since - LEASE_S and fault.name in ON_THE_WAY_BACK for fault in before):
            found.append(ended - since)
    return found


def report(figures: Figures) -> str:
    lines = [f"{name.replace('_', ' ')}: {value}" for name, value in asdict(figures).items()
             if name not in ("wrong", "trends")]  # fmt: skip
    if figures.trends:
        lines += ["", f"{'after warming up':<24} {'first':>8} {'last':>8} {'most':>8}    {'slope':>10}"]
        lines += [each.line() for each in figures.trends]
    return "\n".join([*lines, *(f"WRONG: {flaw}" for flaw in figures.wrong[:20]), "" if figures.wrong else "all right"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10_000)
    parser.add_argument("--drain-minutes", type=float, default=10.0)
    parser.add_argument("--calm", action="store_true", help="break nothing, and watch memory and connections")
    parser.add_argument("--keep", type=Path, help="keep everything here, logs included")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    told = parser.parse_args()
    directory = told.keep or Path(tempfile.mkdtemp(prefix="tidemark-soak-"))
    directory.mkdir(exist_ok=True)
    directory.chmod(0o711)
    try:
        figures = soak(
            directory, seconds=told.minutes * 60, seed=told.seed, drain_s=told.drain_minutes * 60, calm=told.calm,
            say=lambda line: print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True),
        )  # fmt: skip
        print(report(figures))
        if told.json is not None:
            told.json.write_text(json.dumps(asdict(figures)))
        return 1 if figures.wrong else 0
    finally:
        if told.keep is None:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
