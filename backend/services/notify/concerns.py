"""Which rule concerns an event, when its hours are quiet, and when its digest is due. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from fnmatch import fnmatchcase
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from backend.services.triage.views import Regression
from backend.store.notify.rules import NotifyRuleRow

NOTIFIED_EVENTS: Mapping[str, str] = {
    "confirmed": "Regression",
    "infra_alarm": "Not the code",
    "fixed": "Fixed",
    "withdrawn": "Withdrawn",
    "acknowledged": "Acknowledged",
    "expected": "Accepted",
    "invalid": "Not real",
    "reopened": "Back again",
}
"""The events of a regression that may be reported, and how their messages begin."""
ENDS = frozenset({"fixed", "withdrawn"})
DIGEST_AT = time(8)
CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)\Z")


@dataclass(frozen=True, slots=True)
class DueDigest:
    """A digest: the day that identifies it, and the start of the period it covers."""

    day: str
    since: datetime


def concerns(rule: NotifyRuleRow, event: str, regression: Regression, owners: Sequence[str]) -> bool:
    """Whether the rule reports this event at once. The end of something never reported is no news."""
    if rule.digest is not None or event not in rule.states:
        return False
    if event in ENDS and regression.confirmed_at is None and not regression.held_back:
        return False
    return (
        (regression.cause or "code") in rule.causes
        and (not rule.suites or any(fnmatchcase(regression.suite or "", pattern) for pattern in rule.suites))
        and (rule.min_change is None or abs(regression.change or 0.0) >= rule.min_change)
        and (not rule.owners or not {name.lower() for name in rule.owners}.isdisjoint(map(str.lower, owners)))
    )


def quiet_until(rule: NotifyRuleRow, now: datetime) -> datetime | None:
    """The end of the rule's current quiet hours; None: there are none now."""
    start, end, zone = minute_of(rule.quiet_from), minute_of(rule.quiet_until), zone_of(rule.time_zone)
    if start is None or end is None or zone is None or start == end:
        return None
    local = now.astimezone(zone)
    minute = local.hour * 60 + local.minute
    is_quiet = start <= minute < end if start < end else minute >= start or minute < end
    if not is_quiet:
        return None
    days = 1 if start > end and minute >= start else 0
    return datetime.combine(local.date() + timedelta(days=days), time(end // 60, end % 60), zone)


def digest_due(rule: NotifyRuleRow, now: datetime) -> DueDigest | None:
    """The digest that is due: at eight each day, or each Monday, in the rule's time zone."""
    zone = zone_of(rule.time_zone)
    if rule.digest is None or zone is None:
        return None
    local = now.astimezone(zone)
    day = local.date() - timedelta(days=0 if local.time() >= DIGEST_AT else 1)
    if rule.digest == "weekly":
        day -= timedelta(days=day.weekday())
    at = datetime.combine(day, DIGEST_AT, zone)
    if at < rule.created_at:
        return None
    return DueDigest(day.isoformat(), at - timedelta(days=7 if rule.digest == "weekly" else 1))


def minute_of(clock: str | None) -> int | None:
    """hh:mm as a minute of the day."""
    found = CLOCK.match(clock or "")
    return None if found is None else int(found[1]) * 60 + int(found[2])


def zone_of(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
