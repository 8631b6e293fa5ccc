"""Signing in by the one-time link that the launcher prints. Signing out is a page's action."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import RedirectResponse

from backend.api.dependencies import Config, Now, Transaction
from backend.services.base import access

router = APIRouter(include_in_schema=False)


@router.get("/sign-in/{secret}")
def sign_in(secret: Annotated[str, Path(max_length=200)], c: Transaction, config: Config, now: Now) -> Any:
    """Open the link once: from then on this browser is signed in."""
    signed_in = access.sign_in(c, secret, now)
    response = RedirectResponse("/", status_code=303)
    response.set_cookie(
        access.SESSION_COOKIE,
        signed_in.session,
        max_age=signed_in.max_age_s,
        httponly=True,
        samesite="strict",
        secure=config.public_url.startswith("https:"),
        path="/",
    )
    # The secret stands in the address: it must not travel on, nor stay in a cache.
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cache-Control"] = "no-store"
    return response
