"""Where a regression began, gate by gate, and which others it may be one regression with."""

from datetime import UTC, datetime
from typing import Any

from backend.services.triage.detail import AffectedSeries, RegressionDetail
from backend.services.triage.views import CommitName, Regression
from frontend.pages.regression.onsets import mergeable, onsets_of

AT = datetime(2026, 11, 1, tzinfo=UTC)


def regression(number: int, position: int | None, **more: Any) -> Regression:
    began = CommitName(sha=f"{position or 0:040x}", position=position, message="m", author="a", committed_at=AT)
    empty: dict[str, Any] = dict.fromkeys(Regression.__dataclass_fields__)
    return Regression(**(empty | {"id": number, "state": "confirmed", "suite": "moe", "first_bad": began} | more))


def detail(*onsets: tuple[int, str, str]) -> RegressionDetail:
    """Of a regression from position 7 with a series for each (position of its onset, role, state)."""
    plain: dict[str, Any] = dict.fromkeys(AffectedSeries.__dataclass_fields__)
    affected = tuple(
        AffectedSeries(**(plain | {"onset_position": at, "onset_sha": f"{at:040x}", "role": role, "state": state}))
        for at, role, state in onsets
    )
    empty: dict[str, Any] = dict.fromkeys(RegressionDetail.__dataclass_fields__)
    return RegressionDetail(**(empty | {"regression": regression(1, 7), "affected": affected, "suspects": ()}))


def test_gates_are_counted_at_their_onsets_the_oldest_first() -> None:
    found = onsets_of(detail((9, "gate", "confirmed"), (7, "gate", "suspect"), (9, "gate", "confirmed")))
    assert [(each.position, each.series, each.is_its_own) for each in found] == [(7, 1, True), (9, 2, False)]
    assert found[0].name == "0" * 7, "by the commit of the gate, which need be no suspect of the regression"


def test_what_is_watched_or_withdrawn_is_no_onset() -> None:
    assert onsets_of(detail((9, "watch", "confirmed"), (9, "gate", "withdrawn"))) == []


def test_the_nearest_open_regressions_come_first_and_itself_never() -> None:
    here = regression(1, 7)
    others = [here, regression(2, 30), regression(3, 6), regression(4, None)]
    assert [number for number, _ in mergeable(here, others)] == [3, 2]


def test_a_closed_regression_is_part_of_none() -> None:
    assert mergeable(regression(1, 7, state="fixed"), [regression(2, 7)]) == []
