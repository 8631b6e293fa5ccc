"""GitHub tells us of pushes."""

from typing import Annotated, Any

from fastapi import Header

from backend.api.dependencies import Config, Now, RawBody, Transaction
from backend.api.described import answer
from backend.api.responses import Json
from backend.routing import Router
from backend.services.github import webhooks
from backend.services.github.webhooks import Received, WebhookDelivery

router = Router(tags=["webhooks"])


@router.post(
    "/webhooks/github",
    response_model=None,
    responses=answer(Received, "Taken; the work is done in the background"),
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
        "security": [],
    },
)
def github(
    body: RawBody,
    c: Transaction,
    config: Config,
    now: Now,
    x_github_event: Annotated[str | None, Header()] = None,
    x_github_delivery: Annotated[str | None, Header()] = None,
    x_hub_signature_256: Annotated[str | None, Header()] = None,
    content_type: Annotated[str, Header()] = "application/json",
) -> Any:
    """A delivery from GitHub: signed, acted on once, answered immediately. Unknown events are accepted and ignored."""
    delivery = WebhookDelivery(
        event=x_github_event,
        delivery_id=x_github_delivery,
        signature=x_hub_signature_256,
        content_type=content_type,
        body=body,
    )
    return Json(webhooks.receive(c, delivery, config, now))
