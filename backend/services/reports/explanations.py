"""Why a point was judged as it was: a paragraph, every number behind it, and what its run measured.

Nothing is judged here: this reads what the judge stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from backend.regression.policy import PolicyRow
from backend.regression.series.explain import explain
from backend.services.base.errors import NotFound
from backend.services.base.scope import QueryScope, find_commit, find_scope
from backend.services.policy.versions import PolicyScope, thresholds_of
from backend.services.reports.history import NamedSeries, profile_of, series_info, series_of
from backend.store.base.lookup import CommitRow
from backend.store.judging.judgements import said_by
from backend.store.regressions.regressions import shas_at
from backend.store.reports import points as store
from backend.store.reports.commit_verdicts import runs_of_commit
from backend.store.reports.points import Sampled
from backend.store.reports.series import SeriesInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a point was judged as it was: a paragraph, and every number behind it."""

    series: NamedSeries
    sha: str
    position: int
    run_id: str
    worker: str | None
    measured_at: datetime
    verdict: str
    reason: str
    text: str
    red: bool
    onset: bool
    value: float
    change: float | None
    low: float | None
    high: float | None
    baseline: float | None
    band_low: float | None
    band_high: float | None
    anchor: float | None
    anchor_change: float | None
    noise: float | None
    minimum_detectable_effect: float | None
    have: int
    need: int
    since_position: int | None
    regression_id: int | None
    policy_version: str
    policy: tuple[PolicyRow, ...] | None  # its thresholds that are not the built-in ones; None: no longer known
    judged_at: datetime
    first_said: str | None  # the verdict of the day, where later runs changed it
    numbers: Mapping[str, float]


def explain_point(c: Connection, series_id: int, commit: str) -> Explanation:
    """Why the point of a series at a commit (a sha, or its first digits) was judged as it was, with its noise."""
    info, scope, found = _place(c, series_id, commit)
    why = _explained(c, series_id, info, scope, found)
    names = PolicyScope(info.project, info.suite, info.benchmark, info.metric, info.testbed)
    policy = thresholds_of(c, scope.project.id, why.policy_version, names)
    return replace(why, policy=policy, series=replace(why.series, profile=profile_of(c, info)))


def explain_with_samples(c: Connection, series_id: int, commit: str) -> tuple[Explanation, tuple[Sampled, ...]]:
    """Why the point was judged as it was, and the samples behind it."""
    info, scope, found = _place(c, series_id, commit)
    return _explained(c, series_id, info, scope, found), tuple(store.samples_of(c, series_id, found.id))


def _place(c: Connection, series_id: int, commit: str) -> tuple[SeriesInfo, QueryScope, CommitRow]:
    info = series_info(c, series_id)
    scope = find_scope(c, info.project)
    return info, scope, find_commit(c, scope, commit)


def _explained(c: Connection, series_id: int, info: SeriesInfo, scope: QueryScope, found: CommitRow) -> Explanation:
    row = store.judgement_of(c, series_id, found)
    if row is None:
        raise NotFound(
            f"series {series_id} ({info.benchmark} {info.variant_key} {info.metric} on {info.testbed}) "
            f"has no judged point at {found.sha[:12]}: {_why_none(c, info, found)}"
        )
    return explanation(c, scope, info, found, row)


def _why_none(c: Connection, info: SeriesInfo, found: CommitRow) -> str:
    """Why a series has no judged point at a commit, as far as the commit and its last run tell."""
    if found.skipped_reason:
        return "the commit was not benchmarked: " + found.skipped_reason.replace("\n", "; ")
    runs = [run for run in runs_of_commit(c, found.id, info.testbed) if run.suite == info.suite]
    if not runs:
        return f"suite {info.suite} was not measured there"
    last = runs[-1]
    if last.error:
        return f"run {last.run_id} {last.status or last.state}: {last.error}"
    return f"run {last.run_id} is {last.status or last.state} and has no judged result of it"


def explanation(c: Connection, scope: QueryScope, info: SeriesInfo, commit: CommitRow, row: Any) -> Explanation:
    """Explain a stored judgement (`judgement_of`) of a point, in words and numbers."""
    said = said_by(row, commit.sha)
    names = _names(c, scope, [said.position, *([] if said.since_position is None else [said.since_position])])
    return Explanation(
        series=series_of(info),
        sha=commit.sha,
        position=said.position,
        run_id=row.run_id,
        worker=row.worker,
        measured_at=row.measured_at,
        verdict=said.verdict.value,
        reason=said.reason.value,
        text=explain(said, info.metric, info.unit, names),
        red=said.red,
        onset=said.onset,
        value=said.value,
        change=said.change,
        low=said.change_low,
        high=said.change_high,
        baseline=said.baseline,
        band_low=said.band_low,
        band_high=said.band_high,
        anchor=said.anchor,
        anchor_change=said.anchor_change,
        noise=said.noise,
        minimum_detectable_effect=said.minimum_detectable_effect,
        have=said.n_baseline,
        need=said.n_baseline + said.needed_runs,
        since_position=said.since_position,
        regression_id=row.regression_id,
        policy_version=said.policy_version,
        policy=None,
        judged_at=row.judged_at,
        first_said=row.detail.get("first_said"),
        numbers=said.numbers,
    )


def load_samples(c: Connection, series_id: int, commit: str) -> tuple[Sampled, ...]:
    """The samples behind a point, one entry for each run of the commit that measured it."""
    return tuple(store.samples_of(c, series_id, _place(c, series_id, commit)[2].id))


def _names(c: Connection, scope: QueryScope, positions: Sequence[int]) -> dict[int, str]:
    """Short shas of positions of the default branch, for sentences."""
    if scope.default_branch is None:
        return {}
    found = shas_at(c, scope.default_branch.id, positions)
    return {position: sha[:7] for position, sha in found.items()}
