"""The evidence for a cause: what the runs around an onset say about their machine, and what the commits touched."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from sqlalchemy import Connection

from backend.contract import variant_key
from backend.regression.apply_event import leading
from backend.regression.cause.attribution import CanaryShift, Cause, CauseName, Evidence, attribute
from backend.regression.cause.machines import TIME_SUFFIXES
from backend.regression.change_points import KnownPoint
from backend.regression.grouping import Group
from backend.regression.incidents import ReportedIncident, cause_of
from backend.regression.joint.terms import Floats, JointSeries
from backend.regression.joint.window import WindowEvidence, examine_window
from backend.regression.regression_state import TrackedRegression
from backend.regression.terms import ChangeKind
from backend.services.regressions.joint_input import Witness, joint_run, joint_series, witness_of
from backend.services.regressions.ledger import RegressionContext
from backend.store.ingest import record as ingest_store
from backend.store.judging import onsets as store
from backend.store.regressions import regressions as regression_store

RUNS_BEFORE = 24
RUNS_AFTER = 10
# Of the runs around the onset, those whose environment and canaries are compared.
NEAREST_BEFORE = 8
NEAREST_AFTER = 6
# Series that are looked at beside the one that leads.
MOST_SERIES = 300
# Paths that no benchmark reads.
DOCUMENTATION = ("*.md", "*.rst", "*.txt", "docs/*", "doc/*", "LICENSE*", "CHANGELOG*", ".github/*")


class Causes:
    """What caused a group of changes, determined before anyone is notified.

    `noises`: relative spread between runs, for the series changed by the run. `watched`: how many series of the
    run are judged.
    """

    def __init__(self, c: Connection, context: RegressionContext, *, noises: Mapping[int, float], watched: int) -> None:
        self._c = c
        self._context = context
        self._noises = noises
        self._watched = watched

    def of_regression(
        self, regression: TrackedRegression, points: Sequence[KnownPoint], incident: ReportedIncident | None
    ) -> Cause:
        """The cause of an open regression with live change points, as far as it is known now."""
        # What a run of another testbed brought is no evidence here: what was found stays.
        known = regression.known_cause
        if incident is None and known is not None and regression.testbed_id != self._context.testbed_id:
            return known
        found = leading(regression, points)
        assert found is not None
        return self.of(found, incident, moved=sum(point.is_live for point in points))

    def of(self, found: Group, incident: ReportedIncident | None, *, moved: int) -> Cause:
        """The cause that the incident names; for machines and software, together with the evidence around the onset.
        `moved`: how many series changed with them."""
        reported = None if incident is None else cause_of(incident)
        if reported is not None and not reported.suppress:
            return reported
        own = find_cause(
            self._c,
            self._context,
            found,
            noise=self._noises.get(int(found.lead.series_id), 0.0),
            moved=moved,
            watched=self._watched,
        )
        if reported is None or (reported.cause is CauseName.HARDWARE and found.counter):
            return own
        return replace(reported, evidence=reported.evidence + own.evidence) if own.cause is reported.cause else reported

    def noise_of(self, found: Group) -> float | None:
        """Relative spread between runs, for the leading series."""
        series_id = int(found.lead.series_id)
        known = self._noises.get(series_id)
        return regression_store.noise_of(self._c, series_id) if known is None else known


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunAtHand:
    """The run that brought the news: its series may not be judged yet."""

    witness: Witness
    suite: str
    suite_version: str
    document: Mapping[str, Any]


def find_cause(
    c: Connection, context: RegressionContext, found: Group, *, noise: float, moved: int, watched: int
) -> Cause:
    """The first cause of a group of changes, from the runs around their onset and the one that brought the news."""
    onset, counter = found.onset_position, found.counter
    series_id = int(found.lead.series_id)
    run = _run_at_hand(c, context, found.magnitude)
    rows = store.runs_around(c, series_id, onset, before=RUNS_BEFORE, after=RUNS_AFTER)
    witnesses = [*(_witness(row) for row in rows if row.run_id != context.run_id), run.witness]
    before = [witness for witness in witnesses if witness.position < onset]
    after = [witness for witness in witnesses if witness.position >= onset]
    if not before or not after:
        return attribute(Evidence(magnitude=found.magnitude, noise=noise, counter=counter))
    window = None if counter else _window(c, context, run, series_id, before, after)
    before, after = before[-NEAREST_BEFORE:], after[:NEAREST_AFTER]
    if found.lead.change.kind is ChangeKind.DRIFT:
        others_agree = _others_drifted(c, run.witness, series_id, found.magnitude)
    else:
        others_agree = _others_agree(after, found.magnitude) if window is None else window.others_agree
    return attribute(
        Evidence(
            magnitude=found.magnitude,
            noise=noise,
            counter=counter,
            environment_before=before[-1].environment or None,
            environment_after=after[0].environment or None,
            canary=_canaries(before, after),
            throttle=tuple(sorted(_usual_throttle(after) - _usual_throttle(before))),
            foreign_processes=_more_foreign_processes(before, after),
            worker=after[0].worker if window is None else window.worker,
            other_workers_agree=others_agree,
            signals=() if window is None else window.signals,
            moved_series=moved if window is None else window.moved,
            watched_series=watched if window is None else window.watched,
            docs_only=_docs_only(c, context.branch_id, found.last_good_position, onset),
        )
    )


def _run_at_hand(c: Connection, context: RegressionContext, change: float) -> _RunAtHand:
    document = ingest_store.read_packed(c, context.run_id)  # a run is stored before it is judged
    worker, environment = document.get("worker") or "", document.get("environment") or {}
    return _RunAtHand(
        witness=witness_of(document, context.run_id, context.position, worker, change, environment),
        suite=document["suite"],
        suite_version=document.get("suite_version", "1"),
        document=document,
    )


def _witness(row: Any) -> Witness:
    document = {} if row.document is None else ingest_store.unpack_document(row.document)
    return witness_of(document, row.run_id, row.position, row.worker or "", row.change, row.fingerprint or {})


# --- all series jointly -----------------------------------------------------------------------------------------------


def _window(
    c: Connection,
    context: RegressionContext,
    run: _RunAtHand,
    lead: int,
    before: Sequence[Witness],
    after: Sequence[Witness],
) -> WindowEvidence | None:
    """Evidence from the runs around the onset, over all series of the suite."""
    beside = store.series_beside(
        c,
        lead,
        project_id=context.project_id,
        testbed_id=context.testbed_id,
        suite=run.suite,
        version=run.suite_version,
        most=MOST_SERIES,
    )
    if not beside or beside[0].id != lead:
        return None
    ids = [s.id for s in beside]
    values = _values_around(c, ids, [*before, *after])
    values[context.run_id] = _values_now(run.document, beside)
    series = [
        joint_series(
            s,
            context.policies,
            id=str(s.id),
            benchmark=f"{s.benchmark} {s.variant_key} {s.preset}",
            testbeds=[context.testbed],
        )
        for s in beside
    ]
    runs = [
        [
            joint_run(
                witness,
                testbed="",
                timestamp=float(number),
                cost=_cost(series, ids, values.get(witness.run_id, {})),
                spread=np.full(len(series), np.nan),
                suite_version={run.suite: run.suite_version},
                docs_only=False,
            )
            for number, witness in enumerate(side)
        ]
        for side in (before, after)
    ]
    return examine_window(series, runs[0], runs[1], lead=0)


def _values_around(c: Connection, ids: Sequence[int], witnesses: Sequence[Witness]) -> dict[str, dict[int, float]]:
    """What these series measured in the runs around the onset: by run, then by series."""
    values: dict[str, dict[int, float]] = {}
    first, last = witnesses[0].position, witnesses[-1].position
    for row in store.values_of(c, ids, [witness.run_id for witness in witnesses], first, last):
        values.setdefault(row.run_id, {})[row.series_id] = row.value
    return values


def _values_now(document: Mapping[str, Any], beside: Sequence[Any]) -> dict[int, float]:
    """Values of the present run, by series."""
    number = {(s.benchmark, s.variant_key, s.preset, s.metric): s.id for s in beside}
    found = {}
    for result in document["results"]:
        place = result["benchmark"], variant_key(result.get("variant") or {}), result.get("preset", "full")
        for measurement in result.get("measurements", ()):
            series_id = number.get((*place, measurement["metric"]))
            if series_id is not None:
                found[series_id] = measurement["value"]
    return found


def _cost(series: Sequence[JointSeries], ids: Sequence[int], values: Mapping[int, float]) -> Floats:
    """Log cost of each series in one run; NaN where it measured none."""
    measured = np.array([values.get(series_id, np.nan) for series_id in ids], dtype=np.float64)
    cost: Floats = np.array([s.sign for s in series]) * np.log(np.where(measured > 0, measured, np.nan))
    return cost


# --- one run beside another ------------------------------------------------------------------------------------------


def _canaries(before: Sequence[Witness], after: Sequence[Witness]) -> tuple[CanaryShift, ...]:
    """Each canary's cost change across the onset, and the larger of its own noise and its usual spread."""
    readings = []
    for name in sorted({name for witness in after for name in witness.canary}):
        old = [witness.canary[name][0] for witness in before if name in witness.canary]
        new = [witness.canary[name] for witness in after if name in witness.canary]
        if not old:
            continue
        usual = median(old)
        ratio = median(value for value, _ in new) / usual
        spread = 1.4826 * median(abs(value / usual - 1) for value in old)
        noise = max(spread, *(own_noise for _, own_noise in new))
        change = ratio - 1 if name.endswith(TIME_SUFFIXES) else 1 / ratio - 1
        readings.append(CanaryShift(name, change, noise))
    return tuple(readings)


def _usual_throttle(witnesses: Sequence[Witness]) -> frozenset[str]:
    """Reasons seen in most of these runs: some cards are always held at their power limit."""
    seen = {reason for witness in witnesses for reason in witness.throttle}
    return frozenset(
        reason for reason in seen if 2 * sum(reason in witness.throttle for witness in witnesses) > len(witnesses)
    )


def _more_foreign_processes(before: Sequence[Witness], after: Sequence[Witness]) -> int:
    usual = median(witness.foreign_processes for witness in before)
    now = median(witness.foreign_processes for witness in after)
    return int(now) if now > usual else 0


def _others_agree(after: Sequence[Witness], magnitude: float) -> bool | None:
    """Whether another worker than the one that saw it first shows at least half of the change."""
    others = [witness.change for witness in after if witness.worker != after[0].worker and witness.change is not None]
    return median(others) > magnitude / 2 if others else None


def _others_drifted(c: Connection, run: Witness, series_id: int, magnitude: float) -> bool | None:
    """Whether other workers than the one that tells have lost as much by now: where it began a drift shows on none."""
    rows = store.changes_since_anchor(c, series_id, run.position, most=RUNS_BEFORE)
    others = [row.change for row in rows if row.worker not in (None, run.worker)]
    return median(others) > magnitude / 2 if others else None


def _docs_only(c: Connection, branch_id: int, last_good: int | None, onset: int) -> bool:
    if last_good is None:
        return False
    return only_documentation(store.changed_paths(c, branch_id, last_good, onset))


def only_documentation(paths: Sequence[Sequence[str] | None]) -> bool:
    """Whether commits changed only documentation; if something about one is unknown, it may be code."""
    known = [path for changed in paths for path in changed or ()]
    if not known or any(changed is None for changed in paths):
        return False
    return all(any(fnmatch.fnmatchcase(path, pattern) for pattern in DOCUMENTATION) for path in known)
