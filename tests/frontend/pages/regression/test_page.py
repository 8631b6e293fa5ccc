"""Who takes a regression is a person with a name."""

from __future__ import annotations

import pytest
from frontend_people import MINE, add_projects, signed_in
from frontend_site import Site
from playwright.sync_api import Browser, expect
from sqlalchemy import text

from tests.backend.people_of_tests import person


@pytest.fixture
def site(own_site: Site) -> Site:
    add_projects(own_site)
    return own_site


@pytest.mark.browser
def test_a_triager_assigns_a_regression_to_a_person_by_name(site: Site, browser: Browser) -> None:
    with site.engine.begin() as c:
        c.execute(text("INSERT INTO testbed (name) VALUES ('lab') ON CONFLICT DO NOTHING"))
        number = c.scalar(
            text(
                """INSERT INTO regression (project_id, testbed_id, state, first_bad_position)
                   SELECT p.id, t.id, 'confirmed', 5 FROM project p, testbed t WHERE p.slug = :slug AND t.name = 'lab'
                   RETURNING id"""
            ),
            {"slug": MINE},
        )
        person(c, "bob@example.org", northsea_loom="submitter")
    with signed_in(site, browser, "ada@example.org", northsea_loom="triager") as ada:
        ada.goto(f"{site.url}/regressions/{number}")
        ada.get_by_label("Who takes it").select_option("bob@example.org")
        ada.get_by_role("button", name="Assign").click()
        aside = ada.get_by_role("complementary", name="Triage")
        expect(aside.locator("dl")).to_contain_text("Bob")
        expect(aside.locator("ol")).to_contain_text("for Bob")
        expect(aside.locator("ol")).to_contain_text("Ada")
    with signed_in(site, browser, "bob@example.org", northsea_loom="submitter") as bob:
        bob.goto(f"{site.url}/regressions/{number}")
        expect(bob.get_by_role("button", name="Take it")).to_have_count(0)
