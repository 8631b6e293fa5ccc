"""Two commits side by side, over a history that was delivered and judged."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from backend.services.base.errors import BadRequest, NotFound
from backend.services.base.scope import find_scope
from backend.services.board.jsonable import dump
from backend.services.comparison.commits import CommitComparison, commit_at, compare_commits
from backend.services.reports.notices import Difference

PROJECT = "northsea/loom"
BEGAN = datetime(2026, 11, 1, 8, tzinfo=UTC)


def commit(position: int) -> str:
    return f"{position + 1:08x}"


def compare(history: Any, base: int, head: int, **more: Any) -> CommitComparison:
    return compare_commits(history.connection, PROJECT, commit(base), commit(head), **more)


def test_the_metric_that_got_slower_comes_first_with_its_interval(history: Any) -> None:
    found = compare(history, 14, 16)
    worst = found.rows[0]
    assert (worst.benchmark, worst.variant_key, worst.metric) == ("gpt.train", "impl=fused,layers=4", "step_ms")
    assert (worst.verdict, worst.role) == ("regression", "gate")
    assert worst.low < worst.change < worst.high and worst.change == pytest.approx(0.25, abs=0.02)
    assert worst.series_id == history.series()
    assert [row.verdict for row in found.rows[1:]] == ["unchanged"] * 3
    assert (found.base.position, found.head.position, found.testbed) == (14, 16, "cpu")
    assert found.head.runs == {"gpt": "RUN-000016"} and found.head.workers == ("box-01",)


def test_an_improvement_is_the_same_comparison_the_other_way_round(history: Any) -> None:
    worst = compare(history, 16, 14).rows[0]
    assert worst.verdict == "improvement" and worst.change == pytest.approx(-0.2, abs=0.02)


def test_only_changed_hides_the_rest_and_says_how_many(history: Any) -> None:
    found = compare(history, 14, 16, only_changed=True)
    assert (len(found.rows), found.hidden) == (1, 3)
    assert (len(compare(history, 11, 12, only_changed=True).rows), compare(history, 11, 12).overall.unchanged) == (0, 4)


def test_means_say_how_many_gates_they_stand_on(history: Any) -> None:
    found = compare(history, 14, 16)
    (suite,) = found.suites
    assert (suite.suite, suite.compared, suite.gates, suite.slower, suite.left_out) == ("gpt", 4, 4, 1, 0)
    assert suite.change == pytest.approx(1.25**0.5 - 1, abs=0.01), "over the two timed gates; counters have no place"
    assert suite.low < suite.change < suite.high  # type: ignore[operator]
    assert (found.overall.suite, found.overall.change) == (None, suite.change)


def test_phases_show_which_part_of_the_step_grew(history: Any) -> None:
    phases = {(item.variant_key, item.phase): item.difference for item in compare(history, 14, 16).phases}
    assert phases["impl=fused,layers=4", "forward"] == 25 and phases["impl=fused,layers=4", "backward"] == 0
    assert phases["impl=plain,layers=4", "forward"] == 0


def test_what_failed_or_never_ran_is_named_and_in_no_mean(history: Any) -> None:
    crashed = compare(history, 4, 5)
    assert crashed.rows == () and crashed.overall.change is None and crashed.overall.left_out == 2
    assert {(item.base_status, item.head_status, item.error) for item in crashed.not_compared} == {
        ("ok", "failed", "worker: make exited with 2")
    }
    assert {item.run_id for item in crashed.not_compared} == {"RUN-000005"}
    skipped = compare(history, 7, 8)
    assert {(item.base_status, item.head_status) for item in skipped.not_compared} == {("never_run", "ok")}
    assert {item.head_status for item in compare(history, 26, 28).not_compared} == {"running"}
    assert {item.head_status for item in compare(history, 26, 27).not_compared} == {"quarantined"}


def test_a_variant_that_failed_on_one_side_says_how(history: Any) -> None:
    history.execute(
        "UPDATE result SET status = 'out_of_memory', error = '<oom>' WHERE run_id = 'RUN-000016' AND index = 1"
    )
    history.execute("DELETE FROM measurement WHERE run_id = 'RUN-000016' AND result_index = 1")
    found = compare(history, 14, 16)
    (lost,) = found.not_compared
    assert (lost.variant_key, lost.base_status, lost.head_status, lost.error) == (
        "impl=fused,layers=4", "ok", "out_of_memory", "<oom>",
    )  # fmt: skip
    assert (found.overall.compared, found.overall.gates) == (2, 4)


def test_environments_that_differ_are_told(history: Any) -> None:
    assert compare(history, 9, 10).environment == (Difference("torch", "2.13.0", "2.13.1"),)
    assert compare(history, 11, 12).environment == ()


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        ("last-good", commit(16), (14, 16)),
        ("#114", "#116", (14, 16)),
        (commit(14), commit(16).upper() + "C0FF", (14, 16)),
        (commit(26), "main", (26, 29)),
    ],
)
def test_commits_have_many_names(history: Any, base: str, head: str, expected: tuple[int, int]) -> None:
    found = compare_commits(history.connection, PROJECT, base, head)
    assert (found.base.position, found.head.position) == expected
    assert (found.base.name, found.head.name) == (base, head)


@pytest.mark.parametrize(
    ("base", "error", "words"),
    [
        ("0000", BadRequest, "more digits"),
        ("abcdef", NotFound, "is recorded"),
        ("v1.0", NotFound, "accepted: a sha of four digits or more"),
        ("#999", NotFound, "pull request #999"),
    ],
)
def test_a_name_that_is_no_commit_is_refused_with_what_is(history: Any, base: str, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        compare_commits(history.connection, PROJECT, base, commit(16))


def last_good(history: Any, head: int) -> int:
    found: int = compare_commits(history.connection, PROJECT, "last-good", commit(head)).base.position
    return found


def test_last_good_is_no_commit_of_an_open_regression_however_clean_its_run(history: Any) -> None:
    assert (last_good(history, 23), last_good(history, 26)) == (14, 25)
    history.execute("UPDATE judgement SET verdict = 'unchanged', red = false")
    assert last_good(history, 23) == 14
    history.execute("UPDATE change_point SET last_good_position = 12 WHERE direction = 'regression'")
    assert last_good(history, 23) == 12, "it may have begun at any commit after the last one known to be good"


@pytest.mark.parametrize(("state", "expected"), [("confirmed", 14), ("expected", 22), ("invalid", 22)])
def test_what_a_person_decided_says_whether_a_commit_can_be_the_last_good(
    history: Any, state: str, expected: int
) -> None:
    history.execute("UPDATE judgement SET verdict = 'unchanged', red = false")
    history.execute("UPDATE regression SET state = :state", state=state)
    assert last_good(history, 23) == expected


def test_last_good_of_a_history_that_was_never_good_is_refused(history: Any) -> None:
    history.execute("UPDATE judgement SET verdict = 'suspect'")
    with pytest.raises(NotFound, match="free of regressions"):
        compare_commits(history.connection, PROJECT, "last-good", commit(16))


def test_suites_can_be_picked_and_json_is_complete(history: Any) -> None:
    assert compare(history, 14, 16, suites=["moe"]).rows == ()
    said = orjson.loads(dump(compare(history, 14, 16, suites=["gpt"])))
    assert said["rows"][0]["verdict"] == "regression" and said["overall"]["compared"] == 4


def test_facets_leave_variants_that_have_one_of_their_values(history: Any) -> None:
    found = compare(history, 14, 16, facets={"backend": ("fused",)})
    assert {row.variant_key for row in found.rows} == {"impl=fused,layers=4"}
    assert all("fused" in each.variant_key for each in found.not_compared)


def test_how_long_ago_is_the_newest_commit_of_then(history: Any) -> None:
    scope = find_scope(history.connection, PROJECT)
    first, later = (commit_at(history.connection, scope, BEGAN + timedelta(hours=hours)) for hours in (3, 9))
    assert (first[:8], later[:8]) == (commit(3), commit(9))
