"""The body of a session's round, read: what it says, and every problem that it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from backend.contract import Invalid, Run, parse_run
from backend.contract_weight import check_weight
from backend.services.base.errors import BadRequest
from backend.services.ingest.requested import check_size

SCHEMA = "tidemark.session/1"
STATUSES = ("ok", "failed", "quarantined")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A worker's report on a round."""

    run_id: str
    project: str
    testbed: str
    worker: str
    status: str
    error: str | None
    started_at: datetime | None
    turns: tuple[tuple[str, Run, Mapping[str, Any]], ...]
    """(arm, its run, the document it was read from)"""


def parse_round(run_id: str, body: bytes) -> Round:
    """The round that these bytes state; raises BadRequest or Invalid."""
    check_weight(body)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"a round of a session is JSON: {error}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BadRequest.field("schema", document.get("schema") if isinstance(document, dict) else None, SCHEMA)
    if document.get("id") != run_id:
        raise BadRequest.field("id", document.get("id"), f"the id in the address, {run_id}")
    if document.get("status") not in STATUSES:
        raise BadRequest.field("status", document.get("status"), STATUSES)
    turns = document.get("turns")
    if not isinstance(turns, list) or len(turns) > 16:
        raise BadRequest.field("turns", turns, "a list of at most 16 turns")
    started = document.get("started_at")
    return Round(
        run_id=run_id,
        project=_text(document, "project"),
        testbed=_text(document, "testbed"),
        worker=_text(document, "worker"),
        status=document["status"],
        error=None if document.get("error") is None else _text(document, "error")[:4000],
        started_at=None if started is None else _moment(started),
        turns=tuple(_turn(number, turn) for number, turn in enumerate(turns)),
    )


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or "\x00" in value or not value:
        raise BadRequest.field(name, value, "text")
    return value


def _moment(text: object) -> datetime:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise BadRequest.field("started_at", text, "a time with time zone") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _turn(number: int, turn: Any) -> tuple[str, Run, Mapping[str, Any]]:
    if not isinstance(turn, dict) or turn.get("arm") not in ("base", "head") or not isinstance(turn.get("run"), dict):
        raise BadRequest.field(f"turns[{number}]", type(turn).__name__, 'an object {"arm": base or head, "run": {…}}')
    try:
        run = parse_run(turn["run"])
    except Invalid as invalid:
        raise BadRequest(f"turns[{number}].run: {invalid.problems[0]}") from None
    document = {**turn["run"], "log_tail": None}
    for result in document["results"]:
        for measurement in result.get("measurements", ()):
            measurement.pop("samples", None)
            measurement.pop("samples_taken", None)  # counts of lists that are gone: the turn is read again later
    check_size(run)
    return turn["arm"], run, document
