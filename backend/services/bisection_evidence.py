"""What a bisection goes by: its candidates, and what was measured of them, as evidence for `stand`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sqlalchemy import Connection, RowMapping

from backend.regression.bisection import Candidate, Observation, Standing, processes_a_step, stand
from backend.regression.cost import log_cost
from backend.regression.terms import Direction
from backend.store import bisections as store
from backend.store import series as series_store

RUN_IN_COMMON = 0.5
"""However many processes a run has, its error is at least this share of one process's."""
MOST_TRIES = 2
"""Of one commit: what lies between good and bad twice will lie there the third time as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
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
    def from_json(cls, stored: Mapping[str, Any]) -> Place:
        return cls(
            sha=stored["sha"],
            commit_id=stored["commit_id"],
            position=stored["position"],
            parents=tuple(stored["parents"]),
            untouched=stored["untouched"],
        )


def standing_of(c: Connection, row: RowMapping) -> tuple[list[Place], Standing]:
    places = [Place.from_json(stored) for stored in row["candidates"]]
    index_of = {place.sha: index for index, place in enumerate(places)}
    steps = [step for step in store.steps_of(c, row["id"]) if step["sha"] in index_of]
    seen = _seen_on_trunk(c, row, places) if row["side_of"] is None else _seen_on_side(c, row, steps, index_of)
    tries = Counter(step["sha"] for step in steps if step["state"] in ("good", "bad"))
    spent = [sha for sha, times in tries.items() if times >= MOST_TRIES]
    unusable = [index_of[sha] for sha in (*spent, *(step["sha"] for step in steps if step["state"] == "skipped"))]
    error = row["spread"] * max(RUN_IN_COMMON, 1 / math.sqrt(processes_a_step(row["shift"], row["spread"])))
    candidates = [Candidate(place.sha, place.untouched) for place in places]
    return places, stand(candidates, seen, row["shift"], error, unusable)


def _seen_on_trunk(c: Connection, row: RowMapping, places: Sequence[Place]) -> list[Observation]:
    """Everything that stands in the series within the range, whoever asked for it; the first bad commit is known."""
    index_of = {place.position: index for index, place in enumerate(places[:-1])}
    positions = [position for position in index_of if position is not None]
    if not positions:
        return []
    series = row["series_id"]
    points = series_store.load_points(c, [series], around=min(positions), before=0, until=max(positions))[series]
    return [
        observed(row, index_of[point.position], point.processes or (point.value,))
        for point in points
        if point.position in index_of and min(point.processes or (point.value,)) > 0
    ]


def _seen_on_side(
    c: Connection, row: RowMapping, steps: Sequence[RowMapping], index_of: Mapping[str, int]
) -> list[Observation]:
    seen = []
    for step in steps:
        arms = store.arms_of(c, step["session_id"], row["series_id"]) if step["session_id"] else None
        if step["state"] in ("good", "bad") and arms is not None:
            seen.append(compared(row, index_of[step["sha"]], *arms))
    return seen


def confidence_of(row: RowMapping, standing: Standing) -> float:
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
