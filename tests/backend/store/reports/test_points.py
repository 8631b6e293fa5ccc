"""A series at one commit."""

from typing import Any

from sqlalchemy import Connection

from backend.store.base.lookup import CommitRow, find_commits
from backend.store.reports.points import judgement_of, phases_at, positions_after, result_of, samples_of
from tests.backend.services.loom import Loom


def _commit(loom: Loom, sha: str) -> CommitRow:
    (project, branch) = loom.rows("SELECT project_id, id FROM branch")[0]
    (found,) = find_commits(loom.connection, project, sha, default_branch_id=branch)
    return found


def test_a_judgement_is_found_by_its_commit_with_the_run_behind_it(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([100.0] * 4)
    (series,) = loom.rows("SELECT id FROM series")[0]
    (sha,) = loom.rows("SELECT sha FROM commit ORDER BY id LIMIT 1 OFFSET 2")[0]
    commit = _commit(loom, sha)
    row: Any = judgement_of(connection, series, commit)
    assert (row.commit, row.position, row.run_id) == (sha, 2, "RUN-000002")
    assert [each.run_id for each in samples_of(connection, series, commit.id)] == ["RUN-000002"]
    assert judgement_of(connection, series + 1, commit) is None


def test_the_positions_after_a_point_come_in_order_up_to_a_limit(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([100.0] * 6)
    (series,) = loom.rows("SELECT id FROM series")[0]
    assert positions_after(connection, series, 2, 2) == [3, 4]
    assert positions_after(connection, series, 5, 2) == []


def test_a_result_is_read_for_the_series_of_its_suite(connection: Connection) -> None:
    loom = Loom(connection)
    loom.run(0, 100.0)
    (series, commit) = loom.rows("SELECT series.id, commit.id FROM series, commit")[0]
    assert result_of(connection, series, commit) == ("RUN-000000", "ok", None)
    assert result_of(connection, series, commit + 1) is None
    assert phases_at(connection, series, 0) == []
