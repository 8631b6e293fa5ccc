"""`[[schedule]]` of a tidemark.toml: what is measured by the clock, and when its next turn is. Pure."""

from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, StrictBool, StringConstraints, with_config
from typing_extensions import TypedDict

from backend.services.repository.manifest_fields import EnvironmentText, ManifestTable, Name, Text, Unique
from backend.services.repository.manifest_problems import accepts

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = get_args(Day)

ShortText = Annotated[Text, Field(max_length=100)]


@with_config(ConfigDict(extra="forbid"))
class Against(TypedDict, total=False):
    """What a comparison puts on top of a suite as it is declared."""

    pip: Annotated[Text, accepts("text")]
    setup: Annotated[Text, accepts("text")]
    env: Annotated[dict[str, EnvironmentText], accepts("a table of variables and their texts")]


def _in_order(days: tuple[Day, ...]) -> tuple[Day, ...]:
    return tuple(day for day in DAYS if day in days) or DAYS


class Schedule(ManifestTable):
    """One `[[schedule]]`. With `against` it is a comparison of two environments of the same commit: as the suite is
    declared, and with that on top; without, the suites are run."""

    name: Name = Field(default="", validate_default=True)  # so that one that is missing is told like a wrong one
    at: Annotated[
        str,
        StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$"),
        accepts('a time of day in UTC, like "03:30"'),
    ] = Field(default="", validate_default=True)
    days: Annotated[tuple[Day, ...], AfterValidator(_in_order), accepts(", ".join(DAYS))] = DAYS
    branch: Annotated[Annotated[Text, Field(max_length=255)] | None, accepts("text")] = None
    commit: Annotated[Annotated[Text, Field(max_length=255)] | None, accepts("text")] = None
    suites: Annotated[Unique[ShortText], accepts("a list of texts")] = ()
    testbeds: Annotated[Unique[ShortText], accepts("a list of texts")] = ()
    again: Annotated[StrictBool, accepts("true or false")] = False
    against: Annotated[Against, accepts("a table of pip, setup, env")] = Field(default_factory=Against)

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
