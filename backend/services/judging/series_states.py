"""What the judge remembers of series: read for a look at their next points, and as it is to be stored after that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from backend.regression.series.judge import SeriesState
from backend.regression.terms import Judgement
from backend.services.judging.replay import kind_of
from backend.services.judging.state_cache import STATES, Forgotten
from backend.store.base import wire
from backend.store.judging import series as series_store
from backend.store.judging.series import NewState, SeriesRow


def states_of(c: Connection, series: Sequence[SeriesRow]) -> dict[int, SeriesState]:
    """What the judge remembers of each of these series, which the caller has locked."""
    found: dict[int, SeriesState] = {}
    forgotten = []
    for row in series:
        try:
            found[row.id] = state_of(row)
        except Forgotten:
            forgotten.append(row)
    if forgotten:
        wholes = series_store.load_wholes(c, [row.id for row in forgotten])
        found.update({row.id: state_of(replace(row, state=wholes[row.id])) for row in forgotten})
    return found


def state_of(series: SeriesRow) -> SeriesState:
    if series.state is None and series.state_tail is None:
        return SeriesState.new(kind_of(series))
    # The role may have changed since: it decides what turns red, not how a series is judged.
    state, kind = STATES.decoded(series), kind_of(series)
    return state if state.kind == kind else replace(state, kind=kind)


def save_states(c: Connection, states: Mapping[SeriesRow, SeriesState]) -> None:
    """Store what people or a session made of states: no run was judged, and no noise is new."""
    new = []
    for row, state in states.items():
        stored = STATES.encoded(row, state)
        new.append(
            NewState(
                series_id=row.id,
                state=stored.whole,
                state_tail=stored.tail,
                position=state.last_position,
                profile=None,
            )
        )
    if new:
        wire.send(c, series_store.save_statement(new, None))


def new_state(series: SeriesRow, state: SeriesState, judgement: Judgement) -> NewState:
    stored, profile = STATES.encoded(series, state), None
    if stored.whole is not None:  # noise is what the model says, and a new model is a new whole
        profile = {"noise": judgement.noise, "minimum_detectable_effect": judgement.minimum_detectable_effect}
    return NewState(
        series_id=series.id,
        state=stored.whole,
        state_tail=stored.tail,
        position=state.last_position,
        profile=profile,
    )
