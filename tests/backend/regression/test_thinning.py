"""Which commit of a range a backfill measures next."""

from __future__ import annotations

from itertools import pairwise

from backend.regression.thinning import LEAST_EVEN, changed_between, next_position


def order(positions: int, wanted: int, changed: list[tuple[int, int]] | None = None) -> list[tuple[int, str]]:
    taken: list[int] = []
    found = []
    while (chosen := next_position(range(positions), taken, changed or [], len(taken), wanted)) is not None:
        taken.append(chosen[0])
        found.append(chosen)
    return found


def test_the_ends_come_first_and_the_gaps_stay_even() -> None:
    chosen = [position for position, _ in order(65, 9)]
    assert chosen[:3] == [64, 0, 32]
    assert {b - a for a, b in pairwise(sorted(chosen))} == {8}


def test_a_change_is_closed_in_on_once_the_range_is_spread() -> None:
    found = order(65, 12, [(32, 48)])
    assert [why for _, why in found[:LEAST_EVEN]] == ["thin"] * LEAST_EVEN
    assert all(32 < position < 48 for position, why in found if why == "refine")
    assert found[LEAST_EVEN] == (40, "refine")


def test_every_commit_is_chosen_once_and_no_more_than_are_wanted() -> None:
    assert sorted(position for position, _ in order(20, 100)) == list(range(20))
    assert len(order(20, 7)) == 7


def test_what_is_measured_already_is_kept_away_from() -> None:
    assert next_position(range(11), {0, 10}, [], 0, 5) == (5, "thin")
    assert next_position([3], {3}, [], 0, 5) is None


def test_levels_differ_beyond_the_threshold_only_where_commits_lie_between() -> None:
    levels = [(0, 0.0), (4, 0.01), (8, 0.5), (9, 0.9)]
    assert changed_between(levels, 0.05) == [(4, 8)]
