"""A router passes by what is none of its own, and nothing else: the whole service answers as with FastAPI's routers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from sqlalchemy import create_engine
from starlette.routing import Match

from backend.routing import Router
from backend.services.base.config import ServiceConfig
from tests.attacks.route_table import routes
from tidemark.app import make_app

NOWHERE = "postgresql+psycopg://nobody@127.0.0.1:1/none"


@pytest.fixture(scope="module")
def service() -> FastAPI:
    config = ServiceConfig(database_url=NOWHERE, redis_url="redis://127.0.0.1:1", data_dir=Path("/nonexistent"))
    return make_app(config, create_engine(NOWHERE))


def asked(service: FastAPI) -> Iterator[tuple[str, str]]:
    """Each route with a name for what varies, nothing in its place, a slash more, a word more, and one letter less."""
    for method, path in routes(service):
        for filled in (re.sub(r"\{[^}]+\}", "a1", path), re.sub(r"\{[^}]+\}", "", path)):
            for address in (filled, filled + "/", filled + "/more/of/it", filled[:-1]):
                yield method, address
    yield from (("GET", path) for path in ("/", "//", "/api/v1", "/api/v1/", "/api/v1/api/v1/board", "/apiv1/board"))


def answers(service: FastAPI, method: str, path: str, root_path: str = "") -> list[Match]:
    """What each router says of a request."""
    scope = {
        "type": "http", "method": method, "path": root_path + path, "root_path": root_path, "headers": [],
        "query_string": b"",
    }  # fmt: skip
    return [route.matches(scope)[0] for route in service.routes]


def test_every_address_is_answered_as_without_the_glance(service: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = list(asked(service))
    passed_by = [answers(service, *request) for request in requests]
    assert answers(service, "GET", "/board", "/speed") == answers(service, "GET", "/board")
    monkeypatch.delattr(Router, "matches")
    assert passed_by == [answers(service, *request) for request in requests]
    found = sum(Match.FULL in each for each in passed_by)
    assert found > 200 and len(passed_by) - found > 200


def test_a_route_that_comes_later_is_found() -> None:
    app, router = FastAPI(), Router()
    app.include_router(router)
    assert Match.FULL not in answers(app, "GET", "/late/1")
    router.get("/late/{number}")(lambda number: {"number": number})
    assert Match.FULL in answers(app, "GET", "/late/1") and Match.FULL not in answers(app, "GET", "/latest/1")
