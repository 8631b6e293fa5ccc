"""Puts the pages into the service's application: routes, static files, and how errors look to a person."""

import threading

from fastapi import FastAPI, Request
from fastapi.responses import Response
from sqlalchemy import Engine

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


def mount(app: FastAPI, config: ServiceConfig, engine: Engine) -> None:
    """Add every page to `app`."""
    app.state.config = config
    app.state.engine = engine
    app.state.problem_page = problem_page
    assets.load_assets()
    # At the first start of a version half a second of CPU, which whoever looks at a page first need not wait for.
    threading.Thread(target=compile_templates, name="tidemark-templates", daemon=True).start()
    app.include_router(assets.router(CONTENT_SECURITY_POLICY))
    for page in (
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
    ):
        app.include_router(page.router)
    for page in (pull_requests, measuring, connect, settings, members, notifications, audit, account):
        app.include_router(page.router)

    @app.get("/robots.txt", include_in_schema=False)
    def robots(request: Request) -> Response:
        return Response("User-agent: *\nDisallow: /\n", media_type="text/plain")
