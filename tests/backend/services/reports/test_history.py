"""A series over time, over a history that was delivered and judged."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import orjson
import pytest

from backend.regression.series.profile import profile
from backend.services.base.errors import BadRequest, NotFound
from backend.services.base.scope import TimeRange, time_range
from backend.services.board.jsonable import dump
from backend.services.judging.state_cache import states_of
from backend.services.policy.resolve import policy_book
from backend.services.reports.explanations import explain_point, load_samples
from backend.services.reports.history import SeriesPoints, SeriesQuery, list_series, load_points, load_series
from backend.store.judging import series as series_store

QUERY = SeriesQuery(project="northsea/loom")
BENCHMARKED = [position for position in range(27) if position not in (5, 7)]


@pytest.fixture
def points(history: Any) -> SeriesPoints:
    return load_points(history.connection, history.series())


def test_points_are_columns_in_order_of_position(points: SeriesPoints) -> None:
    assert points.position.tolist() == BENCHMARKED  # type: ignore[union-attr]
    columns = (points.sha, points.message, points.author, points.run_id, points.value, points.smoothed, points.verdict)
    assert {len(column) for column in columns} == {len(BENCHMARKED)}
    assert points.sha[0].startswith("00000001c0ffee") and points.message[0] == "change 0: <b>bold</b>"
    assert points.run_id[-1] == "RUN-000026"
    assert points.value[0] == pytest.approx(100, rel=0.02)
    assert (points.series.metric, points.series.unit, points.series.role) == ("step_ms", "ms", "gate")


def test_points_carry_bands_verdicts_and_the_onset(points: SeriesPoints) -> None:
    at = BENCHMARKED.index(15)
    onsets = {points.position[index]: points.verdict[index] for index in np.flatnonzero(points.onset)}
    assert onsets == {15: "regression", 24: "improvement"}
    assert points.band_low[at] < points.baseline[at] < points.band_high[at] < points.value[at]
    assert np.isnan(points.baseline[0]), "nothing to compare the first point with"
    assert points.regression_id[at] > 0 == points.regression_id[0]


def test_change_points_and_regression_spans_tell_where_it_was_worse(points: SeriesPoints) -> None:
    standing = [change for change in points.change_points if change.state != "withdrawn"]
    assert [(change.direction, change.position) for change in standing] == [("regression", 15), ("improvement", 24)]
    worse = standing[:1]
    assert [(change.position, change.last_good_position, change.fixed_position) for change in worse] == [(15, 14, 24)]
    assert worse[0].sha == points.sha[BENCHMARKED.index(15)]
    assert [(span.start, span.end) for span in points.regressions] == [(15, 24)]


def test_environment_changes_are_told_where_they_happened(points: SeriesPoints) -> None:
    (change,) = points.environment_changes
    assert change.position == 10 and change.sha == points.sha[BENCHMARKED.index(10)]
    assert [(item.name, item.before, item.after) for item in change.differences] == [("torch", "2.13.0", "2.13.1")]


def test_a_range_and_a_number_of_points_limit_what_comes(history: Any, points: SeriesPoints) -> None:
    series = history.series()
    assert load_points(history.connection, series, last=4).position.tolist() == BENCHMARKED[-4:]  # type: ignore[union-attr]
    commit_10 = points.committed_at[BENCHMARKED.index(10)].item()  # type: ignore[union-attr]
    since = commit_10.replace(tzinfo=history.scalar("SELECT now()").tzinfo)
    assert load_points(history.connection, series, within=TimeRange(since, None)).position[0] == 10
    assert load_points(history.connection, series, within=TimeRange(None, since)).position[-1] == 10
    assert len(load_points(history.connection, series, within=TimeRange(since + timedelta(days=30), None))) == 0


def test_coarser_granularities_come_from_the_roll_ups(history: Any) -> None:
    days = load_points(history.connection, history.series(), "day")
    assert list(days.runs) == [14, 11] and sum(days.runs) == len(BENCHMARKED)
    assert days.verdict[0] == "regression"
    assert days.low[0] == pytest.approx(100, rel=0.02) and days.high[0] == pytest.approx(125, rel=0.02)
    assert days.low[0] < days.value[0] < days.high[0]
    assert [change.position for change in days.change_points if change.state != "withdrawn"] == [15, 24]
    weeks = load_points(history.connection, history.series(), "week")
    assert sum(weeks.runs) == len(BENCHMARKED)


def test_json_of_points_has_numbers_times_and_null_for_unknown(points: SeriesPoints) -> None:
    said = orjson.loads(dump(points))
    assert said["position"] == BENCHMARKED and said["baseline"][0] is None
    assert said["committed_at"][0] == "2026-11-01T08:00:00Z"
    assert said["onset"][BENCHMARKED.index(15)] is True


def test_explain_gives_a_paragraph_and_the_numbers_behind_it(history: Any) -> None:
    why = explain_point(history.connection, history.series(), f"{16:08x}")
    assert (why.verdict, why.red, why.onset, why.position) == ("regression", True, True, 15)
    assert "step_ms" in why.text and "regression" in why.text
    assert why.low < why.change < why.high and why.policy_version  # type: ignore[operator]
    assert why.first_said in ("suspect", None) and why.regression_id == history.regression_id
    quiet = explain_point(history.connection, history.series(impl="plain"), f"{16:08x}")
    assert (quiet.verdict, quiet.red) == ("unchanged", False) and quiet.noise is not None
    assert "00000010" not in quiet.text


def test_samples_of_a_point_come_process_by_process(history: Any) -> None:
    (run,) = load_samples(history.connection, history.series(), f"{16:08x}")
    assert (run.run_id, run.worker, len(run.processes)) == ("RUN-000015", "box-01", 5)
    assert [len(samples) for samples in run.samples] == [2] * 5
    assert run.samples[0][0] == run.processes[0]


def test_series_are_listed_with_where_they_stand(history: Any) -> None:
    page = list_series(history.connection, QUERY)
    assert len(page.items) == 8 and page.next is None, "two variants of two gates and two phases"
    step = next(item for item in page.items if item["id"] == history.series())
    assert step["verdict"] is not None and step["value"] == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({"text": "FUSED step"}, 1),
        ({"text": "impl=plain"}, 4),
        ({"text": "100%"}, 0),
        ({"role": "phase"}, 4),
        ({"metric": "host_syncs", "suite": "gpt", "testbed": "cpu"}, 2),
        ({"benchmark": "gpt.infer"}, 0),
    ],
)
def test_series_are_found_by_words_and_names(history: Any, change: dict[str, Any], count: int) -> None:
    assert len(list_series(history.connection, replace(QUERY, **change)).items) == count


def test_pages_of_series_join(history: Any) -> None:
    seen, cursor = [], None
    while True:
        page = list_series(history.connection, replace(QUERY, limit=3, cursor=cursor))
        seen += [item["id"] for item in page.items]
        if (cursor := page.next) is None:
            break
    assert seen == sorted(seen) and len(set(seen)) == 8


def test_a_series_knows_its_sibling_metrics_gates_first(history: Any) -> None:
    series = load_series(history.connection, history.series())
    assert [(item.metric, item.role) for item in series.siblings] == [
        ("host_syncs", "gate"), ("step_ms", "gate"), ("backward_ms", "phase"), ("forward_ms", "phase"),
    ]  # fmt: skip


def test_a_series_tells_its_noise_from_the_very_state_that_judges_its_next_point(history: Any) -> None:
    c = history.connection
    told = load_series(c, history.series()).profile
    assert told is not None and told.needed_runs == 0 and told.noise == pytest.approx(0.002, abs=0.002)
    (row,) = series_store.lock_by_id(c, [history.series()])
    assert row.state is not None and row.state_tail is not None, "the newest runs are in the tail"
    names = {"suite": "gpt", "benchmark": "gpt.train", "metric": "step_ms", "testbed": "cpu"}
    policy = policy_book(c, "northsea/loom").of(**names)
    assert told == profile(states_of(c, [row])[row.id], policy)
    assert (told.confirmed, told.withdrawn, told.disproved, told.precision) == (1, 0, 0, 1.0)


def test_a_short_history_says_how_many_more_runs_it_needs(history: Any) -> None:
    series = history.series()
    history.execute("UPDATE series SET state = NULL, state_tail = NULL WHERE id = :id", id=series)
    told = load_series(history.connection, series).profile
    assert told is not None and (told.runs, told.needed_runs) == (0, 4)
    assert told.text == "Insufficient: 4 more runs of this level needed before anything is judged."


def test_an_explanation_tells_the_noise_of_its_series_and_points_do_not(history: Any, points: SeriesPoints) -> None:
    why = explain_point(history.connection, history.series(), points.sha[-1])
    assert why.series.profile == load_series(history.connection, history.series()).profile is not None
    assert points.series.profile is None


def test_what_a_project_chose_counts_in_what_a_series_asks_for(history: Any) -> None:
    chosen = """UPDATE project SET settings = '{"policy": {"table": {"sustained_runs": 5}}}' WHERE id = :id"""
    history.execute(chosen, id=history.project_id)
    told = load_series(history.connection, history.series()).profile
    assert told is not None and (told.sustained_runs, told.extra_runs) == (5, 0)


@pytest.mark.parametrize(
    ("position", "why"),
    [
        (5, "run RUN-000005 failed: worker: make exited with 2"),
        (7, "the commit was not benchmarked: only documentation changed; also this"),
        (28, "run RUN-000028 is running and has no judged result of it"),
        (29, "run RUN-000029 is queued and has no judged result of it"),
    ],
)
def test_a_commit_without_a_judged_point_says_why(history: Any, position: int, why: str) -> None:
    told = "only documentation changed\nalso this"
    history.execute("UPDATE commit SET skipped_reason = :told WHERE skipped_reason IS NOT NULL", told=told)
    with pytest.raises(NotFound) as refused:
        explain_point(history.connection, history.series(), f"{position + 1:08x}")
    assert str(refused.value).partition(f"at {position + 1:08x}c0ff: ")[2] == why


def test_what_is_not_there_is_refused_by_name(history: Any) -> None:
    c, series = history.connection, history.series()
    with pytest.raises(NotFound, match="unknown series 0"):
        load_points(c, 0)
    with pytest.raises(NotFound, match="no judged point at 00000006"):
        explain_point(c, series, f"{6:08x}")
    with pytest.raises(NotFound, match="last-good"):
        explain_point(c, series, "main~3")
    with pytest.raises(BadRequest, match="more digits"):
        explain_point(c, series, "0000")
    with pytest.raises(BadRequest, match="week"):
        load_points(c, series, "year")
    with pytest.raises(BadRequest, match="gate"):
        list_series(c, replace(QUERY, role="red"))
    with pytest.raises(BadRequest, match="before until"):
        now = history.scalar("SELECT now()")
        load_points(c, series, within=time_range(None, now, now - timedelta(days=1), now=now))
