"""`[[schedule]]` of a tidemark.toml: what is measured by the clock, and when its next turn is. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import Any

NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._+-]{0,99}\Z")
AT = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])\Z")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
KEYS = ("name", "at", "days", "branch", "commit", "suites", "testbeds", "again", "against")
AGAINST_KEYS = ("pip", "setup", "env")
MOST_SCHEDULES = 50

Wrong = Callable[[str, object, str], None]
"""(key, value, what is accepted)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One `[[schedule]]`. With `against` it is a comparison of two environments of the same commit: as the suite is
    declared, and with that on top; without, the suites are run."""

    name: str
    at: str
    days: tuple[str, ...] = DAYS
    branch: str | None = None
    commit: str | None = None
    suites: tuple[str, ...] = ()
    testbeds: tuple[str, ...] = ()
    again: bool = False
    against: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "at": self.at,
            "days": list(self.days),
            "branch": self.branch,
            "commit": self.commit,
            "suites": list(self.suites),
            "testbeds": list(self.testbeds),
            "again": self.again,
            "against": dict(self.against),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Schedule:
        lists = {name: tuple(stored[name]) for name in ("days", "suites", "testbeds")}
        return cls(**{**stored, **lists})

    def next_after(self, moment: datetime) -> datetime:
        """The first turn after this moment. Times are UTC: the clocks of summer never skip one."""
        hour, minute = (int(part) for part in self.at.split(":"))
        moment = moment.astimezone(UTC)
        for ahead in range(9):
            day = moment.date() + timedelta(days=ahead)
            turn = datetime.combine(day, time(hour, minute), tzinfo=UTC)
            if turn > moment and DAYS[day.weekday()] in self.days:
                return turn
        raise ValueError(f"schedule {self.name} has no day")


def read(table: object, suites: Sequence[str], wrong: Wrong) -> tuple[Schedule, ...]:
    """The schedules declared; what is wrong with them is told to `wrong`."""
    if table is None:
        return ()
    if not isinstance(table, list) or not all(isinstance(entry, dict) for entry in table):
        wrong("schedule", table, "tables such as [[schedule]]")
        return ()
    if len(table) > MOST_SCHEDULES:
        wrong("schedule", f"{len(table)} tables", f"at most {MOST_SCHEDULES}")
        return ()
    found: dict[str, Schedule] = {}
    for number, entry in enumerate(table):
        schedule = _read_one(f"schedule[{number}]", entry, suites, wrong)
        if schedule is None:
            continue
        if schedule.name in found:
            wrong(f"schedule[{number}].name", schedule.name, "a name that no other schedule has")
            continue
        found[schedule.name] = schedule
    return tuple(found.values())


def _read_one(where: str, entry: Mapping[str, Any], suites: Sequence[str], wrong: Wrong) -> Schedule | None:
    faults: list[str] = []

    def fault(key: str, value: object, accepted: str) -> None:
        faults.append(key)
        wrong(f"{where}.{key}", value, accepted)

    for key in sorted(set(entry) - set(KEYS)):
        fault(key, entry[key], f"one of {', '.join(KEYS)}")
    name, at = entry.get("name"), entry.get("at")
    if not isinstance(name, str) or not NAME.match(name):
        fault("name", name, "a name of letters, digits and . _ - +")
    if not isinstance(at, str) or not AT.match(at):
        fault("at", at, 'a time of day in UTC, like "03:30"')
    days = _texts(entry, "days", list(DAYS), DAYS, fault) or DAYS
    chosen = _texts(entry, "suites", [], suites, fault)
    testbeds = _texts(entry, "testbeds", [], None, fault)
    for key in ("branch", "commit"):
        if key in entry and not _is_text(entry[key], 255):
            fault(key, entry[key], "text")
    again = entry.get("again", False)
    if not isinstance(again, bool):
        fault("again", again, "true or false")
    against = entry.get("against", {})
    if not isinstance(against, dict) or set(against) - set(AGAINST_KEYS):
        fault("against", against, f"a table of {', '.join(AGAINST_KEYS)}")
    else:
        _check_against(against, fault)
    if faults:
        return None
    return Schedule(
        name=str(name),
        at=str(at),
        days=tuple(day for day in DAYS if day in days),
        branch=entry.get("branch"),
        commit=entry.get("commit"),
        suites=chosen,
        testbeds=testbeds,
        again=bool(again),
        against=against,
    )


def _texts(
    entry: Mapping[str, Any], key: str, default: list[str], known: Sequence[str] | None, fault: Wrong
) -> tuple[str, ...]:
    value = entry.get(key, default)
    if not isinstance(value, list) or not all(_is_text(item, 100) for item in value):
        fault(key, value, "a list of texts")
        return ()
    unknown = [item for item in value if known is not None and item not in known]
    if unknown:
        fault(key, unknown[0], ", ".join(known or ()) or "nothing: no suite is declared")
        return ()
    return tuple(dict.fromkeys(value))


def _check_against(against: Mapping[str, Any], fault: Wrong) -> None:
    for key in ("pip", "setup"):
        if key in against and not _is_text(against[key], 10_000):
            fault(f"against.{key}", against[key], "text")
    env = against.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(text, str) and "\x00" not in text for text in env.values()):
        fault("against.env", env, "a table of variables and their texts")


def _is_text(value: object, most: int) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= most and "\x00" not in value
