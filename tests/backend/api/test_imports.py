"""Foreign result files over HTTP: raw and as a form, twice, in part, and by whom."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from backend.importers import FORMATS
from backend.services.base import projects
from tests.backend.api.conftest import run_document
from tidemark.machine.processes import wait_until

FIXTURES = Path(__file__).parents[1] / "importers" / "fixtures"
SHA = "9f3c2e1d0b5a4c7e8f90a1b2c3d4e5f60718293a"
STATED = {"project": "northsea/loom", "testbed": "h200-sxm", "commit": SHA}


@pytest.fixture
def writer(live_server: Any) -> Iterator[httpx.Client]:
    with live_server.client("write") as made:
        yield made


def send(client: httpx.Client, file: str, format_name: str = "auto", **query: Any) -> httpx.Response:
    data = (FIXTURES / file).read_bytes()
    return client.post(f"/api/v1/import/{format_name}", params={**STATED, "file": file, **query}, content=data)


def test_every_format_comes_in_by_its_name_and_a_second_time_stores_nothing(writer: httpx.Client) -> None:
    named = {
        "mllog": "result_0.txt", "nccl-tests": "nccl.json", "pytest-benchmark": "pytest.json",
        "google-benchmark": "google.json", "asv": "asv.json", "github-action-benchmark": "data.js",
        "vllm": "vllm.json", "pytorch-v3": "v3.json", "torchbench": "torchbench.json", "csv": "table.csv",
        "custom-smaller-is-better": "custom.json", "custom-bigger-is-better": "custom.json",
    }  # fmt: skip
    assert set(named) <= set(FORMATS)
    for format_name, file in named.items():
        # A suite each: one series cannot be better both ways.
        stated = {"suite": format_name, "testbed": format_name}
        first = send(writer, file, format_name, **stated).json()
        assert first["format"] == format_name and first["counts"]["refused"] == 0, first
        assert first["counts"]["stored"] == len(first["runs"]) > 0
        again = send(writer, file, format_name, **stated).json()
        assert again["counts"]["stored"] == 0 and again["counts"]["duplicate"] == len(first["runs"])
        assert again["problems"] == first["problems"]


def test_what_could_not_be_taken_is_counted_and_named_with_its_place(writer: httpx.Client) -> None:
    answer = send(writer, "table.csv").json()
    assert answer["counts"]["problems"] == len(answer["problems"]) == 1 and answer["counts"]["measurements"] == 1
    assert "oops" in answer["problems"][0]["reason"] and answer["problems"][0]["where"]


def test_a_dry_run_stores_nothing_and_says_what_it_would_store(writer: httpx.Client) -> None:
    told = send(writer, "data.js", dry_run=True).json()
    assert told["counts"]["new"] == 3 and told["counts"]["stored"] == 0
    assert writer.get(f"/api/v1/runs/{told['runs'][0]['run_id']}").status_code == 404
    send(writer, "data.js")
    assert send(writer, "data.js", dry_run=True).json()["counts"]["duplicate"] == 3


def test_a_run_that_does_not_fit_its_series_leaves_the_others_in(writer: httpx.Client) -> None:
    def table(*rows: tuple[str, str, str]) -> bytes:
        header = "benchmark,metric,value,unit,direction,commit"
        return "\n".join([header, *(f"b,step,1.5,{unit},{way},{at}" for at, unit, way in rows)]).encode()

    def post(data: bytes) -> dict[str, Any]:
        query = {"project": "northsea/loom", "testbed": "cpu"}
        return dict(writer.post("/api/v1/import/csv", params=query, content=data).json())

    assert post(table(("a" * 40, "ms", "lower")))["counts"]["stored"] == 1
    answer = post(table(("b" * 40, "ms", "lower"), ("c" * 40, "s", "lower"), ("d" * 40, "ms", "lower")))
    assert (answer["counts"]["stored"], answer["counts"]["refused"]) == (2, 1)
    (refused,) = [run for run in answer["runs"] if run["outcome"] == "refused"]
    assert refused["commit"] == "c" * 40 and "unit" in refused["error"]
    assert writer.get(f"/api/v1/runs/{refused['run_id']}").status_code == 404


def rows(*measured: tuple[str, str, float, str], commit: str = SHA) -> bytes:
    lines = [f"{benchmark},{metric},{value},{unit},{commit}" for benchmark, metric, value, unit in measured]
    return "\n".join(["benchmark,metric,value,unit,commit", *lines]).encode()


def test_a_unit_that_differs_costs_its_result_and_not_the_run(writer: httpx.Client) -> None:
    def post(data: bytes, **query: Any) -> dict[str, Any]:
        stated = {"project": "northsea/loom", "testbed": "cpu", "file": "x.csv", **query}
        return dict(writer.post("/api/v1/import/csv", params=stated, content=data).json())

    assert post(rows(("a", "step", 1.5, "ms"), ("b", "step", 1.5, "ms")))["counts"]["stored"] == 1
    other = rows(("a", "step", 1.5, "ms"), ("b", "step", 0.0015, "s"), ("c", "step", 2.0, "s"), commit="b" * 40)
    foretold = post(other, dry_run=True)
    told = post(other)
    assert told["counts"]["stored"] == 1 and told["counts"]["refused"] == 0
    assert told["records"] == foretold["records"]
    assert {key: told["records"][key] for key in ("read", "stored", "duplicate", "left_out")} == {
        "read": 3, "stored": 2, "duplicate": 0, "left_out": 1}  # fmt: skip
    (reason,) = told["records"]["reasons"]
    assert reason["count"] == 1 and "'s', and 'ms' in this series so far" in reason["first"]
    again = post(other)
    # What did not fit is not called "there already".
    assert (again["counts"]["duplicate"], again["records"]["duplicate"], again["records"]["left_out"]) == (1, 2, 1)


def test_two_suites_with_the_same_names_are_two_series(writer: httpx.Client) -> None:
    for suite, value in (("disk", 4879.0), ("memory", 1562.0)):
        stated = {"project": "northsea/loom", "testbed": "cpu", "suite": suite}
        sent = writer.post("/api/v1/import/csv", params=stated, content=rows(("get", "rate", value, "MiB/s")))
        assert sent.json()["counts"]["stored"] == 1
    listed = writer.get("/api/v1/series", params={"project": "northsea/loom"}).json()["items"]
    assert {(series["suite"], series["value"]) for series in listed} == {("disk", 4879.0), ("memory", 1562.0)}


def test_a_long_parameter_is_kept_whole_and_shown_whole(writer: httpx.Client) -> None:
    whole = "x" * 6000
    stated = {"project": "northsea/loom", "testbed": "cpu", "variant": f"args={whole}"}
    sent = writer.post("/api/v1/import/csv", params=stated, content=rows(("get", "step", 1.0, "ms")))
    assert sent.json()["counts"]["stored"] == 1, sent.text
    (series,) = writer.get("/api/v1/series", params={"project": "northsea/loom"}).json()["items"]
    assert whole in json.dumps(writer.get(f"/api/v1/series/{series['id']}").json())


def test_a_form_carries_the_file_and_its_options(writer: httpx.Client) -> None:
    answer = writer.post(
        "/api/v1/import/auto",
        files={"file": ("v.json", (FIXTURES / "vllm.json").read_bytes())},
        data={**STATED, "direction": ["mystery=lower"]},
    ).json()
    assert answer["counts"]["stored"] == 1 and answer["file"] == "v.json"
    assert answer["runs"][0]["testbed"] == "h200-sxm"


def test_a_run_of_our_own_is_the_same_run_by_either_door(writer: httpx.Client) -> None:
    run = run_document(0)
    body = json.dumps(run).encode()
    put = writer.put(f"/api/v1/runs/{run['id']}", content=body)
    posted = writer.post("/api/v1/import/run", params={"project": "demo/tinygpt"}, content=body)
    assert put.status_code == 201 and posted.json()["counts"]["duplicate"] == 1


@pytest.mark.parametrize(
    ("format_name", "query", "body", "status", "said"),
    [
        ("nonsense", {}, b"{}", 404, "unknown format 'nonsense'; known: auto, run, mllog"),
        ("auto", {}, b'{"a": 1}', 422, "JSON of no known format"),
        ("asv", {}, b"{", 422, "no JSON at line 1"),
        ("csv", {}, b'"' + b"a" * 1_200_000 + b'",value', 422, "not CSV"),
        ("auto", {}, b"\x1f\x8b" + bytes(range(200)), 422, "broken gzip"),
        ("auto", {}, bytes(range(256)) * 20, 422, "format not recognised"),
        ("nccl-tests", {}, bytes(range(256)) * 20, 422, "no row of nccl-tests' table"),
        ("csv", {}, b"benchmark,metric,value\nb,step,n/a", 422, "nothing of the file can be used: 1 records"),
        ("csv", {"direction": ["step"]}, b"", 400, "NAME=VALUE"),
        ("csv", {"direction": ["step=down"]}, b"", 400, "lower, higher"),
        ("csv", {"project": ""}, b"", 400, "owner/name"),
    ],
)
def test_a_refusal_says_what_was_wrong_and_what_is_accepted(
    standing_server: Any, format_name: str, query: dict[str, Any], body: bytes, status: int, said: str
) -> None:
    with standing_server.client("write") as writer:
        answer = writer.post(f"/api/v1/import/{format_name}", params={**STATED, **query}, content=body)
    assert answer.status_code == status and said in answer.json()["detail"]


def test_who_may_not_write_to_the_project_may_not_import(live_server: Any) -> None:
    with live_server.engine.begin() as c:
        projects.save_project(c, "northsea/loom", repository_url=None, now=datetime.now(UTC))
        other = projects.save_project(c, "northsea/other", repository_url=None, now=datetime.now(UTC))
    assert send(live_server.client(), "v3.json").status_code == 401
    assert send(live_server.client("read"), "v3.json").status_code == 403
    headers = {"Authorization": f"Bearer {live_server.token('write', project_id=other.id)}"}
    with httpx.Client(base_url=live_server.url, headers=headers, timeout=30, trust_env=False, verify=False) as foreign:
        assert send(foreign, "v3.json").status_code == 403


def test_what_is_stored_can_be_read_and_stays_while_the_rest_is_under_way(live_server: Any) -> None:
    """The runs on the second testbed wait for somebody else's transaction; those before them are there by then."""
    lines = ["benchmark,metric,value,unit,testbed,commit,at"]
    lines += [f"get,step,1.0,ms,first,{number:040x},2026-01-{1 + number // 24:02}T{number % 24:02}:00:00Z"
              for number in range(60)]  # fmt: skip
    lines += [f"get,step,1.0,ms,second,{99:040x},2026-02-01T00:00:00Z"]
    answers: list[dict[str, Any]] = []

    def send_all() -> None:
        with live_server.client("write") as client:
            sent = client.post("/api/v1/import/csv", params={"project": "northsea/loom"}, content="\n".join(lines))
            answers.append(sent.json())

    def stored() -> int:
        with live_server.engine.connect() as c:
            return int(c.execute(text("SELECT count(*) FROM run")).scalar_one())

    sending = threading.Thread(target=send_all)
    with live_server.engine.connect() as other:
        other.execute(text("INSERT INTO testbed (name) VALUES ('second')"))
        sending.start()
        assert wait_until(lambda: stored() == 50, 30), stored()
        other.rollback()
    sending.join(30)
    assert answers[0]["records"]["stored"] == stored() == 61
