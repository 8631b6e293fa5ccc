"""Nothing moves once it is painted: every page, wide and narrow, read over a line that delivers it in pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from frontend_site import Site, wait_for
from frontend_trickle import WATCH_SHIFTS, ends_of_tags, slow_line, spread
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

HOLDS_BACK = b'<link rel="expect" href="#whole" blocking="render">'
PROJECT, GUILTY = "northsea/loom", 18
Enter = Callable[..., Any]


def addresses(site: Site) -> list[str]:
    guilty = site.commits[PROJECT][GUILTY].sha
    asked = {"project": PROJECT, "state": "confirmed,acknowledged"}
    regression = site.client.get("/api/v1/regressions", params=asked).json()["items"][0]["id"]
    return [
        "/board", "/board?q=nobody", "/regressions", f"/regressions/{regression}", "/series", "/series/1", "/",
        "/suites/moe", "/compare", f"/compare?head={guilty}", "/workers", "/workers/cpu-01", "/rule",
        "/search?q=router", "/settings", "/pull-requests", "/measuring", "/sign-in", "/nothing-here",
        f"/runs/northsea-loom-moe-{guilty[:12]}-0",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [1440, 400])
def test_no_page_moves_while_it_comes_in_pieces(loom: Site, visit: Enter, width: int) -> None:
    reader = visit(loom, width=width, signed_in=True)
    reader.context.add_init_script(WATCH_SHIFTS)
    moved: list[str] = []
    with slow_line(loom.url, cuts=8) as slow:
        for path in addresses(loom):
            page = reader.page()
            assert slow.open(page, path) > 5
            expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=10_000)
            for chart in page.locator("[data-figure]").all():  # they are drawn when one comes near
                chart.scroll_into_view_if_needed()
                expect(chart.locator(".main-svg").first).to_be_visible(timeout=15_000)
            moved += [f"{path}: {shift}" for shift in page.evaluate("window.shifts")]
            page.close()
    reader.complaints[:] = [each for each in reader.complaints if "404" not in each]
    assert moved == []


def test_the_slow_line_shows_what_moves(loom: Site, visit: Enter) -> None:
    """Without the mark that holds back the first paint a bar grows leftwards, piece by piece."""
    reader = visit(loom)
    reader.context.add_init_script(WATCH_SHIFTS)
    with slow_line(loom.url, cuts=40, without=HOLDS_BACK) as slow:
        page = reader.page()
        slow.open(page, "/board", unpainted_ms=1000)
        wait_for(lambda: any("find" in shift for shift in page.evaluate("window.shifts")))  # told of a moment later


def test_a_page_whose_line_stalls_shows_what_has_come(loom: Site, visit: Enter) -> None:
    page = visit(loom).page()
    with slow_line(loom.url, cuts=8) as slow:
        page.goto(f"{slow.url}/rule", wait_until="commit")
        wait_for(lambda: page.evaluate("performance.getEntriesByType('paint').length > 0"))
        assert page.locator("#whole").count() == 0, "all of it had come"


def test_a_page_is_cut_between_its_elements_and_never_within_text_that_is_no_markup() -> None:
    html = b"<head><title>a</title></head><body><p>x</p><script>if (1 < 2) { '<b>' }</script><b>y</b></body>"
    ends = ends_of_tags(html)
    assert [html[:end].rpartition(b"<")[2] for end in ends] == [b"body>", b"p>", b"/p>", b"b>", b"/b>"]
    assert spread([1, 2, 3, 4, 5], 3) == [1, 3, 5]
