"""The policy on the settings page: read as people write numbers, tried on the history, then chosen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import frontend_history as history
import pytest
from frontend_site import Site
from playwright.sync_api import expect

from backend.services.base.errors import BadRequest
from frontend.policy_panel import WantedThreshold, change_of

PROJECT = "a/policy"


def wanted(name: str = "min_change", value: str = "3 %", place: str = "", pattern: str = "") -> WantedThreshold:
    return WantedThreshold(name=name, value=value, place=place, pattern=pattern)


@pytest.mark.parametrize(
    ("asked", "change"),
    [
        (wanted(), {"min_change": 0.03}),
        (wanted(value="2,5"), {"min_change": 0.025}),
        (wanted(value=""), {"min_change": None}),
        (wanted("sustained_runs", "5"), {"sustained_runs": 5}),
        (wanted(place="metric", pattern="peak_*"), {"override": [{"metric": "peak_*", "min_change": 0.03}]}),
    ],
)
def test_a_threshold_is_read_as_people_write_it(asked: WantedThreshold, change: dict[str, Any]) -> None:
    assert change_of({}, asked) == change


def test_a_scope_that_is_there_already_gets_one_threshold_more_or_less() -> None:
    chosen = {"override": [{"metric": "peak_*", "min_change": 0.1}]}
    more = change_of(chosen, wanted("sustained_runs", "5", "metric", "peak_*"))
    assert more == {"override": [{"metric": "peak_*", "min_change": 0.1, "sustained_runs": 5}]}
    assert change_of(chosen, wanted(value="", place="metric", pattern="peak_*")) == {"override": []}


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (wanted("no_such"), "name"),
        (wanted(value="much"), "value"),
        (wanted(place="planet", pattern="x"), "place"),
        (wanted(place="metric"), "pattern"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(asked: WantedThreshold, field: str) -> None:
    with pytest.raises(BadRequest) as refused:
        change_of({}, asked)
    assert refused.value.extra["field"] == field


def test_a_threshold_is_tried_and_then_chosen(own_site: Site, visit: Callable[..., Any], tmp_path: Path) -> None:
    commits = history.make_repository(tmp_path / "r", 3, hostile_at=2)
    own_site.add_project(PROJECT, tmp_path / "r", commits)
    for commit in commits:
        own_site.put(history.run_document(PROJECT, commit, "gpt"))
    page = visit(own_site, signed_in=True).open(f"/settings?project={PROJECT}")
    panel = page.locator("#policy")
    expect(panel).to_contain_text("nothing changed")
    panel.get_by_label("Threshold").select_option("min_change")
    panel.get_by_label("Value").fill("3 %")
    panel.get_by_role("button", name="Try it").click()
    page.get_by_text("regressions instead of").wait_for()
    expect(page.locator("#policy")).to_contain_text("nothing changed")
    page.get_by_role("button", name="Apply").click()
    page.get_by_text("chosen here").wait_for()
    expect(page.locator("#policy")).to_contain_text("min_change")
    assert own_site.client.get(f"/api/v1/projects/{PROJECT}/policy").json()["chosen"] == {"min_change": 0.03}
    page.get_by_role("button", name="Unset").click()
    page.get_by_role("button", name="Apply").click()
    page.get_by_text("nothing changed").wait_for()
    assert own_site.client.get(f"/api/v1/projects/{PROJECT}/policy").json()["chosen"] == {}
    page.get_by_text("2 versions, the newest by").click()
    rows = page.locator("#policy details tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("none")
    expect(rows.last).to_contain_text("min_change = 0.03")
    page.locator("h1").first.click()
    with page.expect_response(re.compile("/settings")):
        own_site.put(history.run_document(PROJECT, commits[2], "moe"))
    page.wait_for_timeout(200)
    expect(rows.last).to_be_visible()  # what was unfolded stays so, whatever happens meanwhile
