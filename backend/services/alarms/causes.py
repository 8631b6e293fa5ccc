"""The evidence for a cause: what the runs beside an onset say of their machine, and what the commits touched."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from sqlalchemy import Connection

from backend.contract import variant_key
from backend.contract_rules import written
from backend.regression.cause.attribution import CanaryReading, Cause, Evidence, attribute
from backend.regression.cause.machines import NOT_COMPARED, TIME_SUFFIXES
from backend.regression.grouping import Group
from backend.regression.joint.terms import HARMLESS_THROTTLE, SIZES, FleetRun, FleetSeries
from backend.regression.joint.window import WindowEvidence, examine_window
from backend.regression.terms import ChangeKind, Direction, Role
from backend.services.base.arrival import Arrival
from backend.store.ingest import record as ingest_store
from backend.store.judging import onsets as store

RUNS_BEFORE = 24
RUNS_AFTER = 10
# Of the runs around the onset, those whose environment and canaries are compared.
NEAREST_BEFORE = 8
NEAREST_AFTER = 6
# Series that are looked at beside the one that leads.
MOST_SERIES = 300
# Paths that no benchmark reads.
DOCUMENTATION = ("*.md", "*.rst", "*.txt", "docs/*", "doc/*", "LICENSE*", "CHANGELOG*", ".github/*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One run beside an onset, as evidence."""

    run_id: str
    position: int
    worker: str
    change: float | None
    environment: Mapping[str, str]
    canary: Mapping[str, tuple[float, float]]
    """Name to (reading, its own noise)."""
    throttle: frozenset[str]
    foreign_processes: int
    load_1m: float | None


def find_cause(
    c: Connection, arrival: Arrival, found: Group, *, noise: float, exact: bool, moved: int, watched: int
) -> Cause:
    """The first cause of a group of changes, asked before anyone is told."""
    onset = found.onset_position
    series_id = int(found.lead.series_id)
    rows = store.runs_around(c, series_id, onset, before=RUNS_BEFORE, after=RUNS_AFTER)
    witnesses = [_witness(row) for row in rows if row.run_id != arrival.run.id]
    if arrival.branch_id is None:
        witnesses.append(_witness_now(arrival, found.magnitude))
    before = [witness for witness in witnesses if witness.position < onset]
    after = [witness for witness in witnesses if witness.position >= onset]
    if not before or not after:
        return attribute(Evidence(magnitude=found.magnitude, noise=noise, exact=exact))
    window = None if exact else _window(c, arrival, series_id, before, after)
    before, after = before[-NEAREST_BEFORE:], after[:NEAREST_AFTER]
    if found.lead.change.kind is ChangeKind.DRIFT:
        others_agree = _others_drifted(c, arrival, series_id, found.magnitude)
    else:
        others_agree = _others_agree(after, found.magnitude) if window is None else window.others_agree
    return attribute(
        Evidence(
            magnitude=found.magnitude,
            noise=noise,
            exact=exact,
            environment_before=before[-1].environment or None,
            environment_after=after[0].environment or None,
            canary=_canaries(before, after),
            throttle=tuple(sorted(_usual_throttle(after) - _usual_throttle(before))),
            foreign_processes=_more_foreign_processes(before, after),
            load_1m=after[-1].load_1m,
            worker=after[0].worker if window is None else window.worker,
            other_workers_agree=others_agree,
            symptoms=() if window is None else window.symptoms,
            moved_series=moved if window is None else window.moved,
            watched_series=watched if window is None else window.watched,
            docs_only=_docs_only(c, arrival.default_branch_id, found.last_good_position, onset),
        )
    )


def _witness(row: Any) -> Witness:
    document = {} if row.document is None else ingest_store.unpack_document(row.document)
    return witness_of(document, row.run_id, row.position, row.worker or "", row.change, row.fingerprint or {})


def _witness_now(arrival: Arrival, change: float) -> Witness:
    run = arrival.run
    document = {"canary": [written(reading) for reading in run.canary], "telemetry": run.telemetry}
    return witness_of(document, run.id, arrival.position, arrival.worker, change, run.environment)


def witness_of(
    document: Mapping[str, Any],
    run_id: str,
    position: int,
    worker: str,
    change: float | None,
    environment: Mapping[str, Any],
) -> Witness:
    """A run as it was delivered, as evidence."""
    telemetry = document.get("telemetry") or {}
    throttle = telemetry.get("throttle")
    foreign, load = telemetry.get("foreign_processes"), telemetry.get("load_1m")
    return Witness(
        run_id=run_id,
        position=position,
        worker=worker,
        change=change,
        environment={name: str(value) for name, value in environment.items() if name not in NOT_COMPARED},
        canary=dict(filter(None, (_reading(entry) for entry in document.get("canary") or ()))),
        throttle=frozenset(map(str, throttle)) if isinstance(throttle, list) else frozenset(),
        # A processor is always shared, and what is judged there is a ratio to a yardstick that shares it too.
        foreign_processes=foreign if isinstance(foreign, int) and environment.get("accelerator") else 0,
        load_1m=float(load) if isinstance(load, int | float) else None,
    )


# --- all series side by side -----------------------------------------------------------------------------------------


def _window(
    c: Connection, arrival: Arrival, lead: int, before: Sequence[Witness], after: Sequence[Witness]
) -> WindowEvidence | None:
    """What the runs around the onset say together, over all series of the suite."""
    run = arrival.run
    beside = store.series_beside(
        c,
        lead,
        project_id=arrival.project_id,
        testbed_id=arrival.testbed_id,
        suite=run.suite,
        version=run.suite_version,
        most=MOST_SERIES,
    )
    if not beside or beside[0].id != lead:
        return None
    witnesses = [*before, *after]
    values: dict[str, dict[int, float]] = {}
    first, last = witnesses[0].position, witnesses[-1].position
    for row in store.values_of(c, [s.id for s in beside], [w.run_id for w in witnesses], first, last):
        values.setdefault(row.run_id, {})[row.series_id] = row.value
    if arrival.branch_id is None:
        values[run.id] = _values_now(arrival, beside)
    series = [
        FleetSeries(
            id=str(s.id),
            suite=s.suite,
            benchmark=f"{s.benchmark} {s.variant_key} {s.preset}",
            role=Role(s.role),
            sign=1.0 if s.direction == Direction.LOWER else -1.0,
            exact=s.exact,
            machine_bound=s.unit not in SIZES,
            min_change=arrival.policies.of(
                suite=s.suite, benchmark=s.benchmark, metric=s.metric, testbed=run.testbed
            ).min_change,
        )
        for s in beside
    ]
    ids = [s.id for s in beside]
    runs = [
        [_fleet_run(w, n, series, ids, values.get(w.run_id, {})) for n, w in enumerate(side)]
        for side in (before, after)
    ]
    return examine_window(series, runs[0], runs[1], lead=0)


def _values_now(arrival: Arrival, beside: Sequence[Any]) -> dict[int, float]:
    """What the run that is just arriving measured: it is not stored yet."""
    number = {(s.benchmark, s.variant_key, s.preset, s.metric): s.id for s in beside}
    found = {}
    for result in arrival.run.results:
        place = result.benchmark, variant_key(result.variant), result.preset
        for measurement in result.measurements:
            series_id = number.get((*place, measurement.metric))
            if series_id is not None:
                found[series_id] = measurement.value
    return found


def _fleet_run(
    witness: Witness, number: int, series: Sequence[FleetSeries], ids: Sequence[int], values: Mapping[int, float]
) -> FleetRun:
    measured = np.array([values.get(series_id, np.nan) for series_id in ids], dtype=np.float64)
    signs = np.array([s.sign for s in series])
    cost = signs * np.log(np.where(measured > 0, measured, np.nan))
    return FleetRun(
        position=witness.position,
        testbed="",
        worker=witness.worker,
        timestamp=float(number),
        cost=cost,
        spread=np.full(len(series), np.nan),
        canary={
            name: math.log(value) if name.endswith(TIME_SUFFIXES) else -math.log(value)
            for name, (value, _) in witness.canary.items()
        },
        throttle=witness.throttle - HARMLESS_THROTTLE,
        foreign_processes=witness.foreign_processes,
        load=witness.load_1m,
    )


# --- one run beside another ------------------------------------------------------------------------------------------


def _reading(entry: Mapping[str, Any]) -> tuple[str, tuple[float, float]] | None:
    told = [entry[side] for side in ("before", "after") if (entry.get(side) or 0) > 0]
    if not told:
        return None
    return entry["name"], (sum(told) / len(told), entry.get("own_noise") or 0.0)


def _canaries(before: Sequence[Witness], after: Sequence[Witness]) -> tuple[CanaryReading, ...]:
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
        readings.append(CanaryReading(name, change, noise))
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


def _others_drifted(c: Connection, arrival: Arrival, series_id: int, magnitude: float) -> bool | None:
    """Whether other workers than the one that tells have lost as much by now: where it began a drift shows on none."""
    rows = store.changes_since_anchor(c, series_id, arrival.position, most=RUNS_BEFORE)
    others = [row.change for row in rows if row.worker not in (None, arrival.worker)]
    return median(others) > magnitude / 2 if others else None


def _docs_only(c: Connection, branch_id: int, last_good: int | None, onset: int) -> bool:
    if last_good is None:
        return False
    return only_documentation(store.changed_paths(c, branch_id, last_good, onset))


def only_documentation(paths: Sequence[Sequence[str] | None]) -> bool:
    """Whether commits changed documentation alone; what is not known of one of them may be code."""
    known = [path for changed in paths for path in changed or ()]
    if not known or any(changed is None for changed in paths):
        return False
    return all(any(fnmatch.fnmatchcase(path, pattern) for pattern in DOCUMENTATION) for path in known)
