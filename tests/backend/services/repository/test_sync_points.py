"""A repository whose history changes after its commits were judged: points follow their commits."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

from backend.contract import new_run_id, parse_run
from backend.services import housekeeping
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.ingest.record import record_run
from backend.services.sessions import request as confirm
from backend.services.sessions.request import Purpose, SessionRequest
from backend.store.joint import incidents as incident_store
from backend.store.joint.incidents import Stretch
from backend.store.judging import series as series_store
from tests.backend.api.conftest import run_document
from tests.backend.services.repository.test_sync import MANIFEST, Repository
from tidemark.machine.processes import wait_until

START = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit("0", tidemark_toml=MANIFEST)
    for number in range(1, 10):
        made.commit(str(number), tinygpt__x=str(number))
    return made


@pytest.fixture
def sync(committing_engine: Engine, database: str, tmp_path: Path, repository: Repository) -> Callable[[], None]:
    config = ServiceConfig(database_url=database, redis_url="redis://x", data_dir=tmp_path / "data")

    def ask_and_do() -> None:
        with committing_engine.begin() as c:
            projects.save_project(c, "demo/tinygpt", repository_url=repository.url, trusted=True, now=datetime.now(UTC))
        (synced,) = housekeeping.sync_all(committing_engine, config)
        assert synced.error is None

    return ask_and_do


def deliver(
    engine: Engine,
    sha: str,
    number: int,
    *,
    branch: str = "main",
    parent: str | None = None,
    meanwhile: Callable[[Connection], object] | None = None,
) -> None:
    """A run of this commit, 20 % slower from number 6 on; `meanwhile` happens before it is committed."""
    document = run_document(
        number + 3 if number >= 6 else number,
        id=new_run_id(),
        commit=sha,
        parents=[parent] if parent else [],
        branch=branch,
        started_at=(START + timedelta(hours=number)).isoformat(),
        finished_at=None,
    )
    with engine.begin() as c:
        body = json.dumps(document).encode()
        record_run(c, parse_run(body), body, now=datetime.now(UTC))
        if meanwhile is not None:
            meanwhile(c)


def standing(engine: Engine, metric: str = "step_ms") -> list[tuple[int, str, str]]:
    """(position, commit, verdict) of the default branch."""
    with engine.connect() as c:
        found = c.execute(
            text(
                "SELECT j.position, k.sha, j.verdict FROM judgement j JOIN series s ON s.id = j.series_id "
                "JOIN commit k ON k.id = j.commit_id WHERE s.metric = :m AND j.superseded_at IS NULL "
                "AND j.branch_id IS NULL ORDER BY 1"
            ),
            {"m": metric},
        )
        return [tuple(row) for row in found]


def states(engine: Engine) -> list[Any]:
    with engine.connect() as c:
        return list(c.execute(text("SELECT state FROM regression ORDER BY id")).scalars())


def judge_all(engine: Engine, repository: Repository, sync: Callable[[], None]) -> list[str]:
    sync()
    shas = repository.git("rev-list", "--reverse", "main").split()
    for number, sha in enumerate(shas):
        deliver(engine, sha, number)
    assert [position for position, _, _ in standing(engine)] == list(range(10))
    assert states(engine) == ["confirmed"]
    return shas


def test_a_force_push_takes_the_points_of_lost_commits_away_and_their_regression_with_them(
    repository: Repository, committing_engine: Engine, sync: Callable[[], None]
) -> None:
    shas = judge_all(committing_engine, repository, sync)
    repository.git("reset", "-q", "--hard", shas[5])
    new = repository.commit("another way", tinygpt__x="z")
    sync()
    assert [(position, sha) for position, sha, _ in standing(committing_engine)] == list(enumerate(shas[:6]))
    assert states(committing_engine) == ["withdrawn"]
    deliver(committing_engine, new, 5)
    assert standing(committing_engine)[-1] == (6, new, "unchanged")


def test_a_force_push_that_meets_another_transaction_is_read_again_and_no_error_of_the_repository(
    repository: Repository, committing_engine: Engine, database: str, tmp_path: Path, sync: Callable[[], None]
) -> None:
    shas = judge_all(committing_engine, repository, sync)
    repository.git("reset", "-q", "--hard", shas[5])
    config = ServiceConfig(database_url=database, redis_url="redis://x", data_dir=tmp_path / "data")
    impatient = create_engine(database, connect_args={"options": "-c lock_timeout=200"})
    with committing_engine.begin() as other:
        other.execute(text("SELECT FROM series FOR UPDATE"))
        with committing_engine.begin() as c:
            c.execute(text("UPDATE project SET sync_requested_at = now()"))
        assert housekeeping.sync_all(impatient, config) == []
    impatient.dispose()
    with committing_engine.connect() as c:
        waits = c.execute(text("SELECT sync_error, sync_requested_at IS NOT NULL FROM project")).one()
    assert waits == (None, True)
    sync()
    assert [(position, sha) for position, sha, _ in standing(committing_engine)] == list(enumerate(shas[:6]))


def test_a_force_push_takes_incidents_about_lost_commits_away(
    repository: Repository, committing_engine: Engine, sync: Callable[[], None]
) -> None:
    shas = judge_all(committing_engine, repository, sync)
    with committing_engine.begin() as c:
        for first_bad, closed in ((3, 4), (4, 7), (6, None)):
            c.execute(
                text(
                    """INSERT INTO incident (project_id, suite, kind, cause, testbeds, series, first_bad_position,
                                                   range_start, range_end, magnitude, drift, closed_position)
                       SELECT id, 'tinygpt', 'infra', 'hardware', '{cpu}', '{1}', :first_bad, :first_bad, :first_bad,
                              0.1, false, :closed FROM project"""
                ),
                {"first_bad": first_bad, "closed": closed},
            )
    repository.git("reset", "-q", "--hard", shas[5])
    repository.commit("another way", tinygpt__x="z")
    sync()
    with committing_engine.connect() as c:
        words = c.execute(text("SELECT first_bad_position, closed_position FROM incident ORDER BY id")).all()
    assert words == [(3, 4), (4, 6)]


def ask(engine: Engine, base: int, head: int, *, offset: int = 0) -> str:
    """A question of the joint detector about two commits of the branch, with the session that is to answer it."""
    with engine.begin() as c:
        (project, branch) = c.execute(text("SELECT project_id, id FROM branch WHERE name = 'main'")).one()
        line = c.execute(text("SELECT position, commit_id FROM branch_commit WHERE branch_id = :id"), {"id": branch})
        places = {position - offset: commit for position, commit in line}
        request = SessionRequest(
            project_id=project,
            testbed_id=c.scalar(text("SELECT id FROM testbed")),
            suite="tinygpt",
            purpose=Purpose.ATTRIBUTE,
            base_commit_id=places[base],
            head_commit_id=places[head],
            spec={"command": "./bench"},
            requested_by="tidemark",
            base_setup={},
            head_setup={},
            max_rounds=4,
        )
        session = confirm.request_session(c, request, datetime.now(UTC))
        where = Stretch("tinygpt", "cpu", base + offset, head + offset)
        incident_store.put_question(c, project, where, after=f"RUN-{base}-{head}", number=0, session=session)
        return session


def questions(engine: Engine) -> list[tuple[str, int, int]]:
    with engine.connect() as c:
        project = c.scalar(text("SELECT id FROM project"))
        return sorted((q.session_id, q.base_position, q.head_position) for q in incident_store.questions(c, project))


def test_a_force_push_calls_the_joint_detectors_questions_about_lost_commits_off(
    repository: Repository, committing_engine: Engine, sync: Callable[[], None]
) -> None:
    shas = judge_all(committing_engine, repository, sync)
    kept, lost = ask(committing_engine, 2, 5), ask(committing_engine, 4, 7)
    repository.git("reset", "-q", "--hard", shas[5])
    repository.commit("another way", tinygpt__x="z")
    sync()
    assert questions(committing_engine) == [(kept, 2, 5)]
    with committing_engine.connect() as c:
        state, reason = c.execute(text("SELECT state, reason FROM session WHERE id = :id"), {"id": lost}).one()
        assert (state, reason) == ("cancelled", "its commits are on the default branch no more")
        assert c.scalar(text("SELECT state FROM run WHERE session_id = :id"), {"id": lost}) == "cancelled"
        assert c.scalar(text("SELECT state FROM session WHERE id = :id"), {"id": kept}) == "waiting"


def test_the_joint_detectors_questions_follow_their_commits(
    repository: Repository, committing_engine: Engine, sync: Callable[[], None]
) -> None:
    judge_all(committing_engine, repository, sync)
    with committing_engine.begin() as c:
        # As if runs had been delivered before the repository was read: their places were guessed.
        c.execute(text("UPDATE judgement SET position = position + 100"))
        c.execute(text("UPDATE branch_commit SET position = position + 100"))
    asked = ask(committing_engine, 2, 5, offset=100)
    sync()
    assert questions(committing_engine) == [(asked, 2, 5)]


def test_a_force_push_and_a_joint_detector_that_is_answered_at_that_moment_take_turns(
    repository: Repository, committing_engine: Engine, sync: Callable[[], None]
) -> None:
    shas = judge_all(committing_engine, repository, sync)
    ask(committing_engine, 4, 7)
    repository.git("reset", "-q", "--hard", shas[5])
    repository.commit("another way", tinygpt__x="z")
    waits = text("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
    with ThreadPoolExecutor(1) as other:
        with committing_engine.begin() as c:
            project = c.scalar(text("SELECT id FROM project"))
            incident_store.lock(c, project)
            (question,) = incident_store.questions(c, project)
            incident_store.answered(c, question.id, "RUN")
            moving = other.submit(sync)
            assert wait_until(lambda: bool(c.scalar(waits)), 20)
            series_store.lock_by_id(c, c.execute(text("SELECT id FROM series")).scalars().all())
        moving.result(timeout=60)
    assert questions(committing_engine) == []


def test_points_follow_when_the_positions_of_their_commits_turn_out_otherwise(
    repository: Repository, committing_engine: Engine, sync: Callable[[], None]
) -> None:
    shas = judge_all(committing_engine, repository, sync)
    with committing_engine.begin() as c:
        # As if runs had been delivered before the repository was read: their places were guessed.
        c.execute(text("UPDATE judgement SET position = position + 100"))
        c.execute(text("UPDATE branch_commit SET position = position + 100"))
    sync()
    assert [(position, sha) for position, sha, _ in standing(committing_engine)] == list(enumerate(shas))
    assert "confirmed" in states(committing_engine)
    with committing_engine.connect() as c:
        assert set(c.execute(text("SELECT state_position FROM series")).scalars()) == {9}


def test_results_of_a_branch_count_for_the_default_branch_once_it_is_merged(
    repository: Repository, committing_engine: Engine, sync: Callable[[], None]
) -> None:
    shas = judge_all(committing_engine, repository, sync)
    repository.git("checkout", "-q", "-b", "release/1")
    own = repository.commit("own", tinygpt__x="own")
    sync()
    deliver(committing_engine, own, 5, branch="release/1", parent=shas[-1])
    assert standing(committing_engine)[-1][1] == shas[-1]
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--ff-only", "release/1")
    sync()
    assert standing(committing_engine)[-1][:2] == (10, own)


def test_a_commit_that_was_measured_twice_on_its_branch_is_one_point_once_it_is_merged(
    repository: Repository, committing_engine: Engine, sync: Callable[[], None]
) -> None:
    shas = judge_all(committing_engine, repository, sync)
    repository.git("checkout", "-q", "-b", "release/1")
    own = repository.commit("own", tinygpt__x="own")
    sync()
    for _ in range(2):
        deliver(committing_engine, own, 5, branch="release/1", parent=shas[-1])
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--ff-only", "release/1")
    sync()
    assert [place[:2] for place in standing(committing_engine)] == list(enumerate([*shas, own]))


def test_commits_change_places_when_the_results_that_are_just_arriving_are_in(
    repository: Repository, committing_engine: Engine, sync: Callable[[], None]
) -> None:
    shas = judge_all(committing_engine, repository, sync)
    last = repository.commit("last", tinygpt__x="last")
    sync()
    repository.git("reset", "-q", "--hard", shas[-1])
    repository.commit("instead", tinygpt__y="instead")
    with ThreadPoolExecutor(1) as other:
        moving: list[Future[None]] = []

        def move(c: Connection) -> None:
            moving.append(other.submit(sync))
            waits = text("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory')")
            assert wait_until(lambda: bool(c.scalar(waits)), 20)

        deliver(committing_engine, last, 10, meanwhile=move)
        moving[0].result(20)
    assert [place[:2] for place in standing(committing_engine)] == list(enumerate(shas))


def test_a_history_that_was_replaced_altogether_begins_anew(
    repository: Repository, committing_engine: Engine, sync: Callable[[], None]
) -> None:
    judge_all(committing_engine, repository, sync)
    repository.git("checkout", "-q", "--orphan", "fresh")
    fresh = repository.commit("fresh", tinygpt__x="fresh")
    repository.git("branch", "-q", "-f", "main", "fresh")
    repository.git("checkout", "-q", "main")
    repository.git("branch", "-q", "-D", "fresh")
    sync()
    assert standing(committing_engine) == []
    assert states(committing_engine) == ["withdrawn"]
    deliver(committing_engine, fresh, 0)
    assert standing(committing_engine) == [(0, fresh, "insufficient")]
