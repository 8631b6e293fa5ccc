"""A model of a fleet's day: projects, commits, suites, how long they take, and what breaks. Seeded; no clock."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, text

from backend.services.queue import dispatch
from backend.services.queue.dispatch import Protection, WorkerHello
from backend.services.queue.request import WantedRun
from backend.services.queue.scheduling import Kind
from tidemark import __version__

MORNING = datetime(2026, 11, 20, 0, 0, tzinfo=UTC)
SUITES = (("moe", 300.0), ("gpt", 480.0), ("attention", 150.0), ("comm", 240.0))
CRASHES, FAILS, SUSPECTS = 0.004, 0.03, 0.02


@dataclass(frozen=True, slots=True)
class Size:
    """How large a world is. `load`: worker time asked for in a day, as a share of what there is."""

    workers: int = 100
    testbeds: int = 6
    projects: int = 50
    hours: float = 24.0
    load: float = 0.85


@dataclass(frozen=True, slots=True)
class Project:
    id: int
    weight: float
    testbeds: tuple[str, ...]


@dataclass
class World:
    """What was made in the database, and the dice."""

    size: Size
    dice: random.Random
    projects: list[Project] = field(default_factory=list)
    workers: list[WorkerHello] = field(default_factory=list)
    commits: dict[int, int] = field(default_factory=dict)
    """How many each project has."""

    def make(self, c: Connection) -> None:
        testbeds = [f"testbed-{number}" for number in range(self.size.testbeds)]
        for number in range(self.size.workers):
            # Some kinds of machine are rarer than others.
            testbed = testbeds[min(int(self.dice.random() ** 1.5 * len(testbeds)), len(testbeds) - 1)]
            testbed = testbeds[number] if number < len(testbeds) else testbed
            hello = WorkerHello(
                worker=f"worker-{number:03}", testbed=testbed, version=__version__, capabilities={},
                protection=Protection.USER,
            )  # fmt: skip
            self.workers.append(hello)
            dispatch.say_hello(c, hello, MORNING)
        for number in range(self.size.projects):
            project_id = c.scalar(
                text("INSERT INTO project (slug, trusted) VALUES (:slug, :trusted) RETURNING id"),
                {"slug": f"team/project-{number:02}", "trusted": number % 5 != 0},
            )
            c.execute(text("INSERT INTO branch (project_id, name) VALUES (:p, 'main')"), {"p": project_id})
            chosen = self._testbeds_of_a_project()
            # One project pushes ten times what the others do.
            weight = 10.0 if number == 0 else self.dice.lognormvariate(0.0, 0.7)
            self.projects.append(Project(int(project_id or 0), weight, chosen))

    def _testbeds_of_a_project(self) -> tuple[str, ...]:
        """One or two: people measure on what there is most of."""
        there = [hello.testbed for hello in self.workers]
        found = [self.dice.choice(there)]
        others = [testbed for testbed in there if testbed != found[0]]
        if others and self.dice.random() < 1 / 3:
            found.append(self.dice.choice(others))
        return tuple(found)

    def commit(self, c: Connection, project: Project, *, on_main: bool) -> int:
        number = self.commits[project.id] = self.commits.get(project.id, 0) + 1
        commit_id = c.scalar(
            text("INSERT INTO commit (project_id, sha) VALUES (:p, :s) RETURNING id"),
            {"p": project.id, "s": f"{project.id:08x}{number:032x}"},
        )
        if on_main:
            c.execute(
                text(
                    """INSERT INTO branch_commit (branch_id, project_id, position, commit_id)
                       SELECT id, project_id, :n, :c FROM branch WHERE project_id = :p AND name = 'main'"""
                ),
                {"n": number, "c": commit_id, "p": project.id},
            )
        return int(commit_id or 0)

    def duration_s(self, suite: str) -> float:
        usual = dict(SUITES)[suite]
        return usual * self.dice.lognormvariate(0.0, 0.35)

    def arrivals(self) -> list[tuple[datetime, Project, Kind, int]]:
        """(when, project, kind, commits): pushes by day, schedules at two in the morning, backfills now and then."""
        seconds = self.size.hours * 3600
        a_commit_s = sum(usual for _, usual in SUITES) * 1.35  # over one or two testbeds
        commits = self.size.workers * seconds * self.size.load / a_commit_s
        total = sum(project.weight for project in self.projects)
        found: list[tuple[datetime, Project, Kind, int]] = []
        for project in self.projects:
            expected = commits * project.weight / total
            for kind, share, together in ((Kind.MAIN, 0.45, 1.6), (Kind.PULL_REQUEST, 0.35, 1.0)):
                for _ in range(_poisson(self.dice, expected * share / together)):
                    many = 1 + int(self.dice.expovariate(1 / (together - 0.99)))
                    found.append((self._moment(seconds), project, kind, many))
            found.append((MORNING + timedelta(hours=min(2.0, self.size.hours / 4)), project, Kind.SCHEDULED, 1))
            backfills = expected * 0.15 / 10
            for _ in range(_poisson(self.dice, backfills)):
                found.append((self._moment(seconds), project, Kind.BACKFILL, 10))
        return sorted(found, key=lambda each: each[0])

    def _moment(self, seconds: float) -> datetime:
        """Most people work in the middle of the day."""
        while True:
            share = self.dice.random()
            if self.dice.random() < 0.15 + 0.85 * math.sin(math.pi * share) ** 2:
                return MORNING + timedelta(seconds=share * seconds)

    def wanted(self, project: Project, commits: list[int]) -> list[WantedRun]:
        return [
            WantedRun(commit_id=commit, suite=suite, testbed=testbed, spec={})
            for commit in commits
            for testbed in project.testbeds
            for suite, _ in SUITES
        ]


def _poisson(dice: random.Random, mean: float) -> int:
    if mean > 50:
        return max(0, round(dice.gauss(mean, math.sqrt(mean))))
    limit, product, count = math.exp(-mean), dice.random(), 0
    while product > limit:
        product *= dice.random()
        count += 1
    return count


class Agenda:
    """What happens when, in virtual time."""

    def __init__(self) -> None:
        self._events: list[tuple[datetime, int, tuple[object, ...]]] = []
        self._count = 0

    def add(self, at: datetime, *what: object) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, what))

    def take(self) -> tuple[datetime, tuple[object, ...]]:
        at, _, what = heapq.heappop(self._events)
        return at, what

    def next_at(self) -> datetime | None:
        return self._events[0][0] if self._events else None

    def __bool__(self) -> bool:
        return bool(self._events)
