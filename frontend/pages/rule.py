"""The rule: when something counts as a regression, rendered from the policy object that decides it."""

from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.responses import Response

from backend.regression.policy import BUILT_IN, PolicyRow
from frontend import numbers
from frontend.frame import Visiting

router = APIRouter(include_in_schema=False)


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


@router.get("/rule")
def rule_page(visit: Visiting) -> Response:
    project = visit.project()
    policy = visit.policies(project).general
    return visit.page(
        "rule.html",
        page="rule",
        title="The rule",
        description="When a change counts as a regression: at least "
        f"{numbers.threshold(policy.min_change)} more cost, and more than this series’ noise.",
        project=project,
        policy=policy,
        min_change=numbers.threshold(policy.min_change),
        thresholds=[threshold(row) for row in policy.describe()],
        built_in=[(override.metric, sorted(override.values.items())) for override in BUILT_IN],
    )
