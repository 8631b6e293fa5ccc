"""Records that are quick to make behave as frozen dataclasses do, for those who do not write to them."""

from __future__ import annotations

import gc
from dataclasses import field, replace

import pytest

from backend.records import record, uncollected


@record(kw_only=True)
class Reading:
    name: str
    values: tuple[float, ...] = field(default=())


@record(eq=False)
class Itself:
    name: str


def test_equal_records_are_one_in_a_set() -> None:
    one = Reading(name="a", values=(1.0,))
    assert len({one, replace(Reading(name="b", values=(1.0,)), name="a")}) == 1
    assert one != Reading(name="a")


def test_records_that_are_compared_by_identity_stay_two() -> None:
    assert len({Itself("a"), Itself("a")}) == 2


def test_a_record_has_no_room_for_other_fields() -> None:
    with pytest.raises(AttributeError):
        Reading(name="a").other = 1  # type: ignore[attr-defined]


def test_garbage_is_collected_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="mid-way"), uncollected():
        assert not gc.isenabled()
        raise ValueError("mid-way")
    assert gc.isenabled()


def test_of_two_pauses_of_the_collector_neither_leaves_it_off() -> None:
    first, second = uncollected(), uncollected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()
