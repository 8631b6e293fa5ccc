"""The joint detector at work on stored runs: what it has read it knows, and what it cannot read keeps nothing else."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from backend.regression.joint.detector import FIRST_ROWS
from backend.services.base import readiness
from backend.services.base.config import ServiceConfig
from backend.services.base.reads import Reads
from backend.services.joint.detector import BROKEN_PAUSE, IDLE, LATEST, PAUSE, JointDetectors
from backend.services.joint.status import joint_status
from backend.services.triage.triage import TriageDecision, triage
from backend.services.triage.views import RegressionFilter, list_regressions
from backend.store.reports.figures import load_figures

STEADY = {"name": "gemm_tflops", "before": 700.0, "after": 701.0, "own_noise": 0.002}
SLOWER = {"name": "gemm_tflops", "before": 560.0, "after": 561.0, "own_noise": 0.002}
LEVELS = (5, 50, 9, 20, 30, 40)


def _run(loom: Any, position: int, factor: float = 1.0, **more: Any) -> None:
    metrics = [loom.measurement(f"m{n}_ms", level * factor, seed=position) for n, level in enumerate(LEVELS)]
    arrived = loom.now + timedelta(seconds=position)
    loom.deliver(loom.run_of(position, metrics, **{"canary": [STEADY], **more}), now=arrived)


def _project(loom: Any) -> int:
    return int(loom.value("SELECT id FROM project"))


def _read(loom: Any, detectors: JointDetectors, position: int) -> list[int]:
    return detectors.catch_up(loom.connection, _project(loom), loom.now + timedelta(seconds=position))


def _kinds(detectors: JointDetectors, loom: Any) -> list[str]:
    return [incident.kind.value for incident in detectors.incidents(_project(loom)).get("gpt", [])]


def test_a_machine_that_falls_ill_is_told_with_its_worker_and_only_once(loom: Any) -> None:
    detectors = JointDetectors()
    for position in range(FIRST_ROWS + 12):
        ill = position >= FIRST_ROWS + 4
        _run(loom, position, 1.25 if ill else 1.0, canary=[SLOWER if ill else STEADY])
        _read(loom, detectors, position)
    assert loom.rows("SELECT kind, cause, worker, first_bad_position FROM incident") == [
        ("infra", "hardware", "box-01", FIRST_ROWS + 4)
    ]
    (alarm,) = list_regressions(loom.connection, RegressionFilter()).items
    assert (alarm.state, alarm.cause, alarm.first_bad.position) == ("suspect", "hardware", FIRST_ROWS + 4)
    assert "confirmed" not in loom.events()


def test_what_happens_among_the_first_runs_of_a_testbed_is_only_learnt_from(loom: Any) -> None:
    detectors = JointDetectors()
    for position in range(FIRST_ROWS - 1):
        ill = position >= FIRST_ROWS - 4
        _run(loom, position, 1.25 if ill else 1.0, canary=[SLOWER if ill else STEADY])
        _read(loom, detectors, position)
    assert loom.rows("SELECT id FROM incident") == []


def test_reading_all_at_once_says_what_reading_one_by_one_said(loom: Any) -> None:
    one_by_one = JointDetectors()
    for position in range(FIRST_ROWS + 16):
        ill = FIRST_ROWS + 2 <= position < FIRST_ROWS + 9
        _run(loom, position, 1.25 if ill else 1.0, canary=[SLOWER if ill else STEADY])
        _read(loom, one_by_one, position)
    told = loom.rows("SELECT id, kind, first_bad_position, closed_position FROM incident")
    at_once = JointDetectors()
    _read(loom, at_once, FIRST_ROWS + 16)
    project = _project(loom)
    assert at_once.incidents(project) == one_by_one.incidents(project)
    assert loom.rows("SELECT id, kind, first_bad_position, closed_position FROM incident") == told
    assert told[0][3] is not None


def test_a_benchmark_that_is_new_is_no_change(loom: Any) -> None:
    detectors = JointDetectors()
    for position in range(FIRST_ROWS + 20):
        metrics = [loom.measurement("step_ms", 50.0, seed=position)]
        if position >= FIRST_ROWS + 4:
            metrics.append(loom.measurement("new_ms", 9000.0, seed=position))
        loom.deliver(loom.run_of(position, metrics, canary=[STEADY]), now=loom.now + timedelta(seconds=position))
        _read(loom, detectors, position)
    assert _kinds(detectors, loom) == []


def test_a_suite_that_cannot_be_read_rests_and_keeps_no_other_suite(loom: Any) -> None:
    detectors = JointDetectors()
    _run(loom, 0)
    _run(loom, 1, id="RUN-900001", suite="moe", suite_version="7")
    loom.connection.exec_driver_sql("UPDATE run SET document = 'nonsense' WHERE suite = 'moe'")
    assert _read(loom, detectors, 2) == []
    (said,) = joint_status(loom.connection, "northsea/loom", loom.now)
    assert said.startswith("The series of suite moe have not been judged jointly since 2026-11-20 12:00 UTC (")
    assert "It is retried automatically at 13:00 UTC." in said
    assert load_figures(loom.connection, live_within_s=45).paused_by_project == {"northsea/loom": 1}
    _run(loom, 2)
    assert _read(loom, detectors, 3) == []
    assert set(detectors.incidents(_project(loom))) == {"gpt", "moe"}
    assert [detector.last.id for detector in detectors.suites(_project(loom)) if not detector.is_broken] == [
        "RUN-000002"
    ]


def test_a_run_that_says_only_what_it_must_is_read_with_the_others(loom: Any) -> None:
    detectors = JointDetectors()
    for position in range(FIRST_ROWS + 2):
        run = loom.run_of(position, [loom.measurement("step_ms", 50.0, seed=position)])
        bare = {name: run[name] for name in run if name not in ("suite_version", "worker", "environment", "parents")}
        loom.deliver({**bare, "branch": "main"}, now=loom.now + timedelta(seconds=position))
        _read(loom, detectors, position)
    assert joint_status(loom.connection, "northsea/loom", loom.now) == ()


@pytest.mark.parametrize("action", ["undo", "reopen"])
def test_a_decision_that_is_taken_back_is_forgotten(loom: Any, action: str) -> None:
    detectors = JointDetectors()
    for position in range(FIRST_ROWS + 14):
        _run(loom, position, 1.25 if position >= FIRST_ROWS + 4 else 1.0)
        _read(loom, detectors, position)
    (found,) = list_regressions(loom.connection, RegressionFilter()).items
    triage(
        loom.connection,
        found.id,
        TriageDecision("expected", reason="Worth it."),
        "ada",
        now=loom.now + timedelta(seconds=90),
    )
    _run(loom, FIRST_ROWS + 14, 1.25)
    _read(loom, detectors, 100)
    (detector,) = detectors.suites(_project(loom))
    assert len(detector.accepted) == 1
    triage(loom.connection, found.id, TriageDecision(action), "ada", now=loom.now + timedelta(seconds=110))
    _read(loom, detectors, 120)
    (detector,) = detectors.suites(_project(loom))
    assert detector.accepted == set()


def test_a_suite_that_could_not_be_read_is_tried_again_when_it_has_rested(loom: Any) -> None:
    detectors = JointDetectors()
    _run(loom, 0)
    document = loom.value("SELECT document FROM run")
    loom.connection.exec_driver_sql("UPDATE run SET document = 'nonsense'")
    _read(loom, detectors, 1)
    loom.connection.execute(text("UPDATE run SET document = :document"), {"document": document})
    _read(loom, detectors, 2)
    assert len(joint_status(loom.connection, "northsea/loom", loom.now)) == 1
    assert [detector.is_broken for detector in detectors.suites(_project(loom))] == [True]
    detectors.catch_up(loom.connection, _project(loom), loom.now + timedelta(seconds=1) + BROKEN_PAUSE)
    assert [detector.last.id for detector in detectors.suites(_project(loom))] == ["RUN-000000"]
    assert joint_status(loom.connection, "northsea/loom", loom.now) == ()


def test_what_arrived_while_nobody_looked_for_long_is_read(loom: Any) -> None:
    detectors = JointDetectors()
    _run(loom, 0)
    _read(loom, detectors, 0)
    _run(loom, 1)
    detectors.catch_up(loom.connection, _project(loom), loom.now + 3 * LATEST)
    assert [detector.last.id for detector in detectors.suites(_project(loom))] == ["RUN-000001"]


def test_a_project_that_cannot_be_read_rests_and_keeps_no_other_project(
    committing_loom: Any, committing_engine: Engine, service_config: ServiceConfig
) -> None:
    loom, last = committing_loom, FIRST_ROWS + 12
    for position in range(last):
        ill = position >= FIRST_ROWS + 4
        _run(loom, position, 1.25 if ill else 1.0, canary=[SLOWER if ill else STEADY])
    _run(loom, 0, id="RUN-900001", project="northsea/reef")
    loom.connection.exec_driver_sql("ALTER TABLE incident ADD CONSTRAINT refused CHECK (worker <> 'box-01')")
    loom.connection.commit()
    broken, other = (number for (number,) in loom.rows("SELECT id FROM project ORDER BY id"))
    detectors, moments = JointDetectors(), [loom.now + timedelta(seconds=last)]

    def look() -> list[bool]:
        detectors.catch_up_all(committing_engine, lambda: moments[-1], lambda: False)
        return [bool(detectors.suites(project)) for project in (broken, other)]

    assert look() == [False, True]
    (said,) = joint_status(loom.connection, "northsea/loom", loom.now)
    assert said.startswith("The series of this project have not been judged") and "CheckViolation" in said
    assert readiness.check(Reads(committing_engine), service_config).notes[0].startswith("in 1 project, series cannot")
    loom.connection.exec_driver_sql("ALTER TABLE incident DROP CONSTRAINT refused")
    loom.connection.commit()
    assert look() == [False, True], "it pauses"
    moments.append(moments[-1] + PAUSE)
    assert look() == [True, True]
    assert loom.rows("SELECT project_id, kind FROM incident") == [(broken, "infra")]
    assert joint_status(loom.connection, "northsea/loom", loom.now) == ()
    assert readiness.check(Reads(committing_engine), service_config).notes == ()


@pytest.mark.parametrize(
    ("most_values", "idle", "kept"),
    [(1000, timedelta(), True), (10, timedelta(), False), (1000, IDLE - LATEST, True), (1000, IDLE, False)],
)
def test_judges_that_are_idle_are_given_up_after_a_while_or_where_memory_is_short_and_begun_anew_for_the_next_run(
    committing_loom: Any, committing_engine: Engine, most_values: int, idle: timedelta, kept: bool
) -> None:
    loom, last = committing_loom, FIRST_ROWS + 12
    for position in range(last):
        _run(loom, position, canary=[SLOWER if position >= FIRST_ROWS + 4 else STEADY])
    loom.connection.commit()
    detectors, moment = JointDetectors(most_values), loom.now + timedelta(seconds=last)
    for at in (moment, moment + LATEST):
        detectors.catch_up_all(committing_engine, lambda at=at: at, lambda: False)
        assert detectors.suites(_project(loom)), "there is news of it, and to begin it anew each time would take long"
    later = moment + LATEST + idle
    detectors.catch_up_all(committing_engine, lambda: later, lambda: False)
    assert bool(detectors.suites(_project(loom))) == kept
    loom.deliver(
        loom.run_of(last, [loom.measurement(f"m{n}_ms", level, seed=last) for n, level in enumerate(LEVELS)]),
        now=later,
    )
    loom.connection.commit()
    detectors.catch_up_all(committing_engine, lambda: later, lambda: False)
    (detector,) = detectors.suites(_project(loom))
    assert detector.last.position == last and len(detector.read) == last + 1
    assert loom.rows("SELECT kind, first_bad_position FROM incident") == [("infra", FIRST_ROWS + 4)]


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize(("waited", "again"), [(BROKEN_PAUSE, True), (BROKEN_PAUSE - timedelta(seconds=1), False)])
def test_a_suite_that_rests_is_tried_again_also_where_nothing_arrives(
    committing_loom: Any, committing_engine: Engine, waited: timedelta, again: bool, restarted: bool
) -> None:
    loom, detectors = committing_loom, JointDetectors()
    _run(loom, 0)
    document = loom.value("SELECT document FROM run")
    loom.connection.exec_driver_sql("UPDATE run SET document = 'nonsense'")
    loom.connection.commit()
    detectors.catch_up_all(committing_engine, lambda: loom.now, lambda: False)
    assert joint_status(loom.connection, "northsea/loom", loom.now)
    loom.connection.execute(text("UPDATE run SET document = :document"), {"document": document})
    loom.connection.commit()
    detectors = JointDetectors() if restarted else detectors
    for later in (2 * LATEST, waited):
        detectors.catch_up_all(committing_engine, lambda later=later: loom.now + later, lambda: False)
    assert (joint_status(loom.connection, "northsea/loom", loom.now) == ()) == again


def test_an_answer_that_nobody_waits_for_any_more_keeps_no_judge_from_being_idle(
    committing_loom: Any, committing_engine: Engine
) -> None:
    loom = committing_loom
    for position in range(3):
        _run(loom, position)
    loom.connection.execute(
        text(
            """WITH x AS (
                 INSERT INTO session (id, project_id, testbed_id, suite, purpose, base_commit_id, head_commit_id, spec,
                                      state, max_rounds, requested_by, requested_at)
                 SELECT 'ANSWER', k.project_id, t.id, 'gpt', 'attribute', k.id, k.id, '{}', 'decided', 2,
                        'tidemark', :at
                 FROM commit k, testbed t LIMIT 1 RETURNING id, project_id)
               INSERT INTO joint_question (project_id, suite, testbed, after_run_id, number, base_position,
                                           head_position, session_id)
               SELECT project_id, 'gpt', 'cpu', (SELECT min(id) FROM run), 0, 0, 1, id FROM x"""
        ),
        {"at": loom.now},
    )
    loom.connection.commit()
    detectors = JointDetectors()
    for later in (timedelta(), 2 * LATEST, 4 * LATEST + IDLE):
        detectors.catch_up_all(committing_engine, lambda later=later: loom.now + later, lambda: False)
    assert not detectors.suites(_project(loom))
    assert loom.value("SELECT answered_after FROM joint_question") == loom.value("SELECT max(id) FROM run")
