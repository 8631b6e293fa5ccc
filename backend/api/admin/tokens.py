"""API tokens: made, listed and revoked by whoever may administer."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Response

from backend.api.answers import Page, TokenAnswer
from backend.api.bodies import RowId, TokenBody
from backend.api.dependencies import Admin, Now, Transaction
from backend.api.responses import Json
from backend.services.base import access
from backend.services.base.access import NewToken
from backend.services.base.projects import find_project

router = APIRouter(tags=["tokens"])


@router.get("/tokens", response_model=Page[TokenAnswer])
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
