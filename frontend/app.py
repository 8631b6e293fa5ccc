"""Puts the pages into the service's application: routes, static files, and how errors look to a person."""

import threading

from fastapi import FastAPI, Request
from fastapi.responses import Response
from sqlalchemy import Engine

from backend.regression.detector import student
from backend.routing import match_once
from backend.services.base.config import ServiceConfig
from frontend import assets
from frontend.pages import (
    board,
    compare,
    files,
    measuring,
    notifications,
    overview,
    pull_requests,
    regressions,
    rule,
    run,
    search,
    series,
    suites,
    workers,
)
from frontend.pages.errors import problem_page
from frontend.pages.people import account, audit, members, welcome
from frontend.pages.project import connect, settings
from frontend.pages.regression import actions, triage
from frontend.pages.regression import page as regression
from frontend.render import CONTENT_SECURITY_POLICY, compile_templates

PAGES = (
    welcome,
    overview,
    board,
    regressions,
    triage,
    actions,
    regression,
    series,
    suites,
    run,
    compare,
    workers,
    rule,
    search,
    files,
    pull_requests,
    measuring,
    connect,
    settings,
    members,
    notifications,
    audit,
    account,
)


def mount(app: FastAPI, config: ServiceConfig, engine: Engine) -> None:
    """Add every page to `app`."""
    app.state.config = config
    app.state.engine = engine
    app.state.problem_page = problem_page
    assets.load_assets()
    app.include_router(assets.router(CONTENT_SECURITY_POLICY))
    for page in PAGES:
        app.include_router(page.router)
    student.load()  # or the first comparison would; meanwhile, in a thread, it would hold up the first page
    threading.Thread(target=_prepare, args=(app,), name="tidemark-pages", daemon=True).start()

    @app.get("/robots.txt", include_in_schema=False)
    def robots(request: Request) -> Response:
        return Response("User-agent: *\nDisallow: /\n", media_type="text/plain")


def _prepare(app: FastAPI) -> None:
    """Do what a page would else do at its first request: compile its template, which takes half a second for all of
    them at the first start of a version, and have FastAPI work out the routes of its router, which takes 10 to 25 ms.
    """
    compile_templates()
    for page in PAGES:
        match_once(app, page.router)
