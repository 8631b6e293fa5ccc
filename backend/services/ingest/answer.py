"""The answer to a delivery: every verdict, and the regressions that the run is part of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from backend.contract import Run
from backend.services.judging.outcome import SeriesVerdict, explanation
from backend.store.judging import judgements as judgement_store
from backend.store.regressions import regressions as regression_store


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRegression:
    """A regression that this run opened, confirmed, or changed otherwise."""

    id: int
    state: str
    cause: str | None
    change: float | None
    first_bad_position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The answer to a delivery."""

    run_id: str
    status: str
    created: bool
    """False: exactly these bytes had been delivered before."""
    verdicts: tuple[SeriesVerdict, ...]
    regressions: tuple[ChangedRegression, ...]
    summary: Mapping[str, int]
    """How many verdicts there are of each kind."""
    warnings: tuple[str, ...]
    """Sentences on what its sender may not have meant: a commit that the repository does not have, a new project."""


def answer_of(
    c: Connection,
    run: Run,
    verdicts: tuple[SeriesVerdict, ...],
    changed: Sequence[int],
    *,
    created: bool,
    warnings: tuple[str, ...],
) -> Recorded:
    """The answer; `changed` are the regressions that the delivery may have changed."""
    return Recorded(
        run_id=run.id,
        status=run.status.value,
        created=created,
        verdicts=verdicts,
        regressions=_regressions(c, run.id, verdicts, changed),
        summary=Counter(verdict.verdict for verdict in verdicts),
        warnings=warnings,
    )


def stored_verdicts(c: Connection, run_id: str, branch_id: int | None) -> tuple[SeriesVerdict, ...]:
    """The verdicts of a run as stored; `branch_id` is the default branch of its project."""
    rows = judgement_store.about_run(c, run_id)
    said = [judgement_store.said_by(row, row.commit) for row in rows]
    positions = {judgement.since_position for judgement in said if judgement.since_position is not None}
    shas = {} if branch_id is None else regression_store.shas_at(c, branch_id, positions)
    names = {position: sha[:10] for position, sha in shas.items()}
    return tuple(
        SeriesVerdict(
            series_id=row.series_id,
            benchmark=row.benchmark,
            variant=row.variant_key,
            metric=row.metric,
            unit=row.unit,
            role=row.role,
            verdict=row.verdict,
            red=row.red,
            change=row.change,
            change_low=row.change_low,
            change_high=row.change_high,
            baseline=row.baseline,
            value=row.value,
            needed_runs=judgement.needed_runs,
            regression_id=row.regression_id,
            explanation=explanation(judgement, row.metric, row.unit, names),
        )
        for row, judgement in zip(rows, said, strict=True)
    )


def _regressions(
    c: Connection, run_id: str, verdicts: Sequence[SeriesVerdict], changed: Sequence[int]
) -> tuple[ChangedRegression, ...]:
    """The regressions that its points are part of, and those of which the run brought news, among the `changed`."""
    numbers = {verdict.regression_id for verdict in verdicts if verdict.regression_id is not None}
    if changed:
        numbers |= regression_store.changed_by(c, run_id, changed)
    if not numbers:
        return ()
    rows = regression_store.load(c, sorted(numbers))
    return tuple(
        ChangedRegression(
            id=row.id,
            state=row.state,
            cause=row.cause,
            change=row.lead_change,
            first_bad_position=row.first_bad_position,
        )
        for row in rows.values()
    )
