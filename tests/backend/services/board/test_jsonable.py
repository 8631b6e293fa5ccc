"""Views as JSON."""

import json
from datetime import UTC, datetime

from backend.services.board.jsonable import dump
from backend.services.plans.schedule import ScheduleView
from backend.services.repository.schedule_manifest import DAYS, Schedule


def test_a_view_that_holds_what_a_manifest_declares_is_written_whole() -> None:
    nightly = Schedule(name="nightly", at="03:30")
    turn = datetime(2026, 11, 23, 3, 30, tzinfo=UTC)
    written = json.loads(dump(ScheduleView(project="a/b", schedule=nightly, next_at=turn, last=None)))
    assert written["schedule"] == {**nightly.model_dump(), "days": list(DAYS), "suites": [], "testbeds": []}
    assert written["next_at"] == "2026-11-23T03:30:00Z"
