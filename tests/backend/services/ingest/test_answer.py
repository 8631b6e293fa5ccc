"""What a delivery is answered, the first time and again."""

from dataclasses import replace
from typing import Any


def test_the_same_bytes_again_change_nothing_and_get_the_same_verdicts(loom: Any) -> None:
    *_, first = loom.history([100.0] * 6)
    counted = (
        "SELECT (SELECT count(*) FROM judgement), (SELECT count(*) FROM measurement), (SELECT sum(runs) FROM rollup)"
    )
    before = loom.rows(counted)
    again = loom.run(5, 100.0)
    assert not again.created
    assert loom.rows(counted) == before
    assert replace(again, created=True) == first


def test_a_run_delivered_again_is_answered_as_it_was_first_through_a_loss_its_end_and_a_gain(loom: Any) -> None:
    levels = [100.0] * 12 + [125.0] * 8 + [100.0] * 8 + [80.0] * 6
    for position, level in enumerate(levels):
        first, again = loom.run(position, level), loom.run(position, level)
        assert first.created and not again.created
        assert replace(again, created=True, warnings=first.warnings) == first, position
        new = ("the project northsea/loom is new: is its name right?",)
        assert first.warnings == (new if position == 0 else ())
        assert again.warnings == ()
    assert loom.events() == ["suspected", "confirmed", "fixed"]
