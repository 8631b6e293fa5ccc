"""The demo's repository: the same every time, harmless where it says so, slower where it is planted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_tidemark import ROOT, environment

from tidemark.demo import repository
from tidemark.demo.repository import DOCUMENTATION, SLOWDOWNS, SPEEDUP, DemoRepository

FAMILIES = {"gpt", "moe", "attention", "collectives"}
LEVEL = {"gpt": 3, "moe": 4}  # the patch from which a suite costs the same until it is made slower


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoRepository]:
    yield repository.build(tmp_path_factory.mktemp("demo") / "tinygpt")


def git(demo: DemoRepository, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=demo.path, capture_output=True, text=True, check=True).stdout


def numbers(demo: DemoRepository, suite: str) -> list[int]:
    return [number for number, commit in enumerate(demo.commits, start=1) if suite in commit.suites]


def test_it_is_the_same_to_the_last_byte_every_time(demo: DemoRepository, tmp_path: Path) -> None:
    again = repository.build(tmp_path / "again")
    assert [commit.sha for commit in again.commits] == [commit.sha for commit in demo.commits]


def test_the_first_commit_is_measured_by_all_four_families(demo: DemoRepository) -> None:
    assert demo.commits[0].suites == FAMILIES
    assert {suite for _, suite in demo.runs} == FAMILIES


def test_most_commits_cost_one_run(demo: DemoRepository) -> None:
    later = [commit for commit in demo.commits[1:] if commit.suites]
    assert sum(len(commit.suites) for commit in later) < 1.3 * len(later)


@pytest.mark.parametrize("slowdown", SLOWDOWNS, ids=lambda slowdown: slowdown.suite)
def test_a_slowdown_has_five_points_before_it_and_three_on_each_level_after(
    slowdown: repository.Slowdown, demo: DemoRepository
) -> None:
    measured = numbers(demo, slowdown.suite)
    end = slowdown.fixed_by or len(demo.commits) + 1
    assert {slowdown.patch, slowdown.fixed_by or slowdown.patch} <= set(measured)
    assert sum(LEVEL[slowdown.suite] <= number < slowdown.patch for number in measured) >= 5
    assert sum(slowdown.patch <= number < end for number in measured) >= 3
    assert slowdown.fixed_by is None or sum(number >= end for number in measured) >= 3


def test_what_got_faster_has_five_points_before_and_three_after(demo: DemoRepository) -> None:
    measured = numbers(demo, "attention")
    assert sum(number < SPEEDUP for number in measured) >= 5
    assert sum(number >= SPEEDUP for number in measured) >= 3


def test_several_people_wrote_it_one_after_another(demo: DemoRepository) -> None:
    authors = set(git(demo, "log", "--format=%an <%ae>").splitlines())
    assert len(authors) >= 3
    dates = [int(line) for line in git(demo, "log", "--reverse", "--format=%ct").splitlines()]
    assert dates == sorted(set(dates))


def test_one_commit_touches_nothing_that_is_measured(demo: DemoRepository) -> None:
    assert [number for number, commit in enumerate(demo.commits, start=1) if not commit.suites] == [DOCUMENTATION]
    assert git(demo, "show", "--format=", "--name-only", demo.of(DOCUMENTATION).sha).split() == ["README.md"]


@pytest.mark.parametrize("slowdown", SLOWDOWNS, ids=lambda slowdown: slowdown.suite)
def test_no_message_gives_a_planted_commit_away(slowdown: repository.Slowdown, demo: DemoRepository) -> None:
    message = git(demo, "show", "--no-patch", "--format=%B", demo.of(slowdown.patch).sha).lower()
    assert not any(word in message for word in ("slow", "regress", "demo", "planted", "performance"))


@pytest.mark.torch
def test_every_commit_costs_what_its_part_says(demo: DemoRepository) -> None:
    """Counted, not timed: operations and bytes of a step are the same on every machine."""
    counted = _counted(demo)
    for suite, level in LEVEL.items():
        slowdown = next(one for one in SLOWDOWNS if one.suite == suite)
        end = slowdown.fixed_by or len(demo.commits) + 1
        usual = counted[suite][level]
        for number in numbers(demo, suite):
            if slowdown.patch <= number < end:
                assert counted[suite][number] == counted[suite][slowdown.patch] != usual, number
            elif number >= level:
                assert counted[suite][number] == usual, number
        assert counted[suite][slowdown.patch][1] > 1.2 * usual[1], "what it keeps for the backward pass grows"
    before, after = (counted["attention"][number] for number in (SPEEDUP - 1, SPEEDUP))
    assert after[0] < 0.8 * before[0] and after[1] < 0.8 * before[1]


def _counted(demo: DemoRepository) -> dict[str, dict[int, tuple[int, int]]]:
    """Operations and kept bytes of one step, by suite and number of the patch."""
    script = Path(__file__).with_name("count_each_commit.py")
    done = subprocess.run(
        [sys.executable, str(script), str(ROOT), *(commit.sha for commit in demo.commits)],
        cwd=demo.path,
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(demo.commits)
    return {
        suite: {number: tuple(line[suite]) for number, line in enumerate(lines, start=1)}
        for suite in ("gpt", "moe", "attention")
    }
