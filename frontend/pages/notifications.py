"""Notifications of a project: its rules, each with a test, and recent messages."""

from typing import Annotated, Any

from fastapi import Form
from fastapi.responses import RedirectResponse, Response

from backend.routing import Router
from backend.services.base.errors import BadRequest
from backend.services.base.principal import require_name
from backend.services.notify import rules
from backend.services.notify.concerns import NOTIFIED_EVENTS
from frontend.frame import Visiting
from frontend.links import link

router = Router(include_in_schema=False)

ABOUT = {"code": ["code"], "machines": ["hardware", "environment", "method"]}
WAITING = frozenset({"waiting", "sending"})
Short = Annotated[str, Form(max_length=200)]
Long = Annotated[str, Form(max_length=4000)]


@router.get("/settings/notifications")
def notifications_page(visit: Visiting, edit: int | None = None) -> Response:
    """Rules and messages; for who administers the project."""
    require_name(visit.principal)
    project = visit.project()
    found = rules.notifications(visit.c, visit.principal, project) if project else None
    return visit.page(
        "notifications.html",
        page="notifications",
        title=f"Notifications of {project}" if project else "Notifications",
        description="Who is notified of what, and where.",
        project=project,
        path="/settings/notifications",
        found=found,
        names={rule.id: rule.name for rule in found.rules} if found else {},
        editing=next((rule for rule in found.rules if rule.id == edit), None) if found else None,
        events=NOTIFIED_EVENTS,
        waits=any(message.state in WAITING for message in found.messages) if found else False,
        defaults=rules.DEFAULTS,
    )


@router.post("/settings/notifications")
def save_rule(
    visit: Visiting,
    project: Short,
    name: Short,
    address: Annotated[str, Form(max_length=2000)] = "",
    rule_id: Short = "",
    about: Short = "code",
    state: Annotated[list[str] | None, Form(max_length=20)] = None,
    suites: Long = "",
    owners: Long = "",
    min_change: Short = "",
    digest: Short = "",
    time_zone: Short = "UTC",
    quiet_from: Short = "",
    quiet_until: Short = "",
    csrf_token: Short = "",
) -> Response:
    """Add a rule, or change one; an address that is left empty stays."""
    visit.check_own_page(csrf_token)
    wanted: dict[str, Any] = {
        "name": name.strip(),
        "causes": ABOUT.get(about, [cause for causes in ABOUT.values() for cause in causes]),
        "states": state or [],
        "suites": suites.split(),
        "owners": owners.split(),
        "min_change": _fraction(min_change),
        "digest": digest or None,
        "time_zone": time_zone.strip() or "UTC",
        "quiet_from": quiet_from or None,
        "quiet_until": quiet_until or None,
        **({"address": address.strip()} if address.strip() or not rule_id else {}),
    }
    if rule_id:
        rules.change(visit.c, visit.principal, project, _number(rule_id), wanted, visit.now)
    else:
        rules.add(visit.c, visit.principal, project, wanted, visit.now)
    return _back(project)


@router.post("/settings/notifications/test")
def test_rule(visit: Visiting, project: Short, rule_id: Short, csrf_token: Short = "") -> Response:
    """Have a test message sent."""
    visit.check_own_page(csrf_token)
    rules.test(visit.c, visit.principal, project, _number(rule_id), visit.now)
    return _back(project, "#messages")


@router.post("/settings/notifications/remove")
def remove_rule(visit: Visiting, project: Short, rule_id: Short, csrf_token: Short = "") -> Response:
    visit.check_own_page(csrf_token)
    rules.remove(visit.c, visit.principal, project, _number(rule_id), visit.now)
    return _back(project)


def _back(project: str, place: str = "") -> Response:
    return RedirectResponse(link("/settings/notifications", project=project) + place, status_code=303)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise BadRequest.field("rule_id", text, "the number of a rule")
    return int(text)


def _fraction(percent: str) -> float | None:
    try:
        value = float(percent.replace("%", "")) / 100 if percent.strip() else None
    except ValueError:
        value = -1.0
    if value is not None and not 0 <= value <= 100:
        raise BadRequest.field("min_change", percent, "a percentage, such as 5 %")
    return value
