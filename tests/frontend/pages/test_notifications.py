"""The page of notifications, in the browser as an administrator uses it."""

import pytest
from frontend_people import MINE, add_projects, signed_in
from frontend_site import Site
from playwright.sync_api import Browser, expect

from backend.services.base.errors import BadRequest
from frontend.pages.notifications import _fraction


@pytest.mark.browser
def test_a_rule_is_added_tested_and_removed(own_site: Site, browser: Browser) -> None:
    add_projects(own_site)
    with signed_in(own_site, browser, "ada@example.org", northsea_loom="admin") as ada:
        ada.goto(f"{own_site.url}/settings/notifications?project={MINE}")
        form = ada.locator("#rule form")
        form.get_by_label("Name").fill("Performance team")
        form.get_by_label("Address").fill("jsons://ada:secret@example.org/hidden")
        form.get_by_label("From a change of").fill("5")
        form.get_by_role("button", name="Add").click()
        expect(ada.locator("#rules")).to_contain_text("jsons://example.org/…")
        expect(ada.locator("#rules")).to_contain_text("from 5 %")
        assert "secret" not in ada.content()
        ada.get_by_role("button", name="Test Performance team").click()
        expect(ada.locator("#messages")).to_contain_text("waiting")
        ada.get_by_role("button", name="Remove Performance team").click()
        expect(ada.locator("#rules")).to_contain_text("Nobody is notified yet")


def test_a_size_is_a_percentage() -> None:
    assert (_fraction(""), _fraction("5 %")) == (None, 0.05)
    with pytest.raises(BadRequest):
        _fraction("much")
