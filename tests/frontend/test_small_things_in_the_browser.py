"""Small things that people trip over: half-filled forms, traces, folded suites, keys in wide grids, sizes of steps."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import frontend_history as history
import pytest
from axe_playwright_python.sync_playwright import Axe
from frontend_site import Site
from playwright.sync_api import Route, expect

pytestmark = pytest.mark.browser

PROJECT = "northsea/loom"
GUILTY, FIXED_AT = 18, 16
MANIFEST = '[suite.coll]\ncommand = "make bench"\ntestbeds = ["cpu"]\ntimeout_s = 60\n'
# What a tab of Perfetto does by its documented protocol: PONG to a PING, then it takes the trace.
PERFETTO = """<!doctype html><title>waits</title><script>
addEventListener("message", async ({ data, source, origin }) => {
  if (data === "PING") source.postMessage("PONG", origin);
  else if (data.perfetto) document.title = `${data.perfetto.title}: ${data.perfetto.buffer.byteLength}`;
});</script>"""
Enter = Callable[..., Any]


def test_a_half_filled_form_outlives_what_happens_meanwhile(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    commits = history.make_repository(tmp_path / "form", 3, manifest=MANIFEST)
    own_site.add_project("a/form", tmp_path / "form", commits)
    page = visit(own_site, signed_in=True).open("/measuring?project=a/form")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.locator("#backfills input[name=suite]").fill("coll")
    page.locator("#backfills input[name=since]").focus()
    page.locator("body").click(position={"x": 5, "y": 300})
    with page.expect_response(re.compile("/measuring")):
        own_site.put(history.run_document("a/form", commits[0], "coll"))
    page.wait_for_timeout(200)
    expect(page.locator("#backfills input[name=suite]")).to_have_value("coll")


def run_with_a_trace(site: Site, directory: Path) -> tuple[str, bytes]:
    commits = history.make_repository(directory / "traced", 1)
    site.add_project("a/traced", directory / "traced", commits)
    document = history.run_document("a/traced", commits[0], "coll")
    site.put(document)
    trace = gzip.compress(json.dumps({"traceEvents": []}).encode())
    answer = site.client.put(
        f"/api/v1/runs/{document['id']}/artifacts/step.trace.json.gz",
        content=trace,
        headers={"Content-Type": "application/gzip"},
    )
    assert answer.status_code in (200, 201), answer.text
    return f"/runs/{document['id']}", trace


def test_a_trace_is_handed_to_perfetto_by_a_click(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    address, trace = run_with_a_trace(own_site, tmp_path)
    reader = visit(own_site)

    def answer(route: Route) -> None:
        route.fulfill(status=200, content_type="text/html", body=PERFETTO)

    reader.context.route("https://ui.perfetto.dev/**", answer)
    page = reader.open(address)
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Open in Perfetto").click()
    expect(opened.value).to_have_title(re.compile(rf"step\.trace\.json\.gz of .*: {len(trace)}$"), timeout=10_000)


def test_without_a_network_the_trace_can_still_be_had(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    address, _ = run_with_a_trace(own_site, tmp_path)
    reader = visit(own_site)
    reader.context.route("https://ui.perfetto.dev/**", lambda route: route.abort())
    reader.context.add_init_script("performance.now = ((real) => () => real() * 40)(performance.now.bind(performance))")
    page = reader.open(address)
    with page.expect_popup():
        page.get_by_role("link", name="Open in Perfetto").click()
    expect(page.locator(".toast")).to_contain_text("download the trace", timeout=10_000)
    with page.expect_download() as saved:
        page.get_by_role("link", name="step.trace.json.gz", exact=True).click()
    assert saved.value.suggested_filename == "step.trace.json.gz"
    reader.complaints.clear()  # the browser itself reports what it could not reach


def test_what_was_won_stands_at_its_commit_as_on_the_board(loom: Site, visit: Enter) -> None:
    fixed = loom.commits[PROJECT][FIXED_AT]
    page = visit(loom).open("/board?lens=all")
    cell = page.locator(f"tr[data-c='{fixed.sha}'] td.vc.i").first
    size = cell.inner_text().removeprefix("▲")
    cell.hover()
    page.locator(".pop").get_by_role("link", name=re.compile("^Series")).click()
    row = page.locator(f"tr:has(a:text-is('{fixed.sha[:7]}'))")
    expect(row).to_contain_text(f"▲ {size}")
    expect(row).to_contain_text("better than before")


def test_the_last_column_is_one_key_away_and_the_tab_order_holds_one_cell(loom: Site, visit: Enter) -> None:
    page = visit(loom).open("/board?lens=all")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.keyboard.press("]")
    page.keyboard.press("End")
    row = page.locator("tr:has(td.c:focus) td.vc")
    expect(row.last).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(row.last).to_be_focused()
    page.keyboard.press("Home")
    expect(row.first).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(row.nth(1)).to_be_focused()
    expect(page.locator("td.c[tabindex='0']")).to_have_count(1)


def test_what_is_too_wide_for_the_smallest_phone_scrolls_by_itself_and_by_keyboard(loom: Site, visit: Enter) -> None:
    page = visit(loom, signed_in=True, width=320, height=640).page()
    found = loom.client.get("/api/v1/regressions", params={"project": PROJECT}).json()["items"]
    for path in (f"/settings?project={PROJECT}", "/rule", "/series/1", f"/regressions/{found[0]['id']}"):
        page.goto(loom.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
        violations = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(each["id"], [node["html"][:160] for node in each["nodes"]]) for each in violations] == [], path


def test_a_suite_that_was_opened_can_be_folded_again(loom: Site, visit: Enter) -> None:
    page = visit(loom).open("/board?lens=suites")
    page.get_by_role("link", name=re.compile("^moe ·")).click()
    expect(page.locator("tr[data-c]").first.locator("td.vc")).to_have_count(4)
    page.get_by_role("link", name="Fold moe").click()
    expect(page.locator("td.vc")).to_have_count(0)
    expect(page).not_to_have_url(re.compile("open="))


def test_a_series_is_held_against_a_commit_of_the_readers_choice(loom: Site, visit: Enter) -> None:
    guilty = loom.commits[PROJECT][GUILTY]
    good = loom.commits[PROJECT][GUILTY - 1].sha[:7]
    page = visit(loom).open("/board?lens=all")
    page.locator(f"tr[data-c='{guilty.sha}'] td.vc.r").first.hover()
    page.locator(".pop").get_by_role("link", name=re.compile("^Series")).click()
    page.get_by_role("link", name=f"pin {good}").click()
    expect(page.get_by_text(re.compile(r"^Against .*: .* now, .* there: ▼ ?24"))).to_be_visible()
    expect(page.locator("#trend .annotation-text").get_by_text(good)).to_be_visible()
    page.reload()
    page.get_by_role("link", name="Compare, with intervals").click()
    expect(page.locator("h1")).to_contain_text("slower")
    page.go_back()
    page.locator(".chip", has_text="against").click()
    expect(page).not_to_have_url(re.compile("against"))
    page.get_by_label("Against").fill("<b>nothing</b>")
    page.get_by_label("Against").press("Enter")
    expect(page.get_by_text("Nothing to compare it with:")).to_be_visible()
    expect(page.locator("#trend .main-svg").first).to_be_visible(timeout=15_000)
