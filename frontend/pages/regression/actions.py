"""Actions on the page of a regression: bisect, split, merge."""

from typing import Annotated

from fastapi import Form
from fastapi.responses import RedirectResponse, Response

from backend.routing import Router
from backend.services.base.errors import BadRequest
from backend.services.base.principal import Scope
from backend.services.plans.bisect import cancel_bisection, start_bisection
from backend.services.plans.bisection_views import bisection_of_regression
from backend.services.triage import regroup
from frontend.frame import Visiting

router = Router(include_in_schema=False)


@router.post("/regressions/{regression_id}/bisect")
def bisect_action(
    visit: Visiting,
    regression_id: int,
    action: Annotated[str, Form(max_length=20)] = "start",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Close the range between the last good and the first bad commit, or stop closing it."""
    visit.check_action(csrf_token, Scope.SUBMIT, regressions=[regression_id])
    known = bisection_of_regression(visit.c, regression_id)
    if action == "start":
        start_bisection(visit.c, regression_id, visit.principal.name, visit.config, visit.now)
    elif action == "cancel" and known is not None:
        cancel_bisection(visit.c, known.id, f"cancelled by {visit.principal.name}", visit.now)
    else:
        raise BadRequest.field("action", action, ["start", "cancel"])
    return RedirectResponse(f"/regressions/{regression_id}#commits", status_code=303)


@router.post("/regressions/{regression_id}/split")
def split(
    visit: Visiting,
    regression_id: int,
    onset: Annotated[int, Form(ge=0, le=2**31 - 1)],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Make what began at another commit a separate regression."""
    visit.check_action(csrf_token, Scope.WRITE, regressions=[regression_id])
    regroup.act_split(visit.c, visit.principal, regression_id, onset, visit.now)
    return RedirectResponse(f"/regressions/{regression_id}", status_code=303)


@router.post("/regressions/{regression_id}/merge")
def merge(
    visit: Visiting,
    regression_id: int,
    into: Annotated[int, Form(ge=1, le=2**31 - 1)],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Make it part of another regression, whose page has the way back."""
    visit.check_action(csrf_token, Scope.WRITE, regressions=[regression_id, into])
    regroup.act_merge(visit.c, visit.principal, regression_id, into, visit.now)
    return RedirectResponse(f"/regressions/{into}", status_code=303)
