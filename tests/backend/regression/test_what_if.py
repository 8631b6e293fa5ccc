"""Regressions that a list would hold: one goes with its last change, and a fresh change joins that of its onset."""

from backend.regression.grouping import SeriesChange
from backend.regression.terms import ChangeDirection, ChangeKind, ChangePoint, ChangeState, Role
from backend.regression.what_if import ListedRegression, regressions_after


def change(series: str, onset: int) -> SeriesChange:
    point = ChangePoint(
        kind=ChangeKind.STEP,
        direction=ChangeDirection.REGRESSION,
        state=ChangeState.CONFIRMED,
        onset_position=onset,
        last_good_position=onset - 1,
        range_start=onset,
        range_end=onset,
        magnitude=0.1,
        past_threshold=True,
        detected_position=onset + 2,
        baseline=10.0,
        level=11.0,
    )
    return SeriesChange(series, "cpu", "gpt.train", "step_ms", Role.GATE, point, noise=0.01)


KNOWN = [
    ListedRegression(number=1, changes=(change("a", 20), change("b", 20)), is_reported=True),
    ListedRegression(number=2, changes=(change("a", 40),), is_reported=False),
]


def numbers(regressions: list[ListedRegression]) -> list[tuple[int | None, int]]:
    return [(regression.number, len(regression.changes)) for regression in regressions]


def test_with_nothing_gone_and_nothing_fresh_the_list_is_what_it_is() -> None:
    assert regressions_after(KNOWN, [], []) == KNOWN


def test_a_regression_ends_with_its_last_change_however_the_other_policy_located_it() -> None:
    assert numbers(regressions_after(KNOWN, [change("a", 21)], [])) == [(1, 1), (2, 1)]
    assert numbers(regressions_after(KNOWN, [change("a", 20), change("b", 22)], [])) == [(2, 1)]


def test_a_fresh_change_joins_the_regression_of_its_onset_and_else_founds_one_with_others() -> None:
    found = regressions_after(KNOWN, [], [change("c", 20), change("c", 30), change("d", 30)])
    assert numbers(found) == [(1, 3), (2, 1), (None, 2)]
    assert [regression.is_reported for regression in found] == [True, False, True]


def test_what_a_machine_did_is_not_told_because_another_series_would_show_it() -> None:
    assert numbers(regressions_after(KNOWN, [], [change("c", 40)])) == [(1, 2), (2, 2)]
