"""The commit that a reader compares a series with: in the address, so it can be pasted, undone and forgotten.

It is the reader's and changes no verdict; the anchor, against which drift is judged, is the judge's.
"""

from dataclasses import dataclass

from sqlalchemy import Connection

from backend.services.base.errors import BadRequest, NotFound
from backend.services.reports import explanations
from backend.services.reports.history import SeriesPoints
from frontend import numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenReference:
    """A series at the requested commit; `problem` says why there is none."""

    asked: str
    sha: str = ""
    value: float | None = None
    problem: str = ""

    @property
    def short(self) -> str:
        return self.sha[:7]

    @property
    def label(self) -> str:
        return self.short if self.sha.startswith(self.asked) else f"{self.asked} ({self.short})"


def reference_of(c: Connection, series_id: int, asked: str) -> ChosenReference | None:
    """Find the reference values at the commit named: a sha, a branch, `#123` or `last-good`."""
    if not asked:
        return None
    try:
        said = explanations.explain_point(c, series_id, asked)
    except (NotFound, BadRequest) as error:
        return ChosenReference(asked=asked, problem=error.detail)
    return ChosenReference(asked=asked, sha=said.sha, value=said.value)


def since(reference: ChosenReference, points: SeriesPoints) -> str:
    """The newest point against the reference, as a change of cost, in words."""
    value, unit = reference.value, points.series.unit
    if value is None or not len(points):
        return ""
    newest = float(points.value[-1])
    if value <= 0 or newest <= 0:
        return f"{numbers.quantity(newest, unit, 4)} now, {numbers.quantity(value, unit, 4)} there."
    change = (newest / value if points.series.direction == "lower" else value / newest) - 1
    return (
        f"{numbers.quantity(newest, unit, 4)} now, {numbers.quantity(value, unit, 4)} there: "
        f"{numbers.cost_change(change)} of cost, by one run of each."
    )
