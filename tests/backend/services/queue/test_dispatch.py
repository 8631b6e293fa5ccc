"""The queue: each key once, nobody twice, nothing lost; published by priority and never more than workers can start."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import Connection, Engine, text

from backend.services import housekeeping
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import Conflict, NotFound, Outdated, ServiceError
from backend.services.base.principal import Principal, Scope, Via
from backend.services.queue import dispatch, publishing
from backend.services.queue import request as queue_request
from backend.services.queue.dispatch import Protection, WorkerHello
from backend.services.queue.publishing import CeleryBroker, Nudge
from backend.services.queue.request import WantedRun
from backend.services.queue.scheduling import Kind
from tidemark import __version__
from tidemark.machine.valkey import EmbeddedValkey

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CONFIG = ServiceConfig(database_url="postgresql://x", redis_url="redis://127.0.0.1:1/0", data_dir=Path("x"))
ME = Principal(name="me", via=Via.TOKEN, scopes=frozenset(Scope))


def hello(worker: str = "w1", testbed: str = "cpu", protection: Protection = Protection.USER) -> WorkerHello:
    said = {"listens_where_told": True}
    return WorkerHello(worker=worker, testbed=testbed, version="1", capabilities=said, protection=protection)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def make_project(c: Connection, *, trusted: bool = True, slug: str = "a/b", commits: int = 3) -> tuple[int, list[int]]:
    project = c.scalar(
        text("INSERT INTO project (slug, trusted) VALUES (:s, :t) RETURNING id"), {"s": slug, "t": trusted}
    )
    branch = c.scalar(text("INSERT INTO branch (project_id, name) VALUES (:p, 'main') RETURNING id"), {"p": project})
    ids = []
    for number in range(commits):
        commit = c.scalar(
            text("INSERT INTO commit (project_id, sha) VALUES (:p, :s) RETURNING id"),
            {"p": project, "s": f"{number:040x}"},
        )
        c.execute(
            text("INSERT INTO branch_commit (branch_id, project_id, position, commit_id) VALUES (:b, :p, :n, :c)"),
            {"b": branch, "p": project, "n": number, "c": commit},
        )
        ids.append(commit)
    return project, ids


def request(
    c: Connection,
    project: int,
    commits: Sequence[int],
    *,
    kind: Kind = Kind.MAIN,
    testbed: str = "cpu",
    now: datetime = NOW,
    again: bool = False,
) -> list[queue_request.Requested]:
    wanted = [WantedRun(commit_id=commit, suite="gpt", testbed=testbed, spec={}) for commit in commits]
    return queue_request.request_runs(
        c, project, wanted, kind=kind, requested_by="test", now=now, branch="main", again=again
    )


def published(c: Connection, now: datetime = NOW) -> list[str]:
    return [nudge.run_id for nudge in publishing.choose_ready(c, CONFIG, now)]


def state(c: Connection, run_id: str) -> Any:
    return c.execute(text("SELECT * FROM run WHERE id = :id"), {"id": run_id}).one()


# --- publishing ------------------------------------------------------------------------------------------------------


def test_nothing_is_published_where_no_worker_lives(connection: Connection) -> None:
    project, commits = make_project(connection)
    request(connection, project, commits)
    assert published(connection) == []
    dispatch.say_hello(connection, hello(), NOW)
    dispatch.say_hello(connection, hello("other", "h200"), NOW)
    assert published(connection, at(CONFIG.worker_live_s + 1)) == []
    assert len(published(connection, at(1))) == 1


def test_parents_go_before_children_and_priority_before_everything(connection: Connection) -> None:
    project, commits = make_project(connection, commits=4)
    children = request(connection, project, [commits[2], commits[0], commits[1]])
    (urgent,) = request(connection, project, [commits[3]], kind=Kind.CONFIRM, now=at(5))
    for number in range(4):
        dispatch.say_hello(connection, hello(f"w{number}"), at(6))
    by_commit = {answer.commit_id: answer.run_id for answer in children}
    assert published(connection, at(6)) == [urgent.run_id, *(by_commit[commit] for commit in commits[:3])]


def test_never_more_messages_than_idle_workers(connection: Connection) -> None:
    project, commits = make_project(connection)
    request(connection, project, commits)
    dispatch.say_hello(connection, hello("w1"), NOW)
    dispatch.say_hello(connection, hello("w2"), NOW)
    two = published(connection)
    assert len(two) == 2 and published(connection, at(1)) == []
    dispatch.lease_run(connection, two[0], hello("w1"), CONFIG, ME, at(1))
    assert published(connection, at(2)) == [], "one worker is busy, the other has a message"
    dispatch.lease_run(connection, two[1], hello("w2"), CONFIG, ME, at(2))
    assert published(connection, at(3)) == []
    connection.execute(text("UPDATE run SET state = 'done' WHERE id = :id"), {"id": two[0]})
    assert len(published(connection, at(4))) == 1


def test_a_message_that_nobody_took_is_sent_again(connection: Connection) -> None:
    project, commits = make_project(connection, commits=1)
    (run,) = request(connection, project, commits)
    dispatch.say_hello(connection, hello(), NOW)
    assert published(connection) == [run.run_id]
    assert published(connection, at(CONFIG.publish_again_s - 1)) == []
    assert published(connection, at(CONFIG.publish_again_s + 1)) == [run.run_id]


def test_a_turn_that_nobody_took_is_not_lost(connection: Connection) -> None:
    old, its_commits = make_project(connection, slug="a/old")
    other, commits = make_project(connection, slug="a/other")
    backfill = request(connection, old, its_commits, kind=Kind.BACKFILL, now=at(-5.5 * 3600))
    (pull_request,) = request(connection, other, commits[:1], kind=Kind.PULL_REQUEST)
    dispatch.say_hello(connection, hello(), NOW)
    assert published(connection) == [backfill[0].run_id], "five hours without a run: its turn has come"
    later = at(CONFIG.publish_again_s + 1)
    assert published(connection, later) == [backfill[0].run_id], "the message was lost, not the turn"
    dispatch.lease_run(connection, backfill[0].run_id, hello(), CONFIG, ME, later)
    connection.execute(text("UPDATE run SET state = 'done' WHERE id = :id"), {"id": backfill[0].run_id})
    assert published(connection, later) == [pull_request.run_id]


def test_untrusted_projects_wait_for_a_worker_that_isolates(connection: Connection) -> None:
    project, commits = make_project(connection, trusted=False)
    request(connection, project, commits)
    dispatch.say_hello(connection, hello("bare", protection=Protection.NONE), NOW)
    assert published(connection) == []
    dispatch.say_hello(connection, hello("safe", protection=Protection.CONTAINER), NOW)
    assert len(published(connection)) == 2


def test_only_pages_of_its_project_hear_of_a_worker_of_one_project(connection: Connection) -> None:
    project, _ = make_project(connection)
    for name, of in (("own", project), ("everybody's", None)):
        dispatch.say_hello(connection, hello(name), NOW, starting=True, project_id=of)
        dispatch.set_worker_state(connection, name, "pause")
    told = connection.execute(text("SELECT payload ->> 'worker', project_id FROM live_event WHERE kind = 'worker'"))
    assert {tuple(row) for row in told} == {("own", project), ("everybody's", None)}


def test_a_worker_of_one_project_neither_starves_it_nor_its_neighbours(connection: Connection) -> None:
    crowd, crowds_commits = make_project(connection, slug="a/crowd")
    mine, commits = make_project(connection, slug="a/mine")
    urgent = request(connection, crowd, crowds_commits, kind=Kind.PULL_REQUEST)
    own = request(connection, mine, commits)
    dispatch.say_hello(connection, hello("bound"), NOW, project_id=mine)
    (offer,) = publishing.choose_ready(connection, CONFIG, NOW)
    assert offer == Nudge(testbed="cpu", run_id=own[0].run_id, project_id=mine), "though the neighbour is more urgent"
    assert publishing.choose_ready(connection, CONFIG, at(1)) == [], "its message is there"
    dispatch.say_hello(connection, hello("open"), NOW)
    (offer,) = publishing.choose_ready(connection, CONFIG, at(2))
    assert offer == Nudge(testbed="cpu", run_id=urgent[0].run_id), "nor does its message keep the neighbour waiting"
    its_token = Principal(name="its", via=Via.TOKEN, scopes=frozenset(Scope), project_id=mine)
    dispatch.lease_run(connection, own[0].run_id, hello("bound"), CONFIG, its_token, at(3))
    dispatch.lease_run(connection, urgent[0].run_id, hello("open"), CONFIG, ME, at(3))
    assert publishing.choose_ready(connection, CONFIG, at(4)) == []
    connection.execute(text("UPDATE run SET state = 'done' WHERE state = 'leased'"))
    both = {nudge.run_id: nudge.project_id for nudge in publishing.choose_ready(connection, CONFIG, at(5))}
    assert both == {own[1].run_id: mine, urgent[1].run_id: None}


def test_a_worker_of_one_project_that_listens_with_all_others_is_offered_its_runs_there(connection: Connection) -> None:
    project, commits = make_project(connection)
    (run, *_) = request(connection, project, commits)
    old = replace(hello(), capabilities={})
    dispatch.say_hello(connection, old, NOW, project_id=project)
    assert publishing.choose_ready(connection, CONFIG, NOW) == [Nudge(testbed="cpu", run_id=run.run_id)]
    its_token = Principal(name="its", via=Via.TOKEN, scopes=frozenset(Scope), project_id=project)
    dispatch.lease_run(connection, run.run_id, old, CONFIG, its_token, NOW)
    assert connection.scalar(text("SELECT project_id FROM worker")) is None


def test_a_worker_of_one_project_that_cannot_isolate_it_is_offered_nothing(connection: Connection) -> None:
    project, commits = make_project(connection, trusted=False)
    request(connection, project, commits)
    dispatch.say_hello(connection, hello("bare", protection=Protection.NONE), NOW, project_id=project)
    assert published(connection) == []
    dispatch.say_hello(connection, hello("bare", protection=Protection.USER), NOW, project_id=project)
    assert len(published(connection)) == 1


def test_a_worker_of_another_project_is_no_second_opinion(connection: Connection) -> None:
    project, commits = make_project(connection, commits=1)
    elsewhere, _ = make_project(connection, slug="a/elsewhere", commits=0)
    (run,) = request(connection, project, commits)
    dispatch.say_hello(connection, hello("doubted"), NOW)
    connection.execute(text("UPDATE run SET avoid_worker_id = (SELECT id FROM worker)"))
    dispatch.say_hello(connection, hello("bound"), NOW, project_id=elsewhere)
    assert dispatch.lease_run(connection, run.run_id, hello("doubted"), CONFIG, ME, at(1)).run_id == run.run_id


def test_a_paused_worker_counts_for_nothing(connection: Connection) -> None:
    project, commits = make_project(connection)
    request(connection, project, commits)
    dispatch.say_hello(connection, hello(), NOW)
    connection.execute(text("UPDATE worker SET wanted_state = 'drain'"))
    assert published(connection) == []


def test_a_worker_that_is_paused_over_its_run_does_not_hold_up_the_others(connection: Connection) -> None:
    project, commits = make_project(connection)
    runs = request(connection, project, commits)
    dispatch.say_hello(connection, hello("paused"), NOW)
    dispatch.lease_run(connection, runs[0].run_id, hello("paused"), CONFIG, ME, NOW)
    connection.execute(text("UPDATE worker SET wanted_state = 'pause'"))
    dispatch.say_hello(connection, hello("free"), NOW)
    assert published(connection) == [runs[1].run_id]


def test_a_flood_of_one_project_leaves_room_for_another(connection: Connection) -> None:
    flood, theirs = make_project(connection, commits=40)
    other, mine = make_project(connection, slug="c/d", commits=2)
    request(connection, flood, theirs, now=at(-600))
    wanted = [answer.run_id for answer in request(connection, other, mine)]
    for number in range(4):
        dispatch.say_hello(connection, hello(f"w{number}"), NOW)
    assert set(wanted) <= set(published(connection))


def test_what_was_used_counts_for_who_goes_next(connection: Connection) -> None:
    first, theirs = make_project(connection)
    second, ours = make_project(connection, slug="c/d")
    for project, commits in ((first, theirs), (second, ours)):
        request(connection, project, commits)
    dispatch.say_hello(connection, hello(), NOW)
    (run,) = published(connection)
    dispatch.lease_run(connection, run, hello(), CONFIG, ME, NOW)
    for seconds in range(0, 120, 20):  # the loop looks in while it runs
        published(connection, at(seconds))
    connection.execute(text("UPDATE run SET state = 'done' WHERE id = :id"), {"id": run})
    dispatch.say_hello(connection, hello(), at(121))
    (following,) = published(connection, at(121))
    assert state(connection, following).project_id != state(connection, run).project_id
    used = connection.execute(text("SELECT used_s FROM queue_share WHERE used_s > 0")).scalar_one()
    assert 90 < used <= 100


def test_a_backlog_of_main_does_not_keep_its_newest_commit_waiting(connection: Connection) -> None:
    project, commits = make_project(connection, commits=5)
    runs = request(connection, project, commits, now=at(-3600))
    dispatch.say_hello(connection, hello(), NOW)
    assert published(connection) == [runs[-1].run_id], "an even minute belongs to the newest"
    dispatch.say_hello(connection, hello(), at(60))
    assert published(connection, at(60)) == [runs[0].run_id], "an odd one to the oldest"


def test_a_backfill_keeps_the_order_it_was_asked_in(connection: Connection) -> None:
    project, commits = make_project(connection, commits=3)
    coarse = request(connection, project, [commits[2], commits[0], commits[1]], kind=Kind.BACKFILL)
    for number in range(3):
        dispatch.say_hello(connection, hello(f"w{number}"), NOW)
    assert published(connection) == [answer.run_id for answer in coarse]


def test_a_worker_goes_on_with_the_suites_of_its_commit_unless_something_is_urgent(connection: Connection) -> None:
    project, commits = make_project(connection)
    wanted = [WantedRun(commit_id=commits[0], suite=suite, testbed="cpu", spec={}) for suite in ("gpt", "moe", "comm")]
    runs = queue_request.request_runs(
        connection, project, wanted, kind=Kind.MAIN, requested_by="t", now=NOW, branch="main"
    )
    request(connection, project, commits[1:], now=at(-60))
    dispatch.say_hello(connection, hello(), NOW)
    first = runs[0].run_id
    assert dispatch.next_of_commit(connection, "w1", first, NOW) is None, "it has not measured it yet"
    dispatch.lease_run(connection, first, hello(), CONFIG, ME, NOW)
    connection.execute(text("UPDATE run SET state = 'done' WHERE id = :id"), {"id": first})
    assert dispatch.next_of_commit(connection, "w1", first, NOW) == runs[1].run_id
    assert dispatch.next_of_commit(connection, "w2", first, NOW) is None, "another worker has no checkout of it"
    (urgent,) = request(connection, project, commits[2:], kind=Kind.CONFIRM)
    assert not urgent.created and state(connection, urgent.run_id).kind == "confirm", "it was queued for main already"
    assert dispatch.next_of_commit(connection, "w1", first, NOW) is None
    connection.execute(text("UPDATE run SET state = 'cancelled' WHERE id = :id"), {"id": urgent.run_id})
    assert dispatch.next_of_commit(connection, "w1", first, NOW) == runs[1].run_id


@pytest.mark.parametrize(("version", "older"), [("0.2.0", "service"), ("0.0.9", "worker"), ("1.0.0", "service")])
def test_a_worker_of_another_version_is_refused_with_what_to_do(
    connection: Connection, version: str, older: str
) -> None:
    project, commits = make_project(connection)
    (run, *_) = request(connection, project, commits)
    stranger = replace(hello(), version=version)
    with pytest.raises(
        Outdated, match=f"runs tidemark {version}, this service {__version__}.*bring the {older} up to date"
    ):
        dispatch.lease_run(connection, run.run_id, stranger, CONFIG, ME, NOW)
    dispatch.lease_run(connection, run.run_id, replace(hello(), version="0.1.7"), CONFIG, ME, NOW)


def test_a_worker_in_trouble_is_put_into_quarantine_and_gets_no_runs(connection: Connection) -> None:
    project, commits = make_project(connection)
    runs = request(connection, project, commits)
    troubled = replace(hello(), capabilities={"trouble": "GPU 0 has fallen off the bus (Xid 79)"})
    assert dispatch.say_hello(connection, troubled, NOW) == "quarantine"
    assert published(connection) == []
    with pytest.raises(Conflict, match="told to quarantine"):
        dispatch.lease_run(connection, runs[0].run_id, troubled, CONFIG, ME, NOW)
    dispatch.set_worker_state(connection, "w1", "ok")
    assert dispatch.say_hello(connection, hello(), NOW) == "ok"
    assert len(published(connection)) == 1


def test_a_message_reaches_the_queue_of_its_testbed_by_task_name(valkey: EmbeddedValkey) -> None:
    broker = CeleryBroker(valkey.url)
    assert publishing.send(broker, [Nudge(testbed="published", run_id="01RUN")]) == 1
    broker.close()
    with (
        Celery("consumer", broker=valkey.url).connection_for_read() as connection,
        connection.SimpleQueue("testbed.published") as queue,
    ):
        message = queue.get(timeout=5)
        message.ack()
    assert message.headers["task"] == "tidemark.run" and message.payload[0] == ["01RUN"]


def test_a_broker_that_is_away_costs_nothing_but_time(
    committing_engine: Engine, database: str, valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    away = ServiceConfig(database_url=database, redis_url="redis://127.0.0.1:1/0", data_dir=tmp_path)
    with committing_engine.begin() as c:
        project, commits = make_project(c, commits=1)
        request(c, project, commits)
        dispatch.say_hello(c, hello(), NOW)
    broker = CeleryBroker(away.redis_url)
    housekeeping.tick(committing_engine, away, broker, NOW)
    broker.close()
    with committing_engine.begin() as c:
        assert len(published(c, at(CONFIG.publish_again_s + 1))) == 1


# --- leases ----------------------------------------------------------------------------------------------------------


def test_many_workers_and_one_run_make_one_lease(committing_engine: Engine) -> None:
    with committing_engine.begin() as c:
        project, commits = make_project(c, commits=1)
        (run,) = request(c, project, commits)
    barrier = threading.Barrier(6)

    def take(number: int) -> bool:
        barrier.wait(10)
        try:
            with committing_engine.begin() as c:
                dispatch.lease_run(c, run.run_id, hello(f"w{number}"), CONFIG, ME, NOW)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        taken = [future.result(20) for future in [pool.submit(take, number) for number in range(6)]]
    assert sum(taken) == 1


def test_a_silent_worker_loses_its_run_and_a_third_loss_fails_it(connection: Connection) -> None:
    project, commits = make_project(connection, commits=1)
    (run,) = request(connection, project, commits)
    for attempt in (1, 2, 3):
        begin = attempt * 1000
        lease = dispatch.lease_run(connection, run.run_id, hello(), CONFIG, ME, at(begin))
        assert lease.attempt == attempt
        dispatch.heartbeat(connection, run.run_id, lease.lease, CONFIG, at(begin + 20))
        assert dispatch.expire_leases(connection, CONFIG, at(begin + 49)) == []
        assert dispatch.expire_leases(connection, CONFIG, at(begin + 51)) == [run.run_id]
        with pytest.raises(Conflict):
            dispatch.heartbeat(connection, run.run_id, lease.lease, CONFIG, at(begin + 52))
    row = state(connection, run.run_id)
    assert row.state == "failed" and row.status == "failed"
    assert row.error == "given up after 3 lost attempts; the last one: worker w1 was not heard of for 30 s"
    assert [attempt["attempt"] for attempt in row.attempts] == [1, 2, 3]
    events = connection.execute(text("SELECT detail FROM run_event ORDER BY id")).scalars().all()
    assert [event["state"] for event in events] == ["queued", "queued", "failed"]


def test_a_clock_that_was_set_back_does_not_keep_a_dead_workers_run_for_an_hour(connection: Connection) -> None:
    project, commits = make_project(connection, commits=1)
    (run,) = request(connection, project, commits)
    dispatch.lease_run(connection, run.run_id, hello(), CONFIG, ME, at(3600))
    assert dispatch.expire_leases(connection, CONFIG, NOW) == []
    assert dispatch.expire_leases(connection, CONFIG, at(CONFIG.lease_s - 1)) == []
    assert dispatch.expire_leases(connection, CONFIG, at(CONFIG.lease_s + 1)) == [run.run_id]


def test_a_run_is_measured_by_another_worker_than_the_one_it_avoids(connection: Connection) -> None:
    project, commits = make_project(connection, commits=1)
    (run,) = request(connection, project, commits)
    dispatch.say_hello(connection, hello("doubted"), NOW)
    connection.execute(text("UPDATE run SET avoid_worker_id = (SELECT id FROM worker WHERE name = 'doubted')"))
    dispatch.say_hello(connection, hello("other"), NOW)
    with pytest.raises(Conflict, match="for a worker other than doubted"):
        dispatch.lease_run(connection, run.run_id, hello("doubted"), CONFIG, ME, at(1))
    assert dispatch.lease_run(connection, run.run_id, hello("doubted"), CONFIG, ME, at(61)).run_id == run.run_id


def test_a_heartbeat_just_after_the_lease_ran_out_still_keeps_it(connection: Connection) -> None:
    project, commits = make_project(connection, commits=1)
    (run,) = request(connection, project, commits)
    lease = dispatch.lease_run(connection, run.run_id, hello(), CONFIG, ME, NOW)
    assert dispatch.heartbeat(connection, run.run_id, lease.lease, CONFIG, at(31)) is False
    assert dispatch.expire_leases(connection, CONFIG, at(60)) == []


def test_a_cancelled_run_whose_worker_falls_silent_stays_cancelled(connection: Connection) -> None:
    project, commits = make_project(connection, commits=1)
    (run,) = request(connection, project, commits)
    dispatch.lease_run(connection, run.run_id, hello(), CONFIG, ME, NOW)
    assert dispatch.cancel_run(connection, run.run_id, ME, NOW) == "leased"
    dispatch.expire_leases(connection, CONFIG, at(100))
    assert state(connection, run.run_id).state == "cancelled"


def test_a_waiting_run_is_cancelled_at_once_and_an_ended_one_is_not(connection: Connection) -> None:
    project, commits = make_project(connection, commits=1)
    (run,) = request(connection, project, commits)
    assert dispatch.cancel_run(connection, run.run_id, ME, NOW) == "cancelled"
    with pytest.raises(Conflict, match="is cancelled"):
        dispatch.cancel_run(connection, run.run_id, ME, NOW)
    with pytest.raises(NotFound):
        dispatch.cancel_run(connection, "01NOSUCHRUN", ME, NOW)


def test_a_token_of_another_project_neither_leases_nor_cancels(connection: Connection) -> None:
    project, commits = make_project(connection, commits=1)
    (run,) = request(connection, project, commits)
    elsewhere, _ = make_project(connection, slug="a/elsewhere", commits=0)
    other = Principal(name="other", via=Via.TOKEN, scopes=frozenset(Scope), project_id=elsewhere)
    for act in (
        lambda: dispatch.lease_run(connection, run.run_id, hello(), CONFIG, other, NOW),
        lambda: dispatch.cancel_run(connection, run.run_id, other, NOW),
    ):
        with pytest.raises(ServiceError, match="another project"):
            act()
