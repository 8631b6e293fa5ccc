"""Phones: nothing runs over the edge, triage is in reach, a chart keeps its axes; and pages without scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from frontend_site import Site
from playwright.sync_api import Route, expect

PROJECT = "northsea/loom"
Enter = Callable[..., Any]
OVER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
PAGES = (
    "/", "/board", "/regressions", "/series", "/series/1", "/compare", "/workers", "/measuring", "/pull-requests",
    "/rule", "/search?q=moe", "/settings", "/settings/members", "/settings/notifications", "/settings/audit",
    "/account", "/connect", f"/connect?project={PROJECT}",
)  # fmt: skip


def open_case(site: Site) -> str:
    listed = site.client.get("/api/v1/regressions", params={"project": PROJECT, "state": "open"}).json()["items"]
    return f"/regressions/{listed[0]['id']}"


@pytest.mark.browser
def test_no_page_runs_over_the_edge_of_320_pixels(loom: Site, visit: Enter) -> None:
    page = visit(loom, signed_in=True, width=320, height=640).page()
    over = {}
    for path in (*PAGES, open_case(loom)):
        page.goto(loom.url + path)
        over[path] = page.evaluate(OVER)
    assert {path: by for path, by in over.items() if by > 0} == {}


@pytest.mark.browser
def test_triage_stays_in_reach_while_one_reads_on_a_phone(loom: Site, visit: Enter) -> None:
    page = visit(loom, signed_in=True, width=390, height=800).open(open_case(loom))
    reach = page.get_by_role("form", name="Quick triage")
    for top in (0, 900):
        page.evaluate(f"scrollTo(0, {top})")
        expect(reach.get_by_role("button", name="Take it")).to_be_in_viewport()
    reach.get_by_role("link", name="Triage").click()
    expect(page.get_by_role("button", name="Assign")).to_be_in_viewport()


@pytest.mark.browser
def test_a_chart_on_a_phone_keeps_both_axes_and_the_size_of_its_letters(loom: Site, visit: Enter) -> None:
    page = visit(loom, width=390, height=800).open(open_case(loom))
    page.locator("#trend-chart[data-drawn]").wait_for()
    for tick in ("g.ytick text", "g.xtick text"):
        first = page.locator(f"#trend-chart {tick}").first
        first.scroll_into_view_if_needed()
        expect(first).to_be_in_viewport()
        assert first.evaluate("each => each.getBoundingClientRect().height") >= 9
    assert page.evaluate("document.querySelector('.chx').scrollWidth <= document.querySelector('.chx').clientWidth")


@pytest.mark.browser
def test_without_scripts_a_page_says_what_is_missing_and_leads_to_the_table(loom: Site, visit: Enter) -> None:
    # Where an emulation has turned scripts off, Chromium does not lay out what <noscript> holds: it is unwrapped here.
    def unwrapped(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace("noscript>", "div>"))

    page = visit(loom, java_script_enabled=False).page()
    page.route(re.compile("/(regressions|series)/[0-9]+"), unwrapped)
    page.goto(loom.url + open_case(loom))
    expect(page.get_by_text("Scripts are off.")).to_be_visible()
    page.get_by_role("link", name="in a table").click()
    expect(page.get_by_role("table", name="Points of")).to_be_visible()
