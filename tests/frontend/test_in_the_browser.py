"""Jobs of people, done in a real Chromium on data that went through the real API and the real judge."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import frontend_history as history
import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from frontend_site import Site, free_port, serving, wait_for
from frontend_trickle import WATCH_SHIFTS
from playwright.sync_api import Page, expect

from tidemark import __version__

pytestmark = pytest.mark.browser

PROJECT = "northsea/loom"
GUILTY = 18
MANIFEST = '[suite.coll]\ncommand = "make bench"\ntestbeds = ["cpu"]\ntimeout_s = 60\n'
Enter = Callable[..., Any]


def number_of_the_regression(site: Site) -> int:
    found = site.client.get(
        "/api/v1/regressions", params={"project": PROJECT, "state": "confirmed,acknowledged"}
    ).json()
    number: int = found["items"][0]["id"]
    return number


def live(page: Page) -> None:
    expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=10_000)


def drawn(page: Page, chart: str) -> None:
    """The chart is there, and hears what is done with it."""
    expect(page.locator(chart)).to_have_attribute("data-drawn", "1", timeout=15_000)


def test_from_the_red_cell_to_commit_phase_and_command_in_two_clicks(loom: Site, visit: Enter) -> None:
    page = visit(loom).open("/board")
    guilty = loom.commits[PROJECT][GUILTY]
    page.locator(f"tr[data-c='{guilty.sha}'] td.vc.r a").first.click()
    expect(page.locator("h1")).to_contain_text(guilty.sha[:7])
    expect(page.locator("h1")).to_contain_text("slower")
    expect(page.locator("tr.guilty")).to_contain_text(guilty.sha[:7])
    expect(page.locator("#phases header")).to_contain_text("forward carries")
    page.get_by_role("button", name="Copy y").click()
    expect(page.locator(".toast")).to_have_text("Command copied")
    assert guilty.sha in page.evaluate("navigator.clipboard.readText()")


def test_pointing_at_a_cell_shows_three_facts_and_the_way_on(loom: Site, visit: Enter) -> None:
    page = visit(loom).open("/board")
    cell = page.locator("td.vc.r").first
    cell.hover()
    pop = page.locator(".pop")
    expect(pop).to_contain_text("slower")
    assert pop.locator("dt").all_text_contents() == ["Value", "Where", "Cause"]
    expect(pop).to_contain_text("was 5.46")
    expect(pop).to_contain_text("forward +")
    expect(pop.locator("svg")).to_be_visible()
    box, over = cell.bounding_box(), pop.bounding_box()
    assert box is not None and over is not None
    covered = (
        over["y"] < box["y"] + box["height"]
        and box["y"] < over["y"] + over["height"]
        and over["x"] < box["x"] < over["x"] + over["width"]
    )
    assert not covered, "the details cover their own cell"
    assert [each["id"] for each in Axe().run(page, options=EVERY_RULE).response["violations"]] == []


def test_details_that_cannot_be_read_say_so_and_can_be_asked_for_again(loom: Site, visit: Enter) -> None:
    reader = visit(loom)
    page = reader.open("/board")
    page.route("**/board/cell?*", lambda route: route.abort())
    page.locator("td.vc.r").first.hover()
    expect(page.locator(".pop")).to_contain_text("could not be read")
    page.unroute("**/board/cell?*")
    page.locator(".pop [data-again]").click()
    expect(page.locator(".pop")).to_contain_text("slower")
    page.wait_for_timeout(100)  # until the console has complained of what failed
    reader.complaints[:] = [each for each in reader.complaints if "ERR_FAILED" not in each]


def test_details_stay_away_while_the_page_scrolls_under_the_pointer(loom: Site, visit: Enter) -> None:
    page = visit(loom, height=500).open("/board")
    box = page.locator("td.vc.r").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 5, min(box["y"], 470))
    for _ in range(6):
        page.mouse.wheel(0, 60)
        page.wait_for_timeout(60)
    page.wait_for_timeout(400)
    assert page.locator(".pop").count() == 0


def test_back_returns_to_the_place_one_left(loom: Site, visit: Enter) -> None:
    page = visit(loom, height=500).open("/board")
    cell = page.locator("td.vc.r").first
    cell.scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    cell.click()
    page.wait_for_url("**/regressions/*")
    page.go_back()
    expect(page.locator("td.vc.r").first).to_be_focused()
    assert before > 0 and page.evaluate("scrollY") == before


def test_the_page_is_the_only_thing_that_scrolls_and_prints_every_row(loom: Site, visit: Enter) -> None:
    page = visit(loom, height=500).open("/board")
    inner = "[...document.querySelectorAll('#gw, .gframe')].filter((each) => each.scrollHeight > each.clientHeight + 2)"
    assert page.evaluate(f"{inner}.length") == 0
    expect(page.locator(".key")).to_be_in_viewport()
    page.emulate_media(media="print")
    rows = page.locator("#grid tbody tr[data-c]")
    assert all(row.is_visible() for row in (rows.first, rows.last))


def test_the_grid_is_walked_with_the_keyboard_alone(loom: Site, visit: Enter) -> None:
    page = visit(loom).open("/board")
    live(page)
    page.locator("#main").focus()
    page.keyboard.press("]")
    red = page.locator("td.c:focus")
    expect(red).to_have_class(re.compile(r"\br\b"))
    expect(red).to_have_attribute("aria-label", re.compile("regression, starts here"))
    expect(page.locator(".pop")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".pop")).to_have_count(0)
    page.keyboard.press("ArrowDown")
    below = page.locator("td.c:focus")
    expect(below).to_have_class(re.compile(r"\bs\b"))
    expect(below).to_have_attribute("aria-label", re.compile("unchanged"))
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/regressions/\d+$"))


def test_a_token_is_made_shown_once_and_revoked(own_site: Site, visit: Enter) -> None:
    page = visit(own_site, signed_in=True).open("/settings")
    page.get_by_label("Who uses the token").fill("nightly <ci>")
    page.get_by_label("write").check()
    page.get_by_role("button", name="Make a token").click()
    secret = page.locator("#made").inner_text()
    assert httpx.get(f"{own_site.url}/api/v1/queue", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    page.goto(own_site.url + "/settings")
    assert secret not in page.content()
    page.get_by_role("button", name="Revoke nightly <ci>").click()
    expect(page.get_by_text("revoked")).to_be_visible()
    assert httpx.get(f"{own_site.url}/api/v1/queue", headers={"Authorization": f"Bearer {secret}"}).status_code == 401


def test_keys_lead_from_page_to_page_and_can_be_turned_off(loom: Site, visit: Enter) -> None:
    page = visit(loom).open("/board")
    live(page)
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(page).to_have_url(re.compile("/regressions"))
    live(page)  # the page's scripts are at work
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.get_by_label("One-letter keys are on").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.wait_for_timeout(300)
    expect(page).to_have_url(re.compile("/regressions"))


def test_filters_are_kept_under_a_name_in_this_browser(loom: Site, visit: Enter) -> None:
    page = visit(loom).open("/regressions?state=open&suite=moe")
    page.locator("#saved summary").click()
    page.get_by_label("Name of what is shown now").fill('moe <open> "now"')
    page.get_by_role("button", name="Keep").click()
    page.goto(loom.url + "/regressions")
    page.locator("#saved summary").click()
    page.get_by_role("link", name='moe <open> "now"').click()
    expect(page).to_have_url(re.compile(r"state=open&suite=moe"))
    page.locator("#saved summary").click()
    page.get_by_role("button", name="Forget moe").click()
    expect(page.locator("#saved-list li")).to_have_count(0)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator("#saved-list li")).to_have_count(1)
    page.goto(loom.url + "/board")
    page.locator("#saved summary").click()
    expect(page.locator("#saved-none")).to_be_visible()  # each page has its own


def test_the_theme_is_kept_and_the_address_can_override_it(loom: Site, visit: Enter) -> None:
    reader = visit(loom)
    page = reader.open("/board")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(23, 27, 33)"
    page.get_by_role("button", name="Switch theme").click()
    page.goto(loom.url + "/workers")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(14, 17, 21)"
    page.goto(loom.url + "/workers?theme=light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def test_a_regression_is_taken_noted_and_closed_with_a_reason(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    commits = history.make_repository(tmp_path / "small", 14)
    own_site.add_project(PROJECT, tmp_path / "small", commits)
    own_site.deliver(PROJECT, "coll", steps=(history.Step("coll.all_reduce", 9, 1.3),))
    number = number_of_the_regression(own_site)
    page = visit(own_site, signed_in=True).open("/regressions")
    expect(page.locator(".sec").first).to_contain_text("Unassigned")
    page.get_by_label(f"Select R-{number}").check()
    page.get_by_role("button", name="Take a").click()
    expect(page.locator(".sec").first).to_contain_text("Assigned")
    page.get_by_role("link", name=re.compile("coll.all_reduce")).first.click()
    expect(page.locator("aside")).to_contain_text("acknowledged")
    page.get_by_label("Comment").fill("<b>seen</b> by me")
    page.get_by_role("button", name="Comment").click()
    expect(page.locator(".log")).to_contain_text("“<b>seen</b> by me”")
    page.locator("summary", has_text="Close as").click()
    page.get_by_role("button", name="Expected").click()
    expect(page.locator(".toast")).to_contain_text("A reason is needed")
    page.get_by_label("Reason (both teach the detector)").fill("larger batches, on purpose")
    page.get_by_role("button", name="Expected").click()
    expect(page.locator("h1")).to_contain_text("accepted as expected")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("h1")).not_to_contain_text("accepted as expected")


def test_what_was_done_in_bulk_can_be_undone(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    commits = history.make_repository(tmp_path / "bulk", 14)
    own_site.add_project("a/bulk", tmp_path / "bulk", commits)
    step = history.Step("coll.all_reduce", 9, 1.3)
    own_site.deliver("a/bulk", "coll", steps=(step,))
    page = visit(own_site, signed_in=True).open("/regressions?project=a/bulk")
    page.get_by_label("Select all").check()
    expect(page.locator("#selected")).to_have_text("1 selected")
    page.locator("#bulk").get_by_role("button", name="Take").click()
    expect(page.locator("#done")).to_contain_text("1 regression taken")
    expect(page.locator(".sec").first).to_contain_text("Assigned")
    expect(page).not_to_have_url(re.compile("done="))  # a copied address does not tell it again
    page.locator("#done").get_by_role("button", name="Undo").click()
    expect(page.locator(".sec").first).to_contain_text("Unassigned")
    expect(page.locator("#done")).to_have_count(0)
    page.get_by_label("Select all").check()
    page.locator("#bulk-owner").fill("p.sharma")
    page.locator("#bulk").get_by_role("button", name="Assign").click()
    expect(page.locator("#done")).to_contain_text("1 regression assigned")
    expect(page.locator(".c-who").first).to_contain_text("p.sharma")
    page.get_by_label("Select all").check()
    page.locator("#bulk").get_by_role("button", name="Bisect").click()
    expect(page.locator("#done")).to_contain_text("1 cannot be")  # its results came from elsewhere
    page.goto(own_site.url + "/regressions?project=a/bulk&state=closed")
    expect(page.get_by_label("Select all")).to_have_count(0)


def test_an_open_board_turns_red_by_itself_and_nothing_moves(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    commits = history.make_repository(tmp_path / "live", 12)
    own_site.add_project(PROJECT, tmp_path / "live", commits)
    step = (history.Step("coll.all_reduce", 8, 1.3),)
    for commit in commits[:9]:
        own_site.put(history.run_document(PROJECT, commit, "coll", steps=step))
    reader = visit(own_site)
    reader.context.add_init_script(WATCH_SHIFTS)
    page = reader.open("/board")
    live(page)
    page.evaluate("window.untouched = true")
    for commit in commits[9:]:
        own_site.put(history.run_document(PROJECT, commit, "coll", steps=step))
    red = page.locator(f"tr[data-c='{commits[8].sha}'] td.vc.r")
    expect(red).to_have_count(2, timeout=10_000)
    expect(page.locator(f"tr[data-c='{commits[11].sha}'] td.vc.t")).to_have_count(2)
    expect(page.locator("#strip")).to_contain_text("1 unassigned")
    assert page.evaluate("window.untouched"), "the page was loaded again"
    assert page.evaluate("window.shifts") == []


def test_the_first_result_opens_the_board_before_ones_eyes(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    commits = history.make_repository(tmp_path / "first", 3, manifest=MANIFEST)
    page = visit(own_site).open("/")
    live(page)
    expect(page.locator("#steps")).to_contain_text("Connect a project")
    own_site.add_project(PROJECT, tmp_path / "first", commits)
    page.goto(own_site.url + "/")
    live(page)
    expect(page.locator("#steps")).to_contain_text(f"Project connected: {PROJECT}")
    expect(page.locator("#steps .now")).to_contain_text("Start a worker for cpu")
    worker = {"name": "cpu-01", "testbed": "cpu", "version": __version__, "capabilities": {}, "protection": "user"}
    assert own_site.client.post("/api/v1/workers", json=worker).status_code == 200
    expect(page.locator("#steps .now")).to_contain_text("First results", timeout=10_000)
    own_site.put(history.run_document(PROJECT, commits[0], "coll"))
    expect(page.locator("#grid")).to_be_visible(timeout=10_000)


def test_new_commits_enter_the_board(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    commits = history.make_repository(tmp_path / "grow", 4)
    own_site.add_project(PROJECT, tmp_path / "grow", commits)
    own_site.deliver(PROJECT, "coll")
    page = visit(own_site).open("/board")
    live(page)
    expect(page.locator("tr[data-c]")).to_have_count(4)
    history.add_commit(tmp_path / "grow", "feat: one more")
    own_site.sync(PROJECT)
    expect(page.locator("tr[data-c]")).to_have_count(5, timeout=10_000)
    expect(page.locator("tr[data-c]").first).to_contain_text("feat: one more")


def test_a_page_comes_back_to_life_when_the_service_does(
    template: str, own_site: Site, visit: Enter, tmp_path: Path
) -> None:
    commits = history.make_repository(tmp_path / "again", 5)
    own_site.add_project(PROJECT, tmp_path / "again", commits)
    for commit in commits[:4]:
        own_site.put(history.run_document(PROJECT, commit, "coll"))
    other = free_port()
    reader = visit(own_site)
    with serving(own_site.engine, own_site.config, other):
        page = reader.page()
        page.goto(f"http://127.0.0.1:{other}/board")
        live(page)
    expect(page.locator("#live")).to_have_attribute("data-state", "lost", timeout=10_000)
    expect(page.locator("#live")).to_contain_text("Not live since")
    own_site.put(history.run_document(PROJECT, commits[4], "coll"))
    with serving(own_site.engine, own_site.config, other):
        live(page)
        expect(
            page.locator(f"tr[data-c='{commits[4].sha}'] td.vc.n, tr[data-c='{commits[4].sha}'] td.vc.s")
        ).to_have_count(2, timeout=10_000)
    reader.complaints.clear()  # the browser itself reports the lost connection


def test_a_run_is_watched_from_the_queue_to_its_failure(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    commits = history.make_repository(tmp_path / "watched", 2, manifest=MANIFEST)
    own_site.add_project(PROJECT, tmp_path / "watched", commits)
    waiting = own_site.client.get("/api/v1/queue").json()["items"]
    run = next(item["run_id"] for item in waiting if item["sha"] == commits[1].sha)
    page = visit(own_site).open(f"/runs/{run}")
    live(page)
    expect(page.locator("h1")).to_contain_text("waits for a worker")
    worker = {"worker": "cpu-01", "testbed": "cpu", "version": __version__, "capabilities": {}, "protection": "user"}
    registered = {"name": "cpu-01", **{key: value for key, value in worker.items() if key != "worker"}}
    assert own_site.client.post("/api/v1/workers", json=registered).status_code == 200
    leased = own_site.client.post(f"/api/v1/runs/{run}/lease", json=worker)
    assert leased.status_code == 200, leased.text
    at = "2026-11-20T10:00:00Z"
    events = [
        {"at": at, "kind": "state", "detail": {"state": "running", "step": "execute"}},
        {"at": at, "kind": "progress", "detail": {"done": 2, "total": 5, "note": "second of five", "eta_s": 840}},
        {
            "at": at,
            "kind": "log",
            "detail": {"stream": "stdout", "lines": ["<b>compiling</b>", "\u001b[31mred\u001b[0m"]},
        },
    ]
    told = own_site.client.post(f"/api/v1/runs/{run}/events", json={"lease": leased.json()["lease"], "events": events})
    assert told.status_code == 200, told.text
    expect(page.locator("#lines")).to_contain_text("<b>compiling</b>")
    expect(page.locator("#lines")).to_contain_text("red")
    expect(page.locator("#status")).to_contain_text("40 %")
    expect(page.locator("#status")).to_contain_text("~14 min left")
    failed = history.run_document(
        PROJECT, commits[1], "coll", whole_run_failed=True, failed="the benchmark wrote no result"
    )
    failed |= {"id": run}
    answer = own_site.client.put(f"/api/v1/runs/{run}", json=failed, headers={"Tidemark-Lease": leased.json()["lease"]})
    assert answer.status_code == 201, answer.text
    expect(page.locator("h1")).to_contain_text("the benchmark wrote no result", timeout=10_000)


def test_tabs_share_one_stream(loom: Site, visit: Enter) -> None:
    reader, hub = visit(loom), loom.server.config.app.state.hub
    wait_for(lambda: hub.open_streams == 0)  # of pages that were closed a moment ago
    pages = [reader.open("/board"), reader.open("/workers"), reader.open("/regressions")]
    for page in pages:
        live(page)
    assert hub.open_streams == 1


def test_the_trend_is_drawn_and_its_zoom_kept_in_the_address(loom: Site, visit: Enter) -> None:
    page = visit(loom).open(f"/regressions/{number_of_the_regression(loom)}")
    expect(page.locator("#trend-chart .scatterlayer .points path").nth(19)).to_be_visible(timeout=15_000)
    page.get_by_role("link", name="Series s").click()
    drawn(page, "#trend")
    page.evaluate("Plotly.relayout(document.querySelector('#trend'), {'xaxis.range': [5, 12]})")
    expect(page).to_have_url(re.compile(r"zoom=5~12|zoom=5%7E12"))
    page.reload()
    drawn(page, "#trend")
    assert page.evaluate("document.querySelector('#trend').layout.xaxis.range") == [5, 12]


def test_every_point_of_a_series_says_why(loom: Site, visit: Enter) -> None:
    page = visit(loom).open(f"/regressions/{number_of_the_regression(loom)}")
    page.get_by_role("link", name="Series s").click()
    page.get_by_role("link", name=re.compile(r"^why")).nth(5).click()
    expect(page.locator("#why")).to_contain_text("against")
    expect(page.locator("#why")).to_contain_text("baseline")


def test_another_gate_can_be_tried(loom: Site, visit: Enter) -> None:
    page = visit(loom).open(f"/regressions/{number_of_the_regression(loom)}")
    page.get_by_role("link", name="Series s").click()
    says = page.locator("#gate-says")
    expect(says).to_contain_text("as it is now: 1 regression of this series")
    page.locator("#gate").fill("30")
    expect(says).to_contain_text(re.compile(r"0 regressions instead of 1\. No longer: R-\d+ ▼"))
    expect(page.locator("#gate-toml")).to_contain_text("min_change = 0.3")


def test_a_suite_is_a_chart_whose_points_lead_to_their_series(loom: Site, visit: Enter) -> None:
    page = visit(loom).open("/board")
    page.get_by_role("link", name="moe", exact=True).last.click()
    expect(page.locator("h1")).to_contain_text("slower now")
    expect(page.locator("#curve-0 .main-svg").first).to_be_visible(timeout=15_000)
    page.get_by_role("link", name=re.compile("slower now")).first.click()
    expect(page).to_have_url(re.compile(r"/regressions/\d+$"))
    page.locator("#roofline").scroll_into_view_if_needed()
    expect(page.locator("#roofline-chart .main-svg").first).to_be_visible(timeout=15_000)


def test_why_a_variant_does_not_apply_is_told_where_one_points(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    commits = history.make_repository(tmp_path / "partly", 2)
    own_site.add_project("a/partly", tmp_path / "partly", commits)
    for commit in commits:
        document = history.run_document("a/partly", commit, "attn")
        never = {"benchmark": "attn.train", "variant": {"backend": "cudnn"}, "preset": "cpu", "measurements": []}
        document["results"].append(never | {"status": "not_applicable", "error": "no <b>kernel</b> for a CPU"})
        own_site.put(document)
    page = visit(own_site).open("/board?project=a/partly&lens=all")
    page.locator("tr[data-c]").first.locator("td.x.vc").hover()
    expect(page.locator(".pop")).to_contain_text("no <b>kernel</b> for a CPU")
    expect(page.locator(".pop")).to_contain_text("not applicable")


def test_five_thousand_columns_fold_to_their_worst_verdicts(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    """Twenty-five suites of two hundred variants: one column a suite, until it is opened."""
    commits = history.make_repository(tmp_path / "vast", 2)
    own_site.add_project("a/vast", tmp_path / "vast", commits)
    suites = [f"s{number:02d}" for number in range(25)]
    variants = {suite: tuple((f"{suite}.op", {"n": n}, 1.0 + n / 100) for n in range(200)) for suite in suites}
    for suite in suites:
        own_site.put(history.run_document("a/vast", commits[-1], suite, variants=variants, metrics=("step_ms",)))
    page = visit(own_site).open("/board?project=a/vast&lens=all")
    expect(page.locator("td.roll.wide")).to_have_count(25 * 2)
    expect(page.locator("td.vc")).to_have_count(0)
    page.get_by_role("link", name=re.compile("^s07")).first.click()
    expect(page.locator("tr[data-c]").first.locator("td.vc")).to_have_count(200)
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()


def test_two_commits_are_compared(loom: Site, visit: Enter) -> None:
    page = visit(loom).open("/compare")
    page.get_by_role("combobox", name="Base").fill(loom.commits[PROJECT][GUILTY - 1].sha[:10])
    page.get_by_role("combobox", name="Head").fill(loom.commits[PROJECT][GUILTY].sha[:10])
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("h1")).to_contain_text("slower")
    expect(page.get_by_role("link", name=re.compile("moe.layer")).first).to_be_visible()
    page.get_by_role("button", name="Copy as Markdown").click()
    expect(page.locator(".toast")).to_contain_text("copied")
    assert "| moe.layer" in page.evaluate("navigator.clipboard.readText()")


@pytest.mark.parametrize("width", [730, 768, 850])
def test_the_bar_fits_a_tablet(loom: Site, visit: Enter, width: int) -> None:
    page = visit(loom, width=width, height=900).open("/board")
    for path in ("/board", f"/regressions/{number_of_the_regression(loom)}", "/series/1"):
        page.goto(loom.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_the_board_fits_a_phone(loom: Site, visit: Enter) -> None:
    page = visit(loom, width=390, height=800).open("/board")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(page.locator("td.roll.r")).to_have_count(2)  # of moe and, once, of gpt
    expect(page.locator("td.vc").first).not_to_be_visible()
    for path in (
        f"/regressions/{number_of_the_regression(loom)}", "/regressions", "/series/1", "/series", "/workers",
        "/compare", "/rule", "/", "/suites/moe", "/suites/gpt?benchmark=gpt.train&all=1", "/settings",
        "/search?q=router", "/pull-requests", "/measuring", "/workers/cpu-01",
        f"/runs/northsea-loom-moe-{loom.commits[PROJECT][GUILTY].sha[:12]}-0",
    ):  # fmt: skip
        page.goto(loom.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_pages_work_without_scripts(loom: Site, visit: Enter) -> None:
    page = visit(loom, java_script_enabled=False).open("/board")
    page.locator("td.vc.r a").first.click()
    expect(page.locator("h1")).to_contain_text("slower")
    page.locator(".bar nav").get_by_role("link", name="Board").click()
    page.locator("#filter").fill("router")
    page.locator("#filter").press("Enter")
    expect(page.locator("tr[data-c]").first).to_contain_text("router")


AXE_PAGES = (
    "/",
    "/?range=24h",
    "/board",
    "/board?lens=suites",
    "/regressions",
    "/series",
    "/suites/moe",
    "/compare",
    "/workers",
    "/workers/cpu-01",
    "/rule",
    "/search?q=router",
    "/settings",
    "/settings/members",
    "/settings/notifications",
    "/settings/audit",
    "/account",
    "/connect",
    "/pull-requests",
    "/measuring",
    "/sign-in",
    "/nothing-here",
    "REGRESSION",
    "SERIES",
    "RUN",
)
# A theme changes colours and nothing else; the other rules answer for both.
EVERY_RULE = {"resultTypes": ["violations"]}
RULES_OF_COLOURS = {**EVERY_RULE, "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}


@pytest.mark.parametrize(("theme", "rules"), [("light", EVERY_RULE), ("dark", RULES_OF_COLOURS)], ids=["light", "dark"])
def test_no_page_breaks_an_accessibility_rule(loom: Site, visit: Enter, theme: str, rules: dict[str, object]) -> None:
    reader = visit(loom, signed_in=True)
    guilty = loom.commits[PROJECT][GUILTY]
    real = {
        "REGRESSION": f"/regressions/{number_of_the_regression(loom)}",
        "SERIES": "/series/1",
        "RUN": f"/runs/northsea-loom-moe-{guilty.sha[:12]}-0",
    }
    page = reader.page()
    found: list[str] = []
    for path in AXE_PAGES:
        address = real.get(path, path)
        page.goto(f"{loom.url}{address}{'&' if '?' in address else '?'}theme={theme}")
        page.wait_for_timeout(150)
        results = Axe().run(page, options=rules)
        found += [
            f"{path}: {violation['id']} {[node['html'][:160] for node in violation['nodes'][:3]]}"
            for violation in results.response["violations"]
        ]
    reader.complaints[:] = [each for each in reader.complaints if "404" not in each]
    assert found == []
