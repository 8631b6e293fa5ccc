"""The axis of a strip: its labels run neither into each other nor into the value at the base."""

import itertools

import pytest

from frontend.figures.strips import LABEL_HEIGHT, scale_of


@pytest.mark.parametrize("line", [[1, 0.99], [1, 0.72], [1, 0.45, 1.2], [1, 1.5], [1, 0.93, 1.06], [1, 0.9, 1.02]])
def test_no_label_runs_into_another_or_into_the_value_at_the_base(line: list[float]) -> None:
    scale = scale_of([line])
    heights = [scale.percent(1.0), *(height for _, height in scale.ticks())]
    assert min(abs(one - other) for one, other in itertools.combinations(heights, 2)) >= LABEL_HEIGHT


def test_an_axis_says_how_far_it_goes() -> None:
    assert [text for text, _ in scale_of([[1, 0.45, 1.2]]).ticks()][:1] == ["▼40 %"]
