"""Projects, the way to a first result, workers, the queue, and the search box."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from backend.services.base.errors import BadRequest, NotFound
from backend.services.board.jsonable import dump
from backend.services.queue.view import queue
from backend.services.reports.overview import (
    WorkerState,
    first_run,
    known_projects,
    list_projects,
    load_worker,
    load_workers,
    summary_of,
)
from backend.services.reports.search import HitKind, search

PROJECT = "northsea/loom"
NOW = datetime(2026, 11, 2, 15, tzinfo=UTC)


def found(history: Any, text: str) -> set[tuple[HitKind, str]]:
    return {(hit.kind, hit.key) for hit in search(history.connection, text, PROJECT).hits}


def commit(position: int) -> str:
    return f"{position + 1:08x}" + "c0ffee" * 5 + "ab"


def test_projects_are_listed_with_what_needs_people(history: Any) -> None:
    (project,) = list_projects(history.connection)
    assert (project.slug, project.default_branch, project.waiting) == (PROJECT, "main", 2)
    assert (project.open_regressions, project.suspects) == (0, 0) and project.last_result_at is not None
    history.execute("UPDATE regression SET state = 'confirmed'")
    assert list_projects(history.connection)[0].unowned == 1


def test_one_project_is_read_as_it_stands_in_the_list(history: Any) -> None:
    history.execute("INSERT INTO project (slug) VALUES ('aaa/first'), ('zzz/last')")
    listed = list_projects(history.connection)
    assert [each.slug for each in listed] == ["aaa/first", PROJECT, "zzz/last"]
    assert [summary_of(history.connection, each.id) for each in listed] == list(listed)
    assert [each.slug for each in known_projects(history.connection)] == [each.slug for each in listed]
    mine = known_projects(history.connection, only={listed[1].id})
    assert [(each.id, each.slug) for each in mine] == [(listed[1].id, PROJECT)]
    assert summary_of(history.connection, 2**31 - 1) is None


def test_the_way_to_a_first_result_ticks_itself_off(history: Any) -> None:
    history.execute("INSERT INTO project (slug, repository_url) VALUES ('new/one', 'https://example.org/one')")
    history.execute("INSERT INTO testbed (name) VALUES ('far')")
    empty = first_run(history.connection, "new/one", now=NOW)
    assert (empty.worker_connected, empty.commit_seen, empty.run_requested, empty.done) == (True, False, False, False)
    history.execute(
        "INSERT INTO commit (project_id, sha) SELECT id, repeat('d', 40) FROM project WHERE slug = 'new/one'"
    )
    history.execute(
        """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state)
           SELECT 'RUN-first', p.id, c.id, t.id, 'gpt', 'queued' FROM project p JOIN commit c ON c.project_id = p.id
           JOIN testbed t ON t.name = 'far' WHERE p.slug = 'new/one'"""
    )
    waiting = first_run(history.connection, "new/one", now=NOW)
    assert (waiting.commit_seen, waiting.run_requested, waiting.so_far.waiting) == (True, True, 1)
    assert waiting.so_far.wanted_testbeds == ["far"] and not waiting.worker_connected, (
        "the only worker is of another testbed"
    )
    done = first_run(history.connection, PROJECT, now=NOW)
    assert (
        done.done
        and done.so_far.first_result_id == "RUN-000000"
        and done.so_far.failed_error == "worker: make exited with 2"
    )


@pytest.mark.parametrize(
    ("seen_s", "wanted", "running", "state"),
    [
        (10, "ok", False, WorkerState.IDLE),
        (44, "ok", True, WorkerState.BUSY),
        (46, "ok", True, WorkerState.GONE),
        (10, "quarantine", False, WorkerState.HELD),
        (10, "drain", True, WorkerState.BUSY),
    ],
)
def test_a_worker_is_what_it_was_last_heard_to_be(
    history: Any, seen_s: int, wanted: str, running: bool, state: WorkerState
) -> None:
    history.execute(
        "UPDATE worker SET last_seen_at = :at, wanted_state = :wanted",
        at=NOW - timedelta(seconds=seen_s), wanted=wanted,
    )  # fmt: skip
    history.execute(
        "UPDATE run SET worker_id = (SELECT id FROM worker WHERE :running), leased_at = :at WHERE id = 'RUN-000028'",
        at=NOW - timedelta(minutes=2), running=running,
    )  # fmt: skip
    (worker,) = load_workers(history.connection, now=NOW).workers
    assert (worker.state, worker.testbed) == (state, "cpu")
    assert (worker.current is not None and worker.current.id == "RUN-000028") is running


def test_a_worker_shows_its_canary_its_telemetry_and_how_its_runs_ended(history: Any) -> None:
    (worker,) = load_workers(history.connection, now=NOW).workers
    assert (worker.done, worker.failed, worker.quarantined) == (25, 1, 1)
    assert worker.telemetry == {"load_1m": 0.4}
    detail = load_worker(history.connection, "box-01", now=NOW)
    assert len(detail.runs) == 27
    assert [reading.drift for reading in detail.worker.canary] == [pytest.approx(0.01)] * 27
    assert orjson.loads(dump(detail))["worker"]["canary"][0]["name"] == "gemm"
    with pytest.raises(NotFound, match="known: box-01"):
        load_worker(history.connection, "box-02", now=NOW)


def test_a_round_of_a_session_among_a_workers_runs_shows_its_state(history: Any) -> None:
    # A round delivers turns, no run of its own: it has no status, and the page of its worker said 500.
    history.execute("UPDATE run SET kind = 'confirm', status = NULL, state = 'done' WHERE id = 'RUN-000000'")
    detail = load_worker(history.connection, "box-01", now=NOW)
    assert [run.status for run in detail.runs if run.id == "RUN-000000"] == ["done"]


def test_a_silent_testbed_is_told_once_and_clears_itself(history: Any) -> None:
    assert load_workers(history.connection, now=NOW).silent == ()
    later = NOW + timedelta(hours=1)
    (silent,) = load_workers(history.connection, now=later).silent
    assert (silent.testbed, silent.last_seen_at, silent.waiting) == ("cpu", NOW, 1)
    history.execute("INSERT INTO testbed (name) VALUES ('never-used')")
    assert len(load_workers(history.connection, now=later).silent) == 1
    history.execute("UPDATE worker SET last_seen_at = :now", now=later)
    assert load_workers(history.connection, now=later).silent == ()


def test_a_silent_testbed_counts_what_the_reader_may_see(history: Any) -> None:
    def seen_by(*projects: str) -> list[tuple[str, int]]:
        found = load_workers(history.connection, now=NOW + timedelta(hours=1), of=projects).silent
        return [(each.testbed, each.waiting) for each in found]

    assert seen_by(PROJECT) == [("cpu", 1)]
    assert seen_by("a/stranger") == [("cpu", 0)], "a shared worker is shown, the runs that wait for it are not"
    history.execute("UPDATE worker SET project_id = (SELECT id FROM project WHERE slug = :slug)", slug=PROJECT)
    assert seen_by(PROJECT) == [("cpu", 1)]
    assert seen_by("a/stranger") == [], "nothing of another project's own worker is shown"


def test_the_queue_says_what_waits_why_and_for_how_long(history: Any) -> None:
    history.execute(
        "UPDATE run SET worker_id = (SELECT id FROM worker), leased_at = :at WHERE id = 'RUN-000028'",
        at=NOW - timedelta(minutes=1),
    )
    (untrusted,) = [item for item in queue(history.connection, now=NOW).items if item.state == "queued"]
    assert "not marked trusted, and no worker of cpu isolates" in untrusted.reason and untrusted.starts_in_s is None
    history.execute("UPDATE project SET trusted = true")
    history.execute("INSERT INTO project (slug) VALUES ('a/neighbour')")
    history.execute("UPDATE worker SET project_id = (SELECT id FROM project WHERE slug = 'a/neighbour')")
    (bound,) = [item for item in queue(history.connection, now=NOW).items if item.state == "queued"]
    assert "limited to other projects" in bound.reason and bound.starts_in_s is None
    history.execute("UPDATE worker SET project_id = NULL")
    found = queue(history.connection, project=PROJECT, now=NOW)
    assert (found.counts["queued"], found.counts["running"], found.counts["failed"]) == (1, 1, 1)
    assert set(found.counts) == {"queued", "leased", "running", "done", "failed", "cancelled", "superseded"}
    running, waiting = found.items
    assert (running.run_id, running.reason) == ("RUN-000028", "on box-01")
    assert running.done_in_s == 180, "four minutes are usual, one has passed"
    assert (waiting.reason, waiting.starts_in_s, waiting.done_in_s) == ("next in line", 180, 420)
    assert found.waiting_s == 420
    history.execute("UPDATE worker SET wanted_state = 'drain'")
    held = queue(history.connection, testbed="cpu", now=NOW).items[1]
    assert held.reason == "waits for a worker of cpu: 1 is held back" and held.starts_in_s is None
    with pytest.raises(BadRequest, match="1 to 500"):
        queue(history.connection, limit=0)


def test_the_queue_is_in_the_order_in_which_runs_are_taken(history: Any) -> None:
    history.execute("UPDATE project SET trusted = true")
    history.execute("UPDATE run SET requested_at = :at WHERE id = 'RUN-000029'", at=NOW)
    for name, kind, minutes in (("late", "main", 1), ("early", "main", 9), ("urgent", "confirm", 0)):
        history.execute(
            """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, kind, attempt, requested_at)
               SELECT :id, :project, c.id, :testbed, 'gpt', 'queued', :kind, 2, :at FROM commit c WHERE c.sha = :sha""",
            id=f"RUN-{name}", project=history.project_id, testbed=history.testbed_id, kind=kind,
            at=NOW - timedelta(minutes=minutes), sha=commit(12),
        )  # fmt: skip
    items = queue(history.connection, now=NOW).items
    assert [item.run_id for item in items] == ["RUN-000028", "RUN-urgent", "RUN-early", "RUN-late", "RUN-000029"]
    assert [item.before for item in items] == [None, 0, 1, 2, 3]
    assert [item.reason for item in items[1:]] == [
        "next in line; attempt 2, because the one before did not end",
        "1 before it: 1 confirming; attempt 2, because the one before did not end",
        "2 before it: 1 confirming, 1 requested earlier; attempt 2, because the one before did not end",
        "3 before it: 1 confirming, 2 requested earlier",
    ]


def test_who_has_used_a_testbed_most_is_told_so(history: Any) -> None:
    history.execute("UPDATE project SET trusted = true")
    history.execute("UPDATE run SET requested_at = :at WHERE state = 'queued'", at=NOW)
    history.execute(
        """INSERT INTO queue_share (testbed_id, project_id, kind, used_s, counted_at)
           VALUES (:testbed, :project, 'main', 9000, :now)""",
        testbed=history.testbed_id, project=history.project_id, now=NOW,
    )  # fmt: skip
    history.execute("INSERT INTO project (slug, trusted) VALUES ('other/one', true)")
    history.execute(
        "INSERT INTO commit (project_id, sha) SELECT id, repeat('e', 40) FROM project WHERE slug = 'other/one'"
    )
    history.execute(
        """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, requested_at)
           SELECT 'RUN-other', project_id, id, :testbed, 'gpt', 'queued', :now FROM commit
           WHERE sha = repeat('e', 40)""",
        testbed=history.testbed_id, now=NOW,
    )  # fmt: skip
    waiting = [item for item in queue(history.connection, now=NOW).items if item.state == "queued"]
    assert [item.run_id for item in waiting] == ["RUN-other", "RUN-000029"]
    assert waiting[1].reason == "1 before it; northsea/loom has used 100 % of cpu lately, others take their turns"


@pytest.mark.parametrize(
    ("text", "kind", "key"),
    [
        (f"{16:08x}", HitKind.COMMIT, commit(15)),
        (f"{16:08X}", HitKind.COMMIT, commit(15)),
        ("#115", HitKind.COMMIT, commit(15)),
        ("ana CHANGE 15:", HitKind.COMMIT, commit(15)),
        ("gpt.tr", HitKind.BENCHMARK, "gpt.train"),
        ("RUN-000015", HitKind.RUN, "RUN-000015"),
    ],
)
def test_things_are_found_by_what_one_remembers(history: Any, text: str, kind: HitKind, key: str) -> None:
    assert (kind, key) in found(history, text)


def test_series_and_regressions_are_found_by_words_and_number(history: Any) -> None:
    assert (HitKind.SERIES, str(history.series())) in found(history, "fused step_ms cpu")
    number = history.regression_id
    assert found(history, f"R-{number}") == {(HitKind.REGRESSION, str(number))}
    assert found(history, f"r{number}") == {(HitKind.REGRESSION, str(number))}
    assert (HitKind.REGRESSION, str(number)) in found(history, "fused")


def test_a_search_is_bounded_literal_and_says_when_there_is_more(history: Any) -> None:
    many = search(history.connection, "change", PROJECT, per_kind=3)
    assert [hit.kind for hit in many.hits].count(HitKind.COMMIT) == 3 and HitKind.COMMIT in many.more
    assert search(history.connection, "100%", PROJECT).hits == ()
    assert search(history.connection, "   ", PROJECT).hits == ()
    assert search(history.connection, "x" * 5000).hits == ()
    with pytest.raises(NotFound):
        search(history.connection, "x", "nobody/nothing")
