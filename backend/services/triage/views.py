"""Regressions for people and scripts: the list with its filters, and one with all that a person needs to act on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, RowMapping

from backend.regression.cause.attribution import CauseName
from backend.regression.regression_state import RegressionState
from backend.services.base.errors import BadRequest
from backend.services.base.projects import find_project
from backend.services.base.scope import find_commit, find_scope
from backend.store.regressions import views

T = TypeVar("T")

MAX_LIMIT = 500


# Words a reader may ask by for several states at once.
STATE_GROUPS: Mapping[str, tuple[RegressionState, ...]] = {
    "open": (RegressionState.CONFIRMED, RegressionState.ACKNOWLEDGED),
    "closed": (
        RegressionState.FIXED,
        RegressionState.EXPECTED,
        RegressionState.INVALID,
        RegressionState.WITHDRAWN,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionFilter:
    """Which regressions. Everything left out matches all."""

    project: str | None = None
    state: str | None = None
    """States and groups of them (open, closed), separated by commas."""
    cause: str | None = None
    suite: str | None = None
    benchmark: str | None = None
    metric: str | None = None
    testbed: str | None = None
    owner: str | None = None
    commits: str | None = None
    """`base..head`: onsets after base, up to head. Needs `project`."""
    since: datetime | None = None
    until: datetime | None = None
    still_bad: bool | None = None
    min_change: float | None = None
    """Of cost, as a fraction."""
    limit: int = 50
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list; `next` is the cursor of the following part, None at the end."""

    items: tuple[T, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitName:
    sha: str
    position: int | None
    message: str
    author: str
    committed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """One regression as a list shows it. Changes are of cost, as fractions; values are of the leading series."""

    id: int
    title: str
    project: str
    testbed: str
    """Of the leading series."""
    testbeds: tuple[str, ...]
    """All that show it."""
    state: str
    kind: str
    cause: str | None
    held_back: bool
    """A real change not caused by code: an alarm about machine or environment, never a red cell."""
    suite: str | None
    benchmark: str | None
    variant: str | None
    metric: str | None
    unit: str | None
    direction: str | None
    series_id: int | None
    change: float | None
    change_low: float | None
    change_high: float | None
    before: float | None
    after: float | None
    commit: str | None
    """The first bad commit."""
    first_bad: CommitName | None
    last_good: CommitName | None
    suspect_commits: int | None
    series: int
    still_bad: bool
    owner: str | None
    reason: str | None
    fixed_by: CommitName | None
    opened_at: datetime
    confirmed_at: datetime | None
    closed_at: datetime | None
    updated_at: datetime


# --- reading ---------------------------------------------------------------------------------------------------------


def list_regressions(c: Connection, wanted: RegressionFilter) -> Page[Regression]:
    """Regressions that pass the filter, the newest first."""
    if not 1 <= wanted.limit <= MAX_LIMIT:
        raise BadRequest.field("limit", wanted.limit, f"1 to {MAX_LIMIT}")
    rows = views.listed(c, _filters(c, wanted), wanted.limit + 1)
    items = tuple(regression_of(row) for row in rows[: wanted.limit])
    return Page(items, str(items[-1].id) if len(rows) > wanted.limit else None)


def newest_by_state(c: Connection, wanted: RegressionFilter, most: Mapping[str, int]) -> dict[str, list[Regression]]:
    """The newest regressions in each of these states, or groups of them separated by commas, at most so many of each.
    No state may be in two of them. The filter's own state and limit do not count."""
    filters = _filters(c, replace(wanted, state=None))
    states = {text: _states(text) for text in most}
    rows = views.listed_by_states(c, filters, [(states[text], limit) for text, limit in most.items()])
    return {text: [regression_of(row) for row in rows if row["state"] in states[text]] for text in most}


def count_by_state(c: Connection, project: str) -> dict[str, int]:
    """How many regressions a project has in each state, and in each group of states (`open`, `closed`)."""
    counts = views.count_by_state(c, find_project(c, project).id)
    groups = {name: sum(counts.get(state.value, 0) for state in states) for name, states in STATE_GROUPS.items()}
    return counts | groups


def _filters(c: Connection, wanted: RegressionFilter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "project": wanted.project,
        "testbed": wanted.testbed,
        "states": None if wanted.state is None else _states(wanted.state),
        "cause": None if wanted.cause is None else _cause(wanted.cause),
        "suite": wanted.suite,
        "benchmark": wanted.benchmark,
        "metric": wanted.metric,
        "owner": wanted.owner,
        "since": wanted.since,
        "until": wanted.until,
        "still_bad": wanted.still_bad,
        "min_change": wanted.min_change,
        "before_id": None if wanted.cursor is None else _cursor(wanted.cursor),
    }
    if wanted.project is not None:
        find_scope(c, wanted.project)  # an unknown project is refused by name, not answered with an empty list
    if wanted.commits is not None:
        found |= _positions(c, wanted)
    return {name: value for name, value in found.items() if value is not None}


def _states(text: str) -> list[str]:
    states: list[str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        group = STATE_GROUPS.get(word)
        if group is None and word not in set(RegressionState):
            raise BadRequest.field("state", word, [*RegressionState, *STATE_GROUPS])
        states += [word] if group is None else [state.value for state in group]
    return states


def _cause(text: str) -> str:
    if text not in set(CauseName):
        raise BadRequest.field("cause", text, [cause.value for cause in CauseName])
    return text


def _cursor(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise BadRequest.field("cursor", text, "the `next` of the page before")
    return int(text)


def _positions(c: Connection, wanted: RegressionFilter) -> dict[str, int]:
    base, dots, head = (wanted.commits or "").partition("..")
    if not dots or wanted.project is None:
        raise BadRequest.field(
            "commits", wanted.commits, "base..head (either may be left out), together with `project`"
        )
    scope = find_scope(c, wanted.project)
    positions = {}
    for name, commit in (("after_position", base), ("until_position", head)):
        if commit:
            position = find_commit(c, scope, commit).default_position
            if position is None:
                raise BadRequest.field(
                    "commits", commit, f"a commit of the default branch, {scope.project.default_branch}"
                )
            positions[name] = position
    return positions


def regression_of(row: RowMapping) -> Regression:
    good = row["last_good_position"]
    return Regression(
        id=row["id"],
        title=_title(row),
        project=row["project"],
        testbed=row["testbed"],
        testbeds=tuple(row["testbeds"]),
        state=row["state"],
        kind=row["kind"],
        cause=row["cause"],
        held_back=row["held_back"],
        suite=row["suite"],
        benchmark=row["benchmark"],
        variant=row["variant_key"],
        metric=row["metric"],
        unit=row["unit"],
        direction=row["direction"],
        series_id=row["lead_series_id"],
        change=row["lead_change"],
        change_low=row["lead_change_low"],
        change_high=row["lead_change_high"],
        before=row["before"],
        after=row["after"],
        commit=row["bad_sha"],
        first_bad=_commit(row, "bad", row["first_bad_position"]),
        last_good=_commit(row, "good", good),
        suspect_commits=None if good is None else row["suspects"] or row["first_bad_position"] - good,
        series=row["series"],
        still_bad=row["still_bad"],
        owner=row["owner"],
        reason=row["reason"],
        fixed_by=_commit(row, "fix", row["fix_position"]),
        opened_at=row["opened_at"],
        confirmed_at=row["confirmed_at"],
        closed_at=row["closed_at"],
        updated_at=row["updated_at"],
    )


def _title(row: RowMapping) -> str:
    """The regression in a line: which metric got worse, and by how much."""
    if row["benchmark"] is None:
        return "a series that is gone"
    variant = f" {row['variant_key'].replace(',', ', ')}" if row["variant_key"] else ""
    grew = "costs" if row["kind"] == "step" else "drifted to"
    return f"{row['benchmark']}{variant}: {row['metric']} {grew} {100 * row['lead_change']:.1f} % more"


def _commit(row: RowMapping, which: str, position: int | None) -> CommitName | None:
    if row[f"{which}_sha"] is None:
        return None
    return CommitName(
        sha=row[f"{which}_sha"],
        position=position,
        message=row[f"{which}_message"].partition("\n")[0],
        author=row[f"{which}_author"],
        committed_at=row[f"{which}_at"],
    )
