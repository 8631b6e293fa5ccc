"""Runs of one commit off the default branch: what they must agree on before it is a regression."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from backend.regression.policy import PolicyBook, parse_overrides
from backend.services.github.agreement import is_sustained, judged_in, restate_agreed, runs_needed, settle
from backend.store.base import projects as project_store

HEAD = "e" * 40
PLACE = "gpt", "cpu"


class Judged(NamedTuple):
    verdict: str
    benchmark: str = "gpt.train"
    metric: str = "step_ms"


def _runs_of_head(loom: Any, levels: Sequence[float]) -> list[str]:
    """Runs of a pull request's head, after 12 runs of 50 ms on the default branch."""
    loom.history([50.0] * 12)
    for number, level in enumerate(levels):
        loom.deliver(
            loom.run_of(
                12 + number,
                [loom.measurement("step_ms", level, seed=number), loom.measurement("other_ms", 9.0, seed=number)],
                commit=HEAD,
                parents=[loom.sha_of(11)],
                branch="pull/7",
            )
        )
    return [f"RUN-{12 + number:06d}" for number in range(len(levels))]


def _verdicts(loom: Any, runs: Sequence[str]) -> list[str]:
    return [row.verdict for rows in judged_in(loom.connection, runs) for row in rows if row.metric == "step_ms"]


@pytest.mark.parametrize(
    ("levels", "after"),
    [
        ([60.0, 60.0, 60.0], ["regression"] * 3),
        ([60.0, 60.0], ["suspect"] * 2),
        ([60.0, 50.0, 60.0, 60.0], ["suspect", "unchanged", "suspect", "suspect"]),
    ],
    ids=["as many as the policy requires agree", "too few", "one disagrees"],
)
def test_a_suspect_is_a_regression_once_enough_runs_agree(
    loom: Any, levels: Sequence[float], after: Sequence[str]
) -> None:
    runs = _runs_of_head(loom, levels)
    before = _verdicts(loom, runs)
    assert "regression" not in before
    project = project_store.find(loom.connection, "northsea/loom")
    settle(loom.connection, project, HEAD, loom.now)
    assert _verdicts(loom, runs) == after


def test_only_the_runs_that_agreed_are_restated_and_only_once(loom: Any) -> None:
    runs, book = _runs_of_head(loom, [60.0, 60.0, 60.0]), PolicyBook("northsea/loom")
    restated = [
        restate_agreed(loom.connection, book, PLACE, runs, judged_in(loom.connection, runs), loom.now) for _ in range(2)
    ]
    assert [sorted(found) for found in restated] == [runs, []]


def test_judgements_are_gathered_by_series(loom: Any) -> None:
    runs = _runs_of_head(loom, [60.0, 60.0])
    gathered = judged_in(loom.connection, runs)
    assert sorted([row.metric for row in rows] for rows in gathered) == [["other_ms"] * 2, ["step_ms"] * 2]


@pytest.mark.parametrize(
    ("verdicts", "sustained"),
    [
        (["suspect"] * 3, True),
        (["suspect", "regression", "suspect"], True),
        (["suspect"] * 2, False),
        (["suspect"] * 3 + ["unchanged"], False),
        ([], False),
    ],
)
def test_as_many_runs_as_needed_are_worse_and_none_is_not(verdicts: Sequence[str], sustained: bool) -> None:
    assert is_sustained([Judged(verdict) for verdict in verdicts], 3) == sustained


def test_the_strictest_policy_of_the_series_says_how_many_runs_are_needed() -> None:
    table = {"sustained_runs": 2, "override": [{"metric": "tokens_per_s", "sustained_runs": 5}]}
    book = PolicyBook("northsea/loom", parse_overrides(table))
    both = [Judged("suspect"), Judged("suspect", metric="tokens_per_s")]
    assert [runs_needed(book, PLACE, judged) for judged in ([], both[:1], both)] == [2, 2, 5]
