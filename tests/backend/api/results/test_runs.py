"""A delivery over HTTP: what its address, its headers and its body may say, and what comes back of it."""

import json
from typing import Any

import pytest

from backend import contract
from tests.backend.api.conftest import run_document

RUN_ID = "01JD2Q8Z6WJ4M6R8T0V2X4Y6Z8"


@pytest.mark.parametrize(
    ("run_id", "headers", "where"),
    [
        ("short", {}, "path.run_id"),
        (f"{RUN_ID}%0A", {}, "path.run_id"),
        (RUN_ID, {"tidemark-lease": "x" * 201}, "header.tidemark-lease"),
    ],
)
def test_what_is_no_delivery_is_refused_by_its_place(
    seeded: Any, run_id: str, headers: dict[str, str], where: str
) -> None:
    with seeded.client("write") as writer:
        refused = writer.put(f"/api/v1/runs/{run_id}", json={}, headers=headers)
    assert refused.status_code == 422
    assert [error["path"] for error in refused.json()["errors"]] == [where]


def test_the_longest_lease_reaches_the_run(seeded: Any) -> None:
    with seeded.client("write") as writer:
        refused = writer.put(f"/api/v1/runs/{RUN_ID}", json={}, headers={"tidemark-lease": "x" * 200})
    assert "schema is missing" in refused.json()["detail"]


ODD_BODY = json.dumps(
    {**run_document(0), "id": "ODD-NUMBERS-1", "environment": {"cores": 2}, "new": [1.5, -0.0, 2**63 - 1]}
)


def test_a_body_is_given_back_as_it_was_delivered(seeded: Any) -> None:
    with seeded.client("worker") as worker:
        delivered = worker.put("/api/v1/runs/ODD-NUMBERS-1", content=ODD_BODY.encode())
        assert delivered.status_code == 201, delivered.text
        stored = worker.get("/api/v1/runs/ODD-NUMBERS-1/document").text
    assert json.dumps(json.loads(stored), sort_keys=True) == json.dumps(json.loads(ODD_BODY), sort_keys=True)


@pytest.mark.parametrize(
    "cores",
    [
        b"NaN",
        b"1e400",
        b"18446744073709551616",
        b" -9223372036854775809",
        b"[123456789012345678901234567890]",
        b'"\\ud800"',
        b'"\\u0000"',
        b'"\xff"',
        b"[" * 1500 + b"]" * 1500,
        b"",
    ],
)
def test_a_body_that_the_contract_refuses_is_refused_with_its_problems(seeded: Any, cores: bytes) -> None:
    body = ODD_BODY.encode().replace(b'"cores": 2', b'"cores": ' + cores)
    with pytest.raises(contract.Invalid) as expected:
        contract.parse_run(body)
    with seeded.client("worker") as worker:
        refused = worker.put("/api/v1/runs/ODD-NUMBERS-1", content=body)
    assert refused.status_code == 422
    assert [error["path"] for error in refused.json()["errors"]] == [p.path for p in expected.value.problems]
