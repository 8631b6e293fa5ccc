"""Lasting alarms that are not about code: a new baseline begins automatically, or the alarm is over.

Such a baseline is the decision `expected` of the actor `tidemark`: it says why, and a person can undo it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from backend.regression.apply_event import ONE_ALARM
from backend.regression.cause.attribution import CauseName
from backend.regression.joint.machines import REBASED_AFTER
from backend.regression.regression_events import BY_ITSELF, AlarmEnded
from backend.services.regressions.apply import apply_event
from backend.services.triage.triage import TriageDecision, lock_series, triage
from backend.store.regressions import regressions as store

BEGINS = "A new baseline begins here: {}"
LASTS = "The machine has been slower for {} runs and is judged from its new level. {}"
OVER = "No run has shown it for {} commits."


def due(c: Connection) -> list[int]:
    """Alarms that last or are over."""
    return [alarm.id for alarm in store.standing_alarms(c) if _reason_for_new_baseline(alarm) or _is_over(alarm)]


def settle(c: Connection, alarm_id: int, now: datetime) -> bool:
    """Settle one of them; False: it no longer needs it. Needs its own transaction: it takes the locks of its series and
    then that of its project, as a result does, and may not continue with the next alarm while holding them."""
    lock_series(c, [alarm_id])
    alarm = next((alarm for alarm in store.standing_alarms(c) if alarm.id == alarm_id), None)
    if alarm is None:
        return False
    reason = _reason_for_new_baseline(alarm)
    if reason is not None:
        triage(c, alarm_id, TriageDecision("expected", reason=reason), BY_ITSELF, now=now)
    elif _is_over(alarm):
        apply_event(c, alarm_id, AlarmEnded(note=OVER.format(ONE_ALARM)), now)
    return reason is not None or _is_over(alarm)


def _reason_for_new_baseline(alarm: Any) -> str | None:
    """Why the level of today is the usual one from now on; None: it is not, or not yet, or a person took that back."""
    if not alarm.lasts or alarm.is_kept:
        return None
    said = " ".join(alarm.evidence)
    if alarm.cause != CauseName.HARDWARE:
        return BEGINS.format(said)
    return LASTS.format(alarm.runs, said) if alarm.runs >= REBASED_AFTER else None


def _is_over(alarm: Any) -> bool:
    if alarm.lasts or alarm.newest_position is None or alarm.newest_onset is None:
        return False
    return bool(alarm.newest_position - alarm.newest_onset >= ONE_ALARM)
