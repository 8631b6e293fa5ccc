"""Runs that are recorded together, in one transaction: what their judge remembers is written once, at the end.

Each update of a row leaves a version of it behind until its transaction ends, and every further one walks over them:
a thousand runs of an imported history would spend nearly all their time on that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from backend.regression.series.state import SeriesState
from backend.regression.terms import Judgement
from backend.services.judging.state_cache import new_state, states_of
from backend.store.base import wire
from backend.store.judging import rollups
from backend.store.judging import series as series_store
from backend.store.judging.series import SeriesRow


class RecordedTogether:
    """The states of series after the runs recorded so far, and the points whose roll-ups are to be computed."""

    def __init__(self) -> None:
        self._stored: dict[int, SeriesRow] = {}
        """As they were locked, before the first of the runs."""
        self._after: dict[int, tuple[SeriesState, Judgement, datetime]] = {}
        self._points: list[tuple[int, datetime]] = []

    def rows(self, locked: Sequence[SeriesRow]) -> list[SeriesRow]:
        """The series as they would be stored by now."""
        for row in locked:
            self._stored.setdefault(row.id, row)
        return [
            replace(row, state_position=self._after[row.id][0].last_position) if row.id in self._after else row
            for row in locked
        ]

    def states_of(self, c: Connection, series: Sequence[SeriesRow]) -> dict[int, SeriesState]:
        """The judge's state of each of these series."""
        found = states_of(c, [row for row in series if row.id not in self._after])
        for row in series:
            if row.id in self._after:
                state = self._after[row.id][0]
                found[row.id] = state if state.kind == row.kind else replace(state, kind=row.kind)
        return found

    def take(
        self,
        after: Sequence[tuple[SeriesRow, SeriesState, Judgement]],
        said: Sequence[tuple[SeriesRow, Judgement]],
        measured_at: datetime,
    ) -> None:
        """Remember what is known after one more run, and what was said of it."""
        self._after.update({row.id: (state, judgement, measured_at) for row, state, judgement in after})
        self._points += [(row.id, measured_at) for row, _ in said]

    def write(self, c: Connection) -> None:
        """Store it all."""
        by_time = defaultdict(list)
        for series_id, (state, judgement, measured_at) in self._after.items():
            by_time[measured_at].append(new_state(self._stored[series_id], state, judgement))
        wire.send(c, *(series_store.save_statement(states, measured_at) for measured_at, states in by_time.items()))
        rollups.recompute_rollups(c, self._points)
