"""Results in the formats others read, badges, and the client: over HTTP, from a history that was really judged."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from typing import Any
from xml.etree import ElementTree

import httpx
import pyarrow.parquet
import pytest

from backend.importers import Context, read_file
from backend.services.base.tables import cell
from backend.services.reports.badges import Badge, badge_of, draw
from backend.store.reports.badges import BadgeStatus
from tests.backend.api.conftest import COMMITS, START, run_document
from tidemark.client import ApiError, Client, Unreachable

RUN = f"/api/v1/runs/{run_document(3)['id']}"


@pytest.fixture(scope="module")
def reader(seeded: Any) -> httpx.Client:
    return seeded.client("read")


def exported(reader: httpx.Client, name: str) -> httpx.Response:
    answer = reader.get(RUN, params={"format": name})
    assert answer.status_code == 200 and "attachment" in answer.headers["content-disposition"], answer.text
    return answer


def test_run_json_is_the_run_as_it_was_delivered(reader: httpx.Client) -> None:
    assert exported(reader, "run.json").json() == run_document(3)


def test_a_run_exported_as_v3_comes_back_as_the_same_measurements(reader: httpx.Client) -> None:
    (run,) = read_file("v3.json", exported(reader, "v3").content, Context(project="a/b")).runs
    (back,), (sent,) = run.results, run_document(3)["results"]
    assert run.commit == run_document(3)["commit"] and run.testbed == "cpu"
    values = {item.metric: (item.value, item.direction.value, item.unit) for item in back.measurements}
    assert values == {i["metric"]: (pytest.approx(i["value"]), i["direction"], i["unit"]) for i in sent["measurements"]}


def test_an_exported_mllog_is_read_by_mlcommons_own_parser_and_by_our_importer(
    reader: httpx.Client, tmp_path: Any
) -> None:
    from mlperf_logging.compliance_checker import mlp_parser

    file = tmp_path / "result.mllog"
    file.write_bytes(exported(reader, "mllog").content)
    loglines, errors = mlp_parser.parse_file(str(file), ruleset="5.0.0")
    assert not errors and {line.key for line in loglines} >= {"run_start", "run_stop", "tracked_stats"}
    stated = Context(project="a/b", testbed="cpu", commit="a" * 40)
    imported = read_file("result.mllog", file.read_bytes(), stated)
    assert {m.metric for m in imported.runs[0].results[0].measurements} >= {"step_ms", "tokens_per_s"}


def test_a_run_that_states_no_time_is_exported_with_that_of_its_arrival(live_server: Any) -> None:
    sent = run_document(4, started_at=None, finished_at=None)
    before = time.time()
    with live_server.client("write") as writer:
        assert writer.put(f"/api/v1/runs/{sent['id']}", json=sent).status_code == 201
        said = {name: writer.get(f"/api/v1/runs/{sent['id']}", params={"format": name}) for name in ("v3", "mllog")}
    events = [json.loads(line.removeprefix(":::MLLOG ")) for line in said["mllog"].text.splitlines()]
    moments = [record["timestamp"] + 1 for record in said["v3"].json()] + [e["time_ms"] / 1000 for e in events]
    assert moments and all(before - 1 <= moment <= time.time() + 1 for moment in moments)


def test_csv_has_a_row_for_each_measurement(reader: httpx.Client) -> None:
    rows = list(csv.DictReader(io.StringIO(exported(reader, "csv").text)))
    sent = run_document(3)["results"][0]["measurements"]
    assert [(row["metric"], float(row["value"])) for row in rows] == [(i["metric"], i["value"]) for i in sent]
    assert rows[0]["variant"] == "rung=r03"


def test_text_of_a_stranger_is_no_formula_in_a_spreadsheet() -> None:
    assert cell("=HYPERLINK(1)") == "'=HYPERLINK(1)" and cell(-1.5) == -1.5


def test_parquet_holds_the_rows_of_the_csv(reader: httpx.Client) -> None:
    columns = pyarrow.parquet.read_table(io.BytesIO(reader.get(RUN, params={"format": "parquet"}).content)).to_pydict()
    rows = list(csv.DictReader(io.StringIO(reader.get(RUN, params={"format": "csv"}).text)))
    assert [float(row["value"]) for row in rows] == columns["value"] and rows


def test_an_unknown_format_names_the_known_ones(reader: httpx.Client) -> None:
    assert "run.json, mllog, v3, csv, parquet" in reader.get(RUN, params={"format": "xml"}).json()["detail"]


def test_points_as_csv_are_the_points(reader: httpx.Client) -> None:
    series = reader.get("/api/v1/series", params={"project": "demo/tinygpt", "metric": "step_ms"}).json()["items"][0]
    path = f"/api/v1/series/{series['id']}/points"
    rows = list(csv.DictReader(io.StringIO(reader.get(path, params={"format": "csv"}).text)))
    points = reader.get(path).json()
    assert [float(row["value"]) for row in rows] == points["value"] and len(rows) == COMMITS
    assert [row["verdict"] for row in rows] == points["verdict"]


# --- badges ----------------------------------------------------------------------------------------------------------


def test_the_badge_of_a_project_is_a_picture_that_may_be_kept_for_minutes(reader: httpx.Client) -> None:
    answer = reader.get("/badge/demo/tinygpt.svg")
    assert answer.headers["content-type"] == "image/svg+xml" and "max-age=300" in answer.headers["cache-control"]
    assert ElementTree.fromstring(answer.text).attrib["aria-label"].startswith("speed: 1 regression")
    again = reader.get("/badge/demo/tinygpt.svg", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304 and not again.content
    assert reader.get("/badge/no/such.svg").status_code == 404


@pytest.mark.parametrize(
    ("standing", "message"),
    [
        (BadgeStatus(2, 1, True), "2 regressions"),
        (BadgeStatus(0, 1, True), "1 suspect"),
        (BadgeStatus(0, 0, True), "no regression"),
        (BadgeStatus(0, 0, False), "no results yet"),
    ],
)
def test_a_badge_says_the_worst_first(standing: BadgeStatus, message: str) -> None:
    assert badge_of(standing).message == message


def test_text_on_a_badge_is_escaped() -> None:
    drawn = draw("<script>", Badge('"><img onload=x>', "red"))
    assert "<script>" not in drawn and "<img" not in drawn
    ElementTree.fromstring(drawn)


# --- the client ------------------------------------------------------------------------------------------------------


def test_the_client_gives_a_series_as_a_frame_in_two_lines(seeded: Any) -> None:
    client = Client(seeded.url, seeded.token("read"))
    frame = client.series("demo/tinygpt", metric="step_ms")[0].frame()
    assert len(frame) == COMMITS if hasattr(frame, "columns") else len(frame["value"]) == COMMITS
    assert list(frame["verdict"])[-1] in {"regression", "suspect"}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_of_either_library_has_its_moments_as_moments(seeded: Any, library: str) -> None:
    (series, *_) = Client(seeded.url, seeded.token("read")).series("demo/tinygpt", metric="step_ms")
    frame = series.frame(library)
    assert type(frame).__module__.startswith(library) and frame.shape[0] == COMMITS
    assert next(iter(frame["measured_at"])) == START
    with pytest.raises(ValueError, match="accepted: pandas, polars"):
        series.frame("numpy")


def test_the_client_reads_verdicts_runs_and_regressions_and_says_what_was_refused(seeded: Any) -> None:
    client = Client(seeded.url + "/", seeded.token("write"))
    assert client.verdict("demo/tinygpt", run_document(12)["commit"])["verdict"] == "regression"
    assert client.run(run_document(3)["id"]) == run_document(3)
    assert client.regressions(project="demo/tinygpt")[0]["project"] == "demo/tinygpt"
    body = json.dumps(run_document(3), separators=(",", ":")).encode()
    assert client.submit(body)["run_id"] == run_document(3)["id"]
    imported = client.import_file(json.dumps(run_document(4)).encode(), project="demo/tinygpt", dry_run=True)
    assert imported["counts"]["duplicate"] == 1
    with pytest.raises(ApiError, match="404: unknown project"):
        client.series("no/such")
    with pytest.raises(Unreachable, match="no answer"):
        Client("http://127.0.0.1:9").series("a/b")


def test_the_client_needs_the_standard_library_only() -> None:
    code = (
        "import sys; import tidemark.client; "
        "print([n for n in sys.modules if n.split('.')[0] in ('pandas', 'numpy', 'httpx', 'pydantic', 'sqlalchemy')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
