"""How far a bisection is, and what a step of it found, in words."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from backend.services.plans.bisection_views import BisectionStep, BisectionView
from backend.services.triage.views import CommitName, Regression
from frontend.pages.regression.commits import bisection_says, commits_note, step_mark


def bisection(**changes: Any) -> BisectionView:
    at = datetime(2026, 11, 20, tzinfo=UTC)
    shape: dict[str, Any] = {
        "id": "B", "state": "running", "regression_id": 2, "project": "a/b", "testbed": "cpu", "suite": "moe",
        "last_good_sha": "a" * 40, "first_bad_sha": "f" * 40, "remaining": 7, "steps_done": 1, "steps_left": 3,
        "eta_s": 840.0, "confidence": 0.4, "culprit_sha": None, "side_of": None, "reason": "", "requested_by": "x",
        "requested_at": at, "finished_at": None, "steps": (), "candidates": (),
    }  # fmt: skip
    return BisectionView(**(shape | changes))


def test_a_bisection_says_how_far_it_is_and_what_it_found() -> None:
    running = bisection_says(bisection())
    assert running.startswith("bisecting: 1 of about 4 steps, 7 commits possible")
    assert "14" in running
    found = bisection_says(bisection(state="done", culprit_sha="9f3c2e1" + "0" * 33, steps_done=2, confidence=0.99))
    assert found.startswith("✓ bisected to 9f3c2e1 in 2 steps")
    assert "gave up: nothing <b>built</b>" in bisection_says(bisection(state="gave_up", reason="nothing <b>built</b>"))


def test_a_step_of_a_bisection_is_text_and_leads_to_its_run() -> None:
    step = BisectionStep(
        sha="b" * 40, position=4, state="skipped", change=None, reason="<b>no</b> wheel", run_id="R1", session_id=None
    )
    mark = str(step_mark(step))
    assert 'href="/runs/R1"' in mark
    assert "&lt;b&gt;no&lt;/b&gt; wheel" in mark
    assert "▼ 7.4" in step_mark(replace(step, state="bad", change=0.074, reason=""))


@pytest.mark.parametrize(
    ("first_bad", "suspects", "said"),
    [
        (5, 1, "the run before it was good"),
        (7, 3, "3 between the last good and the first bad run"),
        (6, 1, "1 of 2 since the last good run: paths of suite gpt name nothing that the other changed"),
        (9, 2, "2 of 5 since the last good run: paths of suite gpt name nothing that the other 3 changed"),
    ],
)
def test_commits_that_are_left_out_of_the_suspects_are_counted_with_the_reason(
    first_bad: int, suspects: int, said: str
) -> None:
    good, bad = (
        CommitName(sha="a" * 40, position=position, message="", author="", committed_at=None)
        for position in (4, first_bad)
    )
    of = {"suspect_commits": suspects, "first_bad": bad, "last_good": good, "suite": "gpt"}
    assert commits_note(Regression(**{**dict.fromkeys(field.name for field in fields(Regression)), **of})) == said
