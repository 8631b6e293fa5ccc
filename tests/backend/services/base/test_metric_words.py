"""What a change of cost is called: by what the metric counts, the same word wherever it is said."""

from __future__ import annotations

import pytest

from backend.services.base.metric_words import BETTER, change_word, common_word, worse_word


@pytest.mark.parametrize(
    ("unit", "direction", "worse", "better"),
    [
        ("ms", "lower", "slower", "faster"),
        ("ratio", "lower", "slower", "faster"),
        ("1/s", "higher", "slower", "faster"),
        ("token/s", "higher", "slower", "faster"),
        ("B", "lower", "more memory", "less memory"),
        ("MiB", "lower", "more memory", "less memory"),
        ("1", "lower", "more", "less"),
        ("FLOP", "lower", "more", "less"),
        ("1", "higher", "worse", "better"),
    ],
)
def test_each_kind_of_metric_has_its_words(unit: str, direction: str, worse: str, better: str) -> None:
    assert worse_word(unit, direction) == worse
    assert (change_word(unit, direction, 0.1), change_word(unit, direction, -0.1)) == (worse, better)


def test_several_metrics_share_a_word_or_are_just_worse_or_better() -> None:
    assert common_word(["slower", "slower"]) == "slower"
    assert common_word(["slower", "more memory"]) == "worse"
    assert common_word(BETTER.values()) == "better"
