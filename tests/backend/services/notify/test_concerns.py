"""When hours are quiet, and when a digest is due."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backend.services.notify.concerns import digest_due, quiet_until
from backend.store.notify.rules import NotifyRuleRow

MADE = datetime(2026, 1, 1, tzinfo=UTC)


def rule(**wanted: Any) -> NotifyRuleRow:
    usual: dict[str, Any] = dict.fromkeys(NotifyRuleRow.__dataclass_fields__)
    return NotifyRuleRow(**{**usual, "time_zone": "Europe/Berlin", "created_at": MADE, **wanted})


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-11-20T20:59", None),
        ("2026-11-20T21:00", "2026-11-21T06:00"),
        ("2026-11-21T05:59", "2026-11-21T06:00"),
        ("2026-11-21T06:00", None),
        ("2026-07-01T20:00", "2026-07-02T05:00"),
        ("2026-03-28T22:00", "2026-03-29T05:00"),
    ],
)
def test_quiet_hours_pass_midnight_and_follow_the_clocks_of_their_zone(now: str, until: str | None) -> None:
    found = quiet_until(rule(quiet_from="22:00", quiet_until="07:00"), utc(now))
    assert (None if found is None else found.astimezone(UTC)) == (None if until is None else utc(until))


def test_a_digest_is_due_at_eight_in_its_zone_and_known_by_its_day() -> None:
    daily, weekly = rule(digest="daily"), rule(digest="weekly")
    days = {now: digest_due(daily, utc(now)) for now in ("2026-11-20T06:59", "2026-11-20T07:00")}
    assert [due.day for due in days.values() if due] == ["2026-11-19", "2026-11-20"]
    due = digest_due(weekly, utc("2026-11-20T12:00"))
    assert due is not None and (due.day, due.since) == ("2026-11-16", utc("2026-11-09T07:00"))
    assert digest_due(replace(daily, created_at=utc("2026-11-20T07:01")), utc("2026-11-20T12:00")) is None
    assert digest_due(replace(daily, created_at=MADE + timedelta(days=400)), utc("2026-11-20T12:00")) is None
