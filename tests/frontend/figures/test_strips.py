"""The axis of a strip: its labels run neither into each other nor into the value at the base."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from frontend.figures.strips import LABEL_HEIGHT, scale_of, time_ticks


@pytest.mark.parametrize("line", [[1, 0.99], [1, 0.72], [1, 0.45, 1.2], [1, 1.5], [1, 0.93, 1.06], [1, 0.9, 1.02]])
def test_no_label_runs_into_another_or_into_the_value_at_the_base(line: list[float]) -> None:
    scale = scale_of([line])
    heights = [scale.percent(1.0), *(height for _, height in scale.ticks())]
    assert min(abs(one - other) for one, other in itertools.combinations(heights, 2)) >= LABEL_HEIGHT


def test_an_axis_says_how_far_it_goes() -> None:
    assert [text for text, _ in scale_of([[1, 0.45, 1.2]]).ticks()][:1] == ["▼40 %"]


BEGAN = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)


@pytest.mark.parametrize("hours", [0.5, 4, 30, 24 * 5, 24 * 40, 24 * 365 * 3])
def test_the_time_axis_has_round_moments_and_none_beside_its_ends(hours: float) -> None:
    found = time_ticks([BEGAN, BEGAN + timedelta(hours=hours)])
    assert 2 <= len(found) <= 7
    assert all(12 <= left <= 88 for left, _, _ in found)
    assert {form for _, _, form in found} == {"day" if hours > 100 else "clock"}
    assert all(at.minute % 10 == 0 and (form == "clock" or (at.hour, at.minute) == (0, 0)) for _, at, form in found)


def test_one_moment_has_no_axis() -> None:
    assert time_ticks([BEGAN]) == []
