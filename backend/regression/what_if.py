"""Which regressions a list would hold under another policy: the current ones, minus those gone, plus new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.regression.grouping import NEAR, Group, SeriesChange, belongs, group, lead_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRegression:
    """Changes of one onset. `number`: of the regression; None: there is none yet."""

    number: int | None
    changes: tuple[SeriesChange, ...]
    is_reported: bool
    """Whether the list counts it: people were notified, and it is not caused by a machine."""

    @property
    def group(self) -> Group:
        return Group(lead_of(self.changes), self.changes)


def regressions_after(
    known: Sequence[ListedRegression], gone: Sequence[SeriesChange], fresh: Sequence[SeriesChange]
) -> list[ListedRegression]:
    """The regressions that are left of those known when some changes are gone. A fresh change joins the one of its
    onset, else a new one. With nothing gone and nothing fresh all are as they were."""
    left = [_without(regression, gone) for regression in known]
    new: list[SeriesChange] = []
    for change in fresh:
        home = next((at for at, regression in enumerate(known) if belongs(regression.group, change)), None)
        if home is None:
            new.append(change)
        else:
            left[home] = (*left[home], change)
    kept = [
        ListedRegression(number=regression.number, changes=changes, is_reported=regression.is_reported)
        for regression, changes in zip(known, left, strict=True)
        if changes
    ]
    return kept + [ListedRegression(number=None, changes=found.members, is_reported=True) for found in group(new)]


def _without(regression: ListedRegression, gone: Sequence[SeriesChange]) -> tuple[SeriesChange, ...]:
    return tuple(change for change in regression.changes if not any(is_same(change, other) for other in gone))


def is_same(a: SeriesChange, b: SeriesChange) -> bool:
    """Whether two policies tell of the same change of a series: they locate it within a few commits of each other."""
    return a.series_id == b.series_id and abs(a.change.onset_position - b.change.onset_position) <= NEAR
