"""Finding what one looks for: filters that act while one types, the range in force, the ribbon, a long ladder."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import frontend_history as history
import httpx
import pytest
from frontend_site import Site
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

PROJECT = "northsea/loom"
GUILTY = 12
Enter = Callable[..., Any]


def asked(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_the_boards_filter_acts_while_one_types(loom: Site, visit: Enter) -> None:
    page = visit(loom).open(f"/board?project={PROJECT}&cells=change")
    variants = page.locator("#grid thead th[data-k]")
    everything = variants.count()
    page.get_by_text("Filter…").click()
    field = page.locator("#match")
    field.press_sequentially("gpt", delay=20)
    expect(page).to_have_url(re.compile(r"match=gpt$"))  # letters typed slowly have been answered before
    expect(page.locator("#grid thead th[data-k^='moe/']")).to_have_count(0)
    assert 0 < variants.count() < everything
    expect(field).to_be_focused()
    expect(field).to_have_value("gpt")
    assert asked(page) == {"project": [PROJECT], "cells": ["change"], "match": ["gpt"]}
    expect(page.get_by_role("link", name="30 d", exact=True)).to_have_attribute("href", re.compile("match=gpt"))
    field.press_sequentially("nowhere", delay=20)
    expect(page.locator("#quiet")).to_be_visible()
    field.fill("")
    expect(variants).to_have_count(everything)
    expect(page).not_to_have_url(re.compile("match"))
    commits = page.locator("#grid tbody tr[data-c]")
    shown = commits.count()
    page.locator("#filter").press_sequentially("no such commit", delay=20)
    expect(commits).to_have_count(0)
    expect(page.locator("#filter")).to_be_focused()
    carried = page.locator("#board details.menu input[type=hidden][name=q]")
    expect(carried).to_have_value("no such commit")  # "no such com" was answered before, where typing took long
    page.locator("#filter").fill("")
    expect(commits).to_have_count(shown)
    expect(carried).to_have_count(0)
    page.locator("#grid td.c[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#grid td.c:focus")).to_have_count(1)


def test_the_list_of_series_narrows_while_one_types(loom: Site, visit: Enter) -> None:
    page = visit(loom).open(f"/series?project={PROJECT}")
    page.locator("#filter").press_sequentially("moe.model", delay=20)
    expect(page).to_have_url(re.compile(r"q=moe\.model($|&)"))
    expect(page.locator("#found")).not_to_contain_text("moe.layer")
    expect(page.locator("#found")).to_contain_text("moe.model")
    expect(page.locator("#filter")).to_be_focused()
    page.get_by_role("link", name="any", exact=True).click()
    expect(page).to_have_url(re.compile("role=any"))
    assert asked(page)["q"] == ["moe.model"]


def test_a_filter_that_cannot_be_asked_for_says_that_the_list_is_not_filtered(loom: Site, visit: Enter) -> None:
    reader = visit(loom)
    page = reader.open(f"/series?project={PROJECT}")
    shown = page.locator("#found").inner_text()
    page.route(re.compile("q=moe"), lambda route: route.abort())
    page.locator("#filter").fill("moe")
    expect(page.locator(".toast")).to_contain_text("not filtered")
    page.unroute_all()
    page.route(re.compile("q=gpt"), lambda route: route.fulfill(status=503, body="busy"))
    page.locator("#filter").fill("gpt")
    expect(page.locator(".toast")).to_contain_text("503")
    expect(page.locator("#found")).to_have_text(shown, use_inner_text=True)
    reader.complaints.clear()  # the browser itself reports what it could not reach


def test_a_word_that_is_still_being_composed_is_not_asked_for(loom: Site, visit: Enter) -> None:
    page = visit(loom).open(f"/series?project={PROJECT}")
    field = page.locator("#filter")
    field.dispatch_event("compositionstart")
    field.press_sequentially("moe.mo", delay=20)
    page.wait_for_timeout(700)
    assert "q" not in asked(page)
    field.press_sequentially("del", delay=20)
    field.dispatch_event("compositionend")
    expect(page).to_have_url(re.compile(r"q=moe\.model($|&)"))


SLOW_FIRST_BODY = """
const asked = window.fetch;
let answers = 0;
window.fetch = async (...what) => {
  const answer = await asked(...what), text = answer.text.bind(answer);
  if (!answers++) answer.text = () => { asks(); return new Promise((go) => { window.readFirst = go; }).then(text); };
  return answer;
};
let asks;
window.firstCame = new Promise((go) => { asks = go; });
"""


def test_an_earlier_answer_that_is_read_late_changes_nothing_any_more(loom: Site, visit: Enter) -> None:
    page = visit(loom).open(f"/series?project={PROJECT}")
    page.evaluate(f"() => {{{SLOW_FIRST_BODY}}}")
    page.locator("#filter").press_sequentially("moe", delay=20)
    page.evaluate("window.firstCame")
    page.locator("#filter").press_sequentially(".model", delay=20)
    expect(page.locator("#found")).not_to_contain_text("moe.layer")
    expect(page).to_have_url(re.compile(r"q=moe\.model"))
    page.evaluate("window.readFirst()")
    page.evaluate("new Promise((go) => setTimeout(go, 200))")
    expect(page.locator("#found")).not_to_contain_text("moe.layer")
    assert asked(page)["q"] == ["moe.model"]


def test_what_was_asked_before_a_filter_was_typed_changes_nothing_under_ones_hands(
    own_site: Site, visit: Enter, tmp_path: Path
) -> None:
    commits = history.make_repository(tmp_path / "typed", 3)
    own_site.add_project(PROJECT, tmp_path / "typed", commits)
    own_site.deliver(PROJECT, "coll")
    page = visit(own_site).open("/board")
    expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=10_000)
    page.evaluate(f"() => {{{SLOW_FIRST_BODY.replace('text', 'json')}; window.untouched = true;}}")
    own_site.put(history.run_document(PROJECT, commits[2], "moe"))
    page.evaluate("window.firstCame")
    page.locator("#filter").fill("no such commit")
    expect(page.locator("#quiet")).to_be_visible()
    page.evaluate("window.readFirst()")
    page.wait_for_timeout(500)
    assert page.evaluate("window.untouched"), "the page was loaded again"
    expect(page.locator("#filter")).to_be_focused()
    page.locator("#filter").fill("")
    expect(page.locator("tr[data-c]")).to_have_count(3)


def test_the_range_in_force_is_marked_even_where_nobody_chose_one(loom: Site) -> None:
    def marked(**query: str) -> list[str]:
        text = httpx.get(f"{loom.url}/board", params={"project": PROJECT, **query}, timeout=30).text
        group = text.split('aria-label="Time range"', 1)[1].split("</span>", 1)[0]
        return re.findall(r'aria-current="true">([^<]+)<', group)

    assert marked() == ["All"]
    assert marked(range="90d") == ["90 d"]
    assert marked(since="2020-01-01") == []


def test_a_line_of_the_ribbon_leads_to_what_it_speaks_of(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    variants = {"wide": tuple(("wide.op", {"n": n}, 1.0 + n / 100) for n in range(36))}
    commits = history.make_repository(tmp_path / "wide", GUILTY + 4)
    own_site.add_project("a/wide", tmp_path / "wide", commits)
    steps = (history.Step("wide.op", GUILTY, 1.3, only={"n": 7}), history.Step("wide.op", GUILTY, 1.3, only={"n": 8}))
    own_site.deliver("a/wide", "wide", variants=variants, steps=steps)
    page = visit(own_site).open("/board?project=a/wide&lens=all")
    links = page.locator(".rib a")
    (name,) = [each.get_attribute("aria-label") or "" for each in links.all()]
    assert name.startswith("n=7, ") and name.endswith(" and 1 more")
    links.first.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/regressions/\d+$"))
    nothing = own_site.client.get("/board?project=a/wide&lens=all&q=no+such+commit", headers={"accept": "text/html"})
    assert nothing.status_code == 200 and "rib" not in nothing.text


def test_the_slider_of_the_gate_says_where_it_ends_and_reaches_every_change(own_site: Site, tmp_path: Path) -> None:
    commits = history.make_repository(tmp_path / "steep", 10)
    own_site.add_project("a/steep", tmp_path / "steep", commits)
    own_site.deliver("a/steep", "gpt", steps=(history.Step("gpt.train", 8, 2.04, only={"dtype": "fp32"}),))
    found = own_site.client.get("/api/v1/series", params={"project": "a/steep", "role": "gate"}).json()["items"]
    ends = {}
    for series in found:
        text = own_site.client.get(f"/series/{series['id']}", headers={"accept": "text/html"}).text
        (end,) = re.findall(r'<input id="gate" name="gate" type="range" min="1" max="(\d+)" step="0.5"', text)
        assert f"<span>1 %</span><span>{end} %</span>" in text
        ends[series["variant"].get("dtype")] = int(end)
    assert ends == {"bf16": 30, "fp32": 110}


def test_a_size_that_grew_takes_more_memory_in_the_list_of_series(own_site: Site, tmp_path: Path) -> None:
    commits = history.make_repository(tmp_path / "size", 14)
    own_site.add_project("a/size", tmp_path / "size", commits)
    for commit in commits:
        steps = (history.Step("coll.all_reduce", 9, 1.3),)
        document = history.run_document("a/size", commit, "coll", steps=steps, metrics=("step_ms",))
        for result in document["results"]:
            result["measurements"][0] |= {"metric": "peak_bytes", "unit": "B"}
        own_site.put(document)
    page = own_site.client.get("/series?project=a/size", headers={"accept": "text/html"}).text
    assert "more memory now" in page and "slower now" not in page


def test_the_names_of_forty_rungs_do_not_run_into_each_other(own_site: Site, visit: Enter, tmp_path: Path) -> None:
    rungs = {"ladder": tuple(("gpt.ladder", {"rung": f"r{n:02d}_fused_step_{n}"}, 9.0 - n / 10) for n in range(40))}
    commits = history.make_repository(tmp_path / "ladder", 2)
    own_site.add_project("a/ladder", tmp_path / "ladder", commits)
    own_site.deliver("a/ladder", "ladder", variants=rungs)
    page = visit(own_site, width=360, height=740).open("/suites/ladder?project=a/ladder")
    ticks = page.locator(".chart .xtick text")
    expect(ticks).to_have_count(40)
    boxes = sorted((box["x"], box["width"]) for each in ticks.all() if (box := each.bounding_box()))
    assert all(x + width <= after for (x, width), (after, _) in pairwise(boxes))
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_suite_of_which_nothing_is_judged_on_the_default_branch_says_so(
    own_site: Site, visit: Enter, tmp_path: Path
) -> None:
    commits = history.make_repository(tmp_path / "size", 2)
    own_site.add_project("a/size", tmp_path / "size", commits)
    document = history.run_document("a/size", commits[1], "coll", metrics=("step_ms",))
    own_site.put({**document, "commit": "f" * 40, "parents": [], "branch": "topic"})
    page = visit(own_site).open("/suites/coll?project=a/size")
    expect(page.locator("h1")).to_have_text("coll: nothing of it is judged on the default branch.")
    expect(page.get_by_text("of another branch, of a commit that was not read")).to_be_visible()
    assert own_site.client.get("/suites/none?project=a/size", headers={"accept": "text/html"}).status_code == 404


def test_without_a_project_in_the_address_the_one_with_the_newest_result_is_shown(
    own_site: Site, tmp_path: Path
) -> None:
    commits = history.make_repository(tmp_path / "size", 2)
    for slug in ("a/one", "b/two", "c/three"):
        own_site.add_project(slug, tmp_path / "size", commits)
    for slug in ("b/two", "a/one"):
        own_site.put(history.run_document(slug, commits[0], "coll", metrics=("step_ms",)))
    page = own_site.client.get("/board", headers={"accept": "text/html"}, follow_redirects=True).text
    assert re.findall(r"<option selected>([^<]+)", page)[:1] == ["a/one"]
    own_site.put(history.run_document("b/two", commits[1], "coll", metrics=("step_ms",)))
    page = own_site.client.get("/board", headers={"accept": "text/html"}, follow_redirects=True).text
    assert re.findall(r"<option selected>([^<]+)", page)[:1] == ["b/two"]


def test_what_is_no_static_file_is_called_by_its_name(loom: Site) -> None:
    answer = httpx.get(f"{loom.url}/static/none.js", follow_redirects=True)
    assert answer.status_code == 404 and "'/static/none.js'" in answer.text


def test_a_regression_says_why_its_counts_and_its_sizes_differ(loom: Site) -> None:
    found = loom.client.get("/api/v1/regressions", params={"project": PROJECT}).json()["items"]
    texts = [loom.client.get(f"/regressions/{it['id']}", headers={"accept": "text/html"}).text for it in found]
    differs = []
    for text in texts:
        counted = re.search(r"(\d+) of \d+ series of \S+ moved", text)
        affected = re.search(r"(\d+) series, 1 onset", text)
        assert counted and affected
        differs.append(counted[1] != affected[1])
        assert ("counted in the one run that settled the cause" in text) == differs[-1]
    assert differs
