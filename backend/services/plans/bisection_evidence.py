"""Evidence of a bisection: its candidates and their measurements, as input of `status_after`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sqlalchemy import Connection, RowMapping

from backend.regression.bisection import BisectionStatus, Candidate, Observation, processes_a_step, status_after
from backend.regression.cost import log_cost
from backend.regression.terms import Direction
from backend.store.judging import points as series_points
from backend.store.judging.points import StoredPoint
from backend.store.plans import bisections as store

RUN_IN_COMMON = 0.5
"""However many processes a run has, its error is at least this share of one process's."""
MOST_TRIES = 2
"""Of one commit: what lies between good and bad twice will lie there the third time as well."""


Arms = tuple[Sequence[float], Sequence[float]]
"""The processes of base and head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCandidate:
    """A candidate with its place in the store."""

    sha: str
    commit_id: int
    position: int | None
    parents: tuple[str, ...]
    untouched: bool

    def as_json(self, probability: float) -> dict[str, Any]:
        return {
            "sha": self.sha,
            "commit_id": self.commit_id,
            "position": self.position,
            "parents": list(self.parents),
            "untouched": self.untouched,
            "probability": round(probability, 6),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> PlacedCandidate:
        return cls(
            sha=stored["sha"],
            commit_id=stored["commit_id"],
            position=stored["position"],
            parents=tuple(stored["parents"]),
            untouched=stored["untouched"],
        )


Steps = Mapping[str, Sequence[RowMapping]]
"""The steps of bisections, by their ids."""


def status_of(c: Connection, row: RowMapping) -> tuple[list[PlacedCandidate], BisectionStatus]:
    """The status of a bisection."""
    return places_of(row), standings_of(c, [row], store.steps_of_all(c, [row["id"]]))[row["id"]]


def standings_of(c: Connection, rows: Sequence[RowMapping], steps: Steps) -> dict[str, BisectionStatus]:
    """The status of each of these bisections; measurements are read for all of them at once."""
    points = _points_of(c, [row for row in rows if row["side_of"] is None])
    asked = [
        (step["session_id"], row["series_id"])
        for row in rows
        if row["side_of"] is not None
        for step in steps[row["id"]]
        if step["session_id"]
    ]
    arms = store.arms_of_all(c, asked) if asked else {}
    return {row["id"]: _status(row, steps[row["id"]], points.get(row["series_id"], ()), arms) for row in rows}


def places_of(row: RowMapping) -> list[PlacedCandidate]:
    """The candidates of a bisection."""
    return [PlacedCandidate.from_json(stored) for stored in row["candidates"]]


def _status(
    row: RowMapping, taken: Sequence[RowMapping], points: Sequence[StoredPoint], arms: Mapping[tuple[str, int], Arms]
) -> BisectionStatus:
    places = places_of(row)
    index_of = {place.sha: index for index, place in enumerate(places)}
    steps = [step for step in taken if step["sha"] in index_of]
    if row["side_of"] is None:
        seen = _seen_on_trunk(row, places, points)
    else:
        seen = _seen_on_side(row, steps, index_of, arms)
    tries = Counter(step["sha"] for step in steps if step["state"] in ("good", "bad"))
    spent = [sha for sha, times in tries.items() if times >= MOST_TRIES]
    unusable = [index_of[sha] for sha in (*spent, *(step["sha"] for step in steps if step["state"] == "skipped"))]
    error = row["spread"] * max(RUN_IN_COMMON, 1 / math.sqrt(processes_a_step(row["shift"], row["spread"])))
    candidates = [Candidate(place.sha, place.untouched) for place in places]
    return status_after(candidates, seen, row["shift"], error, unusable)


def _points_of(c: Connection, rows: Sequence[RowMapping]) -> dict[int, list[StoredPoint]]:
    """Judged points of each bisection's series, over its candidates."""
    stretches: dict[int, tuple[int, int]] = {}
    for row in rows:
        positions = [place.position for place in places_of(row)[:-1] if place.position is not None]
        first, last = stretches.get(row["series_id"], (series_points.NO_LIMIT, -1))
        if positions:
            stretches[row["series_id"]] = min(first, *positions), max(last, *positions)
    return series_points.load_stretches(c, stretches, before=0) if stretches else {}


def _seen_on_trunk(
    row: RowMapping, places: Sequence[PlacedCandidate], points: Sequence[StoredPoint]
) -> list[Observation]:
    """Everything that stands in the series within the range, whoever asked for it; the first bad commit is known."""
    index_of = {place.position: index for index, place in enumerate(places[:-1])}
    return [
        observed(row, index_of[point.position], point.values)
        for point in points
        if point.position in index_of and min(point.values) > 0
    ]


def _seen_on_side(
    row: RowMapping,
    steps: Sequence[RowMapping],
    index_of: Mapping[str, int],
    measured: Mapping[tuple[str, int], Arms],
) -> list[Observation]:
    seen = []
    for step in steps:
        arms = measured.get((step["session_id"], row["series_id"]))
        if step["state"] in ("good", "bad") and arms is not None:
            seen.append(compared(row, index_of[step["sha"]], *arms))
    return seen


def confidence_of(row: RowMapping, standing: BisectionStatus) -> float:
    """On a merged side, the merge itself was named before with some confidence."""
    before = float(row["confidence"]) if row["side_of"] is not None and row["confidence"] else 1.0
    return standing.confidence if row["side_of"] is None else min(before, standing.confidence)


def observed(row: RowMapping, index: int, values: Sequence[float]) -> Observation:
    direction = Direction(row["direction"])
    shift = fmean(log_cost(value, direction) for value in values) - row["good_level"]
    # Processes of one run have their moment in common: more of them do not make it as much surer as one would think.
    return Observation(index, shift, row["spread"] * max(RUN_IN_COMMON, 1 / math.sqrt(len(values))))


def compared(row: RowMapping, index: int, base: Sequence[float], head: Sequence[float]) -> Observation:
    direction = Direction(row["direction"])
    shift = fmean(log_cost(v, direction) for v in head) - fmean(log_cost(v, direction) for v in base)
    return Observation(index, shift, row["spread"] * math.sqrt(1 / len(base) + 1 / len(head)))
