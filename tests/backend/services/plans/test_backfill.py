"""Backfills: a range measured evenly at first, then finer where it changed; a few runs at a time, and taken back."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from backend.contract import parse_run
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import BadRequest, Conflict, NotFound
from backend.services.base.principal import IMPLIED, Principal, Scope, Via
from backend.services.ingest.record import record_run
from backend.services.plans import backfill
from backend.services.plans.backfill import AHEAD, BackfillWish
from backend.services.repository import sync

SLUG = "northsea/loom"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ADA = Principal(name="ada", via=Via.TOKEN, scopes=IMPLIED[Scope.WRITE])
OLD = '[suite.old]\ncommand = "python bench.py"\npaths = ["*.py", "tidemark.toml"]\n'
NEW = OLD + '[suite.new]\ncommand = "python bench.py"\npaths = ["*.py", "tidemark.toml"]\n'
COMMITS = 24


class Past:
    """A project with a past that one suite has never seen."""

    def __init__(self, engine: Engine, config: ServiceConfig) -> None:
        self.engine, self.config = engine, config
        self.level = {position: 100.0 for position in range(COMMITS)}

    def request(self, **more: Any) -> backfill.BackfillView:
        with self.engine.begin() as c:
            wish = BackfillWish(project=SLUG, suite="new", **more)
            return backfill.request_backfill(c, wish, self.config, ADA, NOW)

    def view(self, backfill_id: str) -> backfill.BackfillView:
        with self.engine.connect() as c:
            return backfill.backfill_view(c, backfill_id)

    def waiting(self) -> Sequence[Any]:
        with self.engine.connect() as c:
            return c.execute(
                text(
                    """SELECT r.id, k.sha, bc.position, r.kind, r.priority FROM run r
                       JOIN commit k ON k.id = r.commit_id JOIN branch_commit bc ON bc.commit_id = k.id
                       WHERE r.suite = 'new' AND r.state = 'queued' ORDER BY r.requested_at, r.id"""
                )
            ).all()

    def measure(self) -> list[int]:
        """Every waiting run is measured; their positions."""
        done = []
        for run in self.waiting():
            value = self.level[run.position]
            document = {
                "schema": "tidemark.run/1",
                "id": run.id,
                "project": SLUG,
                "commit": run.sha,
                "branch": "main",
                "suite": "new",
                "testbed": "cpu",
                "status": "ok",
                "results": [
                    {
                        "benchmark": "own",
                        "status": "ok",
                        "measurements": [
                            {
                                "metric": "calls",
                                "unit": "1",
                                "direction": "lower",
                                "role": "gate",
                                "exact": True,
                                "value": value,
                            }
                        ],
                    }
                ],
            }
            raw = json.dumps(document).encode()
            with self.engine.begin() as c:
                record_run(c, parse_run(raw), raw, now=NOW)
            done.append(run.position)
        with self.engine.begin() as c:
            backfill.advance_all(c, NOW)
        return done


@pytest.fixture
def past(committing_engine: Engine, service_config: ServiceConfig, tmp_path: Any) -> Past:
    path = tmp_path / "loom"
    path.mkdir()
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-C", str(path)]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    for number in range(COMMITS):
        (path / "tidemark.toml").write_text(NEW if number == COMMITS - 1 else OLD)
        (path / ("README" if number == 5 else "bench.py")).write_text(f"# {number}")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"Commit {number}"], check=True)
    with committing_engine.begin() as c:
        projects.save_project(c, SLUG, repository_url=path.as_uri(), trusted=True, now=NOW)
        project = projects.find_project(c, SLUG)
    assert sync.sync_project(committing_engine, service_config, project, lambda: NOW).error is None
    return Past(committing_engine, service_config)


def test_a_new_suite_is_measured_on_commits_that_never_knew_it_a_few_at_a_time(past: Past) -> None:
    past.measure()  # the head, which declares it
    view = past.request()
    assert view.total == COMMITS - 2  # the head is measured, and one commit changes only a README
    assert len(past.waiting()) == AHEAD == view.waiting
    assert {(run.kind, run.priority) for run in past.waiting()} == {("backfill", 10)}
    while (view := past.view(view.id)).state == "running":
        assert past.measure()
    assert (view.state, view.done, view.failed) == ("done", COMMITS - 2, 0)
    assert 5 not in {run.position for run in view.runs}


def test_the_first_runs_are_spread_and_the_next_ones_close_in_on_a_change(past: Past) -> None:
    past.measure()
    for position in range(13):
        past.level[position] = 80.0
    view = past.request(runs=10)
    order: list[int] = []
    while past.view(view.id).state == "running":
        order += past.measure()
    spread = sorted(order[:5])
    assert spread[0] == 0 and max(b - a for a, b in pairwise(spread)) <= 10
    assert {12, 13} <= set(order), order
    assert {run.why for run in past.view(view.id).runs} == {"thin", "refine"}


def test_a_range_is_kept_to(past: Past) -> None:
    with past.engine.connect() as c:
        shas = {
            position: sha
            for position, sha in c.execute(
                text("SELECT bc.position, k.sha FROM branch_commit bc JOIN commit k ON k.id = bc.commit_id")
            )
        }
    view = past.request(since=shas[8], until=shas[11])
    assert sorted(run.position for run in past.waiting() if run.position != COMMITS - 1) == [8, 9, 10, 11]
    assert (view.first_position, view.last_position, view.total) == (8, 11, 4)
    with pytest.raises(BadRequest, match="before until"):
        past.request(since=shas[11], until=shas[8])


def test_one_that_is_called_off_takes_back_what_waits(past: Past) -> None:
    past.measure()
    view = past.request()
    with past.engine.begin() as c:
        ended = backfill.cancel_backfill(c, view.id, ADA, NOW)
    assert ended.state == "cancelled" and not past.waiting()
    with past.engine.begin() as c, pytest.raises(Conflict, match="cancelled already"):
        backfill.cancel_backfill(c, view.id, ADA, NOW)


def test_a_run_that_is_asked_for_while_it_is_called_off_is_taken_back_too(past: Past) -> None:
    past.measure()
    view = past.request()
    first = past.waiting()[0].id

    def call_off() -> None:
        with past.engine.begin() as c:
            backfill.cancel_backfill(c, view.id, ADA, NOW)

    with past.engine.begin() as c:
        c.execute(text("UPDATE run SET state = 'failed' WHERE id = :id"), {"id": first})
        backfill.advance(c, view.id, NOW)  # asks for one more, which nobody sees yet
        other = threading.Thread(target=call_off)
        other.start()
        other.join(0.5)
    other.join(10)
    assert past.view(view.id).state == "cancelled" and not past.waiting()


def test_a_backfill_that_cannot_go_on_does_not_hold_up_the_others(past: Past) -> None:
    past.measure()
    stuck = past.request(runs=8)
    with past.engine.begin() as c:
        c.execute(text("UPDATE run SET state = 'failed' WHERE state = 'queued'"))
        c.execute(text("UPDATE backfill SET spec = '{\"paths\": 5}'"))
    past.request(runs=6)
    assert past.measure() and past.waiting()
    assert past.view(stuck.id).state == "running"


def test_what_cannot_be_filled_is_refused_with_the_reason(past: Past) -> None:
    with past.engine.begin() as c, pytest.raises(NotFound, match="new"):
        wish = BackfillWish(project=SLUG, suite="newer")
        backfill.request_backfill(c, wish, past.config, ADA, NOW)
    past.measure()
    with past.engine.begin() as c, pytest.raises(Conflict, match="nothing is left"):
        wish = BackfillWish(project=SLUG, suite="new", since="main")
        backfill.request_backfill(c, wish, past.config, ADA, NOW)


def test_the_range_is_looked_at_only_while_runs_are_still_to_be_asked_for(past: Past) -> None:
    view = past.request(runs=6)
    looked: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        looked.extend(["x"] if "FROM branch_commit bc JOIN commit k" in statement else [])

    event.listen(past.engine, "before_cursor_execute", note)
    past.measure()
    assert looked and len(past.waiting()) == 2, "the last two of six wait"
    looked.clear()
    for _ in range(3):
        with past.engine.begin() as c:
            backfill.advance_all(c, NOW)
    assert not looked
    past.measure()
    assert past.view(view.id).state == "done"


def test_a_backfill_ends_when_others_have_measured_the_rest(past: Past) -> None:
    view = past.request(runs=8)
    with past.engine.begin() as c:
        c.execute(
            text(
                """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, status, requested_at)
                   SELECT 'other' || k.id, k.project_id, k.id, r.testbed_id, 'new', 'done', 'ok', :now
                   FROM commit k, (SELECT DISTINCT testbed_id FROM run WHERE suite = 'new') r
                   WHERE k.id NOT IN (SELECT commit_id FROM run WHERE suite = 'new')"""
            ),
            {"now": NOW},
        )
    past.measure()
    ended = past.view(view.id)
    assert ended.state == "done" and ended.total == ended.done == AHEAD
