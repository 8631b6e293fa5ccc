"""What is remembered of a series is stored without a loss."""

import json

import pytest

from backend.regression.policy import Policy
from backend.regression.series.judge import judge, judge_history
from backend.regression.series.state import SeriesState
from backend.regression.terms import Direction, Point, SeriesKind
from tests.backend.regression.judge_histories import any_history

NOISY, EXACT = SeriesKind(Direction.LOWER), SeriesKind(Direction.HIGHER, exact=True)


@pytest.mark.parametrize("kind", [NOISY, EXACT])
@pytest.mark.parametrize("runs", [0, 1, 3, 40, 150])
def test_a_state_that_was_stored_judges_the_next_point_alike(kind, runs):
    points = any_history(3, runs, kind.exact)
    state = judge_history(points, kind, Policy())[1]
    stored = SeriesState.from_json(json.loads(json.dumps(state.to_json())))
    assert stored.to_json() == state.to_json()
    point = Point(1_000, "c", (9.0, 9.1, 9.2), "box-1")
    one, other = judge(state, point, Policy()), judge(stored, point, Policy())
    assert one[0] == other[0]
    assert one[1].to_json() == other[1].to_json()


def test_a_state_of_another_version_is_refused():
    with pytest.raises(ValueError, match="series state of version 7; 1 is read"):
        SeriesState.from_json({"version": 7})
