"""API tokens and signed-in browsers: listed, created and ended by administrators."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Path, Query, Response

from backend.api import shapes
from backend.api.answers import ListPage, SignInAnswer, TokenAnswer
from backend.api.bodies import RowId, TokenBody
from backend.api.dependencies import Caller, Now, Transaction, UnconfinedAdmin
from backend.api.responses import Json
from backend.routing import Router
from backend.services.base.access import NewToken
from backend.services.people import sign_ins, tokens

router = Router(tags=["tokens"])

Mine = Annotated[bool, Query(description="the caller's own alone")]


@router.get("/tokens", response_model=ListPage[TokenAnswer])
def list_tokens(c: Transaction, caller: UnconfinedAdmin) -> Any:
    """Tokens the caller administers, without their secrets."""
    rows = [{**asdict(row), "project_id": None} for row in tokens.listed(c, caller)]
    for row in rows:
        del row["project_id"]
    return Json({"items": rows, "next": None})


@router.post("/tokens", response_model=NewToken, status_code=201)
def create(body: TokenBody, c: Transaction, now: Now, caller: UnconfinedAdmin) -> Any:
    """Create a token. Its secret is only in this answer."""
    token = tokens.make(c, caller, body.name, body.scopes, now=now, project=body.project, expires_at=body.expires_at)
    return Json(token, status_code=201)


@router.delete("/tokens/{token_id}", status_code=204, response_model=None)
def revoke(token_id: RowId, c: Transaction, now: Now, caller: UnconfinedAdmin) -> Response:
    """Revoke a token."""
    tokens.revoke(c, caller, token_id, now=now)
    return Response(status_code=204)


@router.get("/sign-ins", response_model=ListPage[SignInAnswer])
def list_sign_ins(c: Transaction, now: Now, caller: Caller, mine: Mine = False) -> Any:
    """Browsers that are signed in, newest first: the caller's own or, for administrators of the service, all."""
    return Json({"items": sign_ins.listed(c, caller, now, mine=mine), "next": None})


@router.delete("/sign-ins/{sign_in_id}", status_code=204, response_model=None)
def end_sign_in(
    sign_in_id: Annotated[str, Path(pattern=shapes.SIGN_IN_ID)], c: Transaction, now: Now, caller: Caller
) -> Response:
    """Sign out one browser: your own or, for administrators of the service, any."""
    sign_ins.end(c, caller, sign_in_id, now)
    return Response(status_code=204)


@router.delete("/sign-ins", status_code=204, response_model=None)
def sign_out_everywhere(c: Transaction, now: Now, caller: Caller, mine: Mine = False) -> Response:
    """Sign out all of the caller's browsers. For administrators of the service, unless `mine` is given: everyone's,
    and sign-in links that were not opened yet become invalid.
    """
    sign_ins.end_all(c, caller, now, mine=mine)
    return Response(status_code=204)
