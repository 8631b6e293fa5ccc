"""A tidemark.toml made to stop the service: by its numbers, its nesting, its names, its size, its patterns."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from backend.services import housekeeping
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.repository.manifest import ManifestInvalid, parse
from tests.backend.services.github.test_pull_requests import NOW, Hub
from tests.backend.services.repository.test_sync import Repository

GOOD = "[suite.good]\ncommand = 'true'\n"
SUITE = "[suite.a]\ncommand = 'true'\n"
COSTLY = SUITE + "paths = [" + ", ".join(f"'{'*a' * 19}{n}*'" for n in range(200)) + "]\n"

HOSTILE = {
    "an integer of 5,000 digits": f"{SUITE}timeout_s = {'9' * 5000}\n",
    "an integer of 50,000 hexadecimal digits": f"{SUITE}timeout_s = 0x{'f' * 50_000}\n",
    "a number beyond 64 bits among the thresholds": f"{SUITE}[policy]\nmin_change = {'9' * 400}\n",
    "a threshold that is no number": f"{SUITE}[policy]\nmin_change = nan\n",
    "a threshold that is a date": f"{SUITE}[policy]\nmin_change = 1979-05-27\n",
    "40 kB of a.a.a": ".".join("a" * 20_000) + " = 1\n",
    "40 kB of a.a.a as a header": "[" + ".".join("a" * 20_000) + "]\n",
    "40 kB of quoted names": ".".join(['""'] * 13_000) + " = 1\n",
    "lists in lists": "a = " + "[" * 30_000 + "]" * 30_000,
    "tables in tables": "a = " + "{a=" * 15_000 + "1" + "}" * 15_000,
    "nested just as deep as can be read": "a = " + "[" * 200 + "]" * 200,
    "a name with a null character": '"\\u0000" = 1\n',
    "a suite whose name is a null character": '[suite."\\u0000"]\ncommand = "true"\n',
    "a command with a null character": '[suite.a]\ncommand = "a\\u0000"\n',
    "10,000 unknown names": "\n".join(f"k{n} = 1" for n in range(7000)),
    "10,000 suites": "\n".join(f"[suite.s{n}]" for n in range(4500)),
    "no TOML at all": "= = =",
    "larger than accepted": "#" * 70_000,
    "costly patterns": COSTLY,
    "a pattern of nothing but wildcards": f"{SUITE}paths = ['{'*?' * 5000}']\n",
    "costly branches": f"branches = ['{'**/' * 3000}']\n{SUITE}",
}
# Costs too much only for a commit that changes thousands of files.
HARMLESS_FOR_FEW_PATHS = ["costly patterns"]
LONG_PATH = "/".join(["a" * 200] * 15) + "/b"


@pytest.mark.parametrize("content", HOSTILE.values(), ids=list(HOSTILE))
def test_it_is_refused_with_a_sentence_and_within_a_second_of_work(content: str) -> None:
    began = time.process_time()
    with pytest.raises(ManifestInvalid) as refused:
        parse(content).suites[0].matters([LONG_PATH] * 5000)
    assert time.process_time() - began < 3  # seconds of this process; most take a hundredth
    told = str(refused.value)
    assert told.startswith("tidemark.toml: ") and "\x00" not in told and len(told) < 20_000
    assert "cannot be followed" not in told, "a fault that nobody foresaw"


def test_patterns_that_people_write_are_far_from_the_limit() -> None:
    suite = parse(SUITE).suites[0]
    assert not suite.matters([f"docs/{'deep/' * 20}{n}.md" for n in range(5000)])


@pytest.fixture
def config(database: str, tmp_path: Path) -> ServiceConfig:
    return ServiceConfig(
        database_url=database, redis_url="redis://127.0.0.1:1/0", data_dir=tmp_path / "data", first_sync_commits=100
    )


def test_on_a_branch_each_fails_its_own_commit_and_every_other_one_is_measured(
    committing_engine: Engine, config: ServiceConfig, tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit("Good", tidemark_toml=GOOD)
    hostile = [
        repository.commit(f"Try {what}", **{"tidemark.toml": content, LONG_PATH: what})
        for what, content in HOSTILE.items()
    ]
    last = repository.commit("Mend", tidemark_toml=GOOD)
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("Spoil the side", tidemark_toml=HOSTILE["40 kB of a.a.a"])
    with committing_engine.begin() as c:
        projects.save_project(c, "a/b", repository_url=repository.url, trusted=True, default_branch="main", now=NOW)
    (synced,) = housekeeping.sync_all(committing_engine, config)
    assert (synced.error, synced.requested) == (None, 2)
    with committing_engine.connect() as c:
        errors = {sha: error for sha, error in c.execute(text("SELECT sha, manifest_error FROM commit"))}
        measured = c.execute(text("SELECT c.sha FROM run r JOIN commit c ON c.id = r.commit_id")).scalars().all()
    without = [what for what, sha in zip(HOSTILE, hostile, strict=True) if not errors[sha]]
    assert without == HARMLESS_FOR_FEW_PATHS
    assert errors[last] is None and last in measured


def test_in_a_pull_request_it_stops_no_other_project(
    committing_engine: Engine, config: ServiceConfig, tmp_path: Path
) -> None:
    hub = Hub(committing_engine, config, tmp_path / "repository")
    for number, content in enumerate(HOSTILE.values(), start=100):
        hub.tell("opened", hub.push(number, **{"tidemark.toml": content, LONG_PATH: "1"}), number=number)
    good = hub.push(7, **{"src/a.py": "2"})
    hub.tell("opened", good)
    for _ in range(3):  # twenty at once
        hub.prepare()
    assert [run[0] for run in hub.runs()] == [good]
    with committing_engine.connect() as c:
        told = c.execute(text("SELECT count(*) FROM commit WHERE manifest_error IS NOT NULL")).scalar_one()
    assert told == len(HOSTILE) - len(HARMLESS_FOR_FEW_PATHS)


def test_a_fault_that_nobody_foresaw_in_one_pull_request_leaves_the_others(
    committing_engine: Engine, config: ServiceConfig, tmp_path: Path
) -> None:
    """A head that GitHub tells of and the repository does not have, and a branch of a name that no database takes."""
    hub = Hub(committing_engine, config, tmp_path / "repository")
    hub.tell("opened", "f" * 40, number=100, forged=True)
    hub.tell("opened", hub.push(101, **{"src/a.py": "3"}), number=101, pull_request={"base": {"ref": "no\x00such"}})
    good = hub.push(7, **{"src/a.py": "2"})
    hub.tell("opened", good)
    hub.prepare()
    assert good in [run[0] for run in hub.runs()]
