"""Points become verdicts: in order, late, twice, and on other branches."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from sqlalchemy import text

from backend.services.board.board import BoardQuery, load_board
from backend.services.board.cells import CellState
from backend.services.judging import judging, rejudging, state_cache
from backend.services.judging import policy_change as policies
from backend.services.judging.rejudging import rejudge_series
from backend.services.judging.state_cache import RememberedStates
from backend.services.judging.stored_runs import StoredRuns
from backend.store.judging import points as series_points

SLOWER = [100.0] * 10 + [125.0] * 5


def test_a_step_is_suspect_at_first_and_confirmed_by_the_third_run(loom: Any) -> None:
    said = [recorded.verdicts[0].verdict for recorded in loom.history(SLOWER)]
    assert said[9:13] == ["unchanged", "suspect", "suspect", "regression"]


def test_a_confirmed_step_turns_its_earlier_suspects_red_from_the_onset(loom: Any) -> None:
    loom.history(SLOWER)
    assert loom.verdicts()[9:] == [
        (9, "unchanged", False),
        (10, "regression", True),
        (11, "regression", False),
        (12, "regression", False),
        (13, "regression", False),
        (14, "regression", False),
    ]


def test_a_run_of_more_series_than_are_remembered_is_judged_like_any_other(
    loom: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_cache, "STATES", RememberedStates(most=2))
    for position, level in enumerate(SLOWER):
        metrics = [loom.measurement(f"m{number}_ms", level, seed=100 * number + position) for number in range(5)]
        recorded = loom.deliver(loom.run_of(position, metrics))
    assert [verdict.verdict for verdict in recorded.verdicts] == ["regression"] * 5


def test_what_was_said_first_is_kept_beside_what_is_known_now(loom: Any) -> None:
    loom.history(SLOWER)
    rows = loom.rows(
        """SELECT superseded_at IS NULL, verdict, detail ->> 'first_said' FROM judgement
           WHERE position = 10 ORDER BY id"""
    )
    assert rows == [(False, "suspect", None), (True, "regression", "suspect")]


def test_a_spike_is_a_suspect_that_is_withdrawn(loom: Any) -> None:
    loom.history([100.0] * 10 + [130.0] + [100.0] * 3)
    assert loom.red() == []
    assert loom.verdicts()[10] == (10, "unchanged", False)
    assert loom.rows("SELECT state, still_bad FROM regression") == [("withdrawn", False)]
    assert loom.events() == ["suspected", "withdrawn"]


def test_an_improvement_is_no_regression_and_moves_the_baseline(loom: Any) -> None:
    *_, last = loom.history([100.0] * 10 + [80.0] * 8)
    assert [position for position, verdict, onset in loom.verdicts() if onset] == [10]
    assert last.verdicts[0].baseline == pytest.approx(80.0, rel=0.01)
    assert loom.value("SELECT count(*) FROM regression") == 0


def test_higher_is_better_is_judged_in_cost(loom: Any) -> None:
    for position, level in enumerate(SLOWER):
        metric = loom.measurement("tokens_per_s", 1000 * 100 / level, seed=position, unit="1/s", direction="higher")
        recorded = loom.deliver(loom.run_of(position, [metric]))
    assert recorded.verdicts[0].verdict == "regression"
    assert recorded.verdicts[0].change == pytest.approx(0.25, abs=0.02)


def test_a_short_history_is_answered_with_the_number_of_runs_it_needs(loom: Any) -> None:
    answers = loom.history([100.0] * 5)
    said = [(answer.verdicts[0].verdict, answer.verdicts[0].needed_runs) for answer in answers]
    assert said == [("insufficient", 3), ("insufficient", 2), ("insufficient", 1), ("unchanged", 0), ("unchanged", 0)]
    again = [loom.run(position, 100.0).verdicts[0].needed_runs for position in range(5)]
    assert again == [3, 2, 1, 0, 0], "delivered again, the same"


def test_every_verdict_comes_with_its_reason_in_words(loom: Any) -> None:
    *_, last = loom.history(SLOWER)
    assert last.verdicts[0].explanation.startswith("step_ms is ")
    assert loom.sha_of(10)[:10] in last.verdicts[0].explanation


# --- late points -----------------------------------------------------------------------------------------------------


def _positions(loom: Any, count: int) -> None:
    """Commits known from git before anything ran, so that runs can come in any order."""
    loom.run(0, 100.0, status="failed", error="only to make the project")
    for position in range(1, count):
        loom.connection.execute(
            text("INSERT INTO commit (project_id, sha) SELECT id, :sha FROM project"), {"sha": loom.sha_of(position)}
        )
    loom.connection.execute(
        text(
            """INSERT INTO branch_commit (branch_id, project_id, position, commit_id)
               SELECT b.id, b.project_id, row_number() OVER (ORDER BY k.id) - 1, k.id FROM commit k, branch b
               ON CONFLICT DO NOTHING"""
        )
    )


ORDERS = {
    "in order": range(1, 20),
    "the onset last": [*range(1, 10), *range(11, 20), 10],
    "two late ones": [*range(1, 9), *range(12, 20), 11, 9, 10],
    "backwards": range(19, 0, -1),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_the_order_of_arrival_does_not_change_what_stands(loom: Any, order: Any) -> None:
    _positions(loom, 20)
    levels = [100.0] * 10 + [125.0] * 10
    for position in order:
        loom.run(position, levels[position], id=f"RUN-{position:05d}-again")
    assert [position for position, _, _ in loom.verdicts()] == list(range(1, 20))
    assert loom.red() == list(range(10, 20))
    assert [position for position, _, onset in loom.verdicts() if onset] == [10]
    assert loom.rows("SELECT first_bad_position, last_good_position, state FROM regression WHERE still_bad") == [
        (10, 9, "confirmed")
    ]
    assert loom.rows(
        "SELECT sum(runs)::int FROM rollup WHERE granularity = 'hour' UNION ALL SELECT max(state_position) FROM series"
    ) == [(19,), (19,)]


@pytest.mark.parametrize(("late", "verdict"), [(10, "regression"), (9, "unchanged")])
def test_the_answer_to_a_late_run_says_what_stands_of_it(loom: Any, late: int, verdict: str) -> None:
    """In its turn the first bad run is a suspect; that its level was confirmed since is known when it comes late."""
    _positions(loom, 20)
    levels = [100.0] * 10 + [125.0] * 10
    in_turn = [loom.run(place, levels[place]) for place in range(1, 20) if place != late]
    assert "suspect" in [answer.verdicts[0].verdict for answer in in_turn]
    answer, again = loom.run(late, levels[late]), loom.run(late, levels[late])
    said = [(each.verdict, each.regression_id) for each in answer.verdicts]
    assert said == [(each.verdict, each.regression_id) for each in again.verdicts]
    assert said == [(verdict, answer.regressions[0].id if verdict == "regression" else None)]
    assert dict(answer.summary) == {verdict: 1}


def in_background(loom: Any) -> list[int]:
    """Whatever waits to be judged again; the series."""
    judged: list[int] = []
    while (series_id := rejudging.rejudge_next_late(loom.connection, loom.now)) is not None:
        judged.append(series_id)
    return judged


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("often", [True, False], ids=["after every run", "in the end"])
def test_what_is_left_to_the_background_comes_to_the_same(
    loom: Any, monkeypatch: pytest.MonkeyPatch, order: Any, often: bool
) -> None:
    monkeypatch.setattr(judging, "MOST_LATER_POINTS", 0)
    _positions(loom, 20)
    levels = [100.0] * 10 + [125.0] * 10
    for position in order:
        loom.run(position, levels[position], id=f"RUN-{position:05d}-again")
        if often:
            in_background(loom)
    in_background(loom)
    assert [position for position, _, _ in loom.verdicts()] == list(range(1, 20))
    assert loom.red() == list(range(10, 20))
    assert [position for position, _, onset in loom.verdicts() if onset] == [10]
    assert loom.rows("SELECT first_bad_position, last_good_position, state FROM regression WHERE still_bad") == [
        (10, 9, "confirmed")
    ]
    assert loom.rows(
        "SELECT sum(runs)::int FROM rollup WHERE granularity = 'hour' UNION ALL SELECT max(state_position) FROM series"
    ) == [(19,), (19,)]


@pytest.mark.parametrize(("most", "waiting"), [(8, 0), (7, 1)])
def test_a_run_waits_for_so_many_later_points_and_no_more(
    loom: Any, monkeypatch: pytest.MonkeyPatch, most: int, waiting: int
) -> None:
    _positions(loom, 20)
    for position in (*range(1, 11), *range(12, 20)):
        loom.run(position, 100.0, id=f"RUN-{position:05d}-again")
    monkeypatch.setattr(judging, "MOST_LATER_POINTS", most)
    late = loom.run(11, 100.0, id="RUN-00011-late")
    assert [(it.verdict, it.value) for it in late.verdicts] == [("unchanged", pytest.approx(100.0, rel=0.01))]
    assert len(loom.verdicts()) == 19, "the point stands at once"
    told = "SELECT payload -> 'rejudging_late' FROM live_event WHERE payload ? 'rejudging_late' ORDER BY id"
    assert policies.policy_of(loom.connection, "northsea/loom").rejudging_late == waiting == len(loom.rows(told))
    assert len(in_background(loom)) == waiting
    assert loom.rows(told) == [(1,), (0,)][: 2 * waiting]
    assert policies.policy_of(loom.connection, "northsea/loom").rejudging_late == 0


def test_a_series_whose_runs_cannot_be_read_keeps_its_verdicts_and_no_other_series(
    loom: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loom.history([100.0] * 12)
    monkeypatch.setattr(judging, "MOST_LATER_POINTS", 0)
    loom.run(5, 100.0, id="RUN-00005-again")
    loom.connection.exec_driver_sql("UPDATE run SET document = 'nonsense'")
    assert len(in_background(loom)) == 1
    assert len(loom.verdicts()) == 12


def test_a_second_run_of_a_commit_far_back_is_one_point_with_the_first(
    loom: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loom.history([100.0] * 12)
    monkeypatch.setattr(judging, "MOST_LATER_POINTS", 0)
    loom.run(5, 100.0, id="RUN-00005-again")
    for _ in range(2):
        assert [position for position, _, _ in loom.verdicts()] == list(range(12))
        (runs,) = loom.rows("SELECT detail -> 'runs' FROM judgement WHERE position = 5 AND superseded_at IS NULL")
        assert runs == (["RUN-000005", "RUN-00005-again"],)
        in_background(loom)


def test_a_late_good_point_moves_the_onset_and_tells_so(loom: Any) -> None:
    _positions(loom, 20)
    for position in [*range(1, 10), 12, 13, 14, 15]:
        loom.run(position, 100.0 if position < 10 else 125.0, id=f"RUN-{position:05d}-again")
    assert loom.rows("SELECT first_bad_position, last_good_position FROM regression") == [(12, 9)]
    loom.run(11, 125.0, id="RUN-00011-late")
    loom.run(10, 100.0, id="RUN-00010-late")
    assert loom.rows("SELECT first_bad_position, last_good_position, state FROM regression") == [(11, 10, "confirmed")]
    assert loom.red() == [11, 12, 13, 14, 15]
    assert "relocated" in loom.events()


def test_late_points_that_disprove_a_regression_withdraw_it(loom: Any) -> None:
    _positions(loom, 30)
    for position in [*range(1, 10), 20, 21, 22]:
        loom.run(position, 100.0 if position < 10 else 125.0, id=f"RUN-{position:05d}-again")
    assert loom.red() == [20, 21, 22]
    for position in (20, 21, 22):
        # Measured again, and nothing is there: both runs of a commit are one point of all their processes.
        for again in range(4):
            loom.run(position, 100.0, id=f"RUN-{position:05d}-repeat-{again}")
    assert loom.red() == []
    assert loom.rows("SELECT state, still_bad FROM regression WHERE state <> 'withdrawn'") == []


def test_two_runs_of_a_commit_are_one_point_of_all_their_processes(loom: Any) -> None:
    loom.history([100.0] * 6)
    loom.run(5, 104.0, id="RUN-000005-again")
    assert [position for position, _, _ in loom.verdicts()] == list(range(6))
    value, runs = loom.rows(
        "SELECT value, detail -> 'runs' FROM judgement WHERE position = 5 AND superseded_at IS NULL"
    )[0]
    assert 100.0 < value < 104.0
    assert runs == ["RUN-000005", "RUN-000005-again"]


@pytest.mark.parametrize(("before", "after", "exact"), [(0, 1e60, True), (1.0, 1e60, False), (1e60, 1e-60, False)])
def test_a_change_beyond_all_measure_is_stored_as_the_largest_there_is(
    loom: Any, before: float, after: float, exact: bool
) -> None:
    for position in range(12):
        value = before if position < 8 else after
        loom.deliver(loom.run_of(position, [loom.measurement("n", value, noise=0, unit="1", exact=exact)]))
    assert loom.red("n") == ([] if after < before else [8, 9, 10, 11])
    if after > before:
        assert loom.value("SELECT max(change) FROM judgement") > 1e38


def test_judging_again_says_the_same(loom: Any) -> None:
    loom.history(SLOWER)
    before = loom.verdicts(), loom.rows("SELECT state, first_bad_position FROM regression"), loom.events()
    series_id = loom.value("SELECT id FROM series")
    rejudge_series(loom.connection, series_id, 0, now=loom.now)
    assert (loom.verdicts(), loom.rows("SELECT state, first_bad_position FROM regression"), loom.events()) == before


# --- other branches --------------------------------------------------------------------------------------------------


def _branch_run(loom: Any, number: int, step_ms: float, *, base: int, **more: Any) -> Any:
    parent = loom.sha_of(base) if number == 0 else loom.sha_of(number - 1, "b")
    values = {"id": f"PULL-{number:05d}", "commit": loom.sha_of(number, "b"), "parents": [parent]}
    return loom.run(100 + number, step_ms, **values, branch="feature", **more)


def test_a_pull_request_is_judged_against_its_merge_base_and_changes_nothing(loom: Any) -> None:
    loom.history([100.0] * 10 + [80.0] * 10)
    before = loom.rows("SELECT state, state_position FROM series")
    on_old_base = _branch_run(loom, 0, 101.0, base=8)
    assert on_old_base.verdicts[0].baseline == pytest.approx(100.0, rel=0.01)
    assert on_old_base.verdicts[0].verdict == "unchanged"
    assert loom.rows("SELECT state, state_position FROM series") == before
    assert [position for position, _, _ in loom.verdicts()] == list(range(20))
    assert loom.rows("SELECT position, detail -> 'merge_base' FROM judgement WHERE branch_id IS NOT NULL") == [(9, 8)]


def test_a_slow_pull_request_is_a_suspect_and_opens_nothing(loom: Any) -> None:
    loom.history([100.0] * 10)
    for number in range(4):
        recorded = _branch_run(loom, number, 125.0, base=9, pull_request=7)
        assert recorded.verdicts[0].verdict == "suspect"
        assert recorded.verdicts[0].change == pytest.approx(0.25, abs=0.02)
    assert loom.value("SELECT count(*) FROM regression") == 0
    positions = loom.rows("SELECT position FROM judgement WHERE branch_id IS NOT NULL ORDER BY 1")
    assert positions == [(10,), (11,), (12,), (13,)]


def test_a_branch_of_unknown_ancestors_is_judged_against_the_newest_state(loom: Any) -> None:
    loom.history([100.0] * 10)
    recorded = loom.run(50, 125.0, commit=loom.sha_of(0, "c"), parents=[loom.sha_of(1, "d")], branch="elsewhere")
    assert recorded.verdicts[0].verdict == "suspect"


def test_a_merged_commit_counts_on_the_default_branch(loom: Any) -> None:
    """The same commit first came as the head of a pull request."""
    loom.history([100.0] * 10)
    merged = {"commit": loom.sha_of(10), "parents": [loom.sha_of(9)]}
    loom.run(10, 100.0, id="AS-PULL-REQUEST", branch="feature", pull_request=3, **merged)
    loom.run(10, 100.0, id="AS-MAIN-COMMIT", branch="main", **merged)
    assert [position for position, _, _ in loom.verdicts()] == list(range(11))


def test_a_run_whose_commit_moved_while_others_are_judged_again_is_read_anew(loom: Any) -> None:
    loom.history([100.0] * 3)
    series = loom.value("SELECT id FROM series WHERE metric = 'step_ms'")
    newest = series_points.load_points(loom.connection, [series], around=2, before=0)[series][-1]
    runs = StoredRuns(loom.now)
    moved = [runs.of(loom.connection, point) for point in (newest, replace(newest, position=1))]
    assert [context.position for context in moved] == [2, 1]


def test_a_series_too_unsteady_to_be_judged_says_so_wherever_it_is_shown(loom: Any) -> None:
    chance = Random(5)
    *_, last = loom.history([100.0 * (1 + chance.gauss(0, 0.15)) for _ in range(30)])
    assert last.verdicts[0].verdict == "unsteady"
    board = load_board(loom.connection, BoardQuery(project="northsea/loom"), now=loom.now)
    (cell,) = board.rows[0].cells
    assert (cell.state, cell.regression_id) == (CellState.UNSTEADY, None)
    assert 0.2 < cell.sees < 2
    more = board.rows[0].cells.as_columns()["more"]["0"]
    assert more["sees"] == pytest.approx(cell.sees)
    assert loom.value("SELECT count(*) FROM rollup WHERE worst_verdict = 'unsteady'") > 0
