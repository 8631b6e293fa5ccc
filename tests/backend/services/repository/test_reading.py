"""What a repository has that the store does not: real git, real Postgres."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.repository.manifest import Manifest, ManifestInvalid
from backend.services.repository.mirror import GitFailure
from backend.services.repository.reading import RepositoryReading, manifests_at, mirror_of, read
from backend.store.base.projects import ProjectRow, find
from tests.backend.services.repository.test_sync import MANIFEST, Repository

NOW = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture
def config(database: str, tmp_path: Path) -> ServiceConfig:
    return ServiceConfig(database_url=database, redis_url="redis://127.0.0.1:1/0", data_dir=tmp_path / "data")


def project_of(engine: Engine, repository: Repository, branch: str = "main") -> ProjectRow:
    with engine.begin() as c:
        projects.save_project(c, "a/b", repository_url=repository.url, trusted=True, default_branch=branch, now=NOW)
        row = find(c, "a/b")
    assert row is not None
    return row


def read_now(engine: Engine, config: ServiceConfig, project: ProjectRow) -> RepositoryReading:
    return read(engine, config, project, lambda: False)


def test_a_branch_is_read_from_where_it_leaves_the_default_branch(
    repository: Repository, committing_engine: Engine, config: ServiceConfig
) -> None:
    base = repository.commit("base", tidemark_toml=MANIFEST)
    repository.git("checkout", "-q", "-b", "feature")
    own = repository.commit("own", other="x")
    repository.git("checkout", "-q", "main")
    head = repository.commit("head", other="y")
    repository.git("tag", "v1", base)
    found = read_now(committing_engine, config, project_of(committing_engine, repository))
    assert (found.default.first, found.default.shas, found.default.new) == (0, (base, head), {base, head})
    (feature,) = found.others
    assert (feature.name, feature.shas, feature.new) == ("feature", (base, own), {own})
    assert {commit.sha for commit in found.commits} == {base, own, head}
    assert isinstance(found.head_manifest, Manifest) and found.tags == {"v1": base} and found.deleted == ()


def test_a_default_branch_that_is_not_there_is_refused_with_those_that_are(
    repository: Repository, committing_engine: Engine, config: ServiceConfig
) -> None:
    repository.commit("first")
    with pytest.raises(GitFailure, match="branch 'trunk' does not exist in the repository; branches there: main"):
        read_now(committing_engine, config, project_of(committing_engine, repository, "trunk"))


def test_each_commit_has_the_manifest_that_stands_there(
    repository: Repository, committing_engine: Engine, config: ServiceConfig
) -> None:
    without = repository.commit("without", other="x")
    good = repository.commit("good", tidemark_toml=MANIFEST)
    large = repository.commit("large", tidemark_toml="#" * 300_000)
    mirror = mirror_of(config, project_of(committing_engine, repository))
    mirror.fetch()
    found = manifests_at(mirror, [without, good, large])
    assert found[without] is None and isinstance(found[good], Manifest)
    assert isinstance(found[large], ManifestInvalid) and "has 300000 bytes" in str(found[large])
