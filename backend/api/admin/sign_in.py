"""Signing in: by the one-time link that the launcher prints, or by a provider. Signing out is a page's action."""

from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.api.dependencies import Config, Now, WritingTransaction, in_transaction
from backend.identity.provider import Provider, Refused, SignInAttempt
from backend.routing import Router
from backend.services.base import access
from backend.services.base.access import SignedIn
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import Forbidden, NotFound
from backend.services.people import sign_in as people

router = Router(include_in_schema=False)

ATTEMPT_COOKIE = "tidemark_signing_in"
ATTEMPT_LIFE_S = 600
# A cookie that is SameSite=Strict is not sent with what another site redirected to: this page goes on by itself.
SIGNED_IN = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/">
<title>Signed in</title><p>You are signed in. <a href="/">Go on</a></p></html>"""


@router.get("/sign-in/{secret}")
def open_link(
    request: Request, secret: Annotated[str, Path(max_length=200)], c: WritingTransaction, config: Config, now: Now
) -> Any:
    """Open the link once: from then on this browser is signed in."""
    signed_in = people.open_link(c, secret, now, request.headers.get("user-agent", ""))
    return _with_session(RedirectResponse("/", status_code=303), signed_in, config)


@router.get("/sign-in/with/{provider}")
def begin(request: Request, provider: Annotated[str, Path(max_length=20)], config: Config) -> Any:
    """Send the browser to a provider, and have it remember that."""
    found, attempt = _provider(request, provider), SignInAttempt.begin()
    try:
        address = found.address(attempt, people.come_back(config, found))
    except Refused as refused:
        raise Forbidden(f"signing in by {found.label} does not work now: {refused}") from None
    response = _private(RedirectResponse(address, status_code=303))
    response.set_cookie(
        ATTEMPT_COOKIE,
        f"{found.key}:{attempt.cookie}",
        max_age=ATTEMPT_LIFE_S,
        httponly=True,
        samesite="lax",  # it must come with the provider's redirect
        secure=config.public_url.startswith("https:"),
        path="/sign-in/done",
    )
    return response


@router.get("/sign-in/done/{provider}")
async def done(
    request: Request,
    provider: Annotated[str, Path(max_length=20)],
    config: Config,
    now: Now,
    code: Annotated[str, Query(max_length=4000)] = "",
    state: Annotated[str, Query(max_length=400)] = "",
    error: Annotated[str, Query(max_length=200)] = "",
) -> Any:
    """The browser comes back: sign in whom the provider vouches for."""
    found = _provider(request, provider)
    signed_in = await run_in_threadpool(_signed_in, request, found, config, now, code, state, error)
    response = _with_session(HTMLResponse(SIGNED_IN), signed_in, config)
    response.delete_cookie(ATTEMPT_COOKIE, path="/sign-in/done", httponly=True, samesite="lax")
    return response


def _signed_in(
    request: Request, provider: Provider, config: ServiceConfig, now: Any, code: str, state: str, error: str
) -> SignedIn:
    begun_with, _, kept = request.cookies.get(ATTEMPT_COOKIE, "").partition(":")
    try:
        attempt = SignInAttempt.of_cookie(kept if begun_with == provider.key else "")
        attempt.check_state(state)
        if error or not code:
            raise Refused(f"{provider.label} says {error or 'nothing'!r}")
        who = provider.identify(attempt, code, people.come_back(config, provider))
    except Refused as refused:
        raise Forbidden(f"you are not signed in: {refused}") from None
    # The provider was asked before a connection is taken: it may be slow.
    with in_transaction(request) as c:
        return people.begin_session(c, who, now, request.headers.get("user-agent", ""))


def _provider(request: Request, key: str) -> Provider:
    providers: dict[str, Provider] = request.app.state.providers
    if key not in providers:
        raise NotFound.of("way to sign in", key, [*providers])
    return providers[key]


def _with_session(response: Response, signed_in: SignedIn, config: ServiceConfig) -> Response:
    response.set_cookie(
        access.SESSION_COOKIE,
        signed_in.session,
        max_age=signed_in.max_age_s,
        httponly=True,
        samesite="strict",
        secure=config.public_url.startswith("https:"),
        path="/",
    )
    return _private(response)


def _private(response: Response) -> Response:
    """A secret stands in the address: it must not travel on, nor stay in a cache."""
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cache-Control"] = "no-store"
    return response
