"""What a session shows of a known change beside the next one."""

import numpy as np
import pytest

from backend.regression.joint.code import CodeChanges
from backend.regression.joint.scan import OnsetRange
from backend.regression.joint.software import Software
from backend.regression.joint.state import Code, Inquiry, JointState, QuestionPurpose
from backend.regression.joint.terms import JointSeries
from backend.regression.terms import Role

SERIES = [JointSeries(id=f"b{n}/step_ms", suite="s", benchmark=f"b{n}", role=Role.GATE, sign=1.0) for n in range(2)]
SMALLEST = SERIES[0].min_change
KNOWN = 0.2


@pytest.mark.parametrize(
    ("left", "known_at", "is_listed"),
    [
        (0.9 * SMALLEST, 70, False),
        (1.1 * SMALLEST, 70, True),
        (0.9 * SMALLEST, 50, True),
    ],
)
def test_what_a_known_change_within_a_session_left_over_is_no_part_of_the_next(left, known_at, is_listed):
    state = JointState(SERIES, ["t"])
    first, error = np.array([KNOWN, 0.0]), np.full(2, 0.002)
    place = OnsetRange(known_at, known_at, known_at)
    state.codes.append(Code(1, first, error, np.array([True, False]), place, {"t": 10}))
    inquiry = Inquiry(QuestionPurpose.CHANGE, "t", 67, 76, np.zeros(2), np.arange(1), None)
    found = CodeChanges(state, Software(state)).without_rests(inquiry, np.array([left, KNOWN]), np.ones(2, dtype=bool))
    assert found.tolist() == [is_listed, True]


def test_what_is_left_over_is_listed_where_a_session_shows_nothing_else():
    state = JointState(SERIES, ["t"])
    one, error = np.array([True, False]), np.full(2, 0.002)
    state.codes.append(Code(1, np.array([KNOWN, 0.0]), error, one, OnsetRange(70, 70, 70), {"t": 10}))
    inquiry = Inquiry(QuestionPurpose.CHANGE, "t", 67, 76, np.zeros(2), np.arange(1), None)
    found = CodeChanges(state, Software(state)).without_rests(inquiry, np.array([0.9 * SMALLEST, 0.0]), one)
    assert found.tolist() == [True, False]
