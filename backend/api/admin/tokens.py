"""API tokens and signed-in browsers: listed, made and ended by whoever may administer."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from backend.api import shapes
from backend.api.answers import ListPage, SignInAnswer, TokenAnswer
from backend.api.bodies import RowId, TokenBody
from backend.api.dependencies import Admin, Now, Transaction
from backend.api.responses import Json
from backend.services.base import access
from backend.services.base.access import NewToken
from backend.services.base.projects import find_project

router = APIRouter(tags=["tokens"])


@router.get("/tokens", response_model=ListPage[TokenAnswer])
def list_tokens(c: Transaction, _: Admin) -> Any:
    """Every token, without secrets."""
    rows = [{**asdict(row), "project_id": None} for row in access.list_tokens(c)]
    for row in rows:
        del row["project_id"]
    return Json({"items": rows, "next": None})


@router.post("/tokens", response_model=NewToken, status_code=201)
def create(body: TokenBody, c: Transaction, now: Now, _: Admin) -> Any:
    """Make a token. The answer holds its secret, for the only time."""
    project_id = None if body.project is None else find_project(c, body.project).id
    token = access.create_token(c, body.name, body.scopes, now=now, project_id=project_id, expires_at=body.expires_at)
    return Json(token, status_code=201)


@router.delete("/tokens/{token_id}", status_code=204, response_model=None)
def revoke(token_id: RowId, c: Transaction, now: Now, _: Admin) -> Response:
    """Revoke a token, from now on."""
    access.revoke_token(c, token_id, now)
    return Response(status_code=204)


@router.get("/sign-ins", response_model=ListPage[SignInAnswer])
def list_sign_ins(c: Transaction, now: Now, _: Admin) -> Any:
    """The browsers that are signed in, the newest first."""
    return Json({"items": access.list_sign_ins(c, now), "next": None})


@router.delete("/sign-ins/{sign_in_id}", status_code=204, response_model=None)
def end_sign_in(sign_in_id: Annotated[str, Path(pattern=shapes.SIGN_IN_ID)], c: Transaction, _: Admin) -> Response:
    """Sign that browser out."""
    access.end_sign_in(c, sign_in_id)
    return Response(status_code=204)


@router.delete("/sign-ins", status_code=204, response_model=None)
def sign_out_everywhere(c: Transaction, _: Admin) -> Response:
    """Sign every browser out, and take back the links that nobody has opened yet."""
    access.sign_out_everywhere(c)
    return Response(status_code=204)
