"""Members, in the browser as an administrator uses them."""

from __future__ import annotations

import pytest
from frontend_people import MINE, add_projects, signed_in
from frontend_site import Site
from playwright.sync_api import Browser, expect


@pytest.fixture
def site(own_site: Site) -> Site:
    add_projects(own_site)
    return own_site


@pytest.mark.browser
def test_an_administrator_adds_a_member_who_then_sees_the_private_project(site: Site, browser: Browser) -> None:
    with signed_in(site, browser, "ada@example.org", northsea_loom="admin") as ada:
        ada.goto(f"{site.url}/settings/members?project={MINE}")
        form = ada.locator("#add form")
        form.get_by_label("Signs in as").fill("Bob@example.org")
        form.get_by_label("Role").select_option("triager")
        form.get_by_role("button", name="Add").click()
        expect(ada.locator("#here")).to_contain_text("bob@example.org")
        with signed_in(site, browser, "bob@example.org") as bob:
            bob.goto(f"{site.url}/settings?project={MINE}")
            expect(bob.get_by_role("heading", name="Repository")).to_be_visible()
            expect(bob.locator("#remove")).to_have_count(0)
            # The role is taken back: from then on there is no such project for him.
            ada.get_by_role("button", name="Remove bob@example.org").click()
            expect(ada.locator("#here")).not_to_contain_text("bob@example.org")
            bob.goto(f"{site.url}/board?project={MINE}")
            expect(bob.locator("main")).to_contain_text("Unknown project")
        ada.get_by_role("link", name="Audit trail").click()
        expect(ada.locator("tbody tr")).to_have_count(2)
        expect(ada.locator("tbody")).to_contain_text("member.remove")
        expect(ada.locator("tbody")).to_contain_text("ada@example.org")
        with ada.expect_download() as saved:
            ada.get_by_role("link", name="CSV").click()
        assert "member.set" in saved.value.path().read_text()
