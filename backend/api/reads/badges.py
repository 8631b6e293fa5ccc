"""Badges for a README."""

import hashlib
from typing import Annotated, Any

from fastapi import Header, Path
from starlette.responses import Response

from backend.api import shapes
from backend.api.dependencies import Reader, Transaction
from backend.routing import Router
from backend.services.reports import badges

router = Router(tags=["badges"])

MAX_AGE_S = 300
Slug = Annotated[str, Path(max_length=200, pattern=shapes.BADGE_SLUG)]


@router.get(
    "/badge/{project:path}.svg",
    response_class=Response,
    responses={
        200: {"description": "The badge", "content": {"image/svg+xml": {"schema": {"type": "string"}}}},
        304: {"description": "It has not changed"},
    },
)
def badge(project: Slug, c: Transaction, _: Reader, if_none_match: Annotated[str | None, Header()] = None) -> Any:
    """A badge that says whether the project has open regressions."""
    picture = badges.project_badge(c, project).encode()
    tag = f'"{hashlib.sha256(picture).hexdigest()[:16]}"'
    # Cross-origin, as the README that shows it is on another site; what it says is all that anybody may read.
    headers = {
        "Cache-Control": f"public, max-age={MAX_AGE_S}",
        "ETag": tag,
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    if if_none_match is not None and tag in if_none_match:
        return Response(status_code=304, headers=headers)
    return Response(picture, media_type="image/svg+xml", headers=headers)
