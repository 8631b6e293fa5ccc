"""Rules of a project: who is notified of what, where, and when. Listed, saved, tested and removed by administrators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from backend.regression.cause.attribution import CauseName
from backend.services.base.confine import require_of
from backend.services.base.errors import BadRequest, Conflict, NotFound
from backend.services.base.principal import Principal, Scope
from backend.services.base.projects import find_project
from backend.services.notify.concerns import NOTIFIED_EVENTS, minute_of, zone_of
from backend.services.notify.post import AddressNotAccepted, shown_address
from backend.services.people import audit
from backend.services.people.audit import Did
from backend.store.notify import outbox
from backend.store.notify import rules as store
from backend.store.notify.outbox import MessageRow
from backend.store.notify.rules import NotifyRuleRow

MOST_RULES = 50
MOST_VALUES = 50
MOST_TESTS_AN_HOUR = 20
SHOWN_MESSAGES = 30
DIGESTS = ("daily", "weekly")
DEFAULTS: Mapping[str, Any] = {
    "suites": [],
    "causes": [CauseName.CODE.value],
    "states": ["confirmed", "infra_alarm", "fixed"],
    "owners": [],
    "min_change": None,
    "digest": None,
    "time_zone": "UTC",
    "quiet_from": None,
    "quiet_until": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyRule:
    """A rule as it may be shown: its address without the secrets."""

    id: int
    name: str
    address: str
    suites: tuple[str, ...]
    causes: tuple[str, ...]
    states: tuple[str, ...]
    owners: tuple[str, ...]
    min_change: float | None
    digest: str | None
    time_zone: str
    quiet_from: str | None
    quiet_until: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyMessage:
    """One thing that a rule was to tell."""

    id: int
    rule_id: int
    kind: str
    regression_id: int | None
    event: str | None
    state: str
    attempts: int
    error: str | None
    wanted_at: datetime
    sent_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifications:
    """The rules of a project, and the newest messages that followed from them."""

    rules: tuple[NotifyRule, ...]
    messages: tuple[NotifyMessage, ...]


def notifications(c: Connection, by: Principal, project: str) -> Notifications:
    project_id = _project(c, by, project)
    return Notifications(
        rules=tuple(map(_shown, store.of_project(c, project_id))),
        messages=tuple(map(_message, outbox.listed(c, project_id, SHOWN_MESSAGES))),
    )


def add(c: Connection, by: Principal, project: str, wanted: Mapping[str, Any], now: datetime) -> NotifyRule:
    """Make a rule. `wanted`: the fields of `NotifyRule`; those left out are as in `DEFAULTS`."""
    project_id = _project(c, by, project)
    if len(store.of_project(c, project_id)) >= MOST_RULES:
        raise Conflict(f"{project} has {MOST_RULES} rules already; change or remove one")
    values = _checked({**DEFAULTS, **wanted})
    rule_id = store.add(c, project_id, values, now)
    _record(c, by, "add", project, values, now)
    return _shown(_find(c, project_id, rule_id))


def change(
    c: Connection, by: Principal, project: str, rule_id: int, wanted: Mapping[str, Any], now: datetime
) -> NotifyRule:
    """Change what is named of a rule; its address stays where none is given."""
    project_id = _project(c, by, project)
    known = asdict(_find(c, project_id, rule_id))
    values = _checked({name: known[name] for name in ("name", "address", *DEFAULTS)} | dict(wanted))
    store.change(c, rule_id, values)
    _record(c, by, "change", project, values, now)
    return _shown(_find(c, project_id, rule_id))


def remove(c: Connection, by: Principal, project: str, rule_id: int, now: datetime) -> None:
    """Remove a rule, and its unsent messages."""
    project_id = _project(c, by, project)
    _record(c, by, "remove", project, asdict(_find(c, project_id, rule_id)), now)
    store.remove(c, rule_id)


def test(c: Connection, by: Principal, project: str, rule_id: int, now: datetime) -> NotifyMessage:
    """Have a message sent that says only that it arrived, within a few seconds and once."""
    project_id = _project(c, by, project)
    rule = _find(c, project_id, rule_id)
    if outbox.tests_since(c, rule_id, now - timedelta(hours=1)) >= MOST_TESTS_AN_HOUR:
        raise Conflict(f"{MOST_TESTS_AN_HOUR} tests are sent per hour at most; try again later")
    outbox.want(c, rule_id, f"test {now.isoformat()}", "test", now=now)
    _record(c, by, "test", project, asdict(rule), now)
    return next(_message(row) for row in outbox.listed(c, project_id, 1))


def _project(c: Connection, by: Principal, project: str) -> int:
    require_of(c, by, Scope.ADMIN, "project", project)
    return find_project(c, project).id


def _find(c: Connection, project_id: int, rule_id: int) -> NotifyRuleRow:
    found = store.find(c, rule_id)
    if found is None or found.project_id != project_id:
        raise NotFound.of("notification rule", rule_id)
    return found


def _record(c: Connection, by: Principal, what: str, project: str, rule: Mapping[str, Any], now: datetime) -> None:
    shown = {"what": what, "address": rule["shown_address"]}
    audit.record(c, by, Did.CHANGED_NOTIFICATIONS, rule["name"], now=now, project=project, **shown)


def _checked(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a rule; refuses what could never be met."""
    values = dict(wanted)
    try:
        values["shown_address"] = shown_address(values["address"])
    except AddressNotAccepted as wrong:
        raise BadRequest(f"address: {wrong}", field="address") from None
    for field, known in (("causes", [cause.value for cause in CauseName]), ("states", list(NOTIFIED_EVENTS))):
        wrong_ones = [value for value in values[field] if value not in known]
        if wrong_ones or not values[field]:
            raise BadRequest.field(field, wrong_ones[0] if wrong_ones else [], known)
    for field in ("suites", "owners"):
        if len(values[field]) > MOST_VALUES:
            raise BadRequest.field(field, f"{len(values[field])} values", f"at most {MOST_VALUES}")
    if values["digest"] not in (None, *DIGESTS):
        raise BadRequest.field("digest", values["digest"], DIGESTS)
    if zone_of(values["time_zone"]) is None:
        raise BadRequest.field("time_zone", values["time_zone"], "a name of the tz database, such as Europe/Berlin")
    for field in ("quiet_from", "quiet_until"):
        if values[field] is not None and minute_of(values[field]) is None:
            raise BadRequest.field(field, values[field], "hours and minutes, 00:00 to 23:59")
    if (values["quiet_from"] is None) != (values["quiet_until"] is None):
        raise BadRequest("quiet_from and quiet_until go together: give both, or neither", field="quiet_from")
    return values


def _shown(row: NotifyRuleRow) -> NotifyRule:
    values = {name: getattr(row, name) for name in ("id", "name", *DEFAULTS)}
    lists = {
        name: tuple(value)
        for name, value in values.items()
        if isinstance(value, Sequence) and not isinstance(value, str)
    }
    return NotifyRule(**{**values, **lists, "address": row.shown_address})


def _message(row: MessageRow) -> NotifyMessage:
    return NotifyMessage(**{name: getattr(row, name) for name in NotifyMessage.__dataclass_fields__})
