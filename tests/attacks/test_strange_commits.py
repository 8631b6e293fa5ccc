"""Commits that git takes and that a reader of them trips over: of an encoding that is none, of billions of files."""

from __future__ import annotations

import subprocess
import tracemalloc
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from backend.services import housekeeping
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.repository import commit_object, mirror
from tests.backend.services.github.test_pull_requests import NOW
from tests.backend.services.repository.test_sync import Repository
from worker.execution import checkout
from worker.execution.checkout import CheckoutError, Mirrors

SUITE = "[suite.good]\ncommand = 'true'\n"
ENCODINGS = ["undefined", "idna", "punycode", "zlib", "no such", "utf-16", "x" * 5000]


@pytest.fixture
def config(database: str, tmp_path: Path) -> ServiceConfig:
    return ServiceConfig(
        database_url=database, redis_url="redis://127.0.0.1:1/0", data_dir=tmp_path / "data", first_sync_commits=100
    )


def written(repository: Repository, kind: str, content: bytes) -> str:
    """An object as it is, which the commands for people would not write."""
    made = subprocess.run(
        ["git", "hash-object", "-t", kind, "-w", "--stdin"], input=content, cwd=repository.path, check=True,
        capture_output=True, timeout=30,
    )  # fmt: skip
    return made.stdout.decode().strip()


def on_top(repository: Repository, tree: str, extra: str = "", message: str = "x") -> str:
    parent = repository.git("rev-parse", "main")
    who = "Ada <ada@example.org> 1750000000 +0000"
    head = f"tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n{extra}\n{message}\n"
    sha = written(repository, "commit", head.encode())
    repository.git("update-ref", "refs/heads/main", sha)
    return sha


def bomb(repository: Repository) -> str:
    """A tree of 10 directories, each of the same 10 … and ten thousand million files. A few kilobytes."""
    tree = repository.git("rev-parse", "main^{tree}")
    for _ in range(10):
        entry = bytes.fromhex(tree)
        tree = written(repository, "tree", b"".join(b"40000 d%d\0" % n + entry for n in range(10)))
    return tree


def synced(engine: Engine, config: ServiceConfig, repository: Repository) -> tuple[str | None, set[str]]:
    """What the sync complained of, and the commits that are measured."""
    with engine.begin() as c:
        projects.save_project(c, "a/b", repository_url=repository.url, trusted=True, default_branch="main", now=NOW)
    (said,) = housekeeping.sync_all(engine, config)
    with engine.connect() as c:
        measured = c.scalars(text("SELECT c.sha FROM run r JOIN commit c ON c.id = r.commit_id")).all()
    return said.error, set(measured)


def test_an_encoding_that_is_none_stops_no_sync(
    committing_engine: Engine, config: ServiceConfig, tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "repository")
    first = repository.commit("Good", tidemark_toml=SUITE)
    tree = repository.git("rev-parse", "main^{tree}")
    for encoding in ENCODINGS:
        on_top(repository, tree, f"encoding {encoding}\n", f"Encoded as {encoding[:10]} z\xe9-99999")
    error, measured = synced(committing_engine, config, repository)
    assert error is None and first in measured
    with committing_engine.connect() as c:
        assert c.scalar(text("SELECT count(*) FROM commit WHERE changed_paths IS NOT NULL")) == 1 + len(ENCODINGS)


def test_a_commit_of_billions_of_files_is_passed_over_and_the_next_is_measured(
    committing_engine: Engine, config: ServiceConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "MAX_MEMORY_BYTES", 16 << 20)  # the same, sooner
    repository = Repository(tmp_path / "repository")
    first = repository.commit("Good", tidemark_toml=SUITE)
    good = repository.git("rev-parse", "main^{tree}")
    exploding = on_top(repository, bomb(repository))
    on_top(repository, good)  # takes the files away again, and is as large
    other = written(repository, "tree", b"100644 tidemark.toml\0" + blob(repository))
    last = on_top(repository, other)
    error, measured = synced(committing_engine, config, repository)
    assert error is None and {first, last} <= measured and exploding not in measured


def test_commits_with_a_message_of_megabytes_are_passed_by_without_being_read(tmp_path: Path) -> None:
    """Ten of them, more than twice the bound, in one push: what is read at a time has one, whatever is in the
    repository."""
    repository = Repository(tmp_path / "repository")
    first = repository.commit("Good", a="1")
    tree = repository.git("rev-parse", "main^{tree}")
    small = on_top(repository, tree, message="a" * 900_000)
    large = [on_top(repository, tree, message=f"{number}" + "a" * (8 << 20)) for number in range(10)]
    copy = mirror.Mirror(tmp_path / "1.git", repository.url, trusted=True, timeout_s=60)
    copy.fetch()
    tracemalloc.start()
    read = copy.commits([first, small, *large])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2 * mirror.MAX_READ_BYTES
    assert [commit.parents for commit in read] == [(), (first,), (small,), *((sha,) for sha in large[:-1])]
    assert read[1].message.startswith("aaa") and read[2].message.endswith("bytes, which is not read)")
    assert len(read[1].message) == commit_object.MAX_MESSAGE_CHARACTERS


def blob(repository: Repository) -> bytes:
    return bytes.fromhex(written(repository, "blob", f"# another\n{SUITE}".encode()))


def test_a_worker_lays_out_no_billions_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "MAX_FILES", 500_000)  # the same, sooner
    repository = Repository(tmp_path / "repository")
    repository.commit("Good", a="1")
    exploding = on_top(repository, bomb(repository))
    with pytest.raises(CheckoutError, match=r"or more than 5\d\d,\d+ of them; at most"):
        Mirrors(tmp_path / "mirrors").check_out(repository.url, exploding, tmp_path / "checkout")
    assert not (tmp_path / "checkout").exists()


def test_a_worker_lays_out_no_file_that_is_small_in_history_alone(tmp_path: Path) -> None:
    """200 MB of nothing are 200 kB in a pack: a thousand times that would be a full disk."""
    repository = Repository(tmp_path / "repository")
    repository.commit("Good", a="1")
    with (repository.path / "zeros").open("wb") as file:
        file.truncate(200 << 20)
    repository.git("add", "--all")
    inflated = repository.commit("Inflated", b="1")
    mirrors = Mirrors(tmp_path / "mirrors", max_bytes=100 << 20)
    with pytest.raises(CheckoutError, match=r"has files of more than 0\.2 GB"):
        mirrors.check_out(repository.url, inflated, tmp_path / "checkout")
    assert not (tmp_path / "checkout").exists()
    assert sum(path.stat().st_size for path in (tmp_path / "mirrors").rglob("*") if path.is_file()) < 10 << 20
