"""What cannot be done is a disabled button with its reason; what is refused all the same is told where it was asked."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import frontend_history as history
import httpx
import pytest
from frontend_site import Site
from playwright.sync_api import expect

PROJECT = "a/sparse"
FIRST_BAD, LAST_GOOD = 12, 8
Enter = Callable[..., Any]


def csrf_of(text: str) -> str:
    found = re.search(r'<meta name="csrf" content="([^"]+)"', text)
    assert found is not None
    return found[1]


@pytest.fixture
def from_ci(own_site: Site, tmp_path: Path) -> Site:
    """A project whose results CI delivers; between the last good commit and the first bad one nothing was measured."""
    commits = history.make_repository(tmp_path / "sparse", 16)
    own_site.add_project(PROJECT, tmp_path / "sparse", commits)
    for commit in commits:
        if LAST_GOOD < commit.index < FIRST_BAD:
            continue
        variants = {"gpt": (("gpt.train", {"n": 1}, 10.0 if commit.index < FIRST_BAD else 13.0),)}
        own_site.put(history.run_document(PROJECT, commit, "gpt", variants=variants, metrics=("step_ms",)))
    return own_site


def test_results_of_ci_are_bisected_by_ci_and_the_page_says_how(from_ci: Site, visit: Enter) -> None:
    (case,) = httpx.get(from_ci.url + "/api/v1/regressions", params={"project": PROJECT}).json()["items"]
    page = visit(from_ci, signed_in=True).open(f"/regressions/{case['id']}")
    expect(page.get_by_role("button", name="Bisect")).to_be_disabled()
    why = page.locator("#no-bisection")
    expect(why).to_contain_text("delivered from elsewhere")
    middle = from_ci.commits[PROJECT][(LAST_GOOD + FIRST_BAD) // 2].sha
    expect(why).to_contain_text(f"git checkout {middle}")
    expect(why).to_contain_text("tidemark submit run.json")


def test_a_stranger_sees_what_could_be_done_and_what_it_takes(from_ci: Site, visit: Enter) -> None:
    page = visit(from_ci).open(f"/measuring?project={PROJECT}")
    expect(page.get_by_role("button", name="Backfill")).to_be_disabled()
    expect(page.locator("#no-backfill")).to_contain_text("Sign in")


def test_a_form_that_is_refused_says_why_on_its_own_page_and_once(from_ci: Site, visit: Enter) -> None:
    page = visit(from_ci, signed_in=True).open(f"/measuring?project={PROJECT}")
    page.get_by_label("Suite").fill("nosuch")
    page.get_by_role("button", name="Backfill").click()
    expect(page.get_by_role("alert")).to_contain_text("That was not done.")
    expect(page).to_have_url(from_ci.url + f"/measuring?project={PROJECT}")
    page.reload()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_script_gets_the_status_and_no_way_back(from_ci: Site) -> None:
    session = httpx.Client(base_url=from_ci.url, headers={"Accept": "text/html"}, follow_redirects=True)
    session.get(from_ci.sign_in_link())
    text = session.get("/measuring", params={"project": PROJECT}).text
    form = {"csrf_token": csrf_of(text), "project": PROJECT, "suite": "nosuch"}
    headers = {"Origin": from_ci.url, "Referer": f"{from_ci.url}/measuring"}
    assert session.post("/measuring/backfills", data=form, headers=headers).status_code in (404, 409, 503)
    browser = headers | {"Sec-Fetch-Mode": "navigate"}
    foreign = browser | {"Referer": "https://elsewhere.example/measuring"}
    assert session.post("/measuring/backfills", data=form, headers=foreign).status_code in (404, 409, 503)
    answer_to_a_form = browser | {"Referer": f"{from_ci.url}/settings/policy/preview"}
    assert session.post("/measuring/backfills", data=form, headers=answer_to_a_form).status_code in (404, 409, 503)
    assert "That was not done." in session.post("/measuring/backfills", data=form, headers=browser).text
