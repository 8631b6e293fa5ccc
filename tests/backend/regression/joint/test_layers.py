"""What the joint detector makes of changes that lie close together, and of machines whose canary recovers first."""

import numpy as np
import pytest

from backend.regression.joint.state import Inquiry, QuestionPurpose
from backend.regression.joint.terms import IncidentAction, IncidentKind, SessionResult
from tests.backend.regression.fleet_project import SERIES, Project, steps

FIRST, ALL = (0, 1), tuple(range(len(SERIES)))


def told(project, kind):
    return [i for i in project.opened() if i.kind is kind]


def test_two_changes_of_the_same_series_a_few_commits_apart_are_two_incidents():
    project = Project(steps((80, FIRST, 0.08), (85, ALL, 0.1))).play()
    found = told(project, IncidentKind.REGRESSION)
    assert [project.detector.state.incidents[i.id].first_bad for i in found] == [80, 85]
    assert [len(project.detector.state.incidents[i.id].series) for i in found] == [2, len(SERIES)]


def test_a_change_at_the_edge_of_a_session_is_neither_told_twice_nor_taken_back():
    project = Project(steps((80, FIRST, 0.1), (88, (2, 3), 0.1))).play()
    assert [(i.kind, i.first_bad) for i in project.opened()] == [
        (IncidentKind.REGRESSION, 80), (IncidentKind.REGRESSION, 88),
    ]  # fmt: skip


@pytest.mark.parametrize(("dips_until", "slow_until"), [(86, 86), (86, 120), (120, 120)])
def test_a_slow_worker_is_told_once_whether_its_canary_shows_it_long_briefly_or_to_the_end(dips_until, slow_until):
    def machine(position, worker):
        affected = worker == "t0-w0" and position >= 80
        dip = 0.2 if affected and position < dips_until else 0.001 * (position % 3)
        return {"canary": {"gemm": dip}, "slower": 0.12 if affected and position < slow_until else 0.0}

    project = Project(steps(), machine=machine).play()
    assert [(i.kind, i.worker) for i in project.opened()] == [(IncidentKind.INFRA, "t0-w0")]
    closed = [t.incident.closed_by for t in project.updates if t.action is IncidentAction.CLOSE]
    assert len(closed) == 1
    assert slow_until <= closed[0] <= slow_until + 6


@pytest.mark.parametrize(("seen", "kind"), [(-0.08, IncidentKind.IMPROVEMENT), (0.08, IncidentKind.REGRESSION)])
def test_a_session_that_proves_nothing_by_itself_is_told_with_the_sign_of_the_runs(seen, kind):
    detector = Project(steps(), until=60).play().detector
    pattern = np.zeros(len(SERIES))
    pattern[[0, 1]] = seen
    inquiry = Inquiry(
        QuestionPurpose.CHANGE, "t0", 45, 55, pattern, detector.state.rows["t0"].by_position(5), None, lead=0
    )
    change = np.where(pattern != 0, 0.4 * seen, 0.03)
    detector.changes.report_code(inquiry, change, np.full(len(SERIES), 0.05))
    assert [detector.state.incidents[code.incident].kind for code in detector.state.code_changes] == [kind]


@pytest.mark.parametrize(
    ("base", "head", "shown", "inside"),
    [
        (70, 90, 0.0, True),
        (84, 100, 0.1, False),
        (81, 90, 0.1, True),
        (81, 90, 0.0, False),
        (70, 79, 0.1, True),
        (70, 79, 0.0, False),
    ],
)
def test_near_the_ends_of_a_session_the_session_says_whether_a_known_change_is_inside(base, head, shown, inside):
    project = Project(steps((80, FIRST, 0.1)), until=110).play()
    code = project.detector.state.code_changes[0]
    assert code.place.commit == 80
    change = np.where(code.listed, shown, 0.0)
    result = SessionResult(
        testbed="t0", base=base, head=head, change=change, spread=np.full(len(SERIES), 1e-4), processes=5
    )
    assert project.detector.is_inside(code, result, change, project.detector.state.rows["t0"]) is inside
