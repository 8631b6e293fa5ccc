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
from backend.importers import Context
from backend.services import housekeeping
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import NotFound
from backend.services.base.scope import find_scope
from backend.services.board.board import load_board
from backend.services.board.model import BoardQuery
from backend.services.ingest.imports import ForeignFile, import_file
from backend.services.ingest.record import record_run
from backend.services.reports.explanations import explain_point
from backend.services.repository.requests import RunRequest, request_commit
from backend.services.runs.view import RunView, load_run
from backend.store.ingest import imports
from tests.backend.api.conftest import run_document
from tests.backend.services.repository.test_sync import MANIFEST, ME, Repository

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


def pull_request(place: Place, number: int, state: str) -> None:
    with place.engine.begin() as c:
        c.execute(text("DELETE FROM pull_request"))
        columns = "INSERT INTO pull_request (project_id, number, state, is_fork, head_sha, base_ref) "
        c.execute(text(f"{columns} SELECT id, :n, :state, true, :head, 'main' FROM project"),
                  {"n": number, "state": state, "head": UNKNOWN})  # fmt: skip


def has_board(place: Place, branch: str) -> bool:
    with place.engine.begin() as c:
        try:
            return find_scope(c, PROJECT, branch).branch is not None
        except NotFound:
            return False


def a_month_later(place: Place) -> None:
    with place.engine.begin() as c:
        c.execute(text("UPDATE branch SET updated_at = updated_at - interval '31 days'"))


def test_the_branch_of_a_pull_request_stays_while_it_is_open(place: Place) -> None:
    pull_request(place, 9, "open")
    _, page = place.deliver(UNKNOWN, pull_request=9)
    a_month_later(place)
    place.sync()
    assert has_board(place, "pull/9") and not place.page(page.id).gone_branch
    pull_request(place, 9, "closed")
    place.sync()
    assert not has_board(place, "pull/9") and place.page(page.id).gone_branch


def test_where_nobody_tells_whether_it_is_open_it_stays_for_a_month_after_the_last_result(place: Place) -> None:
    for number, sha in ((8, ANOTHER), (9, UNKNOWN)):
        place.deliver(sha, pull_request=number)
    place.sync()
    assert has_board(place, "pull/8") and has_board(place, "pull/9")
    a_month_later(place)
    place.deliver(UNKNOWN, pull_request=9)
    place.sync()
    assert not has_board(place, "pull/8") and has_board(place, "pull/9")


def test_a_branch_of_the_repository_that_is_called_like_a_pull_request_goes_with_it(place: Place) -> None:
    git = place.repository.git
    git("branch", "pull/7", "feature")
    place.sync()
    assert has_board(place, "pull/7")
    git("branch", "-D", "pull/7")
    place.sync()
    assert not has_board(place, "pull/7")


def test_many_pull_requests_hide_no_branch(place: Place) -> None:
    with place.engine.begin() as c:
        made = "INSERT INTO branch (project_id, name, updated_at) SELECT id, 'pull/' || n, now() + n * interval '1 s' "
        c.execute(text(f"{made} FROM project, generate_series(1, 300) AS n"))
    assert has_board(place, "feature") and has_board(place, "pull/1") and not has_board(place, "pull/301")
    with place.engine.begin() as c:
        assert [branch.name for branch in find_scope(c, PROJECT).branches][:3] == ["main", "feature", "pull/300"]


def test_a_point_is_explained_on_the_branch_that_people_see(place: Place) -> None:
    """Rather than beside the default branch, or on a branch that is gone; where nothing else is left, on that."""
    with place.engine.begin() as c:
        for branch, pull, started in (("gone", None, 3), (None, 9, 1), (None, None, 2)):
            started_at = f"2026-11-01T0{started}:00:00Z"
            place.deliver(UNKNOWN, branch=branch, pull_request=pull, started_at=started_at, finished_at=None)
        c.execute(text("UPDATE branch SET deleted_at = now() WHERE name = 'gone'"))
        series = c.scalar(text("SELECT id FROM series WHERE metric = 'step_ms'"))

    def explained() -> str:
        with place.engine.connect() as c:
            run = explain_point(c, series, UNKNOWN).run_id
            return str(
                c.scalar(
                    text("SELECT coalesce(branch_name, 'pull/' || pull_request, '') FROM run WHERE id = :r"), {"r": run}
                )
            )

    assert explained() == "pull/9"
    with place.engine.begin() as c:
        c.execute(text("UPDATE branch SET deleted_at = now() WHERE name = 'pull/9'"))
    assert explained() == "gone"


def test_what_was_merged_by_moving_the_branch_forward_is_on_the_board(place: Place) -> None:
    git = place.repository.git
    git("checkout", "-q", "-b", "topic")
    topic = place.repository.commit("on a topic", tinygpt__z="1")
    place.sync()
    _, page = place.deliver(topic, branch="topic")
    _, pulled = place.deliver(topic, pull_request=9)
    git("checkout", "-q", "main")
    git("merge", "-q", "--ff-only", "topic")
    git("branch", "-D", "topic")
    place.sync()
    assert said((False, place.page(page.id))) == (False, "topic", False, 4) and not place.page(page.id).gone_branch
    assert place.page(pulled.id).position == 4


def placed(place: Place, sha: str) -> list[str]:
    on = "SELECT b.name FROM branch_commit x JOIN branch b ON b.id = x.branch_id JOIN commit k ON k.id = x.commit_id"
    with place.engine.connect() as c:
        return list(c.scalars(text(f"{on} WHERE k.sha = :sha ORDER BY 1"), {"sha": sha}))


def test_a_pull_request_that_was_pushed_anew_shows_its_new_head_after_the_old_one(place: Place) -> None:
    """Where it has as many commits as before, or fewer, or nobody knows."""
    git = place.repository.git
    base = git("rev-parse", "main~1")
    first, old = "a" * 40, "b" * 40
    place.deliver(first, branch="pull/9", parents=[base])
    pushes = {old: [first], UNKNOWN: [base], ANOTHER: []}
    pages = [place.deliver(sha, pull_request=9, parents=parents)[1] for sha, parents in pushes.items()]
    place.sync()
    assert [page.position for page in pages] == [4, 5, 6]
    with place.engine.connect() as c:
        board = load_board(c, BoardQuery(project=PROJECT, branch="pull/9"), now=datetime.now(UTC))
    assert [row.sha for row in board.rows][:4] == [ANOTHER, UNKNOWN, old, first]


@pytest.mark.parametrize("branch", ["main", "feature", "patch-1", None])
def test_a_fork_whose_branch_is_called_like_ours_is_not_on_ours(place: Place, branch: str | None) -> None:
    head = place.repository.git("rev-parse", "main")
    _, page = place.deliver(UNKNOWN, pull_request=9, branch=branch, parents=[head])
    place.sync()
    assert placed(place, UNKNOWN) == ["pull/9"] and place.page(page.id).gone_branch is None
    pull_request(place, 9, "closed")
    place.sync()
    assert place.page(page.id).gone_branch == "pull/9"


def test_a_pull_request_of_our_own_branch_is_on_that(place: Place) -> None:
    feature = place.repository.git("rev-parse", "feature")
    _, page = place.deliver(feature, pull_request=9, branch="feature")
    assert placed(place, feature) == ["feature"] and (page.branch, page.gone_branch) == ("feature", None)


def test_what_is_requested_of_a_commit_of_another_branch_is_run_for_that_branch(place: Place) -> None:
    feature = place.repository.git("rev-parse", "feature")
    with place.engine.begin() as c:
        request = RunRequest(project=PROJECT, commit=feature)
        (asked, *_) = request_commit(c, request, place.config, ME, datetime.now(UTC)).runs
    assert said((False, place.page(asked.run_id)))[1:3] == ("feature", False)


def test_a_branch_that_the_repository_does_not_have_is_on_no_board(place: Place) -> None:
    warned, page = place.deliver(UNKNOWN, branch="feature/x")
    place.sync()
    assert not warned and place.page(page.id).gone_branch
    place.deliver(place.repository.git("rev-parse", "feature"), run_id := new_run_id(), branch="feature")
    place.sync()
    assert not place.page(run_id).gone_branch


def test_a_file_that_is_imported_again_is_warned_of_again(place: Place) -> None:
    context = Context(project=PROJECT, testbed="ci", commit=UNKNOWN)
    file = ForeignFile(name="a.csv", data=b"benchmark,metric,value,unit\nb,step_ms,1.5,ms\n", context=context)
    for outcome in ("stored", "duplicate"):
        with place.engine.begin() as c:
            (run,) = import_file(c, file, dry_run=False, principal=ME, now=datetime.now(UTC)).runs
        assert run.outcome == outcome and [UNKNOWN[:12] in warning for warning in run.warnings] == [True]


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
