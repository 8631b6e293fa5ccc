"""One change of the code is one regression, on however many testbeds it shows."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, text

from backend.regression.cause.attribution import CauseName
from backend.regression.joint.terms import Incident, IncidentKind
from backend.regression.policy import PolicyBook
from backend.services.joint.incidents import SuiteIncidents, report
from backend.services.joint.reading import Columns
from backend.services.judging.rejudging import rejudge_series
from backend.services.triage.detail import get_regression
from backend.services.triage.triage import TriageDecision, lock_series, triage
from backend.services.triage.views import RegressionFilter, list_regressions
from backend.store.joint import incidents as incident_store
from backend.store.regressions import regressions as regression_store

STEP = 20
STEADY = {"name": "gemm_tflops", "before": 700.0, "after": 701.0, "own_noise": 0.002}
SLOWER = {"name": "gemm_tflops", "before": 600.0, "after": 601.0, "own_noise": 0.002}


def _run(loom: Any, testbed: str, position: int, level: float, **more: Any) -> None:
    number = position + (1000 if testbed == "gpu" else 0)
    loom.run(position, level, testbed=testbed, worker=f"{testbed}-1", id=f"RUN-{number:06d}", **more)


def _both(loom: Any, last: int, **of_gpu: Any) -> None:
    for position in range(last):
        level = 125.0 if position >= STEP else 100.0
        _run(loom, "cpu", position, level)
        ill = {name: value[position >= STEP] for name, value in of_gpu.items()}
        _run(loom, "gpu", position, level, **ill)


def test_the_same_commit_on_two_testbeds_is_one_regression_that_names_both(loom: Any) -> None:
    _both(loom, STEP + 5)
    (found,) = list_regressions(loom.connection, RegressionFilter()).items
    assert (found.state, found.cause, found.first_bad.position) == ("confirmed", "code", STEP)
    assert found.testbeds == ("cpu", "gpu")
    assert loom.events().count("confirmed") == 1


def test_it_is_found_under_either_testbed(loom: Any) -> None:
    _both(loom, STEP + 5)
    assert [
        len(list_regressions(loom.connection, RegressionFilter(testbed=name)).items) for name in ("cpu", "gpu", "tpu")
    ] == [1, 1, 0]


def test_it_is_fixed_when_every_testbed_is_back(loom: Any) -> None:
    _both(loom, STEP + 5)
    (found,) = list_regressions(loom.connection, RegressionFilter()).items
    for position in range(STEP + 5, STEP + 12):
        _run(loom, "cpu", position, 100.0)
    assert get_regression(loom.connection, found.id).regression.state == "confirmed"
    for position in range(STEP + 5, STEP + 12):
        _run(loom, "gpu", position, 100.0)
    after = get_regression(loom.connection, found.id).regression
    assert (after.state, after.fixed_by.position) == ("fixed", STEP + 5)


def test_a_machine_that_falls_ill_at_the_same_commit_is_an_alarm_of_its_own(loom: Any) -> None:
    _both(loom, STEP + 5, canary=([STEADY], [SLOWER]))
    found = {item.cause: item.testbeds for item in list_regressions(loom.connection, RegressionFilter()).items}
    assert found == {"code": ("cpu",), "hardware": ("gpu",)}


def test_changes_far_apart_on_two_testbeds_are_two_regressions(loom: Any) -> None:
    for position in range(STEP + 15):
        _run(loom, "cpu", position, 125.0 if position >= STEP else 100.0)
        _run(loom, "gpu", position, 125.0 if position >= STEP + 8 else 100.0)
    found = list_regressions(loom.connection, RegressionFilter()).items
    assert sorted((item.first_bad.position, item.testbeds) for item in found) == [
        (STEP, ("cpu",)),
        (STEP + 8, ("gpu",)),
    ]


def _upgrade(loom: Any, *testbeds: str) -> list[SuiteIncidents]:
    """The joint detector's word that new software of these testbeds made what the code was thought to have made."""
    incident = Incident(
        id=1,
        kind=IncidentKind.ENVIRONMENT,
        cause=CauseName.ENVIRONMENT,
        series=(0,),
        testbeds=testbeds,
        worker=None,
        first_bad=STEP,
        range_start=STEP,
        range_end=STEP,
        magnitude=0.22,
        drift=False,
    )
    columns = Columns("gpt", incident_store.series_of(loom.connection, _project(loom)), PolicyBook("northsea/loom"))
    return [SuiteIncidents(columns=columns, incidents=(incident,), numbers={}, since=None)]


def _project(loom: Any) -> int:
    return int(loom.value("SELECT id FROM project"))


def test_what_was_taken_back_stays_taken_back_when_a_person_lets_go(loom: Any) -> None:
    _both(loom, STEP + 5)
    (number,) = report(loom.connection, _project(loom), _upgrade(loom, "cpu", "gpu"), loom.now)
    assert loom.rows("SELECT id, state, cause FROM regression") == [(number, "suspect", "environment")]
    triage(loom.connection, number, TriageDecision("acknowledge"), "ada", now=loom.now)
    released = triage(loom.connection, number, TriageDecision("release"), "ada", now=loom.now).regression
    assert (released.state, released.held_back) == ("suspect", True)


def test_an_upgrade_of_one_testbed_hides_no_regression_that_another_shows(loom: Any) -> None:
    _both(loom, STEP + 5)
    report(loom.connection, _project(loom), _upgrade(loom, "cpu"), loom.now)
    found = list_regressions(loom.connection, RegressionFilter()).items
    assert sorted((item.state, item.cause, item.testbeds) for item in found) == [
        ("confirmed", "code", ("gpu",)),
        ("suspect", "environment", ("cpu",)),
    ]
    red = """SELECT DISTINCT t.name FROM judgement j JOIN series s ON s.id = j.series_id
             JOIN testbed t ON t.id = s.testbed_id WHERE j.superseded_at IS NULL AND j.verdict = 'regression'"""
    assert loom.rows(red) == [("gpu",)]
    for position in range(STEP + 5, STEP + 8):
        _run(loom, "cpu", position, 125.0)
        _run(loom, "gpu", position, 125.0)
    assert loom.rows(red) == [("gpu",)]


def test_two_regressions_that_turn_out_to_be_one_keep_who_looks_after_it(loom: Any) -> None:
    for position in range(STEP + 15):
        _run(loom, "cpu", position, 125.0 if position >= STEP else 100.0)
        _run(loom, "gpu", position, 125.0 if position >= STEP + 8 else 100.0)
    (first, second) = [number for (number,) in loom.rows("SELECT id FROM regression ORDER BY id")]
    triage(loom.connection, second, TriageDecision("acknowledge"), "ada", now=loom.now)
    (news,) = _upgrade(loom, "cpu", "gpu")
    (said,) = news.incidents
    code = replace(said, kind=IncidentKind.REGRESSION, cause=CauseName.CODE, range_end=STEP + 8)
    report(loom.connection, _project(loom), [replace(news, incidents=(code,))], loom.now)
    assert loom.rows("SELECT id, state, owner FROM regression ORDER BY id") == [
        (first, "withdrawn", None),
        (second, "acknowledged", "ada"),
    ]
    detail = "SELECT detail ->> 'part_of' FROM regression_event WHERE kind = 'withdrawn'"
    assert loom.rows(detail) == [(str(second),)]


def _code(loom: Any, closed_by: int | None) -> list[SuiteIncidents]:
    """The joint detector's word that the code made it, on both testbeds, and mended it there."""
    (news,) = _upgrade(loom, "cpu", "gpu")
    (said,) = news.incidents
    code = replace(said, kind=IncidentKind.REGRESSION, cause=CauseName.CODE, closed_by=closed_by)
    return [replace(news, incidents=(code,))]


@pytest.mark.parametrize(
    ("bad_on_gpu", "state", "ends"),
    [((0, 1, 2), "fixed", STEP + 6), ((2, 30, 31, 32), "confirmed", None)],
)
def test_a_series_that_shows_late_what_is_mended_opens_no_second_regression(
    loom: Any, bad_on_gpu: tuple[int, ...], state: str, ends: int | None
) -> None:
    mended = STEP + 6
    for position in range(STEP):
        _run(loom, "cpu", position, 100.0)
        _run(loom, "gpu", position, 100.0)
    for position in range(STEP, mended + 6):
        _run(loom, "cpu", position, 125.0 if position < mended else 100.0)
        report(loom.connection, _project(loom), _code(loom, None if position <= mended else mended), loom.now)
    assert loom.rows("SELECT state FROM regression") == [("fixed",)]
    for after in bad_on_gpu:
        _run(loom, "gpu", STEP + after, 125.0)
    assert loom.rows("SELECT state, still_bad FROM regression") == [(state, state != "fixed")]
    of_gpu = """SELECT p.regression_id, p.fixed_position FROM change_point p JOIN series s ON s.id = p.series_id
                JOIN testbed t ON t.id = s.testbed_id WHERE t.name = 'gpu' AND p.direction = 'regression'"""
    assert loom.rows(of_gpu) == [(loom.value("SELECT id FROM regression"), ends)]
    assert loom.events().count("reopened") == (state != "fixed")


@pytest.mark.parametrize(("says_so", "states"), [(True, ["confirmed", "fixed"]), (False, ["withdrawn", "withdrawn"])])
def test_what_was_told_stays_while_all_series_side_by_side_show_it(loom: Any, says_so: bool, states: list[str]) -> None:
    """Though its own series see nothing in it any more."""
    _both(loom, STEP + 5)
    if says_so:
        report(loom.connection, _project(loom), _code(loom, None), loom.now)
    chosen = "UPDATE project SET settings = settings || CAST(:chosen AS jsonb)"
    table = {"policy": {"table": {"min_change": 0.5}}}
    loom.connection.execute(text(chosen), {"chosen": json.dumps(table)})
    for (series_id,) in loom.rows("SELECT id FROM series"):
        rejudge_series(loom.connection, series_id, 0, now=loom.now)
    seen = [loom.value("SELECT state FROM regression")]
    if says_so:
        report(loom.connection, _project(loom), _code(loom, STEP + 6), loom.now)
    assert [*seen, loom.value("SELECT state FROM regression")] == states


def test_a_counter_joins_no_alarm_about_a_machine(loom: Any) -> None:
    for position in range(STEP + 6):
        ill, more = position >= STEP, position >= STEP + 2
        metrics = [
            loom.measurement("step_ms", 125.0 if ill else 100.0, seed=position),
            loom.measurement("host_syncs", 9.0 if more else 5.0, exact=True, unit="count"),
        ]
        loom.deliver(loom.run_of(position, metrics, canary=[SLOWER if ill else STEADY]))
        if position == STEP + 1:
            report(loom.connection, _project(loom), _machine(loom, "box-01"), loom.now)
    found = list_regressions(loom.connection, RegressionFilter()).items
    assert {(item.metric, item.cause, item.state) for item in found} == {
        ("step_ms", "hardware", "suspect"),
        ("host_syncs", "code", "confirmed"),
    }


def _machine(loom: Any, worker: str) -> list[SuiteIncidents]:
    """The joint detector's word that this worker of cpu is slower, in all that it measures."""
    (news,) = _upgrade(loom, "cpu")
    (said,) = news.incidents
    series = tuple(range(len(news.columns.series)))
    ill = replace(said, kind=IncidentKind.INFRA, cause=CauseName.HARDWARE, worker=worker, series=series)
    return [replace(news, incidents=(ill,))]


def test_incidents_wait_for_every_series_they_change_before_they_take_the_lock_of_the_project(
    committing_loom: Any, committing_engine: Engine
) -> None:
    loom = committing_loom
    _both(loom, STEP + 5)
    loom.connection.commit()
    project, news = _project(loom), _upgrade(loom, "cpu")
    changed = _while_a_result_of_gpu_is_judged(committing_engine, report, loom.connection, project, news, loom.now)
    assert len(changed) == 2


def test_several_regressions_triaged_together_wait_for_all_their_series_first(
    committing_loom: Any, committing_engine: Engine
) -> None:
    loom = committing_loom
    for position in range(STEP + 15):
        _run(loom, "cpu", position, 125.0 if position >= STEP else 100.0)
        _run(loom, "gpu", position, 125.0 if position >= STEP + 8 else 100.0)
    loom.connection.commit()
    numbers = [number for (number,) in loom.rows("SELECT id FROM regression ORDER BY id")]

    def acknowledge_all() -> list[str]:
        lock_series(loom.connection, numbers)
        said = [
            triage(loom.connection, number, TriageDecision("acknowledge"), "ada", now=loom.now) for number in numbers
        ]
        return [detail.regression.state for detail in said]

    assert _while_a_result_of_gpu_is_judged(committing_engine, acknowledge_all) == ["acknowledged"] * 2


def _while_a_result_of_gpu_is_judged(engine: Engine, do: Callable[..., Any], *arguments: Any) -> Any:
    """What `do` returns, where it waits for the series of that result and leaves it the lock of the project."""
    on_gpu = """SELECT s.id FROM series s JOIN testbed t ON t.id = s.testbed_id WHERE t.name = 'gpu'
                FOR NO KEY UPDATE OF s"""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    free = "SELECT pg_try_advisory_xact_lock(hashtext(:name), id) FROM project"
    with engine.connect() as result, ThreadPoolExecutor(1) as pool:
        with result.begin():
            result.execute(text(on_gpu))
            done = pool.submit(do, *arguments)
            until = time.monotonic() + 20
            while _count(engine, waits) == 0 and not done.done() and time.monotonic() < until:
                time.sleep(0.02)
            assert not done.done(), "it waited for nothing"
            can_go_on = result.scalar(text(free), {"name": regression_store.LOCK})
        assert can_go_on, "or each would wait for the other"
        return done.result(20)


def _count(engine: Engine, statement: str) -> int:
    with engine.connect() as c:
        return int(c.scalar(text(statement)) or 0)
