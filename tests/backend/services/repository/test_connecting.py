"""What is found in a repository that is being connected."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from backend.services import housekeeping
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.repository.connecting import FoundManifest, found_at_head
from tests.backend.services.repository.test_sync import Repository


def test_the_repository_is_asked_once_for_a_commit_however_often_its_page_is_looked_at(
    committing_engine: Engine, service_config: ServiceConfig, tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "repository")

    def found() -> FoundManifest:
        with committing_engine.begin() as c:
            projects.save_project(c, "a/b", repository_url=repository.url, trusted=True, now=datetime.now(UTC))
        housekeeping.sync_all(committing_engine, service_config)
        with committing_engine.connect() as c:
            answer = found_at_head(c, service_config, projects.find_project(c, "a/b"))
        assert answer is not None
        return answer

    first = repository.commit("one", tidemark_toml='[suite.gpt]\ncommand = "x"\n')
    assert (found().sha, [suite.name for suite in (found().manifest or pytest.fail()).suites]) == (first, ["gpt"])
    second = repository.commit("two", tidemark_toml="[suite.gpt]\n")
    assert found().sha == second and found().problems
    repository.commit("three", tidemark_toml=None)
    assert found().is_missing
    shutil.rmtree(service_config.mirrors_dir)
    with committing_engine.connect() as c:
        kept = found_at_head(c, service_config, projects.find_project(c, "a/b"))
    assert kept is not None and kept.is_missing
