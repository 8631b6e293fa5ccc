"""The mirror of a repository, whose names are somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.services.repository.mirror import Mirror
from tests.backend.services.repository.test_sync import Repository


@pytest.mark.parametrize("end_of_line", ["\u2028", "\u0085"])
def test_a_name_may_hold_what_python_takes_for_the_end_of_a_line(tmp_path: Path, end_of_line: str) -> None:
    repository = Repository(tmp_path / "origin")
    sha = repository.commit("One")
    odd = f"v1{end_of_line}odd"
    repository.git("branch", odd)
    repository.git("tag", odd)
    mirror = Mirror(tmp_path / "1.git", repository.url, trusted=True, timeout_s=30)
    mirror.fetch()
    assert mirror.heads() == {"main": sha, odd: sha}
    assert mirror.tags() == {odd: sha}
    assert mirror.is_on_branch(sha)


def test_a_date_that_no_result_may_have_is_no_date_of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(tmp_path / "origin")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "@253402300799 +0000")  # the last second of the year 9999
    sha = repository.commit("One")
    mirror = Mirror(tmp_path / "1.git", repository.url, trusted=True, timeout_s=30)
    mirror.fetch()
    (commit,) = mirror.commits([sha])
    assert commit.committed_at is None and commit.authored_at is not None
