"""What GitHub is told, by a stand-in that checks it: checks, statuses, one comment, and every way of being refused."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from sqlalchemy import Engine, text

from backend import contract
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.github import outbox as github_outbox
from backend.services.github.agreement import settle
from backend.services.github.commit_report import load_report
from backend.services.github.outbox import MOST_ATTEMPTS, GitHubSender
from backend.services.github.pull_requests import confirm_all
from backend.services.github.text import check, comment, plain, red_of
from backend.services.ingest.record import record_run
from backend.services.reports.commit_verdict import commit_verdict
from backend.store.base import projects as project_store
from backend.store.github import outbox as outbox_store
from backend.store.github import pull_requests
from tests.backend.api.conftest import START, run_document, sha
from tests.backend.github.test_oidc import private_key
from tests.backend.services.github.github_stand_in import BY_STRANGER, StandIn, stand_in

GOLDEN = Path(__file__).parents[3] / "golden" / "pull-request-comment.md"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HISTORY = 8
HEAD, FIX = "e" * 40, "f" * 40


@pytest.fixture
def github() -> Iterator[StandIn]:
    with stand_in() as played:
        yield played


class House:
    """A connected project with a judged history, and a sender whose clock the test moves."""

    def __init__(self, engine: Engine, config: ServiceConfig) -> None:
        self.engine, self.config, self.now = engine, config, NOW
        self.sender = GitHubSender(engine, config)
        with engine.begin() as c:
            projects.save_project(c, "demo/tinygpt", repository_url=None, now=NOW)
            found = project_store.find(c, "demo/tinygpt")
            assert found is not None
            self.project = found
            for position in range(HISTORY):
                self.deliver(position, connection=c)
            connected = {"repository": "northsea/loom", "installation_id": 5}
            project_store.set_setting(c, found.id, "github", connected)

    def deliver(self, position: int, connection: Any = None, **changed: Any) -> None:
        document = run_document(position, project="demo/tinygpt", **changed)
        raw = json.dumps(document).encode()
        run = contract.parse_run(raw)
        if connection is not None:
            record_run(connection, run, raw, now=NOW)
            return
        with self.engine.begin() as c:
            record_run(c, run, raw, now=NOW)

    def pull_request(self, head: str, parent: str, factor: float, number: int = 7, runs: int = 3) -> None:
        """The pull request is at `head`, and its runs have come: `factor` times as slow in its forward pass."""
        self.open_pull_request(head, number)
        for run in range(runs):
            self._deliver_head(head, parent, factor, number, run)

    def _deliver_head(self, head: str, parent: str, factor: float, number: int, run: int) -> None:
        document = run_document(HISTORY - 1)
        step, _, forward, _ = document["results"][0]["measurements"]
        step |= {"value": step["value"] * factor, "processes": [value * factor for value in step["processes"]]}
        forward["value"] += 10.0 * (factor - 1)
        self.deliver(
            HISTORY, id=f"01PR{run}{head[:21]}", commit=head, parents=[parent], branch=f"pull/{number}",
            pull_request=number, results=document["results"],
            started_at=(START + timedelta(hours=HISTORY, minutes=run)).isoformat(),
        )  # fmt: skip

    def open_pull_request(self, head: str, number: int = 7, **row: Any) -> None:
        values = {
            "project_id": self.project.id, "number": number, "state": "open", "is_fork": False, "head_sha": head,
            "base_ref": "main", "updated_at": NOW, **row,
        }  # fmt: skip
        with self.engine.begin() as c:
            pull_requests.save(c, values)

    def tell(self, after: timedelta = timedelta()) -> int:
        self.now += after
        return self.sender.send_due(lambda: self.now)

    def rows(self) -> list[Any]:
        with self.engine.connect() as c:
            return list(c.execute(text("SELECT * FROM github_outbox ORDER BY kind, key")))


@pytest.fixture
def house(github: StandIn, service_config: ServiceConfig, committing_engine: Engine) -> Iterator[House]:
    github.app_public_key = private_key("one").public_key()
    key = private_key("one").private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    config = replace(
        service_config, github_api_url=github.url, github_app_id="1", github_app_key=key.decode(),
        public_url="https://tidemark.example",
    )  # fmt: skip
    made = House(committing_engine, config)
    yield made
    made.sender.close()


def test_a_slower_pull_request_fails_its_check_and_is_told_of_the_phase_and_its_fix_turns_the_comment(
    house: House, github: StandIn
) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    house.tell()
    (check,) = github.checks.values()
    assert (check["head_sha"], check["status"], check["conclusion"]) == (HEAD, "completed", "failure"), check
    (first,) = github.comments.values()
    assert "slower: gpt.train rung=r03 step\\_ms" in first["body"]
    assert "**Where it went:** forward +1.5 ms" in first["body"]
    house.pull_request(FIX, HEAD, 1.0)
    house.tell()
    assert {check["head_sha"]: check["conclusion"] for check in github.checks.values()}[FIX] == "success"
    (second,) = github.comments.values()
    assert second["id"] == first["id"] and f"### ▲ fixed by {FIX[:7]}" in second["body"]
    assert f"<summary>at {HEAD[:7]}: ▼" in second["body"]
    assert github.app_tokens_sold == 1


def test_the_comment_reads_as_it_was_written(house: House) -> None:
    """After a wanted change: TIDEMARK_WRITE_GOLDEN=1 make test ARGS="-k reads_as", and read the difference."""
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    with house.engine.begin() as c:
        settle(c, house.project, HEAD, house.now)
        written = comment(load_report(c, house.project, HEAD, "https://tidemark.example"))
    # How fine the detector sees is its own affair, and tested there.
    written = re.sub(r"seen \d\.\d %", "seen 1.9 %", written)
    if os.environ.get("TIDEMARK_WRITE_GOLDEN"):
        GOLDEN.write_text(written)
    assert written == GOLDEN.read_text()


def test_one_slow_run_is_a_suspect_that_fails_nothing_yet(house: House, github: StandIn) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15, runs=1)
    house.tell()
    (check,), (said,) = github.checks.values(), github.comments.values()
    assert check["conclusion"] == "neutral" and "### ? perhaps" in said["body"]


def test_nothing_changed_is_one_line(house: House, github: StandIn) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.0)
    house.tell()
    (said,) = github.comments.values()
    body = said["body"].strip().splitlines()
    assert len(body) == 2 and body[1].startswith("Unchanged: ")


def test_what_is_there_already_is_not_told_again(house: House, github: StandIn) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    house.tell()
    written = [request for request in github.requests if request[0] != "GET"]
    with house.engine.begin() as c:
        c.execute(text("UPDATE github_outbox SET state = 'waiting'"))
    house.tell()
    assert [request for request in github.requests if request[0] != "GET"] == written
    assert {row.state for row in house.rows()} == {"sent"}


def test_without_an_app_a_commit_status_is_set(house: House, github: StandIn) -> None:
    house.sender = GitHubSender(house.engine, replace(house.config, github_app_id=None, github_token="a-plain-token"))
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    house.tell()
    assert not github.checks and github.statuses[0]["state"] == "failure" and github.statuses[0]["sha"] == HEAD


@pytest.mark.parametrize(
    ("status", "headers", "body", "wait_s"),
    [
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0"}, {"message": "API rate limit exceeded"}, 1),
        (403, {"Retry-After": "90"}, {"message": "You have exceeded a secondary rate limit"}, 90),
        (429, {}, {"message": "slow down"}, 60),
        (502, {}, {"message": "Server Error"}, 10),
    ],
)
def test_what_github_wants_later_is_told_later(
    house: House, github: StandIn, status: int, headers: dict[str, str], body: dict[str, Any], wait_s: int
) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.0)
    github.trouble.append((status, headers, body))
    assert house.tell() == 0 and not github.checks
    if wait_s > 1:
        asked = len(github.requests)
        house.tell()
        assert ("POST", "/repos/northsea/loom/check-runs") not in github.requests[asked:]
    house.tell(timedelta(seconds=wait_s + 1))
    assert len(github.checks) == 1


@pytest.mark.parametrize(
    ("status", "said"), [(403, "lacks a permission"), (422, "refused the body"), (404, "not found")]
)
def test_what_github_refuses_is_given_up_visibly_and_a_new_result_tries_again(
    house: House, github: StandIn, status: int, said: str
) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.0)
    github.trouble.append((status, {}, {"message": "no"}))
    house.tell()
    given_up = next(row for row in house.rows() if row.state == "gave_up")
    assert said in given_up.error
    with house.engine.begin() as c:
        assert any(row.state == "gave_up" for row in github_outbox.outbox(c, "demo/tinygpt", 10))
        assert c.scalar(text("SELECT count(*) FROM live_event WHERE payload ->> 'github' = 'gave up'")) == 1
    house.pull_request(FIX, HEAD, 1.0)
    house.tell()
    assert any(check["head_sha"] == FIX for check in github.checks.values())


def test_an_outage_is_given_up_after_a_while(house: House, github: StandIn) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.0)
    github.trouble += [(502, {}, {"message": "Bad Gateway"})] * (2 * MOST_ATTEMPTS)
    for _ in range(2 * MOST_ATTEMPTS):
        house.tell(timedelta(hours=1))
    assert all(row.state == "gave_up" and f"tried {MOST_ATTEMPTS} times" in row.error for row in house.rows())


def test_an_outage_of_an_hour_is_outlasted(house: House, github: StandIn) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.0)
    until = house.now + timedelta(hours=1)
    while house.now < until:
        github.trouble = [(502, {}, {"message": "Bad Gateway"})] * 9
        house.tell(timedelta(seconds=30))
    github.trouble = []
    for _ in range(4):
        house.tell(timedelta(hours=1))
    assert {row.state for row in house.rows()} == {"sent"} and len(github.checks) == 1


def test_one_that_cannot_be_told_keeps_no_other_waiting(
    house: House, github: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    sent = github_outbox.send_check

    def send_check(place: Any, row: Any, report: Any) -> Any:
        if row.key == HEAD:
            raise KeyError("benchmark")
        return sent(place, row, report)

    monkeypatch.setattr(github_outbox, "send_check", send_check)
    house.tell()
    assert github.comments, "the comment is told although the check could not be"
    (failed,) = [row for row in house.rows() if row.key == HEAD]
    assert failed.state == "waiting" and failed.attempts == 1 and "KeyError" in failed.error and caplog.records
    for _ in range(MOST_ATTEMPTS):
        house.tell(timedelta(hours=1))
    assert [row.state for row in house.rows() if row.key == HEAD] == ["gave_up"]


def test_what_is_wanted_while_it_fails_is_tried_all_the_same(house: House, github: StandIn) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.0)
    with house.engine.begin() as c:
        (row, *_) = outbox_store.due(c, house.now, 1)
        outbox_store.want_check(c, house.project.id, row.key)
    with house.engine.begin() as c:
        outbox_store.set_failed(c, row, "no", None)
    assert all(row.state == "waiting" for row in house.rows())


@pytest.mark.parametrize("is_app", [True, False])
def test_a_strangers_comment_that_begins_like_ours_is_left_alone(house: House, github: StandIn, is_app: bool) -> None:
    if not is_app:
        house.sender.config = replace(house.config, github_app_id=None, github_token="a-plain-token")
    mark = "<!-- tidemark:demo/tinygpt -->\nnothing is slower"
    theirs = github._keep(github.comments, {"body": mark, "issue": 7, **BY_STRANGER})
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    house.tell()
    assert github.comments[theirs["id"]]["body"] == mark and len(github.comments) == 2


def test_an_old_issue_is_not_forgotten_with_what_was_told_of_commits(house: House) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    with house.engine.begin() as c:
        c.execute(text("UPDATE github_outbox SET kind = 'issue', key = '1' WHERE kind = 'comment'"))
        outbox_store.prune(c, datetime.now(UTC) + timedelta(days=400))
    assert [(row.kind, row.key) for row in house.rows()] == [("issue", "1")]


def test_a_comment_that_somebody_removed_is_made_anew(house: House, github: StandIn) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    house.tell()
    github.comments.clear()
    house.pull_request(FIX, HEAD, 1.0)
    house.tell()
    assert len(github.comments) == 1


def test_a_project_that_is_not_connected_leaves_nothing_to_tell(house: House) -> None:
    with house.engine.begin() as c:
        project_store.set_setting(c, house.project.id, "github", None)
    house.deliver(HISTORY)
    assert house.rows() == []


def test_text_from_a_strangers_file_is_no_markup() -> None:
    said = plain("<img src=x> [a](javascript:b) @team `code` | cell")
    assert "<img" not in said and "](" not in said and "@team" not in said and " | " not in said


def test_text_from_a_strangers_file_notifies_nobody_and_leads_nowhere() -> None:
    said = html.unescape(plain("see https://evil.example, www.evil.example, #12, up/stream#3 and @eve"))
    shown = re.sub(r"\\(.)", r"\1", said)  # as it is when GitHub looks for links and mentions
    assert not re.search(r"://|www\.|#\d|@\w", shown)
    assert shown.replace("\u2060", "") == "see https://evil.example, www.evil.example, #12, up/stream#3 and @eve"


def test_the_title_of_a_check_is_no_markdown(house: House, github: StandIn) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    with house.engine.begin() as c:
        report = load_report(c, house.project, HEAD, "https://t.example")
    lines = tuple(replace(line, benchmark="test_route[a&b<c>]") for line in report.lines)
    assert "test_route[a&b<c>] rung=r03" in check(replace(report, lines=lines)).title


def test_only_what_is_red_is_remembered(house: House) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.0)
    with house.engine.begin() as c:
        assert red_of(load_report(c, house.project, HEAD, "https://t.example")) is None


def test_a_suspect_is_measured_again_until_as_many_runs_as_the_policy_asks_for(house: House) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15, runs=1)
    with house.engine.begin() as c:
        c.execute(text("UPDATE run SET kind = 'pull_request' WHERE pull_request = 7"))
        pull_requests.set_prepared(c, house.project.id, 7, HEAD)
    assert confirm_all(house.engine, lambda: NOW) == 1
    assert confirm_all(house.engine, lambda: NOW) == 0, "one that waits is not asked for again"
    with house.engine.begin() as c:
        assert c.scalar(text("SELECT count(*) FROM run WHERE kind = 'confirm' AND state = 'queued'")) == 1


def test_what_enough_runs_agree_on_is_called_a_regression_by_the_api_and_the_board_as_well(house: House) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    with house.engine.begin() as c:
        c.execute(text("UPDATE run SET kind = 'pull_request' WHERE pull_request = 7"))
        pull_requests.set_prepared(c, house.project.id, 7, HEAD)
        assert commit_verdict(c, "demo/tinygpt", HEAD).verdict == "suspect"
    confirm_all(house.engine, lambda: NOW)
    with house.engine.begin() as c:
        verdict = commit_verdict(c, "demo/tinygpt", HEAD)
        assert verdict.verdict == "regression" and verdict.counts["regression"] == 3
        said = c.execute(
            text("SELECT detail, red FROM judgement WHERE verdict = 'regression' AND superseded_at IS NULL")
        )
        rows = said.all()
        assert {row.detail["first_said"] for row in rows} == {"suspect"}
        assert sum(row.red for row in rows) == 3, "of the gate, not of the phase that grew"
