"""The audit trail as a page: filtered, and readable."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from frontend_people import MINE, add_projects, signed_in
from frontend_site import Site
from playwright.sync_api import Browser, expect

from backend.services.people import audit
from backend.services.people.audit import Did
from frontend.pages.people.audit import details_of
from tests.backend.people_of_tests import ROOT


@pytest.mark.browser
def test_the_trail_is_narrowed_to_what_is_looked_for(own_site: Site, browser: Browser) -> None:
    add_projects(own_site)
    now = datetime.now(UTC)
    with own_site.engine.begin() as c:
        audit.record(c, ROOT, Did.MADE_TOKEN, "ci (#1)", now=now, project=MINE, scopes=["read", "submit"])
        audit.record(c, ROOT, Did.CHANGED_POLICY, MINE, now=now, project=MINE, after={"min_change": 0.1})
        audit.record(c, ROOT, Did.SET_WORKER_STATE, "w1", now=now, state="pause")
    with signed_in(own_site, browser, "ada", northsea_loom="admin") as ada:
        ada.goto(f"{own_site.url}/settings/audit?project={MINE}")
        rows = ada.locator("tbody tr")
        expect(rows).to_have_count(2)  # what is of no project is for who administers the service
        expect(rows.last).to_contain_text("scopes: read, submit")
        ada.get_by_label("What").select_option("token.create")
        ada.get_by_role("button", name="Show").click()
        expect(rows).to_have_count(1)
        ada.goto(f"{own_site.url}/settings/audit?all=1")
        expect(ada.locator("main")).to_contain_text("needs")
    with own_site.engine.connect() as c:
        (row, *_) = audit.trail(c, audit.AuditFilter(action="worker."), 1)
    assert details_of(row) == [("state", "pause")]
