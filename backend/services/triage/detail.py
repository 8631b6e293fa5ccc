"""One regression with all that a person needs to act on it: series, suspects, events, and where the time went."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping

from backend.regression.decisions import possible_actions
from backend.regression.grouping import NEAR
from backend.regression.terms import Role
from backend.services.base.errors import NotFound
from backend.services.runs.reproducing import Subject, at_commit
from backend.services.triage.views import Regression, regression_of
from backend.store.regressions import regressions as store
from backend.store.regressions import views
from backend.store.regressions.views import BesideMedians

MAX_SUSPECTS = 100
NEWEST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedSeries:
    series_id: int
    suite: str
    benchmark: str
    variant: str
    preset: str
    metric: str
    unit: str
    direction: str
    role: str
    exact: bool
    kind: str
    state: str
    onset_position: int
    onset_sha: str | None
    last_good_position: int | None
    detected_position: int
    fixed_position: int | None
    change: float
    before: float | None
    after: float | None
    latest_value: float | None
    latest_change: float | None
    latest_verdict: str | None
    noise: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectCommit:
    sha: str
    position: int
    message: str
    author: str
    committed_at: datetime | None
    pull_request: int | None
    changed_paths: tuple[str, ...] | None
    skipped_reason: str | None
    first_bad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionEvent:
    id: int
    at: datetime
    kind: str
    actor: str
    note: str | None
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChange:
    """One phase of the leading benchmark, in the unit of the phase."""

    metric: str
    unit: str
    before: float | None
    after: float | None
    difference: float | None
    share: float | None
    """Of the sum of the differences of all phases in this unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedMemory:
    """The memory of the leading benchmark by one of its metrics, in bytes."""

    metric: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImprovedSeries:
    """A gate of the same benchmark and variant that got better at the same commit; `change` is of cost."""

    series_id: int
    benchmark: str
    variant: str
    metric: str
    unit: str
    direction: str
    change: float
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionDetail:
    regression: Regression
    evidence: tuple[str, ...]
    affected: tuple[AffectedSeries, ...]
    traded_for: tuple[ImprovedSeries, ...]
    """Improvements at the same commit: 20 % faster at twice the memory is both."""
    suspects: tuple[SuspectCommit, ...]
    events: tuple[RegressionEvent, ...]
    phases: tuple[PhaseChange, ...]
    allocated: tuple[AllocatedMemory, ...]
    reproduce: str
    """Commands that measure both sides again."""
    actions: tuple[str, ...]
    """The actions that a person can take now."""


def get_regression(c: Connection, regression_id: int) -> RegressionDetail:
    """One regression, with all that a person needs to act on it."""
    row, tracked = views.one(c, regression_id), store.load(c, [regression_id]).get(regression_id)
    if row is None or tracked is None:
        raise NotFound.of("regression", regression_id)
    regression = regression_of(row)
    affected = tuple(_affected(member) for member in views.members(c, regression_id))
    beside = _beside(c, row, affected)
    return RegressionDetail(
        regression=regression,
        evidence=tuple(row["evidence"]),
        affected=tuple(
            sorted(affected, key=lambda s: (s.series_id != row["lead_series_id"], s.role != "gate", -s.change))
        ),
        traded_for=tuple(
            ImprovedSeries(**gained) for gained in views.improved(c, regression_id, row["first_bad_position"], NEAR)
        ),
        suspects=_suspects(c, row),
        events=tuple(RegressionEvent(**event) for event in views.events(c, regression_id)),
        phases=_phases([each for each in beside if each.role == Role.PHASE]),
        allocated=tuple(
            AllocatedMemory(metric=each.metric, before=each.before, after=each.after)
            for each in beside
            if each.unit == "B"
        ),
        reproduce=_reproduce(c, row),
        actions=tuple(action.value for action in possible_actions(tracked)),
    )


def _affected(member: Mapping[str, Any]) -> AffectedSeries:
    return AffectedSeries(**{("variant" if name == "variant_key" else name): value for name, value in member.items()})


def _suspects(c: Connection, row: RowMapping) -> tuple[SuspectCommit, ...]:
    """The commits after the last good one up to the first bad one that may have changed what the suite measures, the
    newest first."""
    until = row["first_bad_position"]
    after = until - 1 if row["last_good_position"] is None else row["last_good_position"]
    if row["branch_id"] is None:
        return ()
    within = c, row["branch_id"], after, until, MAX_SUSPECTS
    listed = views.suspects(*within, suite=row["suite"]) or views.suspects(*within, suite=None)
    return tuple(
        SuspectCommit(
            sha=found["sha"],
            position=found["position"],
            message=found["message"].partition("\n")[0],
            author=found["author_name"],
            committed_at=found["committed_at"],
            pull_request=found["pull_request"],
            changed_paths=None if found["changed_paths"] is None else tuple(found["changed_paths"]),
            skipped_reason=found["skipped_reason"],
            first_bad=found["position"] == until,
        )
        for found in listed
    )


def _beside(c: Connection, row: RowMapping, affected: Sequence[AffectedSeries]) -> Sequence[BesideMedians]:
    """Phases and memory of the leading series' benchmark, before the onset and since."""
    if row["lead_series_id"] is None:
        return ()
    ends = [s.fixed_position for s in affected if s.fixed_position is not None]
    return views.beside(c, row["lead_series_id"], row["first_bad_position"], min(ends, default=NEWEST))


def _phases(found: Sequence[BesideMedians]) -> tuple[PhaseChange, ...]:
    """Where the time went, phase by phase."""
    differences = [
        None if phase.before is None or phase.after is None else phase.after - phase.before for phase in found
    ]
    totals: defaultdict[str, float] = defaultdict(float)
    for phase, difference in zip(found, differences, strict=True):
        totals[phase.unit] += difference or 0.0
    return tuple(
        PhaseChange(
            metric=phase.metric,
            unit=phase.unit,
            before=phase.before,
            after=phase.after,
            difference=difference,
            share=difference / totals[phase.unit] if difference is not None and totals[phase.unit] > 0 else None,
        )
        for phase, difference in zip(found, differences, strict=True)
    )


def _reproduce(c: Connection, row: RowMapping) -> str:
    """Shell lines that measure the last good and the first bad commit and compare them; nothing of ours is needed
    but the `tidemark` command and the benchmarks."""
    bad, good = row["bad_sha"], row["good_sha"]
    if bad is None or row["suite"] is None:
        return ""
    found = views.spec_of(c, row["project_id"], row["testbed_id"], row["suite"], bad)
    spec: Mapping[str, Any] = {} if found is None else found["spec"]
    url = None if found is None else found["repository_url"]
    lines = [f"git clone {shlex.quote(url)} repro && cd repro"] if url else [f"# in a clone of {row['project']}"]
    for name, sha in (("base", good), ("head", bad)):
        if sha is None:
            continue
        subject = Subject(
            name=name,
            project=row["project"],
            sha=sha,
            suite=row["suite"],
            testbed=row["testbed"],
            benchmarks=[row["benchmark"]],
        )
        lines.append(at_commit(spec, subject))
    if good is not None:
        lines.append("tidemark compare ../base.json ../head.json")
    return "\n".join(lines)
