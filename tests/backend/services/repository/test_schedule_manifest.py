"""Schedules of a tidemark.toml: how they are read, and when their next turn is."""

from datetime import UTC, datetime

import pytest

from backend.services.repository.manifest import ManifestInvalid, parse
from backend.services.repository.schedule_manifest import Schedule
from tests.backend.services.plans.test_schedule import MONDAY, TOML


def test_schedules_are_read_with_their_defaults() -> None:
    nightly, canary = parse(TOML).schedule
    assert (nightly.at, nightly.again, len(nightly.days), nightly.against) == ("03:30", True, 7, {})
    assert canary.days == ("mon", "thu") and canary.against == {"pip": "--pre torch"}
    assert Schedule.model_validate(canary.model_dump(mode="json")) == canary


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('at = "25:00"', "schedule[0].at"),
        ('at = "3:30"', "schedule[0].at"),
        ('days = ["someday"]', "schedule[0].days"),
        ('suites = ["other"]', "accepted: own"),
        ("again = 1", "schedule[0].again"),
        ('against = { conda = "x" }', "schedule[0].against"),
        ('when = "now"', "schedule[0].when"),
        ('name = "two words"', "schedule[0].name"),
    ],
)
def test_what_is_wrong_is_named(line: str, told: str) -> None:
    key = line.partition(" ")[0]
    entry = {"name": 'name = "n"', "at": 'at = "03:30"'} | {key: line}
    lines = "\n".join(entry.values())
    with pytest.raises(ManifestInvalid) as refused:
        parse(f'[suite.own]\ncommand = "x"\n[[schedule]]\n{lines}\n')
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("left_out", "accepted"), [("name", "a name of letters"), ("at", 'a time of day in UTC, like "03:30"')]
)
def test_a_key_that_is_missing_is_named_with_what_it_accepts(left_out: str, accepted: str) -> None:
    lines = "\n".join(line for line in ('name = "n"', 'at = "03:30"') if not line.startswith(left_out))
    with pytest.raises(ManifestInvalid) as refused:
        parse(f"[[schedule]]\n{lines}\n")
    (told,) = refused.value.problems
    assert told.startswith(f"tidemark.toml: schedule[0].{left_out} is ''; accepted: {accepted}")


def test_two_schedules_of_one_name_are_refused() -> None:
    with pytest.raises(ManifestInvalid, match="no other schedule has"):
        parse('[[schedule]]\nname = "a"\nat = "01:00"\n[[schedule]]\nname = "a"\nat = "02:00"\n')


@pytest.mark.parametrize(
    ("at", "days", "after", "turn"),
    [
        ("03:30", ("mon", "thu"), MONDAY, datetime(2026, 11, 19, 3, 30, tzinfo=UTC)),
        ("13:00", ("mon",), MONDAY, datetime(2026, 11, 16, 13, tzinfo=UTC)),
        ("12:00", ("mon",), MONDAY, datetime(2026, 11, 23, 12, tzinfo=UTC)),
    ],
)
def test_the_next_turn_lies_strictly_after(at: str, days: tuple[str, ...], after: datetime, turn: datetime) -> None:
    assert Schedule(name="n", at=at, days=days).next_after(after) == turn
