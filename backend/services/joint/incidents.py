"""Incidents of the joint detector, stored and applied: the change points of their series follow them.

An incident is stored once and updated, never split: a detector that starts over finds those it had reported by
their content. Regressions consist of change points, as everywhere; an incident groups those of its series on all its
testbeds, names their cause, and holds them back if that is not code.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from backend.regression.incidents import ReportedIncident
from backend.regression.joint.terms import Incident
from backend.services.joint.reading import Columns
from backend.services.judging.stored_runs import StoredRuns
from backend.services.regressions import apply
from backend.store.joint import incidents as store
from backend.store.judging import points as series_points
from backend.store.judging import series as series_store
from backend.store.regressions import points as point_store

SAME_WITHIN = 10
"""Commits between two accounts of one incident."""
SAME_DRIFT = 60
APPLIED = ("regression", "infra", "environment")
"""Kinds that say something of series that got worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteIncidents:
    """New or changed incidents of one suite's detector."""

    columns: Columns
    incidents: tuple[Incident, ...]
    numbers: MutableMapping[int, int]
    """Id of an incident within the detector to its id in the store."""
    since: int | None
    """The detector has just started over: what it finds before this commit is history. None: it continues."""


def report(c: Connection, project_id: int, found: Sequence[SuiteIncidents], now: datetime) -> list[int]:
    """Store what was found, and apply it to regressions. Returns the regressions that changed."""
    incidents = [it for suite in found for it in _store(c, project_id, suite, now) if it.kind in APPLIED]
    # In the order in which an arriving result takes its locks: all series first, then the lock of the project.
    series_store.lock_by_id(c, _series_to_change(c, incidents))
    return sorted({number for incident in incidents for number in _apply(c, incident, now)})


def _series_to_change(c: Connection, incidents: Sequence[ReportedIncident]) -> list[int]:
    """Those of the incidents that have change points, and all others of their regressions: their judgements follow."""
    points = point_store.open_in_series(c, {number for incident in incidents for number in incident.series})
    regressions = {point.regression_id for point in points} | {incident.regression_id for incident in incidents}
    points += point_store.of_regressions(c, [number for number in regressions if number is not None])
    return sorted({point.series_id for point in points})


def _store(c: Connection, project_id: int, found: SuiteIncidents, now: datetime) -> list[ReportedIncident]:
    """The incidents as they are stored, new or updated."""
    known = {incident.id: incident for incident in store.of_suite(c, project_id, found.columns.suite)}
    stored = []
    for incident in found.incidents:
        account = _reported(found.columns, incident)
        before = known.get(found.numbers.get(incident.id, -1))
        if before is None:
            taken = set(found.numbers.values())
            same = [old for old in known.values() if old.id not in taken and _is_same(old, account)]
            if not same and found.since is not None and incident.first_bad < found.since:
                continue
            before = same[-1] if same else None
        if before is None:
            account = replace(account, id=store.insert(c, project_id, account, now))
        else:
            account = replace(account, id=before.id, regression_id=before.regression_id)
            if account != before:
                store.update(c, account, now)
        known[account.id], found.numbers[incident.id] = account, account.id
        stored.append(account)
    return stored


def _reported(columns: Columns, incident: Incident) -> ReportedIncident:
    return ReportedIncident(
        id=0,
        suite=columns.suite,
        kind=incident.kind.value,
        cause=incident.cause.value,
        worker=incident.worker,
        testbeds=tuple(sorted(incident.testbeds)),
        series=columns.ids(incident.series, incident.testbeds),
        first_bad_position=incident.first_bad,
        range_start=incident.range_start,
        range_end=incident.range_end,
        magnitude=incident.magnitude,
        drift=incident.drift,
        closed_position=incident.closed_by,
        regression_id=None,
    )


def _is_same(known: ReportedIncident, other: ReportedIncident) -> bool:
    """Whether two accounts, of detectors that began at different runs, are of one incident."""
    alike = (known.kind, known.cause, known.worker) == (other.kind, other.cause, other.worker)
    within = SAME_DRIFT if known.drift or other.drift else SAME_WITHIN
    near = abs(known.first_bad_position - other.first_bad_position) <= within
    return alike and near and bool(known.series & other.series)


def _apply(c: Connection, incident: ReportedIncident, now: datetime) -> list[int]:
    """Let regressions follow an incident. Returns those that changed."""
    points = point_store.open_in_series(c, incident.series)
    # A regression whose change points have all ended may still be open, held by its incident, and end with it.
    series = [point.series_id for point in points] or (
        [] if incident.regression_id is None else sorted(incident.series)
    )
    last = series_points.last_point(c, series[0]) if series else None
    return [] if last is None else apply.apply_incident(c, StoredRuns(now).of(c, last), incident)
