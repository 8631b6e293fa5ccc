"""One issue for each confirmed regression of the default branch: opened, changed as it evolves, closed when fixed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from backend.services.base.config import ServiceConfig
from backend.services.github.outbox import GitHubSender
from backend.services.triage import triage
from backend.store.base import projects as project_store
from tests.backend.api.conftest import BROKEN_AT, run_document, sha
from tests.backend.services.github.github_stand_in import StandIn, stand_in
from tests.backend.services.github.test_outbox import HISTORY, NOW, House

CONFIRMED_BY = 13  # position
HOURS = itertools.count(1)


@pytest.fixture
def github() -> Iterator[StandIn]:
    with stand_in() as played:
        yield played


@pytest.fixture
def house(github: StandIn, service_config: ServiceConfig, committing_engine: Engine) -> Iterator[House]:
    config = replace(
        service_config, github_api_url=github.url, github_token="a-plain-token", public_url="https://tidemark.example"
    )
    made = House(committing_engine, config)
    yield made
    made.sender.close()


def wants_issues(house: House, wants: bool = True) -> None:
    with house.engine.begin() as c:
        setting = {"repository": "northsea/loom", "issues": wants}
        project_store.set_setting(c, house.project.id, "github", setting)


def deliver(house: House, first: int, last: int, *, fixed: bool = False) -> None:
    for position in range(first, last):
        if not fixed:
            house.deliver(position)
            continue
        quick = run_document(BROKEN_AT - 1)["results"]
        house.deliver(position, results=quick)


def act(house: House, action: str, **words: str) -> None:
    with house.engine.begin() as c:
        number = c.scalar(text("SELECT id FROM regression"))
        triage.triage(c, number, triage.TriageDecision(action, **words), "ada", now=NOW + timedelta(hours=next(HOURS)))


def test_a_confirmed_regression_opens_one_issue_that_follows_it_and_is_closed_by_its_fix(
    house: House, github: StandIn
) -> None:
    wants_issues(house)
    deliver(house, HISTORY, CONFIRMED_BY)
    house.tell()
    (opened,) = github.issues.values()
    assert re.fullmatch(
        rf"gpt\.train rung=r03: step_ms costs \d+\.\d % more since {sha(BROKEN_AT)[:7]} \(R-\d+\)", opened["title"]
    )
    assert "Still so at the newest commit" in opened["body"] and "**Cause: code**" in opened["body"]
    assert "← first bad" in opened["body"] and "**Where it went:** forward" in opened["body"]

    act(house, "acknowledge")
    house.tell(timedelta(minutes=1))
    (followed,) = github.issues.values()
    assert followed["id"] == opened["id"] and "ada is on it" in followed["body"]

    deliver(house, CONFIRMED_BY, CONFIRMED_BY + 4, fixed=True)
    house.tell(timedelta(minutes=1))
    (closed,) = github.issues.values()
    assert (closed["state"], closed["state_reason"]) == ("closed", "completed"), closed["body"]
    assert f"Fixed by {sha(CONFIRMED_BY)[:12]}" in closed["body"]


def test_nothing_is_opened_where_the_project_does_not_want_it(house: House, github: StandIn) -> None:
    wants_issues(house, wants=False)
    deliver(house, HISTORY, CONFIRMED_BY)
    house.tell()
    assert not github.issues


def test_what_somebody_calls_not_real_closes_its_issue_as_not_planned_and_opens_it_again_with_it(
    house: House, github: StandIn
) -> None:
    wants_issues(house)
    deliver(house, HISTORY, CONFIRMED_BY)
    house.tell()
    act(house, "invalid", reason="a @team <script> of ours")
    house.tell(timedelta(minutes=1))
    (issue,) = github.issues.values()
    assert (issue["state"], issue["state_reason"]) == ("closed", "not_planned")
    assert "<script>" not in issue["body"] and "@team" not in issue["body"]
    act(house, "reopen")
    house.tell(timedelta(minutes=1))
    assert [issue["state"] for issue in github.issues.values()] == ["open"]


def test_an_issue_that_github_made_without_our_hearing_of_it_is_not_made_twice(house: House, github: StandIn) -> None:
    wants_issues(house)
    deliver(house, HISTORY, CONFIRMED_BY)
    github.page_size = 2
    for number in range(5):
        github.answer("POST", "/repos/northsea/loom/issues", HEADERS, {"title": f"Another, {number}"})
    house.sender = GitHubSender(house.engine, house.config)
    house.tell()
    assert len(github.issues) == 6
    with house.engine.begin() as c:  # as after an answer that was lost on the way
        c.execute(text("UPDATE github_outbox SET state = 'waiting', remote_id = NULL, attempts = 1, memory = '{}'"))
    house.tell(timedelta(minutes=1))
    assert len(github.issues) == 6


HEADERS = {
    "Authorization": "Bearer a-plain-token", "Accept": "application/vnd.github+json", "User-Agent": "a person",
    "X-GitHub-Api-Version": "2022-11-28",
}  # fmt: skip
