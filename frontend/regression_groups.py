"""How the list of regressions is grouped and sorted: one onset together, and what needs a person first."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from markupsafe import Markup

from backend.regression.regression_state import OPEN
from backend.services.triage.views import Regression


class By(StrEnum):
    """The field that the rows of a group share."""

    ONSET = "onset"  # the groups are those of what a person has to do; rows of one onset stand together
    AUTHOR = "author"
    SUITE = "suite"
    DAY = "day"


class Sort(StrEnum):
    """The order within a group."""

    NEWEST = "newest"
    OLDEST = "oldest"
    LARGEST = "largest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A regression as a row. `follows`: the row above it has the same onset."""

    regression: Regression
    headline: str
    sub: str
    interval: str
    still: Markup
    spark: Markup
    suspects: str
    open: bool
    follows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionGroup:
    title: str
    note: str
    items: list[Item]


def began(regression: Regression) -> datetime:
    """When its first bad commit was made; where none is known, when it was found."""
    onset = regression.first_bad
    return onset.committed_at if onset is not None and onset.committed_at is not None else regression.opened_at


def onset_of(regression: Regression) -> tuple[str, int | str]:
    """The key of an onset: the testbed and the position of the first bad commit."""
    onset = None if regression.first_bad is None else regression.first_bad.position
    return regression.testbed, f"R{regression.id}" if onset is None else onset


def grouped(items: Sequence[Item], by: By = By.ONSET, sort: Sort = Sort.NEWEST) -> list[RegressionGroup]:
    """The rows in their groups."""
    if by is By.ONSET:
        return by_need(items, sort)
    titles: dict[str, list[Item]] = {}
    for each in items:
        titles.setdefault(_TITLE[by](each.regression), []).append(each)
    names = sorted(titles, reverse=by is By.DAY)
    return [RegressionGroup(title=name, note="", items=together(titles[name], sort)) for name in names]


def by_need(items: Iterable[Item], sort: Sort) -> list[RegressionGroup]:
    """Groups by what a person has to do: those that need one first."""
    unowned, assigned, machine, suspected, over = [], [], [], [], []
    for each in items:
        regression = each.regression
        if regression.state not in OPEN:
            over.append(each)
        elif regression.held_back:
            machine.append(each)
        elif regression.state == "suspect":
            suspected.append(each)
        elif regression.state == "acknowledged" or regression.owner:
            assigned.append(each)
        else:
            unowned.append(each)
    groups = (
        ("Unassigned", "confirmed, without an owner", unowned),
        ("Assigned", "", assigned),
        ("Suspects", "more runs will decide; no notification has been sent", suspected),
        ("The machine or its environment, not the code", "no cell is red because of it", machine),
        ("Recovered and closed", "", over),
    )
    return [
        RegressionGroup(title=title, note=note, items=together(found, sort)) for title, note, found in groups if found
    ]


def together(items: Sequence[Item], sort: Sort) -> list[Item]:
    """Rows of one onset one after another, the largest first; the onsets in the requested order."""
    onsets: dict[tuple[str, int | str], list[Item]] = {}
    for each in items:
        onsets.setdefault(onset_of(each.regression), []).append(each)
    for found in onsets.values():
        found.sort(key=lambda each: -(each.regression.change or 0.0))
    ordered = sorted(
        onsets.values(), key=lambda found: _KEY[sort](found[0].regression), reverse=sort is not Sort.OLDEST
    )
    return [replace(each, follows=number > 0) for found in ordered for number, each in enumerate(found)]


_KEY: dict[Sort, Callable[[Regression], tuple[float, int]]] = {
    Sort.NEWEST: lambda regression: (began(regression).timestamp(), regression.id),
    Sort.OLDEST: lambda regression: (began(regression).timestamp(), regression.id),
    Sort.LARGEST: lambda regression: (regression.change or 0.0, regression.id),
}


def _author(regression: Regression) -> str:
    """A name only where one commit is left."""
    onset = regression.first_bad if regression.suspect_commits == 1 else None
    return "One of several commits" if onset is None else onset.author


_TITLE: dict[By, Callable[[Regression], str]] = {
    By.AUTHOR: _author,
    By.SUITE: lambda regression: regression.suite or "a suite that is gone",
    By.DAY: lambda regression: f"{began(regression).astimezone(UTC):%Y-%m-%d}",
}
