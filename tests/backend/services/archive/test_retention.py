"""Old months leave the database for files, and nothing that is shown by day or week changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest
from sqlalchemy import Connection, Engine, text

from backend.api.responses import Json
from backend.services.archive.retention import retire
from backend.services.board.board import BoardQuery, load_board
from backend.services.judging.rejudging import rejudge_series
from backend.services.reports.history import load_points
from backend.services.reports.suites import load_suite
from backend.services.triage.detail import get_regression
from backend.store.archive.months import KeptMonth, drop, first_needed, kept_months, name_months
from backend.store.base.schema import ensure_partitions, month_of
from tests.bench.dataset import Filled, Shape, fill
from tidemark import database

SHAPE = Shape(suites=1, variants=3, commits=1_500, minutes_between_commits=240)  # eight months
KEPT = 4


@pytest.fixture
def filled(committing_engine: Engine) -> Filled:
    with committing_engine.begin() as c:
        return fill(c, SHAPE)


def shown(c: Connection, filled: Filled) -> dict[str, Any]:
    """What is seen of the project by day and by week, and where it stands."""
    series = filled.first_series_id
    found = {
        granularity: (
            load_points(c, series, granularity),
            load_board(c, BoardQuery(project=SHAPE.project, granularity=granularity, limit=300)),
        )
        for granularity in ("day", "week")
    }
    everything = {**found, "suite": load_suite(c, SHAPE.project, "suite1"), "newest": load_points(c, series, last=50)}
    return {name: orjson.loads(Json(value).body) for name, value in everything.items()}


def measured_in(engine: Engine, kept: KeptMonth) -> int:
    with engine.connect() as c:
        return int(c.scalar(text(f"SELECT count(*) FROM measurement_{kept.month:%Y_%m}")) or 0)


def test_months_go_to_files_and_boards_and_charts_stay_as_they_are(
    committing_engine: Engine, filled: Filled, tmp_path: Path
) -> None:
    now = filled.shape.last_at or _newest(committing_engine)
    with committing_engine.begin() as c:
        name_months(c)
        before, months = shown(c, filled), kept_months(c)
    old = [kept for kept in months if kept.month < month_of(now, -KEPT)]
    counts = {f"{kept.month:%Y-%m}": measured_in(committing_engine, kept) for kept in old}

    gone = retire(committing_engine, tmp_path, KEPT, now)

    assert gone == [kept.month for kept in old] and len(gone) >= 3
    with committing_engine.connect() as c:
        assert kept_months(c) == [kept for kept in months if kept not in old]
        assert shown(c, filled) == before
        regression = c.scalar(text("SELECT min(id) FROM regression"))
        assert get_regression(c, int(regression or 0)).regression.state == "fixed"
    archived = duckdb.sql(
        f"SELECT month, count(*), count(DISTINCT project) FROM read_parquet('{tmp_path}/*/*/*.parquet', "
        "hive_partitioning = true, hive_types = {'month': VARCHAR}) GROUP BY month"
    ).fetchall()
    assert {month: count for month, count, _ in archived} == counts


def test_nothing_young_goes(committing_engine: Engine, filled: Filled, tmp_path: Path) -> None:
    assert retire(committing_engine, tmp_path, 24, _newest(committing_engine)) == []
    assert not list(tmp_path.iterdir())


def test_a_point_that_arrives_after_its_month_went_is_kept_beside_what_was_archived(
    committing_engine: Engine, filled: Filled, tmp_path: Path
) -> None:
    now = _newest(committing_engine)
    month = retire(committing_engine, tmp_path, KEPT, now)[0]
    with committing_engine.begin() as c:
        ensure_partitions(c, month)
        c.execute(
            text(
                """INSERT INTO measurement (series_id, project_id, run_id, measured_at, commit_id, result_index,
                                            measurement_index, value)
                   SELECT :series, max(project_id), max(id), :at, max(commit_id), 0, 0, 1.5 FROM run"""
            ),
            {"series": filled.first_series_id, "at": month + timedelta(days=25)},
        )
    retire(committing_engine, tmp_path, KEPT, now)
    files = sorted(tmp_path.glob(f"*/month={month:%Y-%m}/*.parquet"))
    assert len(files) == 2
    values = duckdb.sql(f"SELECT count(*) FILTER (value = 1.5), count(*) FROM read_parquet({[str(f) for f in files]})")
    late, all_of_them = values.fetchall()[0]
    assert late == 1 and all_of_them > 1


def test_a_month_keeps_its_name_in_a_backup_and_one_that_is_made_anew_has_another(
    committing_engine: Engine, tmp_path: Path
) -> None:
    month = datetime(2026, 3, 1, tzinfo=UTC)
    of_march = text("SELECT CAST('measurement_2026_03' AS regclass)::oid")
    with committing_engine.begin() as c:
        ensure_partitions(c, month)
        name_months(c)
        before, number = kept_months(c), c.scalar(of_march)
    url = committing_engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
    database.backup(url, tmp_path / "backup")
    committing_engine.dispose()
    database.restore(url, tmp_path / "backup")
    with committing_engine.begin() as c:
        name_months(c)
        assert kept_months(c) == before and c.scalar(of_march) != number
        drop(c, month)
        ensure_partitions(c, month)
        name_months(c)
        anew = kept_months(c)
    assert [kept.month for kept in anew] == [kept.month for kept in before]
    assert [kept.month for kept in set(anew) - set(before)] == [month]


@pytest.mark.parametrize(("still_open", "stays"), [(True, 3), (False, 0)])
def test_what_a_change_that_is_still_open_began_with_stays(
    committing_loom: Any, committing_engine: Engine, tmp_path: Path, still_open: bool, stays: int
) -> None:
    """Four months: the change comes in the second, and the fourth alone is to be kept."""
    loom = committing_loom
    for position in range(55):
        level = 125.0 if 18 <= position < (55 if still_open else 40) else 100.0
        loom.run(
            position, level, started_at=(datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=2 * position)).isoformat()
        )
    loom.connection.commit()
    gone = retire(committing_engine, tmp_path, 0, datetime(2026, 6, 15, tzinfo=UTC))
    assert len(gone) == 3 - stays
    if still_open:
        with committing_engine.begin() as c:
            c.execute(text("UPDATE regression SET state = 'expected'"))
            assert first_needed(c, datetime(2026, 1, 1, tzinfo=UTC)) is None
            c.execute(text("UPDATE regression SET state = 'confirmed'"))
            assert first_needed(c, datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, 4, 1, tzinfo=UTC)
            assert first_needed(c, datetime(2026, 12, 1, tzinfo=UTC)) is None  # it is measured no more
    rejudge_series(loom.connection, loom.value("SELECT id FROM series"), 50, now=loom.now)
    for position in range(55, 65):
        at = datetime(2026, 6, 20, tzinfo=UTC) + timedelta(hours=position)
        loom.run(position, 100.0, started_at=at.isoformat())
    assert loom.rows("SELECT state, still_bad FROM regression") == [("fixed", False)]


def _newest(engine: Engine) -> Any:
    with engine.connect() as c:
        return c.scalar(text("SELECT max(measured_at) FROM judgement"))
