"""Packed floats come back bit for bit, and those that clocks tell take few bytes."""

from __future__ import annotations

import math
import random
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.store.ingest.packed import AT_ONCE, pack, unpack

ODD = [0.0, -0.0, 1.5, -2.25, 0.1, 2.0**53, -(2.0**53) - 2, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan]
FLOATS = st.one_of(
    st.floats(),
    st.floats(width=32),
    st.integers(-(10**12), 10**12).map(float),
    st.integers(-(10**9), 10**9).map(lambda units: units / 1e6),
    st.sampled_from(ODD),
)


def bits(values: list[float]) -> list[bytes]:
    return [struct.pack("d", value) for value in values]


@given(st.lists(st.lists(FLOATS, max_size=40), max_size=8))
def test_every_list_comes_back_bit_for_bit(lists: list[list[float]]) -> None:
    packed = pack([value for values in lists for value in values], list(map(len, lists)))
    assert [[] if each is None else bits(unpack(each)) for each in packed] == [bits(values) for values in lists]


@pytest.mark.parametrize("counts", [[16 * AT_ONCE + 5], [8 * AT_ONCE + 1, 7, 8 * AT_ONCE + 1]])
def test_lists_of_many_samples_come_back_and_take_little_more_memory_than_their_floats(counts: list[int]) -> None:
    chance = random.Random(1)
    values = [chance.random() for _ in range(sum(counts))]
    tracemalloc.start()
    packed = pack(values, counts)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [value for each in packed if each is not None for value in unpack(each)] == values
    assert most - kept < 80 * len(values)


def test_an_empty_list_is_nothing() -> None:
    assert pack([1.0, 2.0], [0, 2, 0])[::2] == [None, None]


@pytest.mark.parametrize(
    ("clock", "at_most"),
    [
        ("nanoseconds", 85),
        ("seven digits", 75),
        ("events of a GPU", 95),
        ("whole bytes that are all the same", 12),
        ("every bit of a float64", 205),
    ],
)
def test_thirty_timings_take_less_than_their_floats(clock: str, at_most: int) -> None:
    chance = random.Random(1)
    timings = [5.4 * (1 + chance.gauss(0, 0.01)) for _ in range(30)]
    said = {
        "nanoseconds": [round(value, 6) for value in timings],
        "seven digits": [float(f"{value:.7g}") for value in timings],
        "events of a GPU": [struct.unpack("f", struct.pack("f", value))[0] for value in timings],
        "whole bytes that are all the same": [24_159_191_040.0] * 30,
        "every bit of a float64": timings,
    }[clock]
    (packed,) = pack(said, [30])
    assert packed is not None and len(packed) <= at_most < 30 * 8
