"""Every route over one history: what it answers, that OpenAPI describes it, and what it refuses."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from openapi_spec_validator import validate

from tests.backend.api.conftest import BROKEN_AT, COMMITS, run_document, sha

PROJECT = {"project": "demo/tinygpt"}


@pytest.fixture(scope="module")
def client(seeded: Any) -> Iterator[httpx.Client]:
    with seeded.client() as made:
        yield made


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> dict[str, Any]:
    return dict(client.get("/openapi.json").json())


@pytest.fixture(scope="module")
def step_ms(client: httpx.Client) -> int:
    (series,) = client.get("/api/v1/series", params={**PROJECT, "metric": "step_ms"}).json()["items"]
    return int(series["id"])


def test_the_openapi_document_is_valid(document: dict[str, Any]) -> None:
    validate(document)


def test_every_route_says_what_it_answers_and_how_it_refuses(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation.get("summary"), (method, path)
            good = [status for status in operation["responses"] if status.startswith("2")]
            assert good, (method, path)
            for status in good:
                answer = operation["responses"][status]
                schemas = [content.get("schema") for content in answer.get("content", {}).values()]
                assert status == "204" or any(schemas) or "octet" in str(answer), (method, path, status)
            assert "4XX" in operation["responses"], (method, path)
            assert "HTTPValidationError" not in str(operation), (method, path)


def test_a_parameter_that_a_route_does_not_have_is_refused_with_those_it_has(client: httpx.Client) -> None:
    answer = client.get("/api/v1/regressions", params={**PROJECT, "testbad": "cpu", "x\n": "1"})
    assert answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["detail"].startswith("there is no parameter 'testbad' here (did you mean testbed?); accepted: ")
    assert [error["path"] for error in problem["errors"]] == ["query.testbad", r"query.x\n"]
    none = client.get("/api/v1/schema/run.json", params={"version": "1"})
    assert none.status_code == 422 and none.json()["detail"].endswith("here; accepted: none")


def test_every_parameter_of_the_openapi_document_is_accepted(client: httpx.Client, document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        named = {each["name"] for each in methods.get("get", {}).get("parameters", ()) if each["in"] == "query"}
        if not path.startswith("/api/") or path.endswith("/events"):  # a stream ends with its listener
            continue
        address = path.replace("{", "").replace("}", "")
        refused = client.get(address, params=dict.fromkeys(named, "1")).text
        assert "there is no parameter" not in refused, path


READS = [
    ("/healthz", "/healthz", {}),
    ("/readyz", "/readyz", {}),
    ("/api/v1/schema/run.json", "/api/v1/schema/run.json", {}),
    ("/api/v1/projects", "/api/v1/projects", {}),
    ("/api/v1/board", "/api/v1/board", PROJECT),
    ("/api/v1/board", "/api/v1/board", {**PROJECT, "granularity": "day", "limit": 3}),
    ("/api/v1/board", "/api/v1/board", {**PROJECT, "only_changed": "true", "state": "regression"}),
    ("/api/v1/series", "/api/v1/series", PROJECT),
    ("/api/v1/series", "/api/v1/series", {**PROJECT, "limit": 1}),
    ("/api/v1/series/{series_id}", "/api/v1/series/{step}", {}),
    ("/api/v1/series/{series_id}/points", "/api/v1/series/{step}/points", {}),
    ("/api/v1/series/{series_id}/points", "/api/v1/series/{step}/points", {"granularity": "day"}),
    ("/api/v1/series/{series_id}/points", "/api/v1/series/{step}/points", {"granularity": "week", "range": "all"}),
    ("/api/v1/series/{series_id}/explain", "/api/v1/series/{step}/explain", {"commit": sha(BROKEN_AT + 2)}),
    ("/api/v1/series/{series_id}/explain", "/api/v1/series/{step}/explain", {"commit": "main"}),
    ("/api/v1/series/{series_id}/samples", "/api/v1/series/{step}/samples", {"commit": "main"}),
    ("/api/v1/compare", "/api/v1/compare", {**PROJECT, "base": sha(2), "head": sha(BROKEN_AT)}),
    ("/api/v1/regressions", "/api/v1/regressions", {}),
    ("/api/v1/regressions", "/api/v1/regressions", {**PROJECT, "state": "open", "still_bad": "true", "limit": 1}),
    ("/api/v1/regressions/{regression_id}", "/api/v1/regressions/1", {}),
    ("/api/v1/runs/{run_id}", "/api/v1/runs/{run}", {}),
    ("/api/v1/runs/{run_id}/document", "/api/v1/runs/{run}/document", {}),
    ("/api/v1/runs/{run_id}/events", "/api/v1/runs/{run}/events", {}),
    ("/api/v1/commits/{sha}/verdict", "/api/v1/commits/{sha}/verdict", PROJECT),
    ("/api/v1/queue", "/api/v1/queue", {}),
    ("/api/v1/queue", "/api/v1/queue", PROJECT),
    ("/api/v1/workers", "/api/v1/workers", {}),
    ("/api/v1/workers/{name}", "/api/v1/workers/w1", {}),
]


@pytest.mark.parametrize(("route", "path", "query"), READS)
def test_what_a_route_answers_is_what_openapi_says(
    client: httpx.Client, document: dict[str, Any], step_ms: int, route: str, path: str, query: dict[str, Any]
) -> None:
    run = run_document(COMMITS - 1)["id"]
    answer = client.get(path.format(step=step_ms, run=run, sha=sha(BROKEN_AT)), params=query)
    assert answer.status_code == 200, answer.text
    schema = document["paths"][route]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(answer.json())
    assert answer.json()


@pytest.mark.parametrize(
    ("path", "query", "status", "told"),
    [
        ("/api/v1/board", {}, 422, "query.project"),
        ("/api/v1/board", {"project": "no/such"}, 404, "known: demo/tinygpt"),
        ("/api/v1/board", {**PROJECT, "branch": "dev"}, 404, "known: main"),
        ("/api/v1/board", {**PROJECT, "testbed": "h200"}, 404, "known: cpu"),
        ("/api/v1/board", {**PROJECT, "granularity": "year"}, 400, "granularity: 'year'"),
        ("/api/v1/board", {**PROJECT, "range": "1h"}, 400, "range: '1h'"),
        ("/api/v1/board", {**PROJECT, "state": "purple"}, 422, "query.state"),
        ("/api/v1/board", {**PROJECT, "limit": 0}, 422, "query.limit"),
        ("/api/v1/board", {**PROJECT, "since": "0001-01-01T00:00:00Z"}, 422, "accepted: 1970 to 9000"),
        ("/api/v1/regressions", {"until": "9999-12-31T00:00:00Z"}, 422, "accepted: 1970 to 9000"),
        ("/api/v1/series", {**PROJECT, "role": "king"}, 400, "role: 'king'"),
        ("/api/v1/series", {**PROJECT, "cursor": "x"}, 400, "cursor: 'x'"),
        ("/api/v1/series/{step}/points", {"granularity": "year"}, 400, "granularity: 'year'"),
        ("/api/v1/series/{step}/explain", {"commit": "f" * 40}, 404, "f" * 12),
        ("/api/v1/series/{step}/explain", {}, 422, "query.commit"),
        ("/api/v1/series/99", {}, 404, "99"),
        ("/api/v1/compare", {**PROJECT, "base": "nope", "head": "main"}, 404, "nope"),
        ("/api/v1/regressions", {"state": "angry"}, 400, "state: 'angry'"),
        ("/api/v1/regressions", {"cause": "magic"}, 400, "cause: 'magic'"),
        ("/api/v1/regressions", {"min_change": "-1"}, 422, "query.min_change"),
        ("/api/v1/regressions", {"project": "no/such"}, 404, "no/such"),
        ("/api/v1/regressions/99", {}, 404, "99"),
        ("/api/v1/runs/01NOSUCHRUN", {}, 404, "01NOSUCHRUN"),
        ("/api/v1/runs/x", {}, 422, "path.run_id"),
        ("/api/v1/runs/01NOSUCHRUN/document", {}, 404, "01NOSUCHRUN"),
        ("/api/v1/runs/01NOSUCHRUN/events", {}, 404, "01NOSUCHRUN"),
        ("/api/v1/commits/abcdef0/verdict", PROJECT, 404, "abcdef0"),
        ("/api/v1/commits/main/verdict", PROJECT, 422, "path.sha"),
        ("/api/v1/queue", {"project": "no/such"}, 404, "no/such"),
        ("/api/v1/workers/nobody", {}, 404, "nobody"),
    ],
)
def test_what_a_route_refuses_names_the_field_the_value_or_what_is_known(
    client: httpx.Client, step_ms: int, path: str, query: dict[str, Any], status: int, told: str
) -> None:
    answer = client.get(path.format(step=step_ms), params=query)
    assert answer.status_code == status and told in answer.json()["detail"], answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "query"),
    [("/api/v1/board", PROJECT), ("/api/v1/series/{step}/points", {}), ("/api/v1/regressions", PROJECT)],
)
def test_ends_of_a_range_may_name_a_zone_or_none(
    client: httpx.Client, step_ms: int, path: str, query: dict[str, Any]
) -> None:
    ends = {"since": "2026-11-01T12:00:00", "until": "2026-11-03T00:00:00Z"}
    assert client.get(path.format(step=step_ms), params={**query, **ends}).status_code == 200


def test_the_history_shows_the_regression_everywhere(client: httpx.Client, step_ms: int) -> None:
    (found,) = client.get("/api/v1/regressions", params={**PROJECT, "state": "open"}).json()["items"]
    assert found["commit"] == sha(BROKEN_AT) and 0.15 < found["change"] < 0.25
    verdict = client.get(f"/api/v1/commits/{sha(BROKEN_AT)}/verdict", params=PROJECT).json()
    assert verdict["verdict"] == "regression" and verdict["complete"] and verdict["regressions"] == [found["id"]]
    assert client.get(f"/api/v1/commits/{sha(6)}/verdict", params=PROJECT).json()["verdict"] == "unchanged"
    points = client.get(f"/api/v1/series/{step_ms}/points").json()
    assert len(points["value"]) == COMMITS


# --- deliveries ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def worker(seeded: Any) -> Iterator[httpx.Client]:
    with seeded.client("worker") as made:
        yield made


def test_a_delivery_is_answered_with_every_verdict_and_again_with_the_same(
    worker: httpx.Client, document: dict[str, Any]
) -> None:
    body = run_document(COMMITS, id="01DELIVERED")
    schemas = document["paths"]["/api/v1/runs/{run_id}"]["put"]["responses"]
    first = worker.put("/api/v1/runs/01DELIVERED", json=body)
    again = worker.put("/api/v1/runs/01DELIVERED", json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    for answer in (first, again):
        schema = schemas[str(answer.status_code)]["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator(schema).validate(answer.json())
    said = {verdict["metric"]: verdict["verdict"] for verdict in first.json()["verdicts"]}
    assert said["step_ms"] == "regression" and sum(first.json()["summary"].values()) == len(said)
    for told, told_again in zip(first.json()["verdicts"], again.json()["verdicts"], strict=True):
        assert (told["metric"], told["verdict"]) == (told_again["metric"], told_again["verdict"])
    other = worker.put("/api/v1/runs/01DELIVERED", json={**body, "status": "incomplete"})
    assert other.status_code == 409 and "other content" in other.json()["detail"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"schema": "tidemark.run/2"}, "schema"),
        ({"commit": "main"}, "commit"),
        ({"status": "fine"}, "status"),
        ({"results": 3}, "results"),
        ({"finished_at": "2020-01-01T00:00:00Z"}, "finished_at"),
    ],
)
def test_a_run_that_breaks_the_contract_is_refused_by_the_path_of_the_field(
    worker: httpx.Client, change: dict[str, Any], path: str
) -> None:
    answer = worker.put("/api/v1/runs/01REFUSED00", json=run_document(1, id="01REFUSED00", **change))
    assert answer.status_code == 422, answer.text
    assert [error["path"] for error in answer.json()["errors"]] == [path]
    assert {"path", "value", "accepted"} <= answer.json()["errors"][0].keys()


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b'"text"', b"\xff", b"[" * 100_000])
def test_what_is_no_run_at_all_is_refused(worker: httpx.Client, body: bytes) -> None:
    answer = worker.put("/api/v1/runs/01REFUSED00", content=body)
    assert answer.status_code == 422 and answer.json()["errors"]


def test_not_a_number_is_refused_with_its_path(worker: httpx.Client) -> None:
    run = run_document(1, id="01REFUSED00")
    body = copy.deepcopy(run)
    body["results"][0]["measurements"][0]["value"] = float("nan")
    answer = worker.put("/api/v1/runs/01REFUSED00", content=json.dumps(body).encode())
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "results[0].measurements[0].value"


def test_the_id_in_the_address_is_the_runs(worker: httpx.Client) -> None:
    answer = worker.put("/api/v1/runs/01ANOTHER00", json=run_document(1))
    assert answer.status_code == 400 and "the id in the address" in answer.json()["detail"]


def test_delivering_needs_a_token_and_of_the_right_project(seeded: Any) -> None:
    path, body = "/api/v1/runs/01FOREIGN00", run_document(1, id="01FOREIGN00", project="other/one")
    with seeded.client() as nobody, seeded.client("read") as reader:
        assert nobody.put(path, json=body).status_code == 401
        assert reader.put(path, json=body).status_code == 403
    headers = {"Authorization": f"Bearer {seeded.token('write', project_id=1)}"}
    with seeded.client() as client:
        answer = client.put(path, json=body, headers=headers)
        assert answer.status_code == 403 and "other/one" in answer.json()["detail"]


# --- acting ----------------------------------------------------------------------------------------------------------


def test_a_regression_is_acknowledged_and_every_word_is_an_event(seeded: Any, document: dict[str, Any]) -> None:
    with seeded.client("write") as writer:
        path = "/api/v1/regressions/1"
        taken = writer.patch(path, json={"action": "acknowledge", "note": "mine <b>"})
        assert taken.status_code == 200, taken.text
        schema = document["paths"]["/api/v1/regressions/{regression_id}"]["patch"]["responses"]["200"]
        jsonschema.Draft202012Validator(schema["content"]["application/json"]["schema"]).validate(taken.json())
        assert taken.json()["regression"]["state"] == "acknowledged"
        assert writer.patch(path, json={"action": "shrug"}).status_code == 400
        assert writer.patch(path, json={"action": "expected"}).status_code == 400
        assert writer.patch(path, json={"action": "note"}).status_code == 400
        assert writer.patch("/api/v1/regressions/99", json={"action": "note", "note": "x"}).status_code == 404
        released = writer.patch(path, json={"action": "release"})
        assert released.json()["regression"]["state"] == "confirmed"
    with seeded.client("read") as reader:
        assert reader.patch(path, json={"action": "acknowledge"}).status_code == 403


def test_a_worker_is_told_to_pause_by_an_administrator(seeded: Any) -> None:
    with seeded.client("admin") as admin, seeded.client("worker") as worker:
        assert admin.patch("/api/v1/workers/w1", json={"state": "pause"}).json() == {"state": "pause"}
        hello = {"name": "w1", "testbed": "cpu"}
        assert worker.post("/api/v1/workers", json=hello).json()["state"] == "pause"
        assert admin.patch("/api/v1/workers/w1", json={"state": "ok"}).status_code == 200
        assert admin.patch("/api/v1/workers/w1", json={"state": "dance"}).status_code == 422
        assert admin.patch("/api/v1/workers/nobody", json={"state": "ok"}).status_code == 404
        assert worker.patch("/api/v1/workers/w1", json={"state": "ok"}).status_code == 403


def test_asking_for_runs_of_a_project_without_repository_says_so(seeded: Any) -> None:
    with seeded.client("write") as writer:
        answer = writer.post("/api/v1/run-requests", json={**PROJECT, "commit": "main"})
        assert answer.status_code == 400 and "has no repository" in answer.json()["detail"]
        unknown = writer.post("/api/v1/run-requests", json={**PROJECT, "commit": "main", "suite": "gpt"})
        assert unknown.status_code == 422 and "suite" in unknown.json()["detail"]
