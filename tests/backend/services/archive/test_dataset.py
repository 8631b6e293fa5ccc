"""A data set is what the API says of the same project, as DuckDB reads it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from sqlalchemy import Connection

from backend.services.archive import dataset
from backend.services.base.errors import BadRequest, NotFound
from backend.services.reports.history import load_points
from tests.bench.dataset import Filled, Shape, fill

SHAPE = Shape(project="a/dataset", testbed="dataset-sxm", suites=1, variants=3, commits=900)


@pytest.fixture
def filled(connection: Connection) -> Filled:
    return fill(connection, SHAPE)


def test_every_measurement_is_in_the_file_of_its_month(connection: Connection, filled: Filled, tmp_path: Path) -> None:
    written = dataset.export(connection, SHAPE.project, tmp_path)
    assert written.rows == SHAPE.measurements
    counted = duckdb.sql(
        f"SELECT month, count(*), bool_and(strftime(measured_at AT TIME ZONE 'UTC', '%Y-%m') = month) "
        f"FROM read_parquet('{tmp_path}/*/*/*.parquet', hive_partitioning = true, hive_types = {{'month': VARCHAR}}) "
        "GROUP BY month"
    ).fetchall()
    assert len(counted) == len(written.files) >= 2
    assert all(right for _, _, right in counted) and sum(count for _, count, _ in counted) == SHAPE.measurements


def test_duckdb_reads_of_a_series_what_the_api_answers(connection: Connection, filled: Filled, tmp_path: Path) -> None:
    dataset.export(connection, SHAPE.project, tmp_path)
    points = load_points(connection, filled.first_series_id)
    read = duckdb.sql(
        f"SELECT position, commit, value, verdict, len(processes) FROM read_parquet('{tmp_path}/*/*/*.parquet') "
        f"WHERE series_id = {filled.first_series_id} ORDER BY position"
    ).fetchall()
    said = zip(points.position, points.sha, points.value, points.verdict, strict=True)
    assert read == [(int(at), sha, float(value), verdict, 5) for at, sha, value, verdict in said]


def test_an_export_again_replaces_what_was_there(connection: Connection, filled: Filled, tmp_path: Path) -> None:
    first = dataset.export(connection, SHAPE.project, tmp_path)
    assert dataset.export(connection, SHAPE.project, tmp_path) == first
    assert sorted(tmp_path.rglob("part-*")) == sorted(first.files)


def test_an_unknown_project_is_refused_by_name(connection: Connection, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no/such"):
        dataset.export(connection, "no/such", tmp_path)


def test_projects_share_a_folder(connection: Connection, filled: Filled, tmp_path: Path) -> None:
    other = fill(connection, replace(SHAPE, project="a/second", testbed="dataset-2", commits=60))
    for project in (SHAPE.project, "a/second"):
        dataset.export(connection, project, tmp_path)
    found = duckdb.sql(
        f"SELECT project, count(*) FROM read_parquet('{tmp_path}/*/*/*.parquet', hive_partitioning = true) "
        "GROUP BY project ORDER BY project"
    ).fetchall()
    assert found == [(SHAPE.project, SHAPE.measurements), ("a/second", other.shape.measurements)]


def test_what_is_no_folder_is_refused_in_words(connection: Connection, filled: Filled, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadRequest, match=r"part-0.parquet cannot be written: Not a directory"):
        dataset.export(connection, SHAPE.project, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
