"""What a session shows of a known change beside the next one."""

import numpy as np
import pytest

from backend.regression.joint.code import CodeChanges
from backend.regression.joint.scan import OnsetRange
from backend.regression.joint.software import Software
from backend.regression.joint.state import CodeChange, Inquiry, JointState, QuestionPurpose
from backend.regression.joint.terms import JointRun, JointSeries
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
    state.code_changes.append(CodeChange(1, first, error, np.array([True, False]), place, {"t": 10}))
    inquiry = Inquiry(QuestionPurpose.CHANGE, "t", 67, 76, np.zeros(2), np.arange(1), None)
    found = CodeChanges(state, Software(state)).without_rests(inquiry, np.array([left, KNOWN]), np.ones(2, dtype=bool))
    assert found.tolist() == [is_listed, True]


def test_what_is_left_over_is_listed_where_a_session_shows_nothing_else():
    state = JointState(SERIES, ["t"])
    one, error = np.array([True, False]), np.full(2, 0.002)
    state.code_changes.append(CodeChange(1, np.array([KNOWN, 0.0]), error, one, OnsetRange(70, 70, 70), {"t": 10}))
    inquiry = Inquiry(QuestionPurpose.CHANGE, "t", 67, 76, np.zeros(2), np.arange(1), None)
    found = CodeChanges(state, Software(state)).without_rests(inquiry, np.array([0.9 * SMALLEST, 0.0]), one)
    assert found.tolist() == [True, False]


def judged_in(order, first, second):
    """Runs in this order of arrival, of a benchmark that got slower at the first commit and one at the second."""
    state = JointState(SERIES, ["t"])
    rows = state.rows["t"]
    noise = np.random.default_rng(1)
    for commit in order:
        cost = 1 + 0.003 * noise.standard_normal(2) + KNOWN * np.array([commit >= first, commit >= second])
        rows.add(JointRun(position=commit, testbed="t", worker="w", timestamp=0.0, cost=cost, spread=np.ones(2)), 0)
        state.oldest, state.newest = 0, max(state.newest, commit)
    rows.learn()
    rows.learn_noise()
    return state, rows, CodeChanges(state, Software(state))


@pytest.mark.parametrize(("second", "late", "told"), [(31, 30, [(30, (0,)), (31, (1,))]), (30, 31, [(30, (0, 1))])])
def test_a_late_run_between_two_changes_parts_what_was_told_as_one(second, late, told):
    state, rows, changes = judged_in([*range(late), *range(late + 1, 38)], 30, second)
    code = CodeChange(0, np.full(2, KNOWN), np.full(2, 0.01), np.ones(2, dtype=bool), OnsetRange(32, 30, 32))
    changes.report_change(code, rows, 1.0)
    rows.add(JointRun(
        position=late, testbed="t", worker="w", timestamp=0.0, spread=np.ones(2),
        cost=1 + KNOWN * np.array([True, late >= second]),
    ), 0)  # fmt: skip
    changes.relocate(code)
    changes.part_what_began_apart(code)
    assert [(i.first_bad, i.series) for i in state.incidents.values()] == told
    assert [c.place.commit for c in state.code_changes] == [commit for commit, _ in told]


def test_a_change_whose_commit_was_known_when_it_was_told_is_not_parted():
    state, rows, changes = judged_in(range(38), 30, 31)
    code = CodeChange(0, np.full(2, KNOWN), np.full(2, 0.01), np.ones(2, dtype=bool), OnsetRange(30, 30, 30))
    changes.report_change(code, rows, 1.0)
    changes.part_what_began_apart(code)
    assert [i.series for i in state.incidents.values()] == [(0, 1)]


@pytest.mark.parametrize(("second", "parts"), [(30, 1), (32, 2)])
def test_a_benchmark_a_little_below_the_gate_is_a_change_of_its_own_where_its_commit_is_known(second, parts):
    _, rows, changes = judged_in(range(38), 30, second)
    change = np.array([KNOWN, 0.95 * SMALLEST])
    code = CodeChange(0, change, np.full(2, 0.001), np.ones(2, dtype=bool), OnsetRange(30, 30, 32))
    assert len(changes.by_onset(code, [rows])) == parts


def test_a_benchmark_that_moved_by_less_than_is_told_stays_with_the_nearest_change():
    _, rows, changes = judged_in(range(38), 30, 32)
    change = np.array([KNOWN, 0.7 * SMALLEST])
    code = CodeChange(0, change, np.full(2, 0.001), np.ones(2, dtype=bool), OnsetRange(30, 30, 32))
    (one,) = changes.by_onset(code, [rows])
    assert one.listed.all()
