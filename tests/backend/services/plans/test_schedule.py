"""Schedules: read from a tidemark.toml, their turns, and each slot served once however many beats look at the clock."""

from __future__ import annotations

import shutil
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.plans import schedule
from backend.services.repository import sync
from backend.services.sessions import views as session_views

SLUG = "northsea/loom"
TOML = """
[suite.own]
command = "python bench.py"
testbeds = ["cpu"]
[[schedule]]
name = "nightly"
at = "03:30"
again = true
[[schedule]]
name = "torch-nightly"
at = "04:00"
days = ["mon", "thu"]
suites = ["own"]
against = { pip = "--pre torch" }
"""
MONDAY = datetime(2026, 11, 16, 12, tzinfo=UTC)


# --- served ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def scheduled(committing_engine: Engine, service_config: ServiceConfig, tmp_path: Any) -> Any:
    """A synchronised project with both schedules; its mirror is there, its runs wait."""
    path = tmp_path / "loom"
    path.mkdir()
    (path / "tidemark.toml").write_text(TOML)
    (path / "bench.py").write_text("")
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-C", str(path)]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "Begin"]):
        subprocess.run([*git, *words], check=True)
    with committing_engine.begin() as c:
        projects.save_project(c, SLUG, repository_url=path.as_uri(), trusted=True, now=MONDAY)
        project = projects.find_project(c, SLUG)
    assert sync.sync_project(committing_engine, service_config, project, lambda: MONDAY).error is None
    with committing_engine.begin() as c:
        c.execute(text("UPDATE run SET state = 'done', status = 'ok'"))
    return committing_engine


def serve(engine: Engine, config: ServiceConfig, now: datetime) -> None:
    with engine.begin() as c:
        schedule.serve_due(c, config, now)


def views(engine: Engine) -> dict[str, schedule.ScheduleView]:
    with engine.connect() as c:
        return {view.schedule.name: view for view in schedule.list_schedules(c)}


def test_a_turn_runs_the_suites_of_the_newest_commit_even_if_nothing_is_new(
    scheduled: Engine, service_config: ServiceConfig
) -> None:
    serve(scheduled, service_config, MONDAY)
    assert views(scheduled)["nightly"].last is None
    serve(scheduled, service_config, datetime(2026, 11, 17, 3, 31, tzinfo=UTC))
    nightly = views(scheduled)["nightly"]
    assert nightly.last is not None and len(nightly.last.runs) == 1
    assert nightly.next_at == datetime(2026, 11, 18, 3, 30, tzinfo=UTC)
    with scheduled.connect() as c:
        assert c.execute(text("SELECT kind, requested_by FROM run WHERE state = 'queued'")).one() == (
            "scheduled",
            "schedule nightly",
        )


def test_a_canary_compares_the_same_commit_in_two_environments(
    scheduled: Engine, service_config: ServiceConfig
) -> None:
    serve(scheduled, service_config, datetime(2026, 11, 19, 4, 1, tzinfo=UTC))
    canary = views(scheduled)["torch-nightly"]
    assert canary.last is not None
    with scheduled.connect() as c:
        view = session_views.session_view(c, canary.last.sessions[0])
    assert view.purpose == "compare" and view.base_sha == view.head_sha
    assert view.base_setup == {} and view.head_setup == {"pip": "--pre torch"}
    assert view.schedule == "torch-nightly"


def test_two_beats_at_once_serve_a_slot_once(scheduled: Engine, service_config: ServiceConfig) -> None:
    now = datetime(2026, 11, 17, 3, 31, tzinfo=UTC)
    beats = [threading.Thread(target=serve, args=(scheduled, service_config, now)) for _ in range(6)]
    for beat in beats:
        beat.start()
    for beat in beats:
        beat.join()
    serve(scheduled, service_config, now + timedelta(seconds=1))
    with scheduled.connect() as c:
        assert c.scalar(text("SELECT count(*) FROM schedule_slot")) == 1
        assert c.scalar(text("SELECT count(*) FROM run WHERE state = 'queued'")) == 1


def test_after_an_absence_only_the_last_slot_is_made_up_for(scheduled: Engine, service_config: ServiceConfig) -> None:
    serve(scheduled, service_config, datetime(2026, 11, 20, 12, tzinfo=UTC))
    with scheduled.connect() as c:
        slots = c.execute(text("SELECT name, slot_at FROM schedule_slot ORDER BY slot_at")).all()
    assert [(name, slot.astimezone(UTC).day) for name, slot in slots] == [("torch-nightly", 19), ("nightly", 20)]


def test_a_schedule_that_cannot_be_read_does_not_keep_the_others_from_their_turn(
    scheduled: Engine, service_config: ServiceConfig
) -> None:
    with scheduled.begin() as c:
        c.execute(
            text("UPDATE schedule SET definition = '{}', next_at = :past WHERE name = 'torch-nightly'"),
            {"past": MONDAY},
        )
    serve(scheduled, service_config, datetime(2026, 11, 17, 3, 31, tzinfo=UTC))
    with scheduled.connect() as c:
        assert c.scalar(text("SELECT outcome FROM schedule_slot WHERE name = 'nightly'")).startswith("1 runs of")
        assert c.scalar(text("SELECT count(*) FROM run WHERE state = 'queued'")) == 1


def test_a_schedule_that_cannot_be_served_is_one_line_in_the_log_and_tried_again_later(
    scheduled: Engine, service_config: ServiceConfig, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(service_config.mirrors_dir)
    monday = datetime(2026, 11, 17, 3, 31, tzinfo=UTC)
    for seconds in range(0, 60, 2):
        serve(scheduled, service_config, monday + timedelta(seconds=seconds))
    lines = [record for record in caplog.records if "nightly" in record.getMessage()]
    assert len(lines) == 1 and lines[0].exc_info is None, caplog.text
    nightly = views(scheduled)["nightly"]
    assert nightly.last is not None
    assert "could not be served (Unavailable" in nightly.last.outcome and "04:31" in nightly.last.outcome
    assert nightly.next_at == monday + schedule.TRY_AGAIN_AFTER


def test_a_schedule_that_met_another_transaction_does_not_wait_for_an_hour(
    scheduled: Engine, service_config: ServiceConfig
) -> None:
    night = datetime(2026, 11, 17, 3, 31, tzinfo=UTC)
    with scheduled.begin() as other, scheduled.begin() as c:
        other.execute(text("LOCK TABLE run IN SHARE ROW EXCLUSIVE MODE"))
        c.execute(text("SET LOCAL lock_timeout = '50ms'"))
        schedule.serve_due(c, service_config, night)
    assert views(scheduled)["nightly"].next_at == night + schedule.TRY_AGAIN_SOON
    serve(scheduled, service_config, night + schedule.TRY_AGAIN_SOON)
    with scheduled.connect() as c:
        outcomes = c.execute(text("SELECT outcome FROM schedule_slot WHERE name = 'nightly' ORDER BY slot_at"))
        first, second = outcomes.scalars()
    assert "could not be served (" in first and "LockNotAvailable" in first
    assert second.startswith("1 runs of")


def test_a_slot_that_cannot_be_served_says_why_and_the_next_one_is_tried(
    scheduled: Engine, service_config: ServiceConfig
) -> None:
    with scheduled.begin() as c:
        c.execute(
            text("UPDATE schedule SET definition = definition || CAST(:gone AS jsonb) WHERE name = 'nightly'"),
            {"gone": '{"commit": "gone"}'},
        )
    serve(scheduled, service_config, datetime(2026, 11, 17, 3, 31, tzinfo=UTC))
    nightly = views(scheduled)["nightly"]
    assert nightly.last is not None
    assert nightly.last.outcome.startswith("nothing was requested") and "gone" in nightly.last.outcome
    assert nightly.next_at.astimezone(UTC).day == 18
