"""One’s own browsers, and signing out of them."""

from __future__ import annotations

import pytest
from frontend_people import add_projects, signed_in
from frontend_site import Site
from playwright.sync_api import Browser, expect
from sqlalchemy import text


@pytest.fixture
def site(own_site: Site) -> Site:
    add_projects(own_site)
    return own_site


@pytest.mark.browser
def test_a_person_signs_out_of_another_browser_and_then_of_all(site: Site, browser: Browser) -> None:
    with signed_in(site, browser, "ada", open_one="viewer") as here, signed_in(site, browser, "ada") as there:
        there.goto(f"{site.url}/account")
        here.goto(f"{site.url}/account")
        rows = here.locator("#browsers tbody tr")
        expect(rows).to_have_count(2)
        expect(here.locator("main")).to_contain_text("viewer of open/one")
        expect(here.locator("#others")).to_have_count(0)
        rows.filter(has_not_text="this one").get_by_role("button").click()
        expect(rows).to_have_count(1)
        there.goto(f"{site.url}/account")
        expect(there.locator("main")).to_contain_text("Sign in")
        here.get_by_role("button", name="Sign out everywhere").click()
        expect(here.get_by_role("heading", name="Sign in")).to_be_visible()
        with site.engine.connect() as c:
            assert c.scalar(text("SELECT count(*) FROM web_session")) == 0
