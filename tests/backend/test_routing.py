"""A router that is passed by had no answer: the whole service answers as with FastAPI's own routers."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import _IncludedRouter
from sqlalchemy import create_engine
from starlette.routing import Match

from backend.routing import Router
from backend.services.base.config import ServiceConfig
from frontend.app import PAGES
from tests.attacks.route_table import routes
from tidemark.app import make_app

NOWHERE = "postgresql+psycopg://nobody@127.0.0.1:1/none"
ODD = ("/", "//", "/api/v1", "/api/v1/", "/api/v1/api/v1/board", "/apiv1/board", "//board", "/board%2F", "/BOARD")


@pytest.fixture(scope="module")
def service() -> FastAPI:
    return new_service()


@pytest.fixture
def made() -> FastAPI:
    """A service of this test's own, which nobody has asked anything."""
    return new_service()


def new_service() -> FastAPI:
    config = ServiceConfig(database_url=NOWHERE, redis_url="redis://127.0.0.1:1", data_dir=Path("/nonexistent"))
    return prepared(make_app(config, create_engine(NOWHERE)))


def prepared(app: FastAPI) -> FastAPI:
    """Once its pages have done what they do ahead of their first request."""
    for thread in threading.enumerate():
        if thread.name == "tidemark-pages":
            thread.join(60)
    return app


def asked(service: FastAPI) -> Iterator[tuple[str, str]]:
    """Each route with a name for what varies, nothing in its place, a slash more, a word more, and one letter less."""
    for method, path in routes(service):
        for filled in (re.sub(r"\{[^}]+\}", "a1", path), re.sub(r"\{[^}]+\}", "", path)):
            for address in (filled, filled + "/", filled + "/more/of/it", filled[:-1]):
                yield method, address
    yield from (("GET", path) for path in ODD)


def answers(service: FastAPI, method: str, path: str, root_path: str = "") -> list[Match]:
    """What each router says of a request."""
    scope = {
        "type": "http", "method": method, "path": root_path + path, "root_path": root_path, "headers": [],
        "query_string": b"",
    }  # fmt: skip
    return [route.matches(scope)[0] for route in service.routes]


def test_every_address_is_answered_as_without_the_glance(service: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [(*request, root) for request in asked(service) for root in ("", "/speed")]
    with_glance = [answers(service, *request) for request in requests]
    monkeypatch.delattr(Router, "matches")
    assert with_glance == [answers(service, *request) for request in requests]
    found = sum(Match.FULL in each for each in with_glance)
    assert found > 400 and len(with_glance) - found > 400


def test_few_routers_are_asked_about_a_page(service: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_about = []
    matches = APIRouter.matches

    def noted(router: APIRouter, scope: Any) -> Any:
        asked_about.append(router)
        return matches(router, scope)

    monkeypatch.setattr(APIRouter, "matches", noted)
    assert Match.FULL in answers(service, "GET", "/workers")
    routers = [route for route in service.routes if hasattr(route, "original_router")]
    assert len(routers) > 40 and len(asked_about) < 5, [router.routes for router in asked_about]


def test_the_routes_of_every_page_are_worked_out_before_anybody_asks(
    made: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked_out = []
    build = _IncludedRouter._build_effective_context
    monkeypatch.setattr(_IncludedRouter, "_build_effective_context", lambda *of: worked_out.append(of) or build(*of))
    for page in PAGES:
        for route in page.router.routes:
            answers(made, "GET", re.sub(r"\{[^}]+\}", "a1", route.path))
    assert worked_out == []


@pytest.mark.parametrize("prefix", ["", "/hooks", "/api/v1"])
def test_a_route_that_comes_later_is_found_under_any_prefix(prefix: str) -> None:
    app, router = FastAPI(), Router()
    app.include_router(router, prefix=prefix)
    assert Match.FULL not in answers(app, "GET", f"{prefix}/late/1")
    router.get("/late/{number}")(lambda number: {"number": number})
    assert Match.FULL in answers(app, "GET", f"{prefix}/late/1")
