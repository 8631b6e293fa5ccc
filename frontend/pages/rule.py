"""The rule: when something counts as a regression, rendered from the policy object that decides it."""

from fastapi.responses import Response

from backend.regression.policy import BUILT_IN
from backend.routing import Router
from frontend import numbers
from frontend.frame import Visiting
from frontend.thresholds import threshold

router = Router(include_in_schema=False)


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
