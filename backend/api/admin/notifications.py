"""Notifications of a project: its rules, the newest messages, and a test of each rule."""

from typing import Annotated, Any

from fastapi import Path, Response
from pydantic import Field, StringConstraints

from backend.api import shapes
from backend.api.bodies import RequestBody, RowId, Slug
from backend.api.dependencies import Now, ProjectAdmin, Transaction
from backend.api.described import answer
from backend.api.responses import Json
from backend.routing import Router
from backend.services.notify import rules
from backend.services.notify.rules import Notifications, NotifyMessage, NotifyRule

router = Router(tags=["notifications"])

Project = Annotated[Slug, Path()]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=shapes.PLAIN)]
Texts = Annotated[list[Text], Field(max_length=rules.MOST_VALUES)]
Address = Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=shapes.PLAIN)]
PATH = "/projects/{project:path}/notifications"


class RuleChangeBody(RequestBody):
    """Fields left out stay as they are."""

    name: Text = Field(default_factory=str)
    address: Address = Field(default_factory=str, description="an Apprise address; it is never shown again")
    suites: Texts = Field(default=[], description="patterns of suites; none: all")
    causes: Texts = Field(default=[], description="code, or hardware, environment and method for alarms of machines")
    states: Texts = Field(default=[], description="events to report")
    owners: Texts = Field(default=[], description="only what one of these owns; none: everything")
    min_change: Annotated[float, Field(ge=0, le=100, description="of cost, as a fraction")] | None = None
    digest: Text | None = Field(default=None, description="daily or weekly, in place of single messages")
    time_zone: Text = "UTC"
    quiet_from: Text | None = None
    quiet_until: Text | None = None


class RuleBody(RuleChangeBody):
    """A new rule. Fields left out: confirmed and fixed regressions of the code, at once."""

    name: Text
    address: Address = Field(description="an Apprise address; it is never shown again")


@router.get(PATH, response_model=None, responses=answer(Notifications, "Rules, and the newest messages"))
def list_notifications(project: Project, c: Transaction, caller: ProjectAdmin) -> Any:
    """Who is notified of what, without the secrets of the addresses, and the latest notifications."""
    return Json(rules.notifications(c, caller, project))


@router.post(PATH, response_model=None, status_code=201, responses=answer(NotifyRule, "The rule", status=201))
def add(project: Project, body: RuleBody, c: Transaction, now: Now, caller: ProjectAdmin) -> Any:
    """Create a rule. It does not notify of earlier events."""
    return Json(rules.add(c, caller, project, body.model_dump(exclude_unset=True), now), status_code=201)


@router.patch(PATH + "/{rule_id}", response_model=None, responses=answer(NotifyRule, "The rule from now on"))
def change(
    project: Project, rule_id: RowId, body: RuleChangeBody, c: Transaction, now: Now, caller: ProjectAdmin
) -> Any:
    """Change the given fields of a rule."""
    return Json(rules.change(c, caller, project, rule_id, body.model_dump(exclude_unset=True), now))


@router.delete(PATH + "/{rule_id}", status_code=204, response_model=None)
def remove(project: Project, rule_id: RowId, c: Transaction, now: Now, caller: ProjectAdmin) -> Response:
    """Remove a rule, and its notifications that were not sent yet."""
    rules.remove(c, caller, project, rule_id, now)
    return Response(status_code=204)


@router.post(
    PATH + "/{rule_id}/test", response_model=None, status_code=202, responses=answer(NotifyMessage, "Asked", status=202)
)
def test(project: Project, rule_id: RowId, c: Transaction, now: Now, caller: ProjectAdmin) -> Any:
    """Send one test message; the list shows the outcome."""
    return Json(rules.test(c, caller, project, rule_id, now), status_code=202)
