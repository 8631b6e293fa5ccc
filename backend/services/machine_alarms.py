"""Alarms that are not about the code, when they last: a new baseline begins by itself, or the alarm is over.

A baseline that began so is the decision `expected` of the actor `tidemark`: it says why, and a person can undo it.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from backend.regression.attribution import CauseName
from backend.regression.fleet_machines import REBASED_AFTER
from backend.services.alarms import ONE_ALARM
from backend.services.triage import triage
from backend.store import regressions as store

ACTOR = "tidemark"
BEGINS = "A new baseline begins here: {}"
LASTS = "The machine has been slower for {} runs and is judged from its new level. {}"
OVER = "No run has shown it for {} commits."


def settle_alarms(c: Connection, now: datetime) -> list[int]:
    """Settle every alarm that lasts or is over; returns those that were settled."""
    settled = []
    for alarm in store.standing_alarms(c):
        reason = _reason_for_new_baseline(alarm.cause, alarm.lasts, alarm.runs, alarm.evidence)
        if reason is not None:
            triage(c, alarm.id, "expected", ACTOR, now=now, reason=reason)
        elif _is_over(alarm.lasts, alarm.newest_position, alarm.newest_onset):
            detail = {"note": OVER.format(ONE_ALARM)}
            store.withdraw(c, alarm.id, now)
            store.insert_event(c, alarm.id, "withdrawn", now=now, detail=detail)
        else:
            continue
        settled.append(alarm.id)
    return settled


def _reason_for_new_baseline(cause: str, lasts: bool, runs: int, evidence: list[str]) -> str | None:
    """Why the level of today is the usual one from now on; None: it is not, or not yet."""
    if not lasts:
        return None
    said = " ".join(evidence)
    if cause != CauseName.HARDWARE:
        return BEGINS.format(said)
    return LASTS.format(runs, said) if runs >= REBASED_AFTER else None


def _is_over(lasts: bool, newest_position: int | None, newest_onset: int | None) -> bool:
    if lasts or newest_position is None or newest_onset is None:
        return False
    return newest_position - newest_onset >= ONE_ALARM
