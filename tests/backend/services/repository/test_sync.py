"""A repository and the store, kept in step: real git, real Postgres."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from backend.services import housekeeping
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import BadRequest, Conflict, NotFound
from backend.services.base.principal import Principal, Scope, Via
from backend.services.base.scope import find_commit, find_scope
from backend.services.reports.facets import Named, catalogue
from backend.services.repository import mirror, requests
from backend.services.repository.requests import RunRequest
from backend.services.repository.sync import Synced

ME = Principal(name="me", via=Via.TOKEN, scopes=frozenset(Scope))
MANIFEST = """
branches = ["release/*"]
[suite.gpt]
benchmarks = ["gpt.train"]
paths = ["tinygpt/**", "tidemark.toml"]
[suite.all]
command = "make bench"
testbeds = ["cpu", "h200"]
paths = ["**", "!docs/**"]
"""


class Repository:
    """A git repository that a test writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.path, check=True, capture_output=True, text=True, timeout=30
        )
        return done.stdout.strip()

    def commit(self, message: str, **files: str | None) -> str:
        """Commit files; `__` in a name stands for `/`, `_toml` for `.toml`."""
        for name, content in files.items():
            path = self.path / name.replace("__", "/").replace("_toml", ".toml")
            if content is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture
def config(database: str, tmp_path: Path) -> ServiceConfig:
    return ServiceConfig(
        database_url=database, redis_url="redis://127.0.0.1:1/0", data_dir=tmp_path / "data", first_sync_commits=8
    )


@pytest.fixture
def sync(committing_engine: Engine, config: ServiceConfig, repository: Repository) -> Callable[..., Synced]:
    """Asks for a sync of the project `a/b`, and does it."""

    def ask_and_do(*, url: str | None = None, trusted: bool = True, branch: str = "main") -> Synced:
        with committing_engine.begin() as c:
            projects.save_project(
                c, "a/b", repository_url=url or repository.url, trusted=trusted, default_branch=branch, now=now()
            )
        (synced,) = housekeeping.sync_all(committing_engine, config)
        return synced

    return ask_and_do


def now() -> datetime:
    return datetime.now(UTC)


def rows(engine: Engine, sql: str, **values: Any) -> list[Any]:
    with engine.connect() as c:
        return list(c.execute(text(sql), values))


def line(engine: Engine, branch: str = "main") -> list[tuple[int, str]]:
    found = rows(
        engine,
        "SELECT bc.position, k.sha FROM branch_commit bc JOIN branch b ON b.id = bc.branch_id "
        "JOIN commit k ON k.id = bc.commit_id WHERE b.name = :branch ORDER BY 1",
        branch=branch,
    )
    return [(position, sha) for position, sha in found]


def note(engine: Engine, sha: str) -> str | None:
    ((reason, error),) = rows(engine, "SELECT skipped_reason, manifest_error FROM commit WHERE sha = :s", s=sha)
    return error or reason


def untouched(engine: Engine, sha: str) -> list[str] | None:
    ((suites,),) = rows(engine, "SELECT untouched_suites FROM commit WHERE sha = :s", s=sha)
    return suites


def queued(engine: Engine) -> list[tuple[str, str, str, str]]:
    found = rows(
        engine,
        "SELECT k.message, r.suite, t.name, r.state FROM run r JOIN commit k ON k.id = r.commit_id "
        "JOIN testbed t ON t.id = r.testbed_id ORDER BY k.id, r.suite, t.name",
    )
    return [tuple(row) for row in found]


def test_commits_land_in_first_parent_order_with_what_they_changed(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    first = repository.commit("first", tidemark_toml=MANIFEST, tinygpt__model="1")
    repository.git("checkout", "-q", "-b", "feature")
    inside = repository.commit("inside the feature", tinygpt__model="2")
    repository.git("checkout", "-q", "main")
    second = repository.commit("second\n\nwith a body <script>", other="x")
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "feature")
    merge = repository.git("rev-parse", "HEAD")
    synced = sync()
    assert synced.error is None and synced.commits == 4
    assert line(committing_engine) == [(0, first), (1, second), (2, merge)]
    stored = {row.sha: row for row in rows(committing_engine, "SELECT * FROM commit")}
    assert stored[merge].parents == [second, inside] and stored[merge].changed_paths == ["tinygpt/model"]
    assert stored[second].message == "second\n\nwith a body <script>"
    assert stored[second].author_name == "Ada" and stored[second].author_email == "ada@example.org"
    assert stored[first].changed_paths == ["tidemark.toml", "tinygpt/model"]


@pytest.mark.parametrize(
    ("name", "value"), [("MAX_PATHS", 2), ("MAX_MEMORY_BYTES", 1 << 20)], ids=["more files", "more memory"]
)
def test_a_commit_that_changed_more_than_can_be_listed_may_have_changed_what_any_suite_measures(
    repository: Repository,
    committing_engine: Engine,
    sync: Callable[..., Synced],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: int,
) -> None:
    repository.commit("code", tidemark_toml=MANIFEST, tinygpt__model="1")
    sync()
    many = repository.commit("many", a="1", b="1", docs__c="1", tinygpt__model="2")
    monkeypatch.setattr(mirror, name, value)
    assert sync().requested > 0
    ((paths, suites),) = rows(
        committing_engine, "SELECT changed_paths, untouched_suites FROM commit WHERE sha = :s", s=many
    )
    assert paths[-1] == mirror.MORE_PATHS and suites == []


def test_a_submodule_that_moves_is_a_change_of_what_lies_below_it(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    first = repository.commit("code", tidemark_toml='[suite.gpt]\ncommand = "x"\npaths = ["flash/**"]\n')
    for number, points_at in enumerate((first, "1" * 40)):
        repository.git("update-index", "--add", "--cacheinfo", f"160000,{points_at},flash")
        repository.git("commit", "-q", "-m", f"flash {number}")
    moved = repository.git("rev-parse", "HEAD")
    assert sync().requested == 2
    assert untouched(committing_engine, moved) == []


def test_a_file_that_is_called_as_another_commit_hides_no_path(repository: Repository) -> None:
    old = repository.commit("old", a="1")
    new = repository.commit("new", **{old: "x", "tinygpt__model": "2"})
    found = mirror.Mirror(repository.path, repository.url, trusted=True, timeout_s=60).commits([new, old])
    assert [set(commit.changed_paths) for commit in found] == [{old, "tinygpt/model"}, {"a"}]


def test_runs_are_requested_for_what_a_commit_can_have_changed(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    repository.commit("code", tidemark_toml=MANIFEST, tinygpt__model="1")
    repository.commit("other", setup="x")
    docs = repository.commit("docs", docs__a="x")
    assert sync().requested == 5
    assert queued(committing_engine) == [
        ("code", "all", "cpu", "queued"),
        ("code", "all", "h200", "queued"),
        ("code", "gpt", "cpu", "queued"),
        ("other", "all", "cpu", "queued"),
        ("other", "all", "h200", "queued"),
    ]
    assert note(committing_engine, docs) == "changes only docs/a, which `paths` of no suite names"


def test_a_second_sync_adds_only_what_is_new(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    repository.commit("one", tidemark_toml=MANIFEST)
    sync()
    assert (sync().commits, sync().requested) == (0, 0)
    two = repository.commit("two", tinygpt__x="1")
    synced = sync()
    assert (synced.commits, synced.requested) == (1, 3) and line(committing_engine)[-1] == (1, two)


def test_without_a_manifest_nothing_runs_and_the_commit_says_why(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    sha = repository.commit("bare", a="1")
    assert sync().requested == 0
    assert note(committing_engine, sha) == "no tidemark.toml in this commit, so it does not say what to run"


def test_an_invalid_manifest_is_a_note_on_its_commit_and_the_next_one_mends_it(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    broken = repository.commit("broken", tidemark_toml="[suite.gpt]\nbenchmarks = 3\n")
    repository.commit("mended", tidemark_toml=MANIFEST)
    assert sync().error is None
    assert note(committing_engine, broken) == (
        "tidemark.toml: suite.gpt.benchmarks is 3; accepted: a list of benchmark ids or patterns, like gpt.*"
    )
    assert {message for message, *_ in queued(committing_engine)} == {"mended"}


def test_a_force_push_rebuilds_positions_from_the_merge_base(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    base = repository.commit("base", tidemark_toml=MANIFEST)
    lost = repository.commit("lost", tinygpt__x="1")
    repository.commit("lost too", tinygpt__x="2")
    sync()
    repository.git("reset", "-q", "--hard", base)
    kept = repository.commit("kept", tinygpt__x="3")
    sync()
    assert line(committing_engine) == [(0, base), (1, kept)]
    states = {(message, state) for message, _, _, state in queued(committing_engine)}
    assert states == {("base", "queued"), ("lost", "superseded"), ("lost too", "superseded"), ("kept", "queued")}
    assert rows(committing_engine, "SELECT 1 FROM commit WHERE sha = :s", s=lost)


def test_a_branch_that_only_moved_back_is_shortened(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    base = repository.commit("base", tidemark_toml=MANIFEST)
    repository.commit("undone", tinygpt__x="1")
    sync()
    repository.git("reset", "-q", "--hard", base)
    sync()
    assert line(committing_engine) == [(0, base)]


def test_another_branch_is_counted_on_from_its_fork_and_runs_only_where_the_manifest_wants_it(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    base = repository.commit("base", tidemark_toml=MANIFEST)
    repository.git("checkout", "-q", "-b", "feature")
    own = repository.commit("own", tinygpt__x="1")
    repository.git("checkout", "-q", "-b", "release/1", "main")
    released = repository.commit("released", tinygpt__x="2")
    repository.git("checkout", "-q", "main")
    main = repository.commit("main", tinygpt__x="3")
    sync()
    assert line(committing_engine, "feature") == [(0, base), (1, own)]
    assert line(committing_engine, "release/1") == [(0, base), (1, released)]
    assert line(committing_engine) == [(0, base), (1, main)]
    assert {message for message, *_ in queued(committing_engine)} == {"base", "released", "main"}
    assert "branch feature is not benchmarked" in str(note(committing_engine, own))


def test_a_merged_branch_is_benchmarked_when_it_reaches_the_default_branch(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    repository.commit("base", tidemark_toml=MANIFEST)
    repository.git("checkout", "-q", "-b", "feature")
    own = repository.commit("own", tinygpt__x="1")
    sync()
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--ff-only", "feature")
    repository.git("branch", "-q", "-D", "feature")
    assert sync().requested == 3 and note(committing_engine, own) is None
    ((deleted,),) = rows(committing_engine, "SELECT deleted_at IS NOT NULL FROM branch WHERE name = 'feature'")
    assert deleted


def test_a_long_history_is_benchmarked_from_its_newest_commits_only(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    first = repository.commit("0", tidemark_toml="[suite.x]\ncommand='x'\n")
    for number in range(1, 12):
        repository.commit(str(number), x=str(number))
    assert sync().requested == 8
    assert "none of the newest 8" in str(note(committing_engine, first))
    assert [message for message, *_ in queued(committing_engine)] == [str(number) for number in range(4, 12)]


def test_commits_that_a_run_named_before_get_their_place_and_their_runs(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    first = repository.commit("first", tidemark_toml=MANIFEST)
    second = repository.commit("second", tinygpt__x="1")
    with committing_engine.begin() as c:
        projects.save_project(c, "a/b", repository_url=None, trusted=True, now=now())
        c.execute(text("INSERT INTO branch (project_id, name) SELECT id, 'main' FROM project"))
        c.execute(text("INSERT INTO commit (project_id, sha) SELECT id, :s FROM project"), {"s": second})
        c.execute(
            text(
                """INSERT INTO branch_commit (branch_id, project_id, position, commit_id)
                   SELECT b.id, b.project_id, 0, k.id FROM branch b, commit k"""
            )
        )
    assert sync().requested == 6
    assert line(committing_engine) == [(0, first), (1, second)]


def test_the_policy_of_the_default_branch_is_the_projects(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    repository.commit("a", tidemark_toml=MANIFEST + "[policy]\nsustained_runs = 2\n")
    sync()
    assert rows(committing_engine, "SELECT policy FROM project")[0].policy == {"sustained_runs": 2}


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("--upload-pack=touch /tmp/x", "accepted: an https"),
        ("ext::sh -c touch", "accepted"),
        ("git://example.org/x", "accepted"),
        ("https://", "accepted"),
        ("ssh://-oProxyCommand=x/y", "accepted"),
        ("git@-oProxyCommand=x:y", "accepted"),
        ("https://[::1", "accepted"),
        ("file://host/x", "accepted"),
        ("https://example.org/a b", "accepted"),
    ],
)
def test_a_url_that_is_no_repository_is_refused(committing_engine: Engine, url: str, told: str) -> None:
    with committing_engine.begin() as c, pytest.raises(BadRequest, match=told):
        projects.save_project(c, "a/b", repository_url=url, trusted=True, now=now())


def test_files_of_this_machine_are_for_trusted_projects_only(committing_engine: Engine) -> None:
    with committing_engine.begin() as c, pytest.raises(BadRequest, match="only for trusted"):
        projects.save_project(c, "a/b", repository_url="file:///x", trusted=False, now=now())


def test_git_itself_refuses_a_protocol_that_the_project_may_not_use(
    repository: Repository, committing_engine: Engine, config: ServiceConfig, sync: Callable[..., Synced]
) -> None:
    repository.commit("a", a="1")
    sync()
    with committing_engine.begin() as c:
        c.execute(text("UPDATE project SET trusted = false, sync_requested_at = now()"))
    (synced,) = housekeeping.sync_all(committing_engine, config)
    assert "transport 'file' not allowed" in str(synced.error)


def test_a_sync_that_fails_says_why_waits_and_tries_again(
    repository: Repository, committing_engine: Engine, config: ServiceConfig, sync: Callable[..., Synced]
) -> None:
    repository.commit("a", a="1")
    assert "branch 'dev' does not exist in the repository; branches there: main" in str(sync(branch="dev").error)
    assert housekeeping.sync_all(committing_engine, config) == []
    repository.git("branch", "dev")
    later = now() + timedelta(seconds=config.sync_again_s + 1)
    (synced,) = housekeeping.sync_all(committing_engine, config, lambda: later)
    assert synced.error is None
    ((error, requested),) = rows(committing_engine, "SELECT sync_error, sync_requested_at FROM project")
    assert error is None and requested is None


@pytest.mark.parametrize("url", ["https://token@example.org/x", "https://u:p@example.org/x", "ssh://u:p@example.org/x"])
def test_credentials_do_not_belong_into_the_address(committing_engine: Engine, url: str) -> None:
    with committing_engine.begin() as c, pytest.raises(BadRequest, match="leave them to git") as refused:
        projects.save_project(c, "a/b", repository_url=url, trusted=False, now=now())
    assert "token" not in str(refused.value) and "u:p" not in str(refused.value)


def test_a_repository_that_is_not_there_is_told_without_its_credentials(
    committing_engine: Engine, config: ServiceConfig
) -> None:
    with committing_engine.begin() as c:
        c.execute(
            text("INSERT INTO project (slug, repository_url, sync_requested_at) VALUES ('a/b', :url, now())"),
            {"url": "https://user:hunter2@127.0.0.1:1/x.git"},
        )
    (synced,) = housekeeping.sync_all(committing_engine, config)
    assert synced.error is not None and "hunter2" not in synced.error and "127.0.0.1" in synced.error


def test_a_broken_mirror_is_made_anew(
    repository: Repository, committing_engine: Engine, config: ServiceConfig, sync: Callable[..., Synced]
) -> None:
    repository.commit("a", a="1")
    sync()
    (mirror,) = config.mirrors_dir.iterdir()
    for pack in mirror.rglob("objects/**/*"):
        if pack.is_file():
            pack.chmod(0o600)
            pack.write_bytes(b"garbage")
    sha = repository.commit("b", b="1")
    assert sync().error is None and line(committing_engine)[-1] == (1, sha)


def test_a_repository_nobody_tells_of_is_looked_at_now_and_then(
    repository: Repository, committing_engine: Engine, config: ServiceConfig, sync: Callable[..., Synced]
) -> None:
    repository.commit("a", a="1")
    sync()
    assert housekeeping.sync_all(committing_engine, config) == []
    later = now() + timedelta(seconds=config.poll_s + 1)
    assert len(housekeeping.sync_all(committing_engine, config, lambda: later)) == 1


def test_odd_commits_are_taken_as_they_are(
    repository: Repository, committing_engine: Engine, sync: Callable[..., Synced]
) -> None:
    repository.commit("a", tidemark_toml=MANIFEST)
    (repository.path / "tinygpt").mkdir()
    (repository.path / "tinygpt" / "new\nline é \U0001f600.py").write_text("x")
    repository.git("add", "-A")
    repository.git("-c", "i18n.commitEncoding=ISO-8859-1", "commit", "-q", "-m", "latin \xe9")
    assert sync().requested == 6
    paths = [row.changed_paths for row in rows(committing_engine, "SELECT changed_paths FROM commit ORDER BY id")]
    assert ["tinygpt/new\nline é \U0001f600.py"] in paths


# --- asking for runs -------------------------------------------------------------------------------------------------


def ask(engine: Engine, config: ServiceConfig, **more: Any) -> requests.AcceptedRequest:
    with engine.begin() as c:
        return requests.request_commit(c, RunRequest(**{"project": "a/b", **more}), config, ME, now())


def test_a_person_may_ask_for_a_commit_that_was_skipped(
    repository: Repository, committing_engine: Engine, config: ServiceConfig, sync: Callable[..., Synced]
) -> None:
    repository.commit("a", tidemark_toml=MANIFEST)
    docs = repository.commit("docs", docs__a="x")
    sync()
    accepted = ask(committing_engine, config, commit=docs[:8], suites=["all"], testbeds=["cpu"])
    assert accepted.commit == docs and [run.created for run in accepted.runs] == [True]
    again = ask(committing_engine, config, commit="main", suites=["all"], testbeds=["cpu"], again=True)
    assert [(run.run_id, run.created) for run in again.runs] == [(accepted.runs[0].run_id, False)]


def test_what_is_done_is_repeated_only_when_asked_to(
    repository: Repository, committing_engine: Engine, config: ServiceConfig, sync: Callable[..., Synced]
) -> None:
    repository.commit("a", tidemark_toml="[suite.x]\ncommand='x'\n")
    sync()
    with committing_engine.begin() as c:
        c.execute(text("UPDATE run SET state = 'done'"))
    (there,) = ask(committing_engine, config, commit="main").runs
    (repeated,) = ask(committing_engine, config, commit="main", again=True).runs
    assert (there.created, there.state, repeated.created) == (False, "done", True)


def test_asking_for_what_is_not_there_names_what_is(
    repository: Repository, committing_engine: Engine, config: ServiceConfig, sync: Callable[..., Synced]
) -> None:
    bare = repository.commit("bare", a="1")
    broken = repository.commit("broken", tidemark_toml="x = 1")
    repository.commit("good", tidemark_toml=MANIFEST)
    sync()
    with pytest.raises(NotFound, match="unknown suite 'moe'; known: gpt, all"):
        ask(committing_engine, config, commit="main", suites=["moe"])
    with pytest.raises(NotFound, match=r"no usable tidemark\.toml"):
        ask(committing_engine, config, commit=bare)
    with pytest.raises(Conflict, match="unknown key x"):
        ask(committing_engine, config, commit=broken)
    with pytest.raises(NotFound):
        ask(committing_engine, config, commit="f" * 40)
    with pytest.raises(NotFound, match="unknown project 'no/such'; known: a/b"):
        ask(committing_engine, config, project="no/such", commit="main")


def test_what_is_no_fault_of_git_is_shown_as_well(
    repository: Repository, committing_engine: Engine, config: ServiceConfig, sync: Callable[..., Synced]
) -> None:
    repository.commit("first", tidemark_toml=MANIFEST)
    config.data_dir.mkdir(parents=True)
    config.mirrors_dir.write_text("a file where the mirrors should be")
    assert "FileExistsError" in str(sync().error)
    (project,) = rows(committing_engine, "SELECT sync_error, sync_requested_at FROM project")
    assert "FileExistsError" in project.sync_error and project.sync_requested_at is not None


def test_changing_a_project_keeps_what_is_not_named(committing_engine: Engine) -> None:
    with committing_engine.begin() as c:
        url = "https://example.org/a.git"
        projects.save_project(c, "a/b", repository_url=url, trusted=True, default_branch="trunk", now=now())
        projects.save_project(c, "a/b", github={"issues": True}, oidc={"refs": ["refs/heads/main"]}, now=now())
        projects.save_project(c, "a/b", default_branch="main", github={"approval_label": "go"}, now=now())
        found = projects.find_project(c, "a/b")
        assert (found.repository_url, found.trusted, found.default_branch) == (url, True, "main")
        settings = {"github": {"issues": True, "approval_label": "go"}, "oidc": {"refs": ["refs/heads/main"]}}
        assert found.settings == settings
        projects.save_project(c, "a/b", oidc=None, github={"issues": None}, repository_url=None, now=now())
        found = projects.find_project(c, "a/b")
        assert found.settings == {"github": {"approval_label": "go"}} and found.repository_url is None


def test_a_commit_is_known_by_the_suites_that_it_cannot_have_changed(
    sync: Callable[..., Synced], repository: Repository, committing_engine: Engine
) -> None:
    declared = repository.commit("suites", tidemark_toml=MANIFEST, tinygpt__model="1")
    outside = repository.commit("tools", tools__a="1")
    docs = repository.commit("docs", docs__a="1")
    inside = repository.commit("model", tinygpt__model="2")
    sync()
    assert untouched(committing_engine, declared) is None  # it changed how suites are run
    assert untouched(committing_engine, outside) == ["gpt"]
    assert sorted(untouched(committing_engine, docs) or []) == ["all", "gpt"]
    assert untouched(committing_engine, inside) == []


def test_tags_name_commits_move_and_go_and_those_of_unknown_commits_are_left_out(
    sync: Callable[..., Synced], repository: Repository, committing_engine: Engine
) -> None:
    first, second = repository.commit("One", a="1"), repository.commit("Two", a="2")
    repository.git("tag", "v1.0", first)
    repository.git("tag", "-a", "nightly", "-m", "annotated", first)
    repository.git("checkout", "-q", "--detach", first)
    repository.git("tag", "ciflow/trunk/7", repository.commit("Of a pull request", b="1"))
    repository.git("checkout", "-q", "main")
    sync()

    def found(name: str) -> str:
        with committing_engine.connect() as c:
            return find_commit(c, find_scope(c, "a/b"), name).sha

    assert (found("v1.0"), found("nightly")) == (first, first)
    with pytest.raises(NotFound, match="a tag"):
        found("ciflow/trunk/7")
    repository.git("tag", "--force", "nightly", second)
    repository.git("tag", "--delete", "v1.0")
    repository.git("tag", "2024", second)  # might be the beginning of a sha
    sync()
    assert (found("nightly"), found("2024")) == (second, second)
    with pytest.raises(NotFound):
        found("v1.0")
    with committing_engine.connect() as c:
        offered = catalogue(c, "a/b", None, None, {}).tags
    assert offered == (Named("nightly", "Two"), Named("2024", "Two"))
