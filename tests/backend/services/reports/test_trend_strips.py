"""Marks across the strips of the Overview: one line for an upgrade, and onsets as large as the line that is drawn."""

from datetime import UTC, datetime, timedelta

from backend.services.reports.trend_strips import environment_marks, onset_marks
from backend.store.reports.trends import EnvironmentRow, OnsetRow

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


def onset(series: int, change: float) -> OnsetRow:
    return OnsetRow(
        series, "gpt", 14, "8fb2508", BEGAN, BEGAN, "regression", "confirmed", change, 1, "fixed", None, "code"
    )


def test_an_onset_has_the_size_of_the_metric_that_is_drawn() -> None:
    """A commit took 27 % more time and 128 % more memory: a strip of time says 27."""
    time, memory = onset(1, 0.27), onset(2, 1.28)
    (mark,) = onset_marks([time, memory], {1}, by_commit=True)
    assert (mark.change, mark.series) == (0.27, 2)
    (only_memory,) = onset_marks([memory], {1}, by_commit=True)
    assert only_memory.change == 1.28
