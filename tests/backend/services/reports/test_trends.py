"""Environments across the strips of the Overview: an upgrade is one line, however many machines and suites show it."""

from datetime import UTC, datetime, timedelta

from backend.services.reports.trends import environment_marks
from backend.store.reports.trends import EnvironmentRow

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


def row(hour: int, worker: int | None, torch: str, driver: str) -> EnvironmentRow:
    at = BEGAN + timedelta(hours=hour)
    return EnvironmentRow(worker, {"torch": torch, "driver": driver}, at, at)


def told(*rows: EnvironmentRow) -> list[tuple[int, str]]:
    marks = environment_marks(rows, by_commit=True)
    return [(round((mark.at - BEGAN).total_seconds() / 3600), mark.text) for mark in marks]


def test_one_upgrade_of_two_machines_with_other_drivers_is_one_line() -> None:
    before = row(1, 1, "2.12", "580"), row(2, 2, "2.12", "575")
    after = row(3, 1, "2.13", "580"), row(4, 2, "2.13", "575")
    assert told(*before, *after) == [(3, "torch 2.12 → 2.13")]


def test_a_second_machine_is_no_upgrade() -> None:
    assert told(row(1, 1, "2.12", "580"), row(2, 2, "2.13", "575")) == []


def test_each_further_upgrade_is_a_line_of_its_own() -> None:
    rows = row(1, None, "2.12", "580"), row(2, None, "2.13", "580"), row(3, None, "2.13", "590")
    assert told(*rows) == [(2, "torch 2.12 → 2.13"), (3, "driver 580 → 590")]
