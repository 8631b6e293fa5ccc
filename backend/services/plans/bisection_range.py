"""The range of a bisection: whether it can be closed, its commits, and what tells good from bad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping

from backend.regression.confirmation import process_spread
from backend.regression.cost import log_cost
from backend.regression.regression_state import OPEN
from backend.regression.terms import Direction
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import Conflict, ServiceError
from backend.services.plans.bisection_evidence import PlacedCandidate
from backend.services.policy.resolve import policy_book
from backend.services.repository.requests import manifest_at
from backend.store.base import projects
from backend.store.judging import points as series_points
from backend.store.plans import bisections as store


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectionObstacle:
    """Why a regression is not bisected. `measure_next`: if the service's workers cannot measure, the commit with
    which its sender halves the range."""

    reason: str
    suite: str = ""
    measure_next: str | None = None


def bisection_obstacle(c: Connection, regression_id: int) -> BisectionObstacle | None:
    """Why a bisection of this regression would be refused; None: it would not."""
    asked = store.facts(c, regression_id)
    return None if asked is None else _obstacle(asked, _line(c, asked))


def _line(c: Connection, asked: RowMapping) -> Sequence[RowMapping]:
    if asked["branch_id"] is None or asked["last_good_position"] is None:
        return ()
    return store.line(c, asked["branch_id"], asked["last_good_position"], asked["first_bad_position"])


def _obstacle(asked: RowMapping, line: Sequence[RowMapping]) -> BisectionObstacle | None:
    number = asked["id"]
    if asked["state"] not in OPEN or not asked["still_bad"]:
        return BisectionObstacle(reason=f"regression {number} is {asked['state']}: only open regressions are bisected")
    if asked["first_bad_commit_id"] is None or asked["last_good_commit_id"] is None or not line:
        return BisectionObstacle(
            reason=f"regression {number} has no known last good commit, so there is no range to close"
        )
    if len(line) == 1 and len(line[0]["parents"]) < 2:
        only = line[0]["sha"][:12]
        return BisectionObstacle(
            reason=f"the range is closed already: {only} is the only commit after the last good one"
        )
    if not asked["spec"]:
        return BisectionObstacle(
            reason=f"the results of regression {number} were delivered from elsewhere; a bisection needs commits that "
            "the service's own workers can measure",
            suite=asked["suite"] or "",
            measure_next=line[(len(line) - 1) // 2]["sha"],
        )
    if not ((asked["lead_change"] or 0) > 0 and (asked["before"] or 0) > 0):
        return BisectionObstacle(reason=f"regression {number} has no levels before and after to compare commits with")
    return None


def range_of(c: Connection, asked: RowMapping, config: ServiceConfig) -> list[PlacedCandidate]:
    """The commits after the last good one, up to the first bad one; raises Conflict if they cannot be bisected."""
    line = _line(c, asked)
    obstacle = _obstacle(asked, line)
    if obstacle is not None:
        raise Conflict(obstacle.reason)
    matters = _paths_that_matter(c, asked, config)
    return [
        PlacedCandidate(
            sha=row["sha"],
            commit_id=row["commit_id"],
            position=row["position"],
            parents=tuple(row["parents"]),
            untouched=row["changed_paths"] is not None and not matters(row["changed_paths"]),
        )
        for row in line
    ]


def _paths_that_matter(c: Connection, asked: RowMapping, config: ServiceConfig) -> Any:
    """Whether changed paths can have changed what the suite measures, as the first bad commit declares it."""
    project = projects.find(c, asked["project"])
    assert project is not None
    try:
        suites = {suite.name: suite for suite in manifest_at(config, project, asked["first_bad_sha"]).suites}
    except ServiceError:
        suites = {}
    suite = suites.get(asked["suite"])
    return (lambda paths: True) if suite is None else suite.matters


def levels_of(c: Connection, asked: RowMapping) -> tuple[float, float, float]:
    """Good level (logarithm of cost), shift to the bad one, and the spread of one process."""
    direction = Direction(asked["direction"])
    change, before = asked["lead_change"], asked["before"]
    if asked["exact"]:
        return log_cost(before, direction), math.log1p(change), 0.0
    series = asked["lead_series_id"]
    points = series_points.load_points(c, [series], around=asked["first_bad_position"], before=60)[series]
    past = [point.values for point in points if point.position <= asked["last_good_position"]]
    named = {name: asked[name] for name in ("suite", "benchmark", "metric", "testbed")}
    spread = process_spread(past, policy_book(c, asked["project"]).of(**named))
    return log_cost(before, direction), math.log1p(change), max(spread, asked["noise"] or 0.0)
