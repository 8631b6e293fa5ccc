"""A change point in a chart: red only where people were told of a regression; a new baseline says that it is one."""

from typing import Any

import pytest

from backend.services.reports.history import LevelChange, NamedSeries, RegressionSpan, SeriesPoints
from frontend.figures.of_points import frozen, newest_open_change, open_onset, step_of, told


def change(**more: Any) -> LevelChange:
    known = {
        "kind": "step",
        "direction": "regression",
        "state": "confirmed",
        "position": 40,
        "sha": "819ec500fd",
        "last_good_position": 39,
        "detected_position": 42,
        "fixed_position": None,
        "change": 0.12,
        "low": 0.1,
        "high": 0.14,
        "before": 7.0,
        "after": 7.86,
        "regression_id": 13,
        "regression_state": "confirmed",
        "owner": None,
        "cause": "code",
    }
    return LevelChange(**(known | more))


@pytest.mark.parametrize(
    ("more", "label", "doubtful", "accepted"),
    [
        ({}, "▼ 12 % 819ec50", False, False),
        ({"regression_state": "acknowledged"}, "▼ 12 % 819ec50", False, False),
        ({"state": "suspect", "regression_state": "suspect"}, "? 12 % 819ec50", True, False),
        # Sustained, and held back: the machine or an upgrade did it.
        ({"regression_state": "suspect", "cause": "hardware"}, "? 12 % 819ec50", True, False),
        ({"regression_state": "expected", "cause": "environment"}, "new baseline 12 % 819ec50", False, True),
        (
            {"direction": "improvement", "change": -0.12, "regression_id": None, "regression_state": None},
            "▲ 12 % 819ec50",
            False,
            False,
        ),
    ],
)
def test_the_label_says_what_stands(more: dict[str, Any], label: str, doubtful: bool, accepted: bool) -> None:
    step = step_of(change(**more))
    assert (step.label.replace("\u202f", " "), step.doubtful, step.accepted) == (label, doubtful, accepted)


@pytest.mark.parametrize(
    ("state", "drawn"),
    [
        ("confirmed", True),
        ("fixed", True),
        ("expected", True),
        ("suspect", True),
        ("invalid", False),
        ("withdrawn", False),
    ],
)
def test_what_was_taken_back_is_not_drawn(state: str, drawn: bool) -> None:
    assert told(change(regression_state=state)) is drawn


@pytest.mark.parametrize(
    ("state", "red_from"),
    [("confirmed", 40.0), ("acknowledged", 40.0), ("suspect", None), ("expected", None), ("invalid", None)],
)
def test_the_line_is_red_only_while_a_told_regression_stands(state: str, red_from: float | None) -> None:
    assert open_onset([change(regression_state=state)]) == red_from
    assert open_onset([change(regression_state=state, fixed_position=50)]) is None


def test_a_series_is_in_the_regression_that_stands_else_on_its_new_baseline() -> None:
    over, invalid = change(fixed_position=50), change(regression_state="invalid")
    accepted, worse = change(regression_state="expected"), change(position=60)
    assert newest_open_change([over, invalid, accepted, worse]) is worse
    assert newest_open_change([over, invalid, accepted]) is accepted
    assert newest_open_change([over, invalid]) is None


SERIES = NamedSeries(
    id=1,
    project="northsea/loom",
    testbed="cpu",
    suite="gpt",
    suite_version="1.0.0",
    benchmark="gpt.train",
    variant={},
    variant_key="",
    preset="cpu",
    metric="step_ms",
    unit="ms",
    direction="lower",
    role="gate",
    exact=False,
    alarms_confirmed=0,
    alarms_withdrawn=0,
    last_measured_at=None,
)


@pytest.mark.parametrize(
    ("state", "end", "drawn"),
    [
        ("confirmed", None, [10.0, 10.2, 10.2, 10.2, 10.2]),
        ("fixed", 5, [10.0, 10.2, 10.2, 10.2, 14.0]),
        ("expected", None, [10.0, 10.2, 11.0, 12.0, 14.0]),
    ],
)
def test_over_a_regression_the_band_is_what_it_was_before_the_onset(
    state: str, end: int | None, drawn: list[float]
) -> None:
    points = SeriesPoints(
        series=SERIES,
        granularity="commit",
        position=[1, 2, 3, 4, 5],
        sha=(),
        message=(),
        author=(),
        run_id=(),
        committed_at=(),
        measured_at=(),
        value=(),
        regressions=(RegressionSpan(regression_id=1, state=state, start=3, end=end),),
    )
    assert frozen([10.0, 10.2, 11.0, 12.0, 14.0], points) == drawn
