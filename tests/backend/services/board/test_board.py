"""The board over a history that was delivered and judged."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from backend.services.base.errors import BadRequest, NotFound
from backend.services.board.board import (
    BoardQuery,
    Cell,
    CellState,
    load_board,
    load_cell,
    opens_with_moves,
)
from backend.services.board.jsonable import dump
from backend.services.reports.notices import NoticeKind

PROJECT = "northsea/loom"
QUERY = BoardQuery(project=PROJECT)
BEGAN = datetime(2026, 11, 1, 8, tzinfo=UTC)
LATER = BEGAN + timedelta(hours=31)


def cells_at(board: Any, position: int) -> dict[str, Cell]:
    """Cells of a commit, by the label of their column."""
    row = next(row for row in board.rows if row.position == position)
    return {board.columns[cell.column].label: cell for cell in row.cells}


def state_at(board: Any, position: int, label: str = "fused") -> CellState:
    return cells_at(board, position)[label].state


@pytest.fixture
def board(history: Any) -> Any:
    return load_board(history.connection, QUERY, now=LATER)


def test_rows_are_the_commits_newest_first_and_columns_the_variants(board: Any) -> None:
    assert [row.position for row in board.rows] == list(range(29, -1, -1))
    assert [column.label for column in board.columns] == ["fused", "plain"]
    assert board.columns[0].variant == {"impl": "fused", "layers": 4}
    assert len(board.columns[0].series) == 2, "both gate metrics, no phase"
    assert board.rows[0].message == "change 29: <b>bold</b>"
    assert (board.branch, board.testbed, board.suites, board.next) == ("main", "cpu", ("gpt",), None)
    assert board.commits_in_range == 30


def test_a_regression_is_red_where_it_starts_and_still_there_afterwards(board: Any) -> None:
    onset = cells_at(board, 15)["fused"]
    assert onset.state is CellState.REGRESSION
    assert onset.metric == "step_ms" and onset.unit == "ms" and onset.run_id == "RUN-000015"
    assert onset.change == pytest.approx(0.25, abs=0.02)
    assert onset.low is not None and onset.high is not None and onset.low < onset.change < onset.high
    assert onset.baseline == pytest.approx(100, rel=0.01)
    assert onset.regression_id is not None
    assert state_at(board, 20) is CellState.STILL_OWNED, "it is fixed: nobody needs to take it"
    assert state_at(board, 14) is CellState.UNCHANGED
    assert state_at(board, 15, "plain") is CellState.UNCHANGED


@pytest.mark.parametrize(
    ("state", "owner", "onset", "still"),
    [
        ("confirmed", None, CellState.REGRESSION, CellState.STILL_UNOWNED),
        ("confirmed", "Bo", CellState.REGRESSION, CellState.STILL_OWNED),
        ("acknowledged", None, CellState.REGRESSION, CellState.STILL_OWNED),
        ("expected", None, CellState.REGRESSION, CellState.STILL_OWNED),
        ("invalid", None, CellState.UNCHANGED, CellState.UNCHANGED),
        ("withdrawn", None, CellState.UNCHANGED, CellState.UNCHANGED),
    ],
)
def test_what_people_did_shows_in_the_cells_of_a_regression(
    history: Any, state: str, owner: str | None, onset: CellState, still: CellState
) -> None:
    history.execute("UPDATE regression SET owner = :owner, state = :state", owner=owner, state=state)
    board = load_board(history.connection, QUERY)
    assert (state_at(board, 15), state_at(board, 20)) == (onset, still)


def test_an_unchanged_cell_is_as_complete_as_any(history: Any, board: Any) -> None:
    cell = cells_at(board, 20)["plain"]
    assert cell == Cell(
        column=1,
        state=CellState.UNCHANGED,
        change=cell.change,
        metric=cell.metric,
        series_id=history.series(cell.metric, "plain"),
        value=cell.value,
        unit={"step_ms": "ms", "host_syncs": "1"}[cell.metric or ""],
        run_id="RUN-000020",
    )
    assert cell.change is not None and abs(cell.change) < 0.05 and cell.value is not None


def test_what_has_no_verdict_says_why(board: Any) -> None:
    crashed = cells_at(board, 5)["fused"]
    assert (crashed.state, crashed.error) == (CellState.FAILED, "worker: make exited with 2")
    assert crashed.change is None and crashed.run_id == "RUN-000005"
    running = cells_at(board, 28)["plain"]
    assert (running.state, running.progress) == (CellState.RUNNING, 0.25)
    assert state_at(board, 29) is CellState.QUEUED
    assert state_at(board, 27) is CellState.QUARANTINED
    first = cells_at(board, 0)["fused"]
    assert first.state is CellState.INSUFFICIENT
    assert first.have is not None and first.need is not None and 0 <= first.have < first.need


def test_a_commit_that_was_not_benchmarked_keeps_its_row_and_says_why(board: Any) -> None:
    row = next(row for row in board.rows if row.position == 7)
    assert (row.benchmarked, row.skipped_reason, list(row.cells)) == (False, "only documentation changed", [])


def test_environment_changes_and_quarantines_are_notices_at_their_commit(board: Any) -> None:
    notices = {(row.position, notice.kind): notice for row in board.rows for notice in row.notices}
    assert set(notices) == {(10, NoticeKind.ENVIRONMENT), (27, NoticeKind.QUARANTINE)}
    change = notices[10, NoticeKind.ENVIRONMENT]
    assert [(item.name, item.before, item.after) for item in change.differences] == [("torch", "2.13.0", "2.13.1")]
    assert change.suites == ("gpt",) and change.worker == "box-01"


def test_an_environment_change_between_two_pages_is_told_on_the_newer_page(history: Any) -> None:
    page = load_board(history.connection, replace(QUERY, limit=20))
    assert page.rows[-1].position == 10
    assert [notice.kind for notice in page.rows[-1].notices] == [NoticeKind.ENVIRONMENT]


def test_pages_follow_each_other_without_gap_or_overlap(history: Any) -> None:
    positions, query = [], replace(QUERY, limit=8)
    while True:
        page = load_board(history.connection, query)
        positions += [row.position for row in page.rows]
        if page.next is None:
            break
        query = replace(query, cursor=page.next)
    assert positions == list(range(29, -1, -1))


def test_a_cell_says_the_same_on_a_page_of_its_own(history: Any, board: Any) -> None:
    page = load_board(history.connection, replace(QUERY, limit=1, cursor="16"))
    assert cells_at(page, 15)["fused"][1:] == cells_at(board, 15)["fused"][1:]


@pytest.mark.parametrize(
    ("change", "positions"),
    [
        ({"last": 3}, [29, 28, 27]),
        ({"commit_text": "CHANGE 12"}, [12]),
        ({"commit_text": "readme"}, [7]),
        ({"commit_text": f"{8:08x}"}, [7]),
        ({"commit_text": "100%_"}, []),
        ({"states": (CellState.FAILED,)}, [5]),
        ({"states": (CellState.REGRESSION, CellState.QUEUED)}, [29, 15]),
        ({"only_changed": True}, [24, 15]),
    ],
)
def test_filters_leave_the_commits_asked_for(history: Any, change: dict[str, Any], positions: list[int]) -> None:
    assert [row.position for row in load_board(history.connection, replace(QUERY, **change)).rows] == positions


def test_a_range_is_a_stretch_of_positions_found_by_date(history: Any) -> None:
    oldest = load_board(history.connection, QUERY).rows[10]
    board = load_board(history.connection, replace(QUERY, since=oldest.committed_at))
    assert board.rows[-1].position == oldest.position and board.commits_in_range == 11
    ended = load_board(history.connection, replace(QUERY, until=oldest.committed_at))
    assert ended.rows[0].position == oldest.position
    future = load_board(history.connection, replace(QUERY, since=board.rows[0].committed_at + timedelta(days=1)))
    assert (future.rows, future.commits_in_range) == ((), 0)


def test_columns_can_be_filtered_by_words_suite_and_metric(history: Any) -> None:
    found = load_board(history.connection, replace(QUERY, text="gpt FUSED"))
    assert [column.label for column in found.columns] == ["fused"], "its name stays the same"
    assert load_board(history.connection, replace(QUERY, suites=("moe",))).columns == ()
    syncs = load_board(history.connection, replace(QUERY, metric="host_syncs"))
    assert state_at(syncs, 20) is CellState.UNCHANGED
    assert syncs.metrics == ("step_ms", "host_syncs")


def test_facets_leave_columns_that_have_one_of_their_values(history: Any) -> None:
    query = replace(QUERY, facets={"backend": ("fused",)})
    labels = {column.label for column in load_board(history.connection, query, now=LATER).columns}
    assert labels and all("fused" in label for label in labels)


@pytest.mark.parametrize(("limit", "moves"), [(50, False), (5, True)])
def test_a_reader_sees_what_moved_where_an_open_case_began_before_the_newest_commits(
    history: Any, limit: int, moves: bool
) -> None:
    assert opens_with_moves(history.connection, replace(QUERY, limit=limit), now=LATER) is moves


def test_the_newest_measured_commit_stands_above_those_that_moved(history: Any) -> None:
    moved = [row.position for row in load_board(history.connection, replace(QUERY, only_changed=True), now=LATER).rows]
    query = replace(QUERY, only_changed=True, newest_too=True)
    both = [row.position for row in load_board(history.connection, query, now=LATER).rows]
    assert both[1:] == moved and both[0] > moved[0]


def test_coarser_rows_show_the_worst_of_their_time(history: Any) -> None:
    board = load_board(history.connection, replace(QUERY, granularity="day"))
    assert [row.bucket.day for row in board.rows] == [2, 1]
    newer, older = ({board.columns[cell.column].label: cell for cell in row.cells} for row in board.rows)
    assert older["fused"].state is CellState.REGRESSION
    assert older["fused"].change == pytest.approx(0.25, abs=0.03)
    assert older["plain"].state is CellState.UNCHANGED
    assert newer["plain"].state is CellState.UNCHANGED


def test_another_branch_shows_its_own_verdicts_above_those_it_shares(history: Any) -> None:
    branch = history.scalar(
        "INSERT INTO branch (project_id, name) VALUES (:project, 'feature') RETURNING id", project=history.project_id
    )
    history.execute(
        """INSERT INTO branch_commit (branch_id, project_id, position, commit_id)
           SELECT :branch, project_id, position, commit_id FROM branch_commit
           WHERE branch_id = :main AND position < 15""",
        branch=branch,
        main=history.branch_id,
    )
    mine = history.add_commit("f" * 40, 15, branch)
    history.execute(
        """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, status, started_at, received_at)
           SELECT 'RUN-feature', project_id, :commit, testbed_id, suite, 'done', 'ok', started_at, received_at
           FROM run WHERE id = 'RUN-000014'""",
        commit=mine,
    )
    history.execute(
        """INSERT INTO judgement (project_id, measured_at, series_id, branch_id, position, commit_id, run_id, value,
                                  verdict, reason, onset, change, change_low, change_high, baseline, policy_version)
           SELECT project_id, measured_at, series_id, :branch, 15, :commit, 'RUN-feature', 110, 'regression',
                  'outside_band_once', true, 0.1, 0.08, 0.12, 100, policy_version
           FROM judgement WHERE run_id = 'RUN-000014' AND series_id = :series AND superseded_at IS NULL""",
        branch=branch,
        commit=mine,
        series=history.series(),
    )
    board = load_board(history.connection, replace(QUERY, branch="feature"))
    assert board.rows[0].sha == "f" * 40 and len(board.rows) == 16
    red = cells_at(board, 15)["fused"]
    assert (red.state, red.low, red.baseline) == (CellState.REGRESSION, pytest.approx(0.08), 100)
    assert state_at(board, 14) is CellState.UNCHANGED
    assert load_cell(history.connection, history.series(), "f" * 40).why.value == 110  # type: ignore[union-attr]


def test_a_suite_without_any_result_yet_has_a_column_for_its_running_cell(history: Any) -> None:
    history.execute(
        """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state)
           SELECT 'RUN-new', project_id, commit_id, testbed_id, 'moe', 'leased' FROM run WHERE id = 'RUN-000028'"""
    )
    board = load_board(history.connection, QUERY)
    (column,) = [column for column in board.columns if column.suite == "moe"]
    assert column.series == () and column.label == "moe"
    assert state_at(board, 28, "moe") is CellState.RUNNING


def test_summary_counts_what_needs_people(history: Any, board: Any) -> None:
    summary = board.summary
    assert (summary.running, summary.queued, summary.failed) == (1, 1, 1)
    assert (summary.open_regressions, summary.alarms_reported, summary.alarms_right) == (0, 1, 1), "the fix closed it"
    assert summary.last_result_at is not None
    history.execute("UPDATE regression SET state = 'confirmed'")
    assert load_board(history.connection, QUERY).summary.unowned == 1


def test_json_is_column_shaped_and_complete(board: Any) -> None:
    said = orjson.loads(dump(board))
    row = next(row for row in said["rows"] if row["position"] == 15)
    assert row["cells"]["column"] == [0, 1]
    assert row["cells"]["state"] == ["regression", "unchanged"]
    assert row["cells"]["more"]["0"]["low"] < row["cells"]["change"][0] < row["cells"]["more"]["0"]["high"]
    assert row["cells"]["regression_id"][0] > 0 == row["cells"]["regression_id"][1]
    failed = next(row for row in said["rows"] if row["position"] == 5)["cells"]
    assert failed["change"] == [None, None] and failed["more"]["0"]["error"].startswith("worker:")


def test_the_cell_detail_explains_a_red_cell(history: Any) -> None:
    cell = load_cell(history.connection, history.series(), f"{16:08x}")
    assert cell.why is not None and cell.why.red and cell.why.onset
    assert cell.why.value == pytest.approx(125, rel=0.02) and "step_ms" in cell.why.text
    assert cell.regression is not None and cell.regression.id == history.regression_id
    assert (cell.processes, cell.runs, cell.run_id) == (5, 1, "RUN-000015")
    spark = cell.sparkline
    assert spark.here is not None and spark.position[spark.here] == 15 and spark.onset[spark.here]
    assert len(spark.value) <= 50 and spark.position[-1] > 15


def test_the_detail_of_a_cell_without_verdict_says_what_became_of_it(history: Any) -> None:
    cell = load_cell(history.connection, history.series(), f"{6:08x}")
    assert cell.why is None and cell.run_id == "RUN-000005" and cell.error == "worker: make exited with 2"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"project": "nobody/nothing"}, NotFound, "northsea/loom"),
        ({"testbed": "h200"}, NotFound, "known: cpu"),
        ({"branch": "mian"}, NotFound, "known: main"),
        ({"range": "3w"}, BadRequest, "7d"),
        ({"granularity": "month"}, BadRequest, "week"),
        ({"limit": 0}, BadRequest, "1 to 500"),
        ({"cursor": "x"}, BadRequest, "cursor"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(history: Any, change: dict[str, Any], error: type, words: str) -> None:
    with pytest.raises(error) as caught:
        load_board(history.connection, replace(QUERY, **change))
    assert words in str(caught.value)


def test_a_project_without_any_commit_has_an_empty_board(history: Any) -> None:
    history.execute("INSERT INTO project (slug) VALUES ('new/one')")
    board = load_board(history.connection, BoardQuery(project="new/one"))
    assert (board.rows, board.columns, board.branch, board.testbed) == ((), (), None, None)


def test_runs_that_do_not_say_when_they_started_have_cells(history: Any) -> None:
    # started_at is optional; a board of such runs alone was empty.
    measured = {"metric": "step_ms", "unit": "ms", "direction": "lower", "role": "gate", "value": 10.0}
    run = {"schema": "tidemark.run/1", "project": "bare/loom", "suite": "own", "testbed": "cpu", "branch": "main"}
    result = {"benchmark": "step", "variant": {}, "status": "ok", "measurements": [measured]}
    for number in range(3):
        own = {"id": f"BARE-{number:04d}", "commit": f"{number + 1:040x}", "status": "ok", "results": [result]}
        history.deliver({**run, **own})
    board = load_board(history.connection, BoardQuery(project="bare/loom"))
    assert [column.benchmark for column in board.columns] == ["step"]
    assert [len(row.cells) for row in board.rows] == [1, 1, 1]
