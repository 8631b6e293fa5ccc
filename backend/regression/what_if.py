"""Which cases a list would hold under another policy: the current ones, minus those gone, plus new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.regression.grouping import NEAR, Group, SeriesChange, belongs, group, lead_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCase:
    """Changes of one onset. `number`: of the regression; None: there is none yet."""

    number: int | None
    changes: tuple[SeriesChange, ...]
    is_reported: bool
    """Whether the list counts it: people were notified, and it is not caused by a machine."""

    @property
    def group(self) -> Group:
        return Group(lead_of(self.changes), self.changes)


def cases_after(
    known: Sequence[ListedCase], gone: Sequence[SeriesChange], fresh: Sequence[SeriesChange]
) -> list[ListedCase]:
    """The cases that are left of those known when some changes are gone, with the fresh ones in the case of their
    onset, or in new cases. Nothing gone and nothing fresh leaves all as they are."""
    left = [_without(case, gone) for case in known]
    new: list[SeriesChange] = []
    for change in fresh:
        home = next((at for at, case in enumerate(known) if belongs(case.group, change)), None)
        if home is None:
            new.append(change)
        else:
            left[home] = (*left[home], change)
    kept = [
        ListedCase(number=case.number, changes=changes, is_reported=case.is_reported)
        for case, changes in zip(known, left, strict=True)
        if changes
    ]
    return kept + [ListedCase(number=None, changes=found.members, is_reported=True) for found in group(new)]


def _without(case: ListedCase, gone: Sequence[SeriesChange]) -> tuple[SeriesChange, ...]:
    return tuple(change for change in case.changes if not any(is_same(change, other) for other in gone))


def is_same(a: SeriesChange, b: SeriesChange) -> bool:
    """Whether two policies tell of the same change of a series: they locate it within a few commits of each other."""
    return a.series_id == b.series_id and abs(a.change.onset_position - b.change.onset_position) <= NEAR
