"""Incidents as they were reported: which change points are part of one, and what it names as the cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.regression.cause.attribution import Cause, CauseName
from backend.regression.change_points import KnownPoint
from backend.regression.grouping import NEAR

ROLLS_OUT = 12
"""Commits over which an upgrade reaches the workers of a testbed."""
LOOKS_BACK = 60
"""Commits before the oldest change point in question: incidents that are older say nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedIncident:
    """An incident as it was reported last, and the regression that came of it."""

    id: int
    suite: str
    kind: str
    cause: str
    worker: str | None
    testbeds: tuple[str, ...]
    series: frozenset[int]
    first_bad_position: int
    range_start: int
    range_end: int
    magnitude: float
    drift: bool
    closed_position: int | None
    regression_id: int | None


def matching_incident(incidents: Sequence[ReportedIncident], point: KnownPoint) -> ReportedIncident | None:
    """The incident that a change for the worse is part of: the nearest one, and of two the one caused by code. What a
    counter shows is never caused by a machine."""
    near = [
        incident
        for incident in incidents
        if not (point.exact and incident.cause == CauseName.HARDWARE)
        and point.series_id in incident.series
        and _reaches(incident, point)
    ]
    return min(
        near,
        key=lambda found: (
            max(0, _distance(found, point) - NEAR),
            found.cause != CauseName.CODE,
            _distance(found, point),
            found.id,
        ),
        default=None,
    )


def _reaches(incident: ReportedIncident, point: KnownPoint) -> bool:
    first_suspect, last_suspect = point.suspects
    # Machines and software reach series at different runs.
    slack = point.as_series_change().slack if incident.cause == CauseName.CODE and not incident.drift else NEAR
    first = incident.range_start - slack
    last = max(incident.range_end, incident.first_bad_position) + slack
    if incident.cause == CauseName.HARDWARE:
        ended = incident.closed_position
        return first <= point.onset_position and (ended is None or point.onset_position <= ended)
    if incident.cause == CauseName.ENVIRONMENT:
        last += ROLLS_OUT
    return incident.magnitude > 0 and first <= last_suspect and first_suspect <= last


def _distance(incident: ReportedIncident, point: KnownPoint) -> int:
    first, last = point.suspects
    return max(0, incident.first_bad_position - last, first - incident.first_bad_position)


def cause_of(incident: ReportedIncident) -> Cause:
    """The cause, with the sentence that says what it was found from."""
    beds = " and ".join(incident.testbeds)
    sentence = {
        CauseName.CODE: (
            f"The series of the suite, judged jointly, show one {'drift' if incident.drift else 'change'} on {beds}, "
            "and an interleaved session, in which only the code differs, shows it too."
        ),
        CauseName.ENVIRONMENT: (
            f"It came with the new software of {beds}, and an interleaved session of the commits does not show it."
        ),
        CauseName.HARDWARE: (
            f"The series, judged jointly: {incident.worker or 'this worker'} of {beds} is slower than it was."
        ),
    }[CauseName(incident.cause)]
    return Cause(CauseName(incident.cause), (sentence,), suppress=incident.cause != CauseName.CODE)
