"""Two onsets are two cases; a person merges and splits them, and takes either back by one action."""

from typing import Any

import pytest
from sqlalchemy import text

from backend.services.base.errors import BadRequest, Conflict
from backend.services.triage import regroup
from backend.services.triage.detail import get_regression
from backend.services.triage.triage import TriageDecision, triage
from backend.services.triage.views import RegressionFilter, list_regressions

METRICS = ("step_ms", "latency_ms")


def deliver(loom: Any, onsets: tuple[int, int], upto: int) -> None:
    for position in range(upto):
        levels = [100.0 if position < onset else 125.0 for onset in onsets]
        measured = [
            loom.measurement(metric, level, seed=position) for metric, level in zip(METRICS, levels, strict=True)
        ]
        loom.deliver(loom.run_of(position, measured))


def cases(loom: Any) -> list[tuple[int, int, str]]:
    """(number, first bad position, state), the oldest first."""
    items = list_regressions(loom.connection, RegressionFilter()).items
    return sorted((r.id, r.first_bad.position, r.state) for r in items if r.first_bad)


def affected(loom: Any, number: int) -> dict[str, int]:
    return {s.metric: s.onset_position for s in get_regression(loom.connection, number).affected}


@pytest.fixture
def two(loom: Any) -> Any:
    """Two metrics of one benchmark that got slower at 12 and at 14."""
    deliver(loom, (12, 14), 20)
    loom.first, loom.second = (number for number, _, _ in cases(loom))
    return loom


@pytest.mark.parametrize("apart", range(1, 6))
def test_two_causes_some_commits_apart_are_two_cases(loom: Any, apart: int) -> None:
    deliver(loom, (12, 12 + apart), 20 + apart)
    assert [(position, state) for _, position, state in cases(loom)] == [(12, "confirmed"), (12 + apart, "confirmed")]


def test_one_cause_of_two_metrics_is_one_case(loom: Any) -> None:
    deliver(loom, (12, 12), 20)
    assert [(position, state) for _, position, state in cases(loom)] == [(12, "confirmed")]


def in_two_suites(loom: Any, attn_at: int, untouched: range) -> None:
    """`gpt` is measured at every commit and gets slower at 12; `attn` at those that are not `untouched` by it."""
    for position in range(attn_at + 8):
        gpt = [loom.measurement("step_ms", 100.0 if position < 12 else 125.0, seed=position)]
        loom.deliver(loom.run_of(position, gpt))
        if position in untouched:
            loom.connection.execute(
                text("UPDATE commit SET untouched_suites = '{attn}' WHERE sha = :sha"), {"sha": loom.sha_of(position)}
            )
        else:
            attn = [loom.measurement("latency_ms", 100.0 if position < attn_at else 125.0, seed=position)]
            loom.deliver(loom.run_of(position, attn, id=f"ATTN-{position:06d}", suite="attn"))


def test_a_commit_that_a_suite_cannot_see_is_no_suspect_of_it(loom: Any) -> None:
    in_two_suites(loom, 16, range(12, 16))
    assert [position for _, position, _ in cases(loom)] == [12, 16]
    number = cases(loom)[1][0]
    detail = get_regression(loom.connection, number)
    assert [suspect.position for suspect in detail.suspects] == [16]
    assert detail.regression.suspect_commits == 1 and detail.regression.last_good.position == 11


def test_commits_that_a_suite_was_not_measured_at_stay_suspects_where_nothing_excludes_them(loom: Any) -> None:
    in_two_suites(loom, 16, range(12, 16))
    loom.connection.execute(text("UPDATE commit SET untouched_suites = NULL"))
    detail = get_regression(loom.connection, cases(loom)[1][0])
    assert [suspect.position for suspect in detail.suspects] == [16, 15, 14, 13, 12]
    assert detail.regression.suspect_commits == 5


def test_merged_cases_are_one_with_both_onsets_shown_and_undo_parts_them(two: Any) -> None:
    triage(two.connection, two.second, TriageDecision("acknowledge"), "ada", now=two.now)
    before = cases(two)
    regroup.merge(two.connection, two.second, two.first, "ada", two.now)
    assert cases(two) == [(two.first, 12, "confirmed"), (two.second, 14, "withdrawn")]
    assert affected(two, two.first) == {"step_ms": 12, "latency_ms": 14} and affected(two, two.second) == {}
    assert "undo" in get_regression(two.connection, two.first).actions
    triage(two.connection, two.first, TriageDecision("undo"), "ada", now=two.now)
    assert cases(two) == before and affected(two, two.second) == {"latency_ms": 14}
    assert get_regression(two.connection, two.second).regression.owner == "ada"


def test_a_split_case_is_confirmed_as_it_was_and_owned_by_nobody_and_undo_joins_them(two: Any) -> None:
    regroup.merge(two.connection, two.second, two.first, "ada", two.now)
    triage(two.connection, two.first, TriageDecision("acknowledge"), "ada", now=two.now)
    child = regroup.split(two.connection, two.first, 14, "eve", two.now)
    assert cases(two)[-1] == (child, 14, "confirmed") and affected(two, child) == {"latency_ms": 14}
    assert get_regression(two.connection, child).regression.owner is None
    assert [event.kind for event in get_regression(two.connection, child).events] == ["split", "confirmed"]
    triage(two.connection, two.first, TriageDecision("undo"), "eve", now=two.now)
    assert cases(two)[-1] == (child, 14, "withdrawn")
    assert affected(two, two.first) == {"step_ms": 12, "latency_ms": 14}
    assert get_regression(two.connection, two.first).regression.owner == "ada"


def test_later_runs_leave_a_person_s_grouping_alone(two: Any) -> None:
    regroup.merge(two.connection, two.second, two.first, "ada", two.now)
    for position in range(20, 24):
        measured = [two.measurement(metric, 125.0, seed=position) for metric in METRICS]
        two.deliver(two.run_of(position, measured))
    assert affected(two, two.first) == {"step_ms": 12, "latency_ms": 14}


def test_each_split_and_merge_is_told_with_its_actor(two: Any) -> None:
    regroup.merge(two.connection, two.second, two.first, "ada", two.now)
    regroup.split(two.connection, two.first, 14, "eve", two.now)
    told = two.rows("SELECT kind, actor FROM regression_event WHERE kind IN ('merged', 'split') ORDER BY id")
    assert told == [("merged", "ada"), ("merged", "ada"), ("split", "eve"), ("split", "eve")]


def test_what_cannot_be_split_or_merged_is_refused_with_the_reason(two: Any) -> None:
    c = two.connection
    with pytest.raises(Conflict, match="one onset"):
        regroup.split(c, two.first, 12, "ada", two.now)
    with pytest.raises(BadRequest, match="accepted: 12"):
        regroup.split(c, two.first, 13, "ada", two.now)
    with pytest.raises(BadRequest, match="another regression"):
        regroup.merge(c, two.first, two.first, "ada", two.now)
    triage(c, two.second, TriageDecision("expected", reason="meant"), "ada", now=two.now)
    with pytest.raises(Conflict, match="is expected"):
        regroup.merge(c, two.second, two.first, "ada", two.now)


def test_a_merge_is_not_undone_once_the_other_has_gone_its_own_way(two: Any) -> None:
    c = two.connection
    regroup.merge(c, two.second, two.first, "ada", two.now)
    child = regroup.split(c, two.first, 14, "ada", two.now)
    triage(c, child, TriageDecision("invalid", reason="not real"), "ada", now=two.now)
    with pytest.raises(Conflict, match="can no longer be undone"):
        triage(c, two.first, TriageDecision("undo"), "ada", now=two.now)
