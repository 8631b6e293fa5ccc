"""Who is blamed, on both sides of every limit: a worker with mild signals, an upgrade, or the code that did it."""

import numpy as np
import pytest

from backend.regression.joint.code import STEP_OF_DRIFT
from backend.regression.joint.detector import LEFT_ALONE, LEFT_ALONE_AT_MOST, REFUTED_AGAIN, TOO_OFTEN
from backend.regression.joint.drift import AGAIN, BACK, CLEARED, HINTS, LOOKED_BACK, SEEN_STEADY, STEADY, DriftVerdict
from backend.regression.joint.health import CERTAIN, ENOUGH, MILD_IN_A_ROW, Degraded, Diagnosis, HealthSignals, diagnose
from backend.regression.joint.software import FEW, SHOWN
from backend.regression.joint.state import Inquiry, QuestionPurpose, Upgrade
from backend.regression.joint.terms import IncidentKind
from backend.regression.policy import Policy
from tests.backend.regression.fleet_project import SERIES, SIZE, Project, steps

ALL = tuple(range(SIZE))
DIP = 0.05
"""Log cost of a passing dip of a canary: a mild symptom."""

LIMIT = STEP_OF_DRIFT * Policy().min_change


def seen(alone, slowed=False):
    return HealthSignals(alone + slowed, Degraded.SLOW, moved=DIP, slowed=slowed, alone=alone)


@pytest.mark.parametrize(
    ("signals", "proof"),
    [
        ([seen(ENOUGH)], Diagnosis.MACHINE),
        ([seen(CERTAIN, slowed=True)], Diagnosis.MACHINE),
        ([seen(CERTAIN)], Diagnosis.NONE),
        ([seen(1.0, slowed=True)], Diagnosis.NONE),
        ([seen(CERTAIN), seen(1.0)], Diagnosis.MACHINE),
        ([seen(1.0), seen(CERTAIN)], Diagnosis.MACHINE),
        ([seen(1.0), seen(1.0)], Diagnosis.NONE),
        ([seen(1.0, slowed=True), seen(1.0)], Diagnosis.MACHINE_OR_CODE),
        ([seen(1.0), seen(1.0, slowed=True)], Diagnosis.MACHINE_OR_CODE),
        ([seen(1.0)] * MILD_IN_A_ROW, Diagnosis.MACHINE),
        ([seen(1.0)] * (MILD_IN_A_ROW - 1), Diagnosis.NONE),
    ],
)
def test_mild_symptoms_prove_nothing_while_the_code_may_have_made_the_series_slower(signals, proof):
    assert diagnose(signals) is proof


def mild(worker, first, runs, by=0.0):
    """So many runs of a worker whose canary dips a little, and that are slower by so much."""
    own = range(first, first + 2 * runs, 2)

    def machine(position, name):
        affected = name == worker and position in own
        return {"canary": {"gemm": DIP if affected else 0.001 * (position % 3)}, "slower": by if affected else 0.0}

    return machine


def kinds(project):
    return [(i.kind, i.first_bad) for i in project.opened()]


@pytest.mark.parametrize("runs", [1, 2])
def test_a_regression_of_the_whole_project_is_the_codes_though_a_canary_dips_just_then(runs):
    project = Project(steps((80, ALL, 0.08)), machine=mild("t0-w0", 80, runs), until=110).play()
    assert kinds(project) == [(IncidentKind.REGRESSION, 80)]


def test_a_worker_with_two_mild_symptoms_and_slower_series_is_asked_about_and_told():
    project = Project(steps(), machine=mild("t0-w0", 80, 10, by=0.08), until=110).play()
    assert kinds(project) == [(IncidentKind.INFRA, 80)]
    assert [ask.avoid for position, ask in project.asked if position == 82] == ["t0-w0"]


@pytest.mark.parametrize(("runs", "told"), [(MILD_IN_A_ROW - 1, 0), (MILD_IN_A_ROW, 1)])
def test_mild_symptoms_that_no_series_notices_are_told_from_the_third_run_in_a_row_on(runs, told):
    project = Project(steps(), machine=mild("t0-w0", 80, runs), until=110).play()
    assert len(project.opened()) == told


@pytest.mark.parametrize("well", [1, 2, 3])
def test_a_worker_that_is_ill_again_within_three_runs_is_the_same_incident_open_again(well):
    back = 96 + 2 * well

    def machine(position, name):
        ill = name == "t0-w0" and (80 <= position < 96 or position >= back)
        return {"canary": {"gemm": 0.2 if ill else 0.001 * (position % 3)}, "slower": 0.15 if ill else 0.0}

    project = Project(steps(), machine=machine, until=120).play()
    assert kinds(project) == [(IncidentKind.INFRA, 80)]
    ends = [update.incident.closed_by for update in project.updates]
    assert [closed for n, closed in enumerate(ends) if n == 0 or closed != ends[n - 1]] == [None, 96, None]


def test_where_no_session_can_be_had_mild_symptoms_are_told_from_the_third_run_in_a_row_on():
    project = Project(steps(), machine=mild("t0-w0", 80, 10, by=0.08), until=80).play()
    project.positions = range(80, 84)
    project.session = lambda ask: None
    assert project.play().opened() == []
    assert not project.detector.state.rows["t0"].excused.any()
    project.positions = range(84, 85)
    assert [i.worker for i in project.play().opened()] == ["t0-w0"]


def held_back(detector, lean):
    """A question whether mild signals are the machine's or the code's; the session leans to the code by so much."""
    rows = detector.state.rows["t0"]
    affected = [int(row) for row in rows.of_worker(0, 2)]
    detector.state.held["t0", 0] = [(seen(1.0, slowed=True), row) for row in affected]
    rows.usable[affected] = False
    pattern = np.full(SIZE, 0.08)
    inquiry = Inquiry(QuestionPurpose.MACHINE, "t0", 50, 58, pattern, np.array(affected), 0, results=[lean * pattern])
    inquiry.results *= 2
    return inquiry, affected


@pytest.mark.parametrize(("lean", "told"), [(0.0, [IncidentKind.INFRA]), (1.0, [IncidentKind.REGRESSION])])
def test_the_session_tells_a_worker_with_mild_symptoms_from_the_code(lean, told):
    detector = Project(steps(), until=60).play().detector
    inquiry, affected = held_back(detector, lean)
    detector.state.updates = []
    assert detector.decide(inquiry) is None
    assert [t.incident.kind for t in detector.state.updates][:1] == told
    assert detector.state.rows["t0"].usable[affected].all() == (lean == 1.0)
    assert not detector.state.held


@pytest.mark.parametrize(("lean", "told"), [(0.0, []), (1.0, [IncidentKind.REGRESSION])])
def test_the_answer_about_symptoms_that_have_passed_says_nothing_of_one_that_came_since(lean, told):
    detector = Project(steps(), until=60).play().detector
    inquiry, _ = held_back(detector, lean)
    detector.state.held["t0", 0] = since = [(seen(1.0), detector.state.rows["t0"].n - 1)]
    detector.state.updates = []
    assert detector.decide(inquiry) is None
    assert [t.incident.kind for t in detector.state.updates][:1] == told
    assert detector.state.held["t0", 0] == since


def test_symptoms_from_before_a_worker_fell_ill_by_its_series_are_not_in_a_row_with_those_after_it():
    detector = Project(steps(), until=60).play().detector
    rows = detector.state.rows["t0"]
    affected = [int(row) for row in rows.of_worker(0, 3)]
    detector.state.held["t0", 0] = [(seen(1.0), affected[0])]
    detector.state.updates = []
    detector.machines.mark_degraded(rows, 0, affected, Degraded.SLOW, canary=False)
    assert [t.incident.kind for t in detector.state.updates] == [IncidentKind.INFRA]
    assert not detector.state.held and not rows.usable[affected].any()


@pytest.mark.parametrize(("cleared", "told"), [(True, 1), (False, 0)])
def test_nobody_else_is_blamed_while_the_session_did_not_clear_the_code(cleared, told):
    def machine(position, worker):
        upgraded = worker.startswith("t0") and position >= 54
        return {"environment": {"torch": "2" if upgraded else "1"}, "slower": 0.1 if upgraded else 0.0}

    detector = Project(steps(), until=54, machine=machine).play().detector
    rows = detector.state.rows["t0"]
    project = Project(steps(), machine=machine)
    for position in (54, 55):
        run = project.run(position, "t0", 0)
        rows.add(run, detector.software.level_of(run))
    upgrade = detector.state.upgrades[0]
    inquiry = Inquiry(
        QuestionPurpose.UPGRADE, "t0", 46, 55, np.full(SIZE, 0.1), rows.judged(level=1), None, upgrade=upgrade
    )
    detector.state.updates = []
    detector.not_code(inquiry, rows, cleared=cleared)
    assert len(detector.state.updates) == told
    assert (upgrade.cleared == 55) is cleared


@pytest.mark.parametrize(("by_canary", "usual"), [(False, DIP), (True, 0.0)])
def test_an_upgrade_moves_what_is_usual_of_a_canary_unless_the_canary_says_that_its_worker_is_ill(by_canary, usual):
    detector = Project(steps(), machine=upgraded(999, 0.0), until=60).play().detector
    for position in range(60, 72, 2):
        detector.run(Project(steps(), machine=with_canary(999)).run(position, "t0", 0))
    detector.machines.mark_degraded(
        detector.state.rows["t0"], 0, [detector.state.rows["t0"].n - 1], Degraded.SLOW, canary=by_canary, moved=0.2
    )
    detector.run(Project(steps(), machine=with_canary(72)).run(72, "t0", 0))
    assert detector.state.health["t0", 0].usual("gemm") == usual


def with_canary(first):
    """From a commit on a new environment, in which a canary is a little slower."""
    return lambda position, worker: {
        "environment": {"torch": "2" if position >= first else "1"},
        "canary": {"gemm": DIP * (position >= first)},
    }


# --- upgrades --------------------------------------------------------------------------------------------------------


def upgraded(first, by):
    """A new environment of the first testbed; what it costs more per series."""

    def machine(position, worker):
        new = worker.startswith("t0") and position >= first
        return {"environment": {"torch": "2" if new else "1"}, "slower": np.asarray(by) * new}

    return machine


def of_first_benchmark(by):
    return np.where(np.arange(SIZE) < 2, by, 0.0)


@pytest.mark.parametrize(
    ("columns", "by", "drift"),
    [
        ((0, 1), LIMIT + 0.1, True),
        ((0, 1), -0.05, False),
        ((0, 1, 2, 3), LIMIT - 0.001, True),
        ((0, 1, 2, 3), LIMIT, False),
        ((0, 1, 2, 3, 4), LIMIT - 0.001, False),
    ],
)
def test_one_benchmark_that_lost_or_two_that_lost_a_little_may_drift(columns, by, drift):
    moved = np.isin(np.arange(SIZE), columns)
    assert Project(steps()).detector.drifts.may_be_drift(moved, np.where(moved, by, 0.0)) is drift


@pytest.mark.parametrize("waiting", [False, True])
def test_an_upgrade_waits_for_a_look_back_that_could_not_be_had(waiting):
    detector = Project(steps(), until=60).play().detector
    upgrade = Upgrade("t0", 1, 50) if waiting else None
    detector.drifts.put_off(
        Inquiry(QuestionPurpose.DRIFT, "t0", 0, 55, np.zeros(SIZE), np.arange(2), None, upgrade=upgrade, lead=0)
    )
    assert detector.state.steady_until == {0: detector.state.newest + AGAIN}
    assert detector.state.losing == ({0: detector.state.newest + AGAIN} if waiting else {})


def test_an_upgrade_that_moves_one_benchmark_is_told_after_a_look_back_and_one_that_moves_many_without():
    for by, looks in ((of_first_benchmark(0.08), 1), (np.full(SIZE, 0.08), 0)):
        project = Project(steps(), machine=upgraded(120, by), until=135).play()
        assert kinds(project) == [(IncidentKind.ENVIRONMENT, 120)]
        assert sum(ask.head - ask.base == BACK for position, ask in project.asked if position >= 120) == looks


def test_a_benchmark_that_has_been_losing_is_not_the_doing_of_an_upgrade_meanwhile():
    def code(position):
        cost = np.ones(SIZE)
        cost[:2] += 0.12 * np.clip((position - 80) / 60, 0, 1)
        return cost

    project = Project(code, machine=upgraded(100, 0.0)).play()
    assert [(i.kind, i.drift) for i in project.opened()] == [(IncidentKind.REGRESSION, True)]


@pytest.mark.parametrize(("other", "moved"), [(0.9 * SHOWN / (2 - SHOWN), False), (1.3 * SHOWN, True)])
def test_each_of_the_first_runs_since_an_upgrade_must_show_what_it_moved(other, moved):
    """With two runs the mean is half of both: the second shows `SHOWN` of it at share / (2 - share)."""
    project = Project(steps(), noise=0.001, until=60).play()
    rows = project.detector.state.rows["t0"]
    for position, by in ((60, 0.2), (61, 0.2 * other)):
        shifted = Project(steps(), noise=0.001, machine=upgraded(60, by)).run(position, "t0", 0)
        rows.add(shifted, 1)
    assert (project.detector.software.moved_by_upgrade(Upgrade("t0", 1, 60), rows) is not None) is moved


@pytest.mark.parametrize(("bad", "moved"), [(2, False), (3, True)])
def test_of_more_runs_half_must_show_it(bad, moved):
    """A few unlucky runs among many are no upgrade's doing."""
    project = Project(steps(), noise=0.001, until=60).play()
    rows = project.detector.state.rows["t0"]
    for position in range(60, 61 + FEW):
        by = 0.2 if position < 60 + bad else 0.0
        rows.add(Project(steps(), noise=0.001, machine=upgraded(60, by)).run(position, "t0", 0), 1)
    assert (project.detector.software.moved_by_upgrade(Upgrade("t0", 1, 60), rows) is not None) is moved


# --- when a benchmark is left alone ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("ago", "asked"), [(LOOKED_BACK - 1, False), (LOOKED_BACK, True)])
def test_a_look_back_soon_after_another_would_show_no_more(ago, asked):
    detector = Project(steps(), until=130).play().detector
    for rows in detector.state.rows.values():
        rows.clean[rows.judged(first=detector.state.newest - 12), :2] += 0.05
    detector.state.looked_back, detector.state.steady_until = detector.state.newest - ago, {}
    assert (detector.drifts.drift_scan(detector.state.rows["t0"], eager=True) is not None) is asked


def test_a_benchmark_that_another_ones_look_back_saw_steady_is_left_alone_for_a_while():
    detector = Project(steps(), until=60).play().detector
    inquiry = Inquiry(QuestionPurpose.DRIFT, "t0", 0, 55, np.zeros(SIZE), np.arange(2), None, lead=0)
    error = np.full(SIZE, 0.004)
    hint = HINTS * Policy().min_change
    change = np.array([hint, hint, hint - 0.001, hint, hint, hint, hint, hint]) - 2 * error
    verdicts = {0: DriftVerdict.NONE, 2: DriftVerdict.NONE, 4: DriftVerdict.NONE, 6: DriftVerdict.NOT_YET}
    detector.drifts.leave_alone(inquiry, verdicts, change, error)
    until = {benchmark: position - detector.state.newest for benchmark, position in detector.state.steady_until.items()}
    assert (until[0], until[1]) == (STEADY, SEEN_STEADY)
    assert 2 not in until
    assert detector.state.losing[3] == detector.state.steady_until[3]


@pytest.mark.parametrize(("share", "losing"), [(0.9 * CLEARED, False), (1.01 * CLEARED, True)])
def test_a_look_back_clears_the_code_of_what_an_upgrade_did_when_it_rules_out_half_of_it(share, losing):
    """The series that shows it best decides, were it a phase of which nobody is told."""
    detector = Project(steps(), until=60).play().detector
    pattern = np.where(np.arange(SIZE) == 1, 0.06, 0.0)
    upgrade = Upgrade("t0", 1, 50)
    inquiry = Inquiry(QuestionPurpose.DRIFT, "t0", 0, 55, pattern, np.arange(2), None, upgrade=upgrade, lead=0)
    error = np.full(SIZE, 0.004)
    detector.drifts.leave_alone(inquiry, {}, share * pattern - 2 * error, error)
    assert (0 in detector.state.losing, 0 in upgrade.steady) == (losing, not losing)


def test_a_benchmark_that_sessions_refute_again_and_again_is_left_alone_ever_longer_on_that_testbed():
    detector = Project(steps(), until=60).play().detector
    assert [detector.refute_once_more("t0", 0) for _ in range(TOO_OFTEN - 1)] == [1, 2]
    assert not detector.state.muted_on
    for times in range(4):
        detector.refute_once_more("t0", 0)
        assert detector.state.muted_on["t0", 0] - detector.state.newest == min(
            LEFT_ALONE * 2**times, LEFT_ALONE_AT_MOST
        )
    own = np.array([s.benchmark == "b0" for s in SERIES])
    assert not detector.watched(detector.state.rows["t0"])[own].any()
    assert detector.watched(detector.state.rows["t0"])[~own].all()
    assert detector.watched(detector.state.rows["t1"]).all()


@pytest.mark.parametrize(("later", "times"), [(REFUTED_AGAIN - 1, 2), (REFUTED_AGAIN, 1)])
def test_refutations_long_apart_are_not_in_a_row(later, times):
    detector = Project(steps(), until=60).play().detector
    detector.refute_once_more("t0", 0)
    detector.state.newest += later
    assert detector.refute_once_more("t0", 0) == times


def test_the_onset_of_an_illness_is_not_put_before_runs_that_were_asked_about_and_were_well():
    detector = Project(steps(), until=60).play().detector
    rows = detector.state.rows["t0"]
    own = rows.of_worker(0, 12)
    rows.clean[own[-2:]] += 0.1
    rows.excused[np.ix_(own[-3:-2], range(2, SIZE))] = True
    rows.clean[own[-3], :2] += 0.06
    inquiry = Inquiry(QuestionPurpose.CHANGE, "t0", 40, 58, np.full(SIZE, 0.1), own[-2:], 0)
    assert detector.degraded_rows(rows, inquiry) == [int(row) for row in own[-2:]]
