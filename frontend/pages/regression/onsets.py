"""Where the gates of a regression began to show it, and which others it may be one regression with."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from backend.regression.regression_state import OPEN
from backend.services.triage.detail import RegressionDetail
from backend.services.triage.views import Regression
from frontend.pages.regression.wording import name_of
from frontend.render import visible

LIVE = ("suspect", "confirmed")


MERGE_CHOICES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionOnset:
    """Where gates of a regression began to show it: one place, else it may be two regressions."""

    position: int
    name: str
    series: int
    is_its_own: bool
    """Where the regression as a whole is said to begin."""


def onsets_of(detail: RegressionDetail) -> list[RegressionOnset]:
    """The onsets of the gates that still show it, the oldest first."""
    gates = [each for each in detail.affected if each.role == "gate" and each.state in LIVE]
    shas = {each.onset_position: each.onset_sha[:7] for each in gates if each.onset_sha}
    own = None if detail.regression.first_bad is None else detail.regression.first_bad.position
    return [
        RegressionOnset(position=at, name=shas.get(at, f"position {at}"), series=count, is_its_own=at == own)
        for at, count in sorted(Counter(each.onset_position for each in gates).items())
    ]


def mergeable(it: Regression, open_ones: Sequence[Regression]) -> list[tuple[int, str]]:
    """Other open regressions it may be part of, the nearest onset first."""
    here = it.first_bad.position if it.first_bad and it.first_bad.position is not None else None
    if it.state not in OPEN or here is None:
        return []
    others = [
        (abs(each.first_bad.position - here), each)
        for each in open_ones
        if each.id != it.id and each.first_bad is not None and each.first_bad.position is not None
    ]
    others.sort(key=lambda pair: (pair[0], pair[1].id))
    return [(each.id, f"R-{each.id} {visible(name_of(each))}") for _, each in others[:MERGE_CHOICES]]
