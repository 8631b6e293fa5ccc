"""Thresholds of a policy as a person reads them."""

from dataclasses import dataclass

from backend.regression.policy import PolicyRow
from frontend import numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One threshold as a person reads it."""

    name: str
    title: str
    value: str
    accepted: str
    text: str


def written(value: float, unit: str, *, bare: bool = False) -> str:
    """A fraction as percent; everything else with its unit."""
    if unit == "fraction":
        return numbers.threshold(value)
    if unit == "probability":
        return f"{value:g}"
    number = f"{value:g}"
    return number if bare else f"{number} {unit.removesuffix('s') if value == 1 and unit.endswith('s') else unit}"


def threshold(row: PolicyRow) -> Threshold:
    return Threshold(
        name=row.name,
        title=row.title,
        value=written(row.value, row.unit),
        accepted=f"{written(row.low, row.unit, bare=True)} to {written(row.high, row.unit)}",
        text=row.text,
    )
