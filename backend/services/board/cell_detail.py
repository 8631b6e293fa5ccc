"""The popover of a cell: everything known of one point in one small read, with a sparkline around it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from numpy.typing import NDArray
from sqlalchemy import Connection

from backend.services.base.errors import NotFound
from backend.services.base.scope import find_commit, find_scope
from backend.services.reports.explanations import Explanation, explanation
from backend.services.reports.history import WORDS, NamedSeries, series_info, with_siblings
from backend.store.board import board as board_store
from backend.store.board.board import ONSET, CellRegression
from backend.store.reports import history as store
from backend.store.reports import points as point_store

SPARKLINE = 50
NEWEST = 2**31 - 1
AFTER = 12  # of the sparkline's points at most so many lie after the cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """The points around a cell, oldest first; `here` is its index, None where the cell is on another branch."""

    here: int | None
    position: NDArray[Any]
    sha: Sequence[str]
    value: NDArray[Any]
    band_low: NDArray[Any]
    band_high: NDArray[Any]
    verdict: Sequence[str]
    onset: NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """A phase of a step: its change against its own baseline, and the share that it has of what all phases changed."""

    metric: str
    unit: str
    difference: float
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDetail:
    """`why` holds value, baseline, interval and the reason in words and numbers; None: there is no judgement.

    Then `status` and `error` say what happened to the variant instead. `processes` is how many fresh processes were
    measured, in `runs` runs of this commit.
    """

    series: NamedSeries
    sha: str
    message: str
    author: str
    committed_at: datetime | None
    pull_request: int | None
    run_id: str | None
    status: str | None
    error: str | None
    why: Explanation | None
    processes: int
    runs: int
    regression: CellRegression | None
    gained: float | None
    """The gain of the series here, as a change of cost: a change point for the better begins at this commit."""
    grown: Grown | None
    """The phase of the step that moved most, where the cell says that something changed and phases are measured."""
    sparkline: Sparkline


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultDetail:
    """A variant that was never measured, so that no series knows it: what came of it at a commit, and why."""

    project: str
    testbed: str
    suite: str
    benchmark: str
    variant_key: str
    preset: str
    sha: str
    message: str
    author: str
    committed_at: datetime | None
    run_id: str
    status: str
    error: str | None


def load_result(c: Connection, project: str, testbed: str | None, column: str, sha: str) -> ResultDetail:
    """Load the popover of a column without a series. `column` is the key of a board's column."""
    scope = find_scope(c, project, None, testbed)
    commit = find_commit(c, scope, sha)
    suite, benchmark, *variant, preset = column.split("/") if column.count("/") >= 3 else ("", "", "", "")
    names = (suite, benchmark, "/".join(variant), preset)
    found = None
    if scope.testbed is not None:
        found = point_store.result_named(c, scope.project.id, scope.testbed.id, commit.id, names)
    if found is None or scope.testbed is None:
        raise NotFound(f"no result of {column} at {commit.sha[:7]}")
    return ResultDetail(
        project=project,
        testbed=scope.testbed.name,
        suite=suite,
        benchmark=benchmark,
        variant_key=names[2],
        preset=preset,
        sha=commit.sha,
        message=commit.message,
        author=commit.author_name,
        committed_at=commit.committed_at,
        run_id=found[0],
        status=found[1],
        error=found[2],
    )


def load_cell(c: Connection, series_id: int, sha: str) -> CellDetail:
    """Load the popover of a series at a commit."""
    info = series_info(c, series_id)
    scope = find_scope(c, info.project)
    commit = find_commit(c, scope, sha)
    row = point_store.judgement_of(c, series_id, commit)
    why = None if row is None else explanation(c, scope, info, commit, row)
    run_id, status, error = (row.run_id, "ok", None) if row is not None else _result(c, series_id, commit.id)
    measured = point_store.samples_of(c, series_id, commit.id)
    return CellDetail(
        series=with_siblings(c, info),
        sha=commit.sha,
        message=commit.message,
        author=commit.author_name,
        committed_at=commit.committed_at,
        pull_request=commit.pull_request,
        run_id=run_id,
        status=status,
        error=error,
        why=why,
        processes=sum(len(run.processes or (0,)) for run in measured),
        runs=len(measured),
        regression=None if why is None else _regression(c, why.regression_id),
        gained=None if row is None or row.branch_id is not None else _gained(c, series_id, row.position),
        grown=None
        if row is None or row.branch_id is not None or why is None
        else _grown(c, series_id, row.position, why),
        sparkline=_sparkline(c, series_id, None if row is None or row.branch_id is not None else row.position),
    )


def _gained(c: Connection, series_id: int, position: int) -> float | None:
    return next((change for _, change in board_store.improvements(c, [series_id], position, position)), None)


MOVED = ("regression", "improvement", "suspect")


def _grown(c: Connection, series_id: int, position: int, why: Explanation) -> Grown | None:
    """The phase that moved most in the direction of the step; below the step's own noise nothing is said of it."""
    if why.verdict not in MOVED or why.change is None or why.baseline is None:
        return None
    moved = [
        (name, unit, value - baseline) for name, unit, value, baseline in point_store.phases_at(c, series_id, position)
    ]
    wanted = [each for each in moved if each[2] * why.change > 0]
    if not wanted:
        return None
    name, unit, difference = max(wanted, key=lambda each: abs(each[2]))
    total = sum(each[2] for each in moved if each[1] == unit)
    if abs(total) < abs(why.baseline) * (why.noise or 0.0):
        return None
    return Grown(
        metric=name, unit=unit, difference=difference, share=difference / total if total * difference > 0 else None
    )


def _result(c: Connection, series_id: int, commit_id: int) -> tuple[str | None, str | None, str | None]:
    return point_store.result_of(c, series_id, commit_id) or (None, None, None)


def _regression(c: Connection, regression_id: int | None) -> CellRegression | None:
    return None if regression_id is None else board_store.regressions_of_ids(c, [regression_id]).get(regression_id)


def _sparkline(c: Connection, series_id: int, position: int | None) -> Sparkline:
    """The cell's surroundings: mostly what came before it, and how it went on."""
    later = [] if position is None else point_store.positions_after(c, series_id, position, AFTER)
    last = NEWEST if position is None else max(later, default=position)
    packed = store.packed_points(c, series_id, 0, last, SPARKLINE)
    positions = packed.numbers["position"].astype("i4")
    at = [] if position is None else (positions == position).nonzero()[0].tolist()
    return Sparkline(
        here=at[0] if at else None,
        position=positions,
        sha=packed.shas,
        value=packed.numbers["value"].astype("f8"),
        band_low=packed.numbers["band_low"].astype("f8"),
        band_high=packed.numbers["band_high"].astype("f8"),
        verdict=WORDS[packed.numbers["verdict_and_onset"] % ONSET].tolist(),
        onset=packed.numbers["verdict_and_onset"] >= ONSET,
    )
