"""Results of commits that the repository does not have on its default branch: what their sender and page are told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from backend.contract import new_run_id, parse_run
from backend.services import housekeeping
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import NotFound
from backend.services.base.scope import find_scope
from backend.services.ingest.record import record_run
from backend.services.reports.explanations import explain_point
from backend.services.runs.view import RunView, load_run
from backend.store.ingest import imports
from tests.backend.api.conftest import run_document
from tests.backend.services.repository.test_sync import MANIFEST, Repository

PROJECT = "demo/tinygpt"
UNKNOWN, ANOTHER = "e" * 40, "f" * 40


@dataclass
class Place:
    """A project whose repository has the commits 0 to 3 on main, of which `feature` left at 1 with two of its own."""

    engine: Engine
    config: ServiceConfig
    repository: Repository

    def sync(self) -> None:
        with self.engine.begin() as c:
            url = self.repository.url
            projects.save_project(c, PROJECT, repository_url=url, trusted=True, now=datetime.now(UTC))
        (synced,) = housekeeping.sync_all(self.engine, self.config)
        assert synced.error is None

    def deliver(self, sha: str, run_id: str | None = None, **about: Any) -> tuple[bool, RunView]:
        """(whether its sender is warned, its page); the same again when a run id is given again."""
        document = run_document(
            0, **{"id": run_id or new_run_id(), "commit": sha, "parents": [], "branch": None, **about}
        )
        body = json.dumps(document).encode()
        with self.engine.begin() as c:
            warnings = record_run(c, parse_run(body), body, now=datetime.now(UTC)).warnings
        assert all(sha[:12] in warning for warning in warnings)
        return bool(warnings), self.page(document["id"])

    def page(self, run_id: str) -> RunView:
        with self.engine.connect() as c:
            page = load_run(c, run_id)
            assert (run_id in imports.waiting_runs(c, [run_id])) == page.waits_for_commit
        return page


@pytest.fixture
def place(committing_engine: Engine, database: str, tmp_path: Path) -> Place:
    repository = Repository(tmp_path / "repository")
    repository.commit("0", tidemark_toml=MANIFEST.replace("release/*", "feature"))
    first = repository.commit("1", tinygpt__x="1")
    repository.git("checkout", "-q", "-b", "feature", first)
    for number in (1, 2):
        repository.commit(f"feature {number}", tinygpt__y=str(number))
    repository.git("checkout", "-q", "main")
    for number in (2, 3):
        repository.commit(str(number), tinygpt__x=str(number))
    made = Place(
        committing_engine,
        ServiceConfig(database_url=database, redis_url="redis://x", data_dir=tmp_path / "data"),
        repository,
    )
    made.sync()
    return made


def said(of: tuple[bool, RunView]) -> tuple[bool, str | None, bool, int | None]:
    warned, page = of
    return warned, page.branch, page.waits_for_commit, page.position


@pytest.mark.parametrize("branch", [None, "main"])
def test_a_commit_of_the_default_branch_is_where_it_belongs(place: Place, branch: str | None) -> None:
    head = place.repository.git("rev-parse", "main").strip()
    assert said(place.deliver(head, branch=branch)) == (False, "main", False, 3)


@pytest.mark.parametrize("branch", [None, "main"])
def test_a_commit_of_another_branch_is_not_on_the_default_branch(place: Place, branch: str | None) -> None:
    feature = place.repository.git("rev-parse", "feature").strip()
    assert said(place.deliver(feature, branch=branch)) == (True, "main", True, None)
    warned, page = place.deliver(feature, branch="feature")
    assert not warned and page.branch == "feature" and not page.waits_for_commit and page.position is not None


def test_every_commit_that_nobody_knows_waits(place: Place) -> None:
    assert [said(place.deliver(sha)) for sha in (UNKNOWN, ANOTHER)] == [(True, "main", True, None)] * 2


def test_the_run_of_a_pull_request_waits_for_nothing(place: Place) -> None:
    place.deliver(UNKNOWN)
    warned, page = place.deliver(UNKNOWN, pull_request=9)
    assert (warned, page.branch, page.pull_request, page.waits_for_commit) == (False, None, 9, False)


def test_the_branch_of_a_pull_request_stays_until_it_is_closed_and_its_points_can_always_be_explained(
    place: Place,
) -> None:
    _, page = place.deliver(UNKNOWN, pull_request=9)
    with place.engine.begin() as c:
        series = c.scalar(text("SELECT id FROM series WHERE metric = 'step_ms'"))
        pull_request = "INSERT INTO pull_request (project_id, number, state, is_fork, head_sha, base_ref) "
        c.execute(text(f"{pull_request} SELECT id, 9, 'open', true, '{UNKNOWN}', 'main' FROM project"))
    place.sync()
    assert not place.page(page.id).branch_is_gone
    with place.engine.begin() as c:
        assert find_scope(c, PROJECT, "pull/9").branch is not None
        c.execute(text("UPDATE pull_request SET state = 'closed'"))
    place.sync()
    assert place.page(page.id).branch_is_gone
    with place.engine.begin() as c:
        with pytest.raises(NotFound):
            find_scope(c, PROJECT, "pull/9")
        assert explain_point(c, series, UNKNOWN).verdict == "insufficient"


def test_a_branch_that_the_repository_does_not_have_is_on_no_board(place: Place) -> None:
    warned, page = place.deliver(UNKNOWN, branch="feature/x")
    place.sync()
    assert not warned and place.page(page.id).branch_is_gone
    place.deliver(place.repository.git("rev-parse", "feature"), run_id := new_run_id(), branch="feature")
    place.sync()
    assert not place.page(run_id).branch_is_gone


def test_what_a_force_push_takes_away_waits_and_what_it_brings_does_not(place: Place) -> None:
    git = place.repository.git
    old = git("rev-parse", "main").strip()
    run_id = new_run_id()
    assert said(place.deliver(old, run_id)) == (False, "main", False, 3)
    assert said(place.deliver(UNKNOWN)) == (True, "main", True, None)
    git("reset", "-q", "--hard", "main~1")
    new = place.repository.commit("3 again", tinygpt__x="z")
    early = new_run_id()
    assert said(place.deliver(new, early)) == (True, "main", True, None)
    place.sync()
    assert said(place.deliver(old, run_id)) == (True, "main", True, None)
    assert said(place.deliver(new, early)) == (False, "main", False, 3)


def test_a_repository_that_was_not_read_yet_knows_of_no_commit(
    committing_engine: Engine, database: str, tmp_path: Path
) -> None:
    with committing_engine.begin() as c:
        url = "https://git.example/loom.git"
        projects.save_project(c, PROJECT, repository_url=url, now=datetime.now(UTC))
    config = ServiceConfig(database_url=database, redis_url="redis://x", data_dir=tmp_path)
    unread = Place(committing_engine, config, Repository(tmp_path / "unread"))
    assert said(unread.deliver(UNKNOWN)) == (False, "main", False, 0)
