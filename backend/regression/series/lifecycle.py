"""Effects of people and of confirming sessions on a series' state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from backend.regression.confirmation import Decision
from backend.regression.detector.smoothing import restart
from backend.regression.policy import Policy
from backend.regression.series import verdicts
from backend.regression.series.state import SeriesState
from backend.regression.terms import ChangePoint, ChangeState


@dataclass(frozen=True, slots=True)
class Confirmation:
    """How a confirming session ended for one change point. Changes are fractions of cost."""

    onset_position: int
    outcome: Decision
    change: float
    low: float
    high: float


def apply_confirmation(
    state: SeriesState, confirmation: Confirmation, policy: Policy
) -> tuple[tuple[ChangePoint, ...], SeriesState]:
    """A session proved a suspect, or proved that the code is not slower; no events where neither applies."""
    if confirmation.outcome is Decision.CONFIRMED:
        return _confirm(state, confirmation.onset_position, policy)
    if confirmation.outcome is Decision.WITHDRAWN:
        return _withdraw(state, confirmation.onset_position)
    return (), state


def _confirm(state: SeriesState, onset: int, policy: Policy) -> tuple[tuple[ChangePoint, ...], SeriesState]:
    suspect = state.suspect
    if suspect is None or suspect.onset != onset:
        return (), state
    detector = state.detector.snapshot()
    change = detector.accept_at(onset, policy)
    if change is None:
        return (), state
    record = replace(state.record, confirmed=state.record.confirmed + 1)
    noise = detector.model.scale if detector.model else detector.assumed_noise
    smooth = restart(detector.segment[-12:], noise)
    event = verdicts.confirmed_event(change, state.kind.direction)
    return (event,), replace(state, detector=detector, suspect=None, record=record, smooth=smooth)


def _withdraw(state: SeriesState, onset: int) -> tuple[tuple[ChangePoint, ...], SeriesState]:
    record = replace(state.record, withdrawn=state.record.withdrawn + 1)
    disproved = (*state.disproved[-7:], onset)
    suspect = state.suspect
    if suspect is not None and suspect.onset == onset:
        event = verdicts.suspect_event(suspect, ChangeState.WITHDRAWN, state.last_position, state.kind.direction)
        return (event,), replace(state, suspect=None, disproved=disproved, record=record)
    for earlier in state.detector.opened:
        if earlier.onset == onset:
            event = verdicts.withdrawn_event(earlier, state.last_position, state.kind.direction)
            forgotten = _forget(state, onset)
            record = replace(record, disproved=record.disproved + 1)
            return (event,), replace(forgotten, disproved=disproved, record=record)
    return (), state


def accept_change(state: SeriesState, onset_position: int) -> SeriesState:
    """A person expected this change: the present level is the baseline from now on. A suspect just ends."""
    if state.suspect is not None and state.suspect.onset == onset_position:
        return replace(state, suspect=None, disproved=(*state.disproved[-7:], onset_position))
    return _forget(state, onset_position)


def dismiss_change(state: SeriesState, onset_position: int) -> SeriesState:
    """A person says this was no regression: a false alarm, after which the series requires more runs."""
    false = any(o.onset_position == onset_position for o in state.open_regressions)
    record = replace(
        state.record, withdrawn=state.record.withdrawn + 1, disproved=state.record.disproved + (1 if false else 0)
    )
    return replace(accept_change(state, onset_position), record=record)


def _forget(state: SeriesState, onset: int) -> SeriesState:
    if state.kind.exact:
        return replace(state, counter=state.counter.forget(onset))
    detector = state.detector.snapshot()
    detector.forget(onset)
    return replace(state, detector=detector, returning=0)
