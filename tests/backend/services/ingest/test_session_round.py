"""A suspect asks for a session; what its rounds say becomes part of the story of the series and of the regression."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from backend.regression.joint.terms import Ask
from backend.services.base.errors import BadRequest, Conflict
from backend.services.joint.questions import Questions
from backend.services.joint.status import joint_status
from backend.services.plans import measuring
from backend.services.sessions import request as confirm
from backend.services.sessions import views as session_views
from backend.services.triage import triage
from tests.backend.services.counting import counted
from tests.backend.services.ingest.sessions_of_loom import (
    MOST_ROUNDS,
    QUIET,
    asked_run,
    choose,
    connect,
    deliver,
    hello,
    lease,
    round_of,
    sessions,
    states,
    waiting,
)


def test_a_suspect_asks_at_once_for_the_two_commits_and_its_own_variant_only(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    assert states(watched) == ["suspect"]
    ((_, spec),) = waiting(watched)
    assert spec["benchmarks"] == ["gpt.train"] and spec["variants"] == ["dtype=bf16"]
    assert spec["session"]["base"]["commit"] == watched.sha_of(23)
    assert spec["session"]["head"]["commit"] == watched.sha_of(24)
    kind, priority = watched.rows("SELECT kind, priority FROM run WHERE session_id IS NOT NULL")[0]
    assert (kind, priority) == ("confirm", 40)


def test_one_bad_commit_and_a_session_are_enough_to_confirm(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    taken = deliver(watched, round_of(watched, 100.0, 120.0))
    assert (taken.state, taken.decision) == ("decided", "confirmed")
    assert states(watched) == ["confirmed"]
    assert watched.events() == ["suspected", "session", "confirmed"]
    assert watched.red() == [24]


def test_noise_is_withdrawn_and_the_point_is_quiet_again(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    taken = deliver(watched, round_of(watched, 100.0, 100.2))
    assert (taken.state, taken.decision) == ("decided", "withdrawn")
    assert states(watched) == ["withdrawn"]
    assert watched.events() == ["suspected", "session", "withdrawn"]
    assert watched.verdicts()[-1][1] == "unchanged"


def test_what_a_session_said_still_holds_when_an_earlier_commit_is_measured_late(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    deliver(watched, round_of(watched, 100.0, 120.0))
    watched.deliver(watched.run_of(10, [watched.measurement("step_ms", 100.0, seed=77)], id="LATE-00000010"))
    assert states(watched) == ["confirmed"]
    assert watched.events() == ["suspected", "session", "confirmed"]
    assert watched.red() == [24]


def test_arms_never_enter_the_history_of_a_series(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    stored = "SELECT (SELECT count(*) FROM measurement), (SELECT count(*) FROM judgement WHERE superseded_at IS NULL)"
    before = watched.rows(stored)
    deliver(watched, round_of(watched, 100.0, 120.0))
    assert watched.rows(stored) == before
    (view,) = session_views.sessions_of_regression(watched.connection, watched.value("SELECT id FROM regression"))
    assert view.order == "ABBA" and view.worker == "box-02"
    assert len(view.series[0].base) == len(view.series[0].head) == 2


def test_a_small_difference_asks_for_more_rounds_until_the_processes_are_used_up(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    orders = []
    for number in range(MOST_ROUNDS):
        taken = deliver(watched, round_of(watched, 100.0, 104.0 - 0.1 * number, seed=number))
        orders.append(taken.state)
        if taken.state == "decided":
            break
    assert orders[-1] == "decided"
    view = session_views.session_view(watched.connection, taken.session_id)
    assert view.rounds_done == len(orders) and len(view.series[0].base) == 2 * len(orders) <= 12


@pytest.mark.parametrize(("processes", "rounds_at_most"), [(3, 1), (12, 6), (13, 6), (24, 12)])
def test_the_policy_of_the_series_says_how_many_rounds_its_sessions_have(
    watched: Any, processes: int, rounds_at_most: int
) -> None:
    other = {"metric": "peak_*", "session_max_processes": 2}
    choose(watched, {"override": [{"metric": "step_*", "session_max_processes": processes}, other]})
    asked_run(watched, 24, 120.0)
    (view,) = session_views.sessions_of_regression(watched.connection, watched.value("SELECT id FROM regression"))
    assert view.max_rounds == rounds_at_most


@pytest.mark.parametrize(
    ("asked_by", "hours_ago", "sessions"),
    [("tidemark", 23.9, 1), ("tidemark", 24.0, 2), ("ada", 1.0, 2)],
)
def test_a_project_asks_for_so_many_sessions_a_day_by_itself_and_then_the_following_commits_decide(
    watched: Any, asked_by: str, hours_ago: float, sessions: int
) -> None:
    choose(watched, {"sessions_per_day": 1})
    asked_earlier(watched, asked_by, watched.now - timedelta(hours=hours_ago))
    asked_run(watched, 24, 120.0)
    assert watched.value("SELECT count(*) FROM session") == sessions
    said = joint_status(watched.connection, "northsea/loom", watched.now)
    if sessions == 1:
        assert said[0].startswith("All 1 confirming sessions of 24 hours are used up (sessions_per_day of its policy).")
        assert "Until 2026-11-20 12:06 UTC new suspects get none" in said[0]
    for position in (25, 26):
        asked_run(watched, position, 120.0)
    assert watched.rows("SELECT state FROM regression") == [("confirmed",)]


def asked_earlier(loom: Any, by: str, at: datetime) -> None:
    """A session of another suspect, decided long ago."""
    loom.connection.execute(
        text(
            """INSERT INTO session (id, project_id, testbed_id, suite, purpose, base_commit_id, head_commit_id, spec,
                                    state, max_rounds, requested_by, requested_at)
               SELECT 'EARLIER', k.project_id, t.id, 'gpt', 'confirm', k.id, k.id, '{}', 'decided', 2, :by, :at
               FROM commit k, testbed t LIMIT 1"""
        ),
        {"by": by, "at": at},
    )


@pytest.mark.parametrize(("allowed", "asks"), [(0, False), (1, False), (2, True)])
def test_the_joint_detector_asks_within_the_sessions_of_the_day(watched: Any, allowed: int, asks: bool) -> None:
    asked_run(watched, 24, 120.0)
    assert watched.value("SELECT count(*) FROM session") == 1, "that of the suspect counts as well"
    choose(watched, {"sessions_per_day": allowed})
    project = watched.value("SELECT id FROM project")
    questions = Questions(watched.connection, project, watched.now, since_run=None)
    asked = questions.ask(Ask(testbed="cpu", base=20, head=24, series=(0,)), "gpt", "RUN-000024", 0)
    assert (asked is not None) == asks
    assert watched.value("SELECT count(*) FROM session") == 1 + asks
    assert bool(joint_status(watched.connection, "northsea/loom", watched.now)) == (allowed <= 2)


def test_the_runs_behind_a_session_are_read_once_however_many_metrics_they_have(loom: Any) -> None:
    metrics = ("step_ms", "other_ms", "third_ms")
    for position in range(24):
        loom.deliver(loom.run_of(position, [loom.measurement(name, 100.0, seed=position) for name in metrics]))
    hello(loom, "box-02")
    connect(loom)
    asked_run(loom, 24, 120.0)
    said = round_of(loom, 100.0, 120.0)
    for turn in said["turns"]:
        (own,) = turn["run"]["results"][0]["measurements"]
        turn["run"]["results"][0]["measurements"] = [{**own, "metric": name} for name in metrics]
    with counted(loom.connection) as sent:
        assert deliver(loom, said).decision == "confirmed"
    places = [statement for statement in sent if "r.spec -> 'policy'" in statement]
    assert len(places) == 3, "of the newest run when the round came, and of two runs for the history of the regression"
    assert sum("SELECT document FROM run" in statement for statement in sent) <= 1, "for the cause alone"


def test_a_machine_that_moved_is_not_counted_and_tried_again_but_not_for_ever(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    told = []
    for _ in range(confirm.MOST_SPOILED + 1):
        said = round_of(watched, 100.0, 150.0, status="quarantined", error="the canary moved")
        lease(watched)
        told.append(deliver(watched, said, lease="a lease").state)
    assert told == ["running", "running", "quarantined"]
    assert states(watched) == ["suspect"]
    assert not waiting(watched)


def test_a_commit_that_settles_the_suspect_takes_the_waiting_session_back(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    watched.history([100.0] * 3, start=25)
    assert states(watched) == ["withdrawn"]
    assert sessions(watched) == [("cancelled", None)]
    assert not waiting(watched)


@pytest.mark.parametrize("lacking", ["worker", "repository"])
def test_without_a_worker_or_a_repository_the_following_commits_decide(loom: Any, lacking: str) -> None:
    loom.history(QUIET)
    if lacking == "repository":
        hello(loom, "box-02")
    else:
        connect(loom)
        hello(loom, "elsewhere", "gpu")
    asked_run(loom, 24, 120.0)
    assert states(loom) == ["suspect"] and sessions(loom) == []
    loom.history([120.0] * 4, start=25)
    assert states(loom) == ["confirmed"]


def test_a_worker_that_has_been_silent_confirms_nothing(watched: Any) -> None:
    watched.connection.execute(
        text("UPDATE worker SET last_seen_at = :then"), {"then": watched.now - timedelta(minutes=5)}
    )
    asked_run(watched, 24, 120.0)
    assert sessions(watched) == []


def test_the_same_round_twice_changes_nothing_and_another_content_is_refused(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    said = round_of(watched, 100.0, 120.0)
    first = deliver(watched, said)
    again = deliver(watched, said)
    assert first.created and not again.created and again.decision == "confirmed"
    with pytest.raises(Conflict, match="never overwritten"):
        deliver(watched, {**said, "worker": "box-03"})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"schema": "tidemark.session/9"}, "tidemark.session/1"),
        ({"status": "good"}, "quarantined"),
        ({"turns": [{"arm": "both"}]}, "base or head"),
        ({"worker": 3}, "text"),
    ],
)
def test_a_round_that_is_not_understood_is_refused_with_the_reason(
    watched: Any, wrong: Mapping[str, Any], told: str
) -> None:
    asked_run(watched, 24, 120.0)
    with pytest.raises(BadRequest, match=told):
        deliver(watched, {**round_of(watched, 100.0, 120.0), **wrong})


def test_a_failure_counts_only_from_whoever_holds_the_round(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    failed = round_of(watched, 100.0, 120.0, status="failed", error="the base does not build", turns=[])
    with pytest.raises(Conflict, match="lease"):
        deliver(watched, failed)
    lease(watched)
    assert deliver(watched, failed, lease="a lease").state == "failed"
    assert states(watched) == ["suspect"]


def test_a_session_that_confirms_a_change_stays_confirmed_by_the_following_commits(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    deliver(watched, round_of(watched, 100.0, 120.0))
    watched.history([120.0] * 4, start=25)
    assert states(watched) == ["confirmed"] and watched.red() == [24, 25, 26, 27, 28]
    watched.history([100.0] * 4, start=29)
    assert states(watched) == ["fixed"]


@pytest.mark.parametrize(("good", "stands"), [(1, "confirmed"), (2, "fixed")])
def test_what_a_session_confirmed_is_fixed_by_the_next_commits_that_take_it_back(
    watched: Any, good: int, stands: str
) -> None:
    asked_run(watched, 24, 120.0)
    deliver(watched, round_of(watched, 100.0, 120.0))
    for position in range(25, 25 + good):
        asked_run(watched, position, 100.0)
    assert states(watched) == [stands] and watched.red() == [24]


def test_a_round_whose_session_was_called_off_meanwhile_is_taken_in_and_changes_nothing(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    said = round_of(watched, 100.0, 120.0)
    (session_id,) = (identity for (identity,) in watched.rows("SELECT id FROM session"))
    lease(watched)
    confirm.cancel(watched.connection, session_id, "cancelled by ada", watched.now)
    taken = deliver(watched, said, lease="a lease")
    assert (taken.state, taken.decision) == ("cancelled", None)
    assert states(watched) == ["suspect"]
    with pytest.raises(Conflict, match="cancelled already"):
        confirm.cancel(watched.connection, session_id, "again", watched.now)


def test_a_run_is_not_taken_in_the_place_of_a_round(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    ((run_id, _),) = waiting(watched)
    with pytest.raises(Conflict, match="round of a session"):
        watched.deliver(watched.run_of(24, [watched.measurement("step_ms", 120.0)], id=run_id))


def test_a_session_whose_round_was_lost_too_often_ends_with_the_reason(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    ((run_id, _),) = waiting(watched)
    assert measuring.give_up_lost_sessions(watched.connection, watched.now) == []
    lost = "UPDATE run SET state = 'failed', status = 'failed', error = 'given up' WHERE id = :id"
    watched.connection.execute(text(lost), {"id": run_id})
    assert len(measuring.give_up_lost_sessions(watched.connection, watched.now)) == 1
    assert watched.rows("SELECT state, reason FROM session") == [("failed", "given up")]
    assert states(watched) == ["suspect"]


def test_a_session_that_nobody_takes_is_not_waited_for_for_ever(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    later = watched.now + measuring.PATIENCE + timedelta(minutes=1)
    measuring.give_up_lost_sessions(watched.connection, later)
    assert sessions(watched) == [("cancelled", None)] and not waiting(watched)


def test_a_session_whose_next_round_nobody_takes_is_not_waited_for_for_ever(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    said = round_of(watched, 100.0, 120.0, status="quarantined", error="the canary moved")
    lease(watched)
    taken = deliver(watched, said, "a lease")
    assert taken.state == "running" and len(waiting(watched)) == 1
    later = watched.now + measuring.PATIENCE + timedelta(minutes=1)
    run_id = lease(watched)
    assert measuring.give_up_lost_sessions(watched.connection, later) == []  # somebody is at it
    watched.connection.execute(text("UPDATE run SET state = 'queued' WHERE id = :id"), {"id": run_id})
    assert len(measuring.give_up_lost_sessions(watched.connection, later)) == 1
    assert sessions(watched) == [("cancelled", None)] and not waiting(watched)


def test_a_session_is_decided_by_the_metric_that_raised_the_suspect_or_not_at_all(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    said = round_of(watched, 100.0, 120.0)
    for turn in said["turns"]:
        turn["run"]["results"][0]["measurements"][0]["metric"] = "another_ms"
    taken = deliver(watched, said)
    assert (taken.state, taken.decision) == ("failed", None)
    assert "step_ms" in taken.reason and states(watched) == ["suspect"]


def test_a_round_that_was_at_hand_for_nobody_when_its_session_ended_is_stopped_later(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    run_id = lease(watched)
    watched.connection.execute(text("UPDATE session SET state = 'cancelled'"))
    measuring.give_up_lost_sessions(watched.connection, watched.now)
    assert watched.value("SELECT cancel_requested FROM run WHERE id = :id", id=run_id)


def test_a_person_who_settles_the_suspect_takes_the_session_back(watched: Any) -> None:
    asked_run(watched, 24, 120.0)
    number = watched.value("SELECT id FROM regression")
    triage.triage(
        watched.connection, number, triage.TriageDecision("expected", reason="worth it"), "ada", now=watched.now
    )
    assert sessions(watched) == [("cancelled", None)] and not waiting(watched)
