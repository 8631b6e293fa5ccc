"""The front page: how the project stands against a base, what needs a person, since when; and the facet bar."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import frontend_history as history
import httpx
import pytest
from frontend_site import Site
from playwright.sync_api import expect
from sqlalchemy import text

from frontend.pages.overview import spread_of

PROJECT = "northsea/loom"
GUILTY = 18
Enter = Callable[..., Any]


@pytest.fixture
def anyone(loom: Site) -> httpx.Client:
    return httpx.Client(base_url=loom.url, headers={"Accept": "text/html"}, timeout=30, verify=False)


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_the_front_page_says_how_many_variants_are_worse_and_whose_they_are(anyone: httpx.Client, loom: Site) -> None:
    text = anyone.get("/").text
    assert "2 of 7 variants are worse than" in text
    regressions = text[text.index('id="open"') : text.index('id="trends"')]
    assert "Unassigned" in regressions
    assert loom.commits[PROJECT][GUILTY].sha[:7] in regressions
    assert "7 of 7 series at both ends" in words(text)


@pytest.mark.parametrize(
    ("low", "high", "said"), [(-0.10, -0.05, "5.0 … 10 %"), (0.05, 0.10, "5.0 … 10 %"), (-0.02, 0.03, "−2.0 … 3.0 %")]
)
def test_an_interval_beside_a_triangle_has_no_sign_of_its_own(low: float, high: float, said: str) -> None:
    assert spread_of(low, high).replace("\u202f", " ") == said


def test_the_onset_stands_in_its_strip_and_in_no_other(anyone: httpx.Client) -> None:
    strips = re.findall(r'<div class="st"><div class="who">.*?(?=<div class="st)', anyone.get("/").text, re.S)
    by_suite = {re.search(r">(\w+)</a>", strip)[1]: strip for strip in strips}  # type: ignore[index]
    assert '"flag r hide-s"' in by_suite["moe"] and "▼24" in by_suite["moe"]
    assert '"flag r ' not in by_suite["gpt"]
    assert "▽12" in by_suite["gpt"], "what was fixed is told as over"
    assert "torch 2.13.0 → 2.13.1" in anyone.get("/").text


def test_a_suite_whose_only_gate_counts_shows_its_watched_speed_here_and_on_the_board(
    own_site: Site, tmp_path: Any
) -> None:
    commits = history.make_repository(tmp_path / "ring", 4)
    own_site.add_project("a/ring", tmp_path / "ring", commits)
    variants = {"collectives": (("coll.all_reduce", {"ranks": 2}, 10.0),)}
    for commit in commits:
        document = history.run_document("a/ring", commit, "collectives", variants=variants, metrics=("step_ms",))
        common = {"unit": "1", "direction": "lower", "role": "gate", "exact": True}
        speed = {"unit": "GB/s", "direction": "higher", "role": "watch", "processes": [2.0, 2.1, 1.9]}
        document["results"][0]["measurements"] = [
            {"metric": "wrong_elements", "value": 0, **common},
            {"metric": "busbw_gb_per_s", "value": 2.0, **speed},
        ]
        own_site.put(document)
    text = httpx.get(own_site.url + "/", params={"project": "a/ring"}).text
    (strip,) = re.findall(r'<div class="st"><div class="who">.*?(?=</section>)', text, re.S)
    strip = strip.replace("<wbr>", "")
    assert "busbw_gb_per_s" in words(strip) and "wrong_elements" not in words(strip)
    board = words(httpx.get(own_site.url + "/board", params={"project": "a/ring"}).text)
    assert "busbw_gb_per_s" in board and "wrong_elements" not in board
    assert board.count("2.00 GB/s") == len(commits)


def test_a_base_after_the_onset_finds_nothing_worse(anyone: httpx.Client, loom: Site) -> None:
    newer = loom.commits[PROJECT][GUILTY + 2].sha
    text = anyone.get("/", params={"base": newer}).text
    assert "None of 7 variants moved against" in text
    assert newer[:7] in text


def test_what_a_base_can_be_is_said_when_it_is_none(anyone: httpx.Client) -> None:
    refused = anyone.get("/", params={"base": "nosuchcommit"})
    assert refused.status_code in (400, 404, 422)
    assert "nosuchcommit" in refused.text
    assert "last-good" in refused.text


def test_a_facet_narrows_the_front_page_and_follows_to_the_board(anyone: httpx.Client) -> None:
    text = anyone.get("/", params={"project": PROJECT, "suite": "moe"}).text
    assert "2 of 4 variants are worse than" in text
    assert 'aria-label="Take off suite moe"' in text
    assert "4 of 7 variants" in text
    assert re.search(r'href="/board\?[^"]*suite=moe', text)


def test_facets_that_leave_nothing_say_so_and_can_be_cleared(anyone: httpx.Client) -> None:
    text = anyone.get("/", params={"project": PROJECT, "suite": "moe", "dtype": "fp1"}).text
    assert "0 of 7 variants" in text
    assert "Clear the facets" in text


def test_a_copied_address_names_moments_and_commits(anyone: httpx.Client) -> None:
    text = anyone.get("/", params={"project": PROJECT, "range": "7d"}).text
    pinned = re.search(r'data-copy="([^"]+)" data-what="Link"', text)[1].replace("&amp;", "&")  # type: ignore[index]
    query = httpx.URL(pinned).params
    assert "range" not in query
    since, until = (datetime.fromisoformat(query[name]) for name in ("since", "until"))
    assert until - since == timedelta(days=7)
    assert len(query["base"]) == len(query["head"]) == 40
    assert anyone.get(pinned).status_code == 200


def test_the_suites_page_became_the_front_page(anyone: httpx.Client) -> None:
    answer = anyone.get("/suites", params={"project": PROJECT})
    assert answer.status_code == 308
    assert answer.headers["location"] == f"/?project={PROJECT.replace('/', '%2F')}"


@pytest.mark.parametrize("granularity", ["commit", "hour", "day", "week"])
def test_every_granularity_is_answered(anyone: httpx.Client, granularity: str) -> None:
    assert 'id="trends"' in anyone.get("/", params={"granularity": granularity, "range": "all"}).text


def test_the_crosshair_is_shared_a_line_is_isolated_and_a_drag_zooms(loom: Site, visit: Enter) -> None:
    page = visit(loom).open("/")
    plots = page.locator(".plot[data-strip]")
    box = plots.first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    expect(page.locator(".cross:not([hidden])")).to_have_count(2)
    only = page.locator(".lgd button.mean").first
    only.click()
    expect(only).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".sole")).to_have_count(1)
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60)
    page.mouse.up()
    page.wait_for_url("**since=**until=**")
    expect(page.locator("#unzoom")).to_be_visible()
    page.keyboard.press("Escape")
    page.wait_for_url(lambda address: "since=" not in address)


def test_a_facet_is_chosen_with_a_click_and_taken_off_with_another(loom: Site, visit: Enter) -> None:
    page = visit(loom).open(f"/?project={PROJECT}")
    page.locator("summary", has_text="suite any").click()
    page.get_by_role("checkbox", name="moe").check()
    page.get_by_role("button", name="Show these").locator("visible=true").click()
    page.wait_for_url("**suite=moe**")
    page.get_by_label("Take off suite moe").click()
    page.wait_for_url(lambda address: "suite=" not in address)


def test_the_noisiest_series_is_two_clicks_away(loom: Site, visit: Enter) -> None:
    page = visit(loom).open(f"/?project={PROJECT}")
    page.get_by_role("link", name="All series").click()
    page.get_by_role("link", name="Noisiest").click()
    page.wait_for_url("**sort=noise**")
    noise = [
        float(found) for found in re.findall(r"±([\d.]+)", " ".join(page.locator("#found tbody").all_inner_texts()))
    ]
    assert len(noise) == 7
    assert noise == sorted(noise, reverse=True)
    expect(page.locator("#found svg.spark")).to_have_count(7)


def test_series_too_unsteady_to_be_judged_are_counted_and_a_click_shows_them(anyone: httpx.Client, loom: Site) -> None:
    assert "too unsteady" not in anyone.get("/").text
    assert anyone.get("/series", params={"verdict": "regression"}).text.count("<tr data-row>") == 2
    newest = """(series_id, position) = (
        SELECT j.series_id, j.position FROM judgement j JOIN series s ON s.id = j.series_id
        WHERE s.role = 'gate' ORDER BY j.position DESC, j.series_id LIMIT 1)"""
    with loom.engine.begin() as c:
        before = c.scalar(text(f"SELECT verdict FROM judgement WHERE {newest}"))
        c.execute(text(f"UPDATE judgement SET verdict = 'unsteady' WHERE {newest}"))
    try:
        shown = anyone.get("/").text
        assert "1 series is too unsteady to be judged" in shown
        address = re.search(r'href="(/series[^"]*verdict=unsteady[^"]*)"', shown)[1]  # type: ignore[index]
        assert anyone.get(address.replace("&amp;", "&")).text.count("<tr data-row>") == 1
    finally:
        with loom.engine.begin() as c:
            c.execute(text(f"UPDATE judgement SET verdict = :was WHERE {newest}"), {"was": before})


def test_a_verdict_that_does_not_exist_is_refused_with_those_that_do(anyone: httpx.Client) -> None:
    refused = anyone.get("/series", params={"verdict": "bad"})
    assert refused.status_code == 400
    assert "unsteady" in refused.text


def test_who_is_not_signed_in_takes_no_case_on_the_front_page(anyone: httpx.Client) -> None:
    assert anyone.post("/regressions/triage", data={"action": "acknowledge", "id": "1", "back": "/"}).status_code == 401


@pytest.mark.parametrize("granularity", ["commit", "day"])
def test_a_suite_that_was_not_measured_at_the_base_stands_there_with_its_value_before(
    own_site: Site, tmp_path: Any, granularity: str
) -> None:
    # More than a day apart: at any hour, each is of a day of its own.
    commits = history.make_repository(tmp_path / "sparse", 6, hours=30)
    own_site.add_project("a/sparse", tmp_path / "sparse", commits)
    own_site.deliver("a/sparse", "gpt")
    for commit in (commits[0], commits[5]):
        own_site.put(history.run_document("a/sparse", commit, "moe", steps=(history.Step("moe.layer", 5, 1.5),)))
    with own_site.engine.begin() as c:  # a week between two commits, and a run beside each
        shift = "(6 - position) * interval '7 days'"
        c.execute(text(f"UPDATE commit SET committed_at = now() - {shift} FROM branch_commit b WHERE b.commit_id = id"))
        c.execute(text("UPDATE rollup SET bucket = date_trunc(granularity, now(), 'UTC') - interval '35 days' "
                       "WHERE granularity = 'day' AND last_position = 0"))  # fmt: skip
    asked = {"project": "a/sparse", "range": "30d", "granularity": granularity}
    shown = words(own_site.client.get("/", params=asked).text)
    assert re.search(r"[1-4] of 7 variants (is|are) worse than", shown), shown[:900]


def test_while_one_commit_is_measured_nothing_is_compared_with_itself(own_site: Site, tmp_path: Any) -> None:
    commits = history.make_repository(tmp_path / "young", 3)
    own_site.add_project("a/young", tmp_path / "young", commits)
    own_site.put(history.run_document("a/young", commits[0], "gpt"))
    shown = words(own_site.client.get("/?project=a%2Fyoung").text)
    assert "measured, at one commit so far: nothing to compare with yet." in shown
    assert "same" not in shown and "steady" not in shown and "no change" not in shown
    own_site.put(history.run_document("a/young", commits[1], "gpt"))
    both = words(own_site.client.get(f"/?project=a%2Fyoung&base={commits[0].sha}&head={commits[0].sha}").text)
    assert "Base and head are the same commit" in both
    assert "nothing to compare" not in words(own_site.client.get("/?project=a%2Fyoung").text)


def test_a_history_of_old_commits_is_shown_whole_where_nobody_chose_a_range(own_site: Site, tmp_path: Any) -> None:
    commits = history.make_repository(tmp_path / "loom", 6)
    own_site.add_project("northsea/loom", tmp_path / "loom", commits)
    own_site.deliver("northsea/loom", "gpt")
    with own_site.engine.begin() as c:
        c.execute(text("UPDATE commit SET committed_at = committed_at - interval '60 days'"))
    page = own_site.client.get("/?project=northsea%2Floom").text
    chosen = own_site.client.get("/?project=northsea%2Floom&range=30d").text
    assert "Nothing was measured in this range" not in page
    assert "Nothing was measured in this range" in chosen
    way = re.search(r'href="([^"]*)">The 30 d up to', chosen)[1].replace("&amp;", "&")  # type: ignore[index]
    assert "Nothing was measured" not in own_site.client.get(way).text
