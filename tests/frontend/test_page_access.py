"""What pages change is held to the token that asks: one of another project changes nothing here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from frontend_site import Site, free_port, serving
from sqlalchemy import text

from backend.services.base import access, projects

MINE, OTHER = "northsea/loom", "northsea/other"


@pytest.fixture
def site(own_site: Site) -> Site:
    with own_site.engine.begin() as c:
        for slug in (MINE, OTHER):
            projects.save_project(c, slug, repository_url=f"https://git.example/{slug}.git", now=datetime.now(UTC))
        mine = projects.find_project(c, MINE).id
        c.execute(text("INSERT INTO testbed (name) VALUES ('lab') ON CONFLICT DO NOTHING"))
        c.execute(
            text(
                """INSERT INTO regression (project_id, testbed_id, state, first_bad_position)
                   SELECT :project, id, 'confirmed', 5 FROM testbed WHERE name = 'lab'"""
            ),
            {"project": mine},
        )
        c.execute(text("UPDATE project SET sync_requested_at = NULL"))
    return own_site


def token(site: Site, slug: str) -> dict[str, str]:
    with site.engine.begin() as c:
        project = projects.find_project(c, slug)
        made = access.create_token(c, slug, ["write"], now=datetime.now(UTC), project_id=project.id)
    return {"Authorization": f"Bearer {made.token}"}


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/regressions/{id}/triage", {"action": "acknowledge"}),
        ("/regressions/triage", {"action": "acknowledge", "id": "{id}"}),
        ("/regressions/{id}/bisect", {"action": "start"}),
        ("/settings/sync", {"project": MINE}),
        ("/measuring/backfills", {"project": MINE, "suite": "gpt"}),
    ],
)
def test_a_token_of_another_project_changes_nothing_by_a_page(site: Site, path: str, form: dict[str, Any]) -> None:
    with site.engine.connect() as c:
        number = str(c.scalar(text("SELECT id FROM regression")))
    sent = {name: value.format(id=number) for name, value in form.items()}
    answer = httpx.post(site.url + path.format(id=number), data=sent, headers=token(site, OTHER), timeout=60)
    assert answer.status_code == 403 and "belongs to another project" in answer.text, answer.text
    with site.engine.connect() as c:
        assert c.scalar(text("SELECT state FROM regression")) == "confirmed"
        assert c.scalar(text("SELECT count(*) FROM project WHERE sync_requested_at IS NOT NULL")) == 0


def test_a_token_of_the_project_itself_may(site: Site) -> None:
    answer = httpx.post(f"{site.url}/settings/sync", data={"project": MINE}, headers=token(site, MINE), timeout=60)
    assert answer.status_code == 303, answer.text


# What anybody may see of a service whose results are not public: that it is there, and how to sign in.
OPEN = re.compile(
    r"/(static/|assets/|favicon\.ico|robots\.txt|healthz|readyz|metrics|sign-in(/|$)|openapi\.json|api/v1/(schema|webhooks))"
)
NAMES = {"project": MINE, "format": "auto", "suite": "gpt"}


def addresses(routes: Iterable[Any], prefix: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every address of the service, with those of the routers it is made of."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from addresses(inner.routes, prefix + route.include_context.prefix)
        elif getattr(route, "methods", None):
            yield prefix + route.path, route.methods


def test_where_reading_is_not_public_no_address_answers_a_stranger(site: Site) -> None:
    port = free_port()
    config = replace(site.config, public_read=False, public_url=f"http://127.0.0.1:{port}")
    with serving(site.engine, config, port) as server, httpx.Client(base_url=config.public_url, timeout=30) as client:
        asked = []
        for path, methods in addresses(server.config.app.routes):
            address = re.sub(r"\{(\w+)(:\w+)?\}", lambda found: NAMES.get(found[1], "1" * 26), path)
            for method in methods - {"HEAD", "OPTIONS"}:
                if not OPEN.match(address):
                    asked.append(f"{method} {path}: {client.request(method, address).status_code}")
    assert len(asked) > 60
    # 422: the address or the form is refused before anything is looked up.
    assert [told for told in asked if not told.endswith((": 401", ": 422"))] == []
