"""The policy of a project: the current one, what another one would have reported, and choosing one."""

from typing import Annotated, Any

from fastapi import Path

from backend.api.bodies import PolicyBody, PreviewBody, Slug
from backend.api.dependencies import Now, ProjectAdmin, Reader, Transaction
from backend.api.described import answer
from backend.api.responses import Json
from backend.routing import Router
from backend.services.base.principal import require_name
from backend.services.judging import policy_change as policies
from backend.services.judging import what_if
from backend.services.judging.policy_change import ProjectPolicy
from backend.services.judging.what_if import Preview

router = Router(tags=["projects"])


@router.get(
    "/projects/{project:path}/policy",
    response_model=None,
    responses=answer(ProjectPolicy, "The thresholds, by where they come from"),
)
def get(project: Annotated[Slug, Path()], c: Transaction, _: Reader) -> Any:
    """The thresholds of a project: those its tidemark.toml declares, those chosen here, and those in force."""
    return Json(policies.policy_of(c, project))


@router.post(
    "/projects/{project:path}/policy/preview",
    response_model=None,
    responses=answer(Preview, "What would have been reported over the last days"),
)
def preview(project: Annotated[Slug, Path()], body: PreviewBody, c: Transaction, now: Now, caller: Reader) -> Any:
    """Compare the alarms of the last 90 days under other thresholds with those in force. Nothing is changed. One at a
    time per project; it judges months of history twice, so it needs a sign-in or a token.
    """
    require_name(caller)
    compare = what_if.preview_declared if body.declared else what_if.preview
    return Json(compare(c, project, body.policy, now=now, days=body.days))


@router.patch(
    "/projects/{project:path}/policy",
    response_model=None,
    responses=answer(ProjectPolicy, "The thresholds from now on"),
)
def change(project: Annotated[Slug, Path()], body: PolicyBody, c: Transaction, now: Now, who: ProjectAdmin) -> Any:
    """Set thresholds (null resets one). The last 90 days are judged again with them, in the background."""
    return Json(policies.change(c, project, body.policy, by=who, now=now))
