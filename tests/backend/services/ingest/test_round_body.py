"""What the body of a session's round says, and how it is refused."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from backend.services.base.errors import BadRequest
from backend.services.ingest.round_body import SCHEMA, parse_round
from tests.backend.services.loom import measurement, run_of

ROUND = "ROUND-0001"


def body(**changed: Any) -> bytes:
    said = {"schema": SCHEMA, "id": ROUND, "project": "a/b", "testbed": "cpu", "worker": "w1", "status": "ok"}
    return json.dumps({**said, "turns": [], **changed}).encode()


def test_a_round_is_its_turns_in_order_with_the_run_of_each() -> None:
    run = run_of(0, [measurement("step_ms", 100.0)])
    read = parse_round(ROUND, body(turns=[{"arm": "base", "run": run}, {"arm": "head", "run": run}]))
    assert [(arm, turn.project) for arm, turn, _ in read.turns] == [("base", run["project"]), ("head", run["project"])]
    assert "samples" not in read.turns[0][2]["results"][0]["measurements"][0]


def test_a_time_without_zone_is_utc() -> None:
    read = parse_round(ROUND, body(started_at="2026-11-20T12:00:00"))
    assert read.started_at == datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"schema": "tidemark.run/1"}, "schema"),
        ({"id": "ANOTHER"}, "id"),
        ({"status": "fine"}, "status"),
        ({"worker": ""}, "worker"),
        ({"turns": [{}] * 17}, "turns"),
        ({"turns": [{"arm": "left", "run": {}}]}, "turns[0]"),
        ({"started_at": "noon"}, "started_at"),
    ],
)
def test_what_is_no_round_is_refused_by_its_field(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_round(ROUND, body(**changed))
    assert refused.value.extra["field"] == named
