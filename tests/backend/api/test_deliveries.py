"""A delivery over HTTP: its route is called straight, and refuses what FastAPI's own way to it would refuse."""

from typing import Any

import pytest

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
