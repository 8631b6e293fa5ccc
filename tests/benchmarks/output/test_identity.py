"""Whose run it is: the worker's word first, then git's, then something sensible."""

import platform

import pytest

from benchmarks.output.identity import NO_COMMIT, BadIdentity, identity
from benchmarks.output.ulid import new_ulid

COMMIT, PARENT = "a" * 40, "b" * 40
GIT = {"commit": COMMIT, "parents": [PARENT], "branch": "main"}


def test_without_a_worker_git_speaks():
    who = identity({}, GIT, suite="gpt", testbed="cpu")
    assert (who.commit, who.parents, who.branch, who.suite, who.testbed) == (COMMIT, (PARENT,), "main", "gpt", "cpu")
    assert who.project.startswith("local/")
    assert len(who.id) == 26


def test_the_workers_word_wins_over_git():
    environ = {
        "TIDEMARK_RUN_ID": "01JD2Q8Z6WJ4M6R8T0V2X4Y6Z8",
        "TIDEMARK_PROJECT": "northsea/loom",
        "TIDEMARK_COMMIT": "c" * 40,
        "TIDEMARK_PARENTS": f"{'d' * 40}, {'e' * 40}",
        "TIDEMARK_BRANCH": "topic",
        "TIDEMARK_SUITE": "moe",
        "TIDEMARK_TESTBED": "h200-sxm",
        "TIDEMARK_WORKER": "h200-01",
        "TIDEMARK_ATTEMPT": "2",
    }
    who = identity(environ, GIT, suite="gpt", testbed="cpu")
    assert who.id == "01JD2Q8Z6WJ4M6R8T0V2X4Y6Z8"
    assert who.parents == ("d" * 40, "e" * 40)
    assert (who.project, who.branch, who.suite, who.attempt) == ("northsea/loom", "topic", "moe", 2)


@pytest.mark.parametrize(
    ("environ", "worker"),
    [
        ({"RUNNER_ENVIRONMENT": "github-hosted"}, "github-hosted"),
        ({"RUNNER_ENVIRONMENT": "self-hosted"}, platform.node()),
        ({}, platform.node()),
        ({"RUNNER_ENVIRONMENT": "github-hosted", "TIDEMARK_WORKER": "pool-b"}, "pool-b"),
    ],
)
def test_machines_that_are_fresh_each_time_have_one_name(environ, worker):
    """A worker is calibrated before it is judged: one that never comes again never would be."""
    assert identity(environ, GIT, suite="gpt", testbed="cpu").worker == worker


def test_a_root_commit_has_no_parents():
    assert identity({"TIDEMARK_PARENTS": ""}, GIT, suite="gpt", testbed="cpu").parents == ()


def test_outside_of_git_the_commit_is_none_at_all():
    assert identity({}, None, suite="gpt", testbed="cpu").commit == NO_COMMIT


@pytest.mark.parametrize(("name", "value"), [("TIDEMARK_COMMIT", "9f3c2e1"), ("TIDEMARK_ATTEMPT", "zero")])
def test_a_variable_no_run_can_carry_is_named_with_its_value(name, value):
    with pytest.raises(BadIdentity, match=f"{name} is '{value}'"):
        identity({name: value}, GIT, suite="gpt", testbed="cpu")


def test_run_ids_sort_by_their_time():
    assert new_ulid(1_700_000_000_000) < new_ulid(1_700_000_000_001)
    assert len({new_ulid() for _ in range(100)}) == 100
