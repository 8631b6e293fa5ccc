"""Which of the fleet judge's words a change point falls under, on both sides of each boundary."""

from dataclasses import replace

import pytest

from backend.regression.grouping import NEAR
from backend.services.alarms.coverage import ROLLS_OUT, cause_of, covering
from backend.store.joint.incidents import Word

CODE = Word(
    id=1,
    suite="gpt",
    kind="regression",
    cause="code",
    worker=None,
    testbeds=("cpu", "gpu"),
    series=frozenset({7, 8}),
    first_bad_position=50,
    range_start=48,
    range_end=51,
    magnitude=0.1,
    drift=False,
    closed_position=None,
    regression_id=None,
)
UPGRADE = replace(CODE, id=2, kind="environment", cause="environment", range_start=50, range_end=50)
ILL = replace(CODE, id=3, kind="infra", cause="hardware", worker="box-1", range_start=50, range_end=50)


@pytest.mark.parametrize(
    ("word", "first", "last"),
    [
        (CODE, 48 - NEAR, 51 + NEAR),
        (UPGRADE, 50 - NEAR, 50 + NEAR + ROLLS_OUT),
        (ILL, 50 - NEAR, 10_000),
        (replace(ILL, closed_position=60), 50 - NEAR, 60),
        (replace(CODE, drift=True, range_start=20), 20 - NEAR, 51 + NEAR),
    ],
)
def test_a_word_reaches_from_where_it_may_have_begun_to_where_it_was_over(word: Word, first: int, last: int) -> None:
    assert covering([word], 7, first) == covering([word], 7, last) == word
    assert covering([word], 7, first - 1) is None
    assert last == 10_000 or covering([word], 7, last + 1) is None


def test_a_series_that_it_does_not_name_is_none_of_its_business() -> None:
    assert covering([CODE], 9, 50) is None


def test_an_improvement_by_new_software_explains_no_loss() -> None:
    assert covering([replace(UPGRADE, magnitude=-0.1)], 7, 50) is None


def test_of_two_words_the_nearer_one_counts_and_of_two_as_near_the_codes() -> None:
    assert covering([ILL, replace(CODE, first_bad_position=70, range_start=70, range_end=70)], 7, 71).id == CODE.id
    assert covering([ILL, CODE], 7, 50) == CODE
    assert covering([ILL, CODE], 7, 56) == ILL


def test_only_the_code_is_told_at_once() -> None:
    assert [cause_of(word).suppress for word in (CODE, UPGRADE, ILL)] == [False, True, True]
    assert "box-1" in cause_of(ILL).evidence[0]
