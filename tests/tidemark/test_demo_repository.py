"""The demo's repository: the same every time, harmless where it says so, slower where it is planted."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_tidemark import ROOT, environment

from tidemark.demo import repository
from tidemark.demo.repository import DemoRepository, StoryPart
from tidemark.refusal import Refusal


@pytest.fixture(scope="module")
def longest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoRepository]:
    yield repository.build(tmp_path_factory.mktemp("demo") / "tinygpt")


def git(demo: DemoRepository, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=demo.path, capture_output=True, text=True, check=True).stdout


def test_it_is_the_same_to_the_last_byte_every_time(longest: DemoRepository, tmp_path: Path) -> None:
    again = repository.build(tmp_path / "again")
    assert [commit.sha for commit in again.commits] == [commit.sha for commit in longest.commits]


def test_the_longest_tells_the_whole_story(longest: DemoRepository) -> None:
    counts = {part: len(longest.of(part)) for part in StoryPart}
    assert len(longest.measured) == repository.MOST_COMMITS == 20
    assert counts[StoryPart.CLIMB] == 6
    assert counts[StoryPart.PLATEAU] >= 6
    assert counts[StoryPart.DOCUMENTATION] == counts[StoryPart.GUILTY] == counts[StoryPart.FIX] == 1
    assert counts[StoryPart.ON_TOP] >= 3
    assert counts[StoryPart.AFTER] >= 2
    order = [part for part in dict.fromkeys(c.part for c in longest.commits) if part is not StoryPart.DOCUMENTATION]
    assert order == [
        StoryPart.CLIMB,
        StoryPart.PLATEAU,
        StoryPart.GUILTY,
        StoryPart.ON_TOP,
        StoryPart.FIX,
        StoryPart.AFTER,
    ]


def test_several_people_wrote_it_one_after_another(longest: DemoRepository) -> None:
    authors = set(git(longest, "log", "--format=%an <%ae>").splitlines())
    assert len(authors) >= 3
    dates = [int(line) for line in git(longest, "log", "--reverse", "--format=%ct").splitlines()]
    assert dates == sorted(set(dates))


@pytest.mark.parametrize("count", range(repository.LEAST_COMMITS, repository.MOST_COMMITS + 1))
def test_a_shorter_one_keeps_the_story_and_the_code(count: int, longest: DemoRepository, tmp_path: Path) -> None:
    demo = repository.build(tmp_path / "demo", count)
    assert len(demo.measured) == count
    plateau = [commit.part for commit in demo.commits].count(StoryPart.PLATEAU)
    assert plateau + 1 >= 5  # with the commit that reached the level
    assert len(demo.of(StoryPart.ON_TOP)) + 1 >= 3
    assert len(demo.of(StoryPart.AFTER)) + 1 >= 3
    for pick in (lambda d: d.guilty, lambda d: d.fix, lambda d: d.commits[-1]):
        mine, theirs = (git(d, "rev-parse", f"{pick(d).sha}^{{tree}}") for d in (demo, longest))
        assert mine == theirs


@pytest.mark.parametrize("count", [0, 11, 21, 1000])
def test_a_length_that_cannot_tell_the_story_is_refused(count: int) -> None:
    with pytest.raises(Refusal, match="between 12"):
        repository.plan(count)


def test_the_documentation_commit_touches_nothing_that_is_measured(longest: DemoRepository) -> None:
    (documentation,) = longest.of(StoryPart.DOCUMENTATION)
    assert git(longest, "show", "--format=", "--name-only", documentation.sha).split() == ["README.md"]
    for commit in longest.measured:
        paths = git(longest, "show", "--format=", "--name-only", commit.sha).split()
        assert any(path.startswith("tinygpt/") for path in paths), commit.subject


def test_no_message_gives_the_planted_commit_away(longest: DemoRepository) -> None:
    message = git(longest, "show", "--no-patch", "--format=%B", longest.guilty.sha).lower()
    assert not any(word in message for word in ("slow", "regress", "demo", "planted", "performance"))


@pytest.mark.torch
def test_every_commit_costs_what_its_part_says(longest: DemoRepository) -> None:
    """Counted, not timed: operations and bytes of a step are the same on every machine."""
    script = Path(__file__).with_name("count_each_commit.py")
    done = subprocess.run(
        [sys.executable, str(script), str(ROOT), *(commit.sha for commit in longest.commits)],
        cwd=longest.path,
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counted = {sha: (operations, kept) for sha, operations, kept in map(json.loads, done.stdout.splitlines())}
    climb = [counted[commit.sha] for commit in longest.of(StoryPart.CLIMB)]
    level = climb[-1]
    for before, after in itertools.pairwise(climb):
        assert after[0] <= before[0] and after[1] <= before[1] and after != before
    for part in (StoryPart.PLATEAU, StoryPart.DOCUMENTATION, StoryPart.FIX, StoryPart.AFTER):
        assert {counted[commit.sha] for commit in longest.of(part)} == {level}, part
    slow = counted[longest.guilty.sha]
    assert slow[0] > 1.2 * level[0] and slow[1] > 1.2 * level[1]
    assert {counted[commit.sha] for commit in longest.of(StoryPart.ON_TOP)} == {slow}
