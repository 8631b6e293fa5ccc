"""What people do about regressions: one from its page, several from the bar below the list."""

from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Form
from fastapi.responses import RedirectResponse, Response

from backend.regression.regression_state import Action
from backend.routing import Router
from backend.services.base.errors import BadRequest, Conflict
from backend.services.base.principal import Scope
from backend.services.people import members
from backend.services.plans.bisect import cancel_bisection, start_bisection
from backend.services.plans.bisection_views import bisection_of_regression
from backend.services.triage import triage as triage_service
from backend.services.triage.triage import TriageDecision
from frontend.frame import Visit, Visiting
from frontend.links import Here
from frontend.words import plural

router = Router(include_in_schema=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A bulk action just taken, which can be undone."""

    words: str
    ids: tuple[int, ...]
    undo: str


DONE_WORDS = {
    "acknowledge": "taken",
    "assign": "assigned",
    "bisect": "being bisected",
    "release": "released",
    "expected": "accepted as expected",
    "invalid": "called not real",
}


def done_of(here: Here) -> Done | None:
    """The deed in the address, such as `acknowledge~3~5`."""
    action, *ids = here.get("done").split("~")
    refused = here.get("refused")
    if action not in DONE_WORDS or not all(each.isdecimal() and len(each) < 10 for each in (*ids, refused or "0")):
        return None
    chosen, undo = tuple(map(int, ids)), "stop-bisecting" if action == "bisect" else "undo"
    words = f"{plural(len(chosen), 'regression')} {DONE_WORDS[action]}."
    if refused:
        words += f" {refused} cannot be: their page says why."
    return Done(words=words, ids=chosen, undo=undo)


def act(visit: Visit, chosen: list[int], csrf_token: str, said: TriageDecision) -> list[int]:
    """Do what the form says to every regression chosen, in one transaction. Returns those to which it could be done:
    a bisection needs a range that workers of ours can measure, which a row of the list does not show."""
    action, owner = said.action, (said.owner or "").strip()
    bisects = action in ("bisect", "stop-bisecting")
    visit.check_action(csrf_token, Scope.SUBMIT if bisects else Scope.WRITE, regressions=chosen)
    if action == "assign" and not owner:
        raise BadRequest.field("owner", owner, "the name or login of the new owner")
    if bisects:
        return [number for number in chosen if bisect_or_stop(visit, number, action)]
    if action == "assign":
        decision = replace(said, action=Action.ACKNOWLEDGE, owner=members.name_of(visit.c, owner))
    else:
        decision = replace(said, owner=None)
    triage_service.lock_series(visit.c, chosen)
    for number in chosen:
        triage_service.act(visit.c, visit.principal, number, decision, now=visit.now)
    return chosen


def bisect_or_stop(visit: Visit, number: int, action: str) -> bool:
    """Close the range of a regression, or stop closing it, where that can be done."""
    if action == "bisect":
        try:
            with visit.c.begin_nested():
                start_bisection(visit.c, number, visit.principal.name, visit.config, visit.now)
        except Conflict:
            return False
        return True
    known = bisection_of_regression(visit.c, number)
    if known is not None and known.state == "running":
        cancel_bisection(visit.c, known.id, f"cancelled by {visit.principal.name}", visit.now)
    return True


@router.post("/regressions/triage")
def triage_several(
    visit: Visiting,
    action: Annotated[str, Form(max_length=40)],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
    id: Annotated[list[int] | None, Form(max_length=500)] = None,
    reason: Annotated[str, Form(max_length=2000)] = "",
    owner: Annotated[str, Form(max_length=100)] = "",
    back: Annotated[str, Form(max_length=4000)] = "/regressions",
) -> Response:
    """The bar below the list: the same word for every row that is ticked."""
    if not id:
        raise BadRequest.field("id", None, "at least one regression; tick its box")
    could = act(visit, id, csrf_token, TriageDecision(action, reason=reason, owner=owner))
    # Only ever back to our own list: the field could say anything.
    if back == "/" or back.startswith("/?"):
        return RedirectResponse(back, status_code=303)
    target = back if back.startswith("/regressions") else "/regressions"
    if action in DONE_WORDS:
        target += f"{'&' if '?' in target else '?'}done={'~'.join([action, *map(str, could)])}"
        target += f"&refused={len(id) - len(could)}" if len(could) < len(id) else ""
    return RedirectResponse(target, status_code=303)


@router.post("/regressions/{regression_id}/triage")
def triage_one(
    visit: Visiting,
    regression_id: int,
    action: Annotated[str, Form(max_length=40)],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
    reason: Annotated[str, Form(max_length=2000)] = "",
    note: Annotated[str, Form(max_length=2000)] = "",
    assignee: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """The buttons on the page of a regression."""
    meant = "assign" if action == "acknowledge" and assignee else action
    act(visit, [regression_id], csrf_token, TriageDecision(meant, reason=reason, note=note, owner=assignee))
    return RedirectResponse(f"/regressions/{regression_id}", status_code=303)
