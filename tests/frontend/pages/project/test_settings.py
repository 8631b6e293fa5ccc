"""A project is removed from its page."""

from __future__ import annotations

import re

import pytest
from frontend_people import MINE, add_projects, signed_in
from frontend_site import Site
from playwright.sync_api import Browser, expect
from sqlalchemy import text


@pytest.fixture
def site(own_site: Site) -> Site:
    add_projects(own_site)
    return own_site


@pytest.mark.browser
def test_a_project_is_removed_by_its_name(site: Site, browser: Browser) -> None:
    with signed_in(site, browser, "ada", northsea_loom="admin") as ada:
        ada.goto(f"{site.url}/settings?project={MINE}")
        panel = ada.locator("#remove")
        expect(panel).to_contain_text("0 runs")
        panel.get_by_label("The project’s name").fill("something else")
        panel.get_by_role("button").click()
        expect(ada.locator("main")).to_contain_text("this cannot be undone")
        ada.goto(f"{site.url}/settings?project={MINE}")
        panel.get_by_label("The project’s name").fill(MINE)
        panel.get_by_role("button").click()
        ada.wait_for_url(re.compile("/board"))
        with site.engine.connect() as c:
            assert c.scalar(text("SELECT count(*) FROM project WHERE slug = :slug"), {"slug": MINE}) == 0
