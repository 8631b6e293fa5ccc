"""A project that chose its own thresholds reads them everywhere: no page, answer or comment says the built-in ones."""

from __future__ import annotations

import html
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

import frontend_history as history
import pytest
from frontend_site import Site, running_site

from backend.services.base.projects import find_project
from backend.services.github.commit_report import load_report
from backend.services.github.text import comment
from tests.conftest import copy_of

PROJECT = "northsea/loom"
BUILT_IN = re.compile(
    r"[≥±]\s?5 %|\b5 % threshold|(?:at least|threshold of|one of|under|below) 5 %|min_change[^0-9]{1,9}0\.05\b"
    r"|(?<!new worker )(?<!new worker: )\b3 (?:bad )?runs|sustained_runs[^0-9]{1,9}3\b"
)
CHOSEN = {"min_change": 0.1, "sustained_runs": 5}
MOST_PAGES = 250
STEP_AT = 14


@pytest.fixture(scope="module")
def strict(
    template: str, postgres: Any, administer: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A project that tells nothing below 10 % and wants five runs, with one loss of 24 % that lasts. Tests only read
    it."""
    directory = tmp_path_factory.mktemp("strict")
    with copy_of(template, postgres, administer) as url, running_site(url, directory / "data") as site:
        commits = history.make_repository(directory / "loom", 24)
        site.add_project(PROJECT, directory / "loom", commits)
        answer = site.client.patch(f"/api/v1/projects/{PROJECT}/policy", json={"policy": CHOSEN})
        assert answer.status_code == 200, answer.text
        steps = (history.Step("moe.layer", STEP_AT, 1.24, phase="forward"),)
        for suite in ("gpt", "moe"):
            site.deliver(PROJECT, suite, steps=steps)
        yield site


def words_of(page: str) -> str:
    """What a reader reads of a page, with plain spaces."""
    words = html.unescape(re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL))
    return re.sub(r"\s+", " ", words)


def said_of_the_built_in_rule(text: str) -> list[str]:
    words = words_of(text)
    return [words[max(0, m.start() - 60) : m.end() + 30] for m in BUILT_IN.finditer(words)]


def pages_of(site: Site) -> dict[str, str]:
    """Every page that a reader reaches by following links from the board, each address once."""
    waiting = deque([f"/board?project={PROJECT}&range=all", f"/rule?project={PROJECT}", "/regressions?state=all"])
    found: dict[str, str] = {}
    asked, read = set[str](), Counter[str]()
    while waiting and len(found) < MOST_PAGES:
        address = waiting.popleft()
        place = urlsplit(address).path
        if address in asked or read[place] >= 3:
            continue  # other filters of a page that was read say the same words, and of a file that it is one
        asked.add(address)
        read[place] += 1
        answer = site.client.get(address, follow_redirects=True)
        if "html" not in answer.headers.get("content-type", ""):
            continue
        found[address] = answer.text
        for link in re.findall(r'href="([^"#]+)', answer.text):
            target = urljoin(address, html.unescape(link))
            if target == "/connect":
                continue  # the form for a project that is not there yet: it will begin with the built-in rule
            if target.startswith("/") and not target.startswith(("/static", "/sign-", "//")):
                waiting.append(target)
    return found


def test_no_page_of_a_project_with_its_own_gate_says_five_percent_or_three_runs(strict: Site) -> None:
    pages = pages_of(strict)
    kinds = {urlsplit(address).path.strip("/").split("/")[0] for address in pages}
    assert {"board", "regressions", "series", "runs", "compare", "rule", "settings"} <= kinds, kinds
    wrong = {address: said for address, text in pages.items() if (said := said_of_the_built_in_rule(text))}
    assert wrong == {}
    assert "at least 10 % above the baseline" in words_of(pages[f"/rule?project={PROJECT}"])


def test_no_answer_of_the_api_says_the_built_in_rule(strict: Site) -> None:
    sha = strict.commits[PROJECT][STEP_AT].sha
    items = strict.client.get("/api/v1/series", params={"project": PROJECT, "limit": 200}).json()["items"]
    gates = [item["id"] for item in items if item["role"] == "gate"]
    addresses = [f"/api/v1/projects/{PROJECT}/policy", f"/api/v1/regressions?project={PROJECT}"]
    addresses += [f"/api/v1/series/{number}/explain?commit={sha}" for number in gates]
    addresses += [f"/api/v1/series/{number}" for number in gates[:5]]
    addresses += [f"/api/v1/commits/{sha}/verdict?project={PROJECT}"]
    for address in addresses:
        answer = strict.client.get(address)
        assert answer.status_code == 200, (address, answer.text)
        assert said_of_the_built_in_rule(answer.text) == [], address


def test_a_comment_asks_for_the_runs_that_the_policy_asks_for(strict: Site) -> None:
    with strict.engine.connect() as c:
        project = find_project(c, PROJECT)
        report = load_report(c, project, strict.commits[PROJECT][STEP_AT + 1].sha, strict.url)
    assert {line.needed for line in report.lines} == {5}
    assert said_of_the_built_in_rule(comment(report)) == []
