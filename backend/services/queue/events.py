"""Events of a run in progress, sent by its worker: steps, progress, lines of its log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection

from backend.services.base import live
from backend.services.base.errors import BadRequest, NotFound
from backend.services.queue import dispatch
from backend.store.queue import events as event_store
from backend.store.queue import queue as store

MAX_EVENTS = 200
MAX_LINES = 200
MAX_LINE_CHARACTERS = 4096
MAX_TEXT_CHARACTERS = 500
STEPS = ("checkout", "setup", "execute", "deliver")
STREAMS = ("stdout", "stderr")
PAGE = 1000


class EventKind(StrEnum):
    STATE = "state"
    PROGRESS = "progress"
    LOG = "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    at: datetime
    kind: EventKind
    detail: Mapping[str, Any]


def record_events(c: Connection, run_id: str, lease: str, events: Sequence[RunEvent]) -> int:
    """Store what the holder of the lease tells, and pass it on to live pages. Returns how many were stored."""
    if len(events) > MAX_EVENTS:
        raise BadRequest.field("events", f"{len(events)} events", f"at most {MAX_EVENTS} in one request")
    details = [_checked(index, event) for index, event in enumerate(events)]
    held = dispatch.held_by(c, run_id, lease)
    if not events:
        return 0
    rows = [
        {
            "run_id": run_id,
            "project_id": held.project_id,
            "attempt": held.attempt,
            "at": event.at,
            "kind": event.kind.value,
            "detail": detail,
        }
        for event, detail in zip(events, details, strict=True)
    ]
    ids = event_store.insert_run_events(c, rows)
    progress: dict[str, Any] = {}
    for event, detail in zip(events, details, strict=True):
        if event.kind is not EventKind.LOG:
            progress |= {name: value for name, value in detail.items() if name != "state"}
    if progress:
        store.set_running(c, run_id)
        store.merge_progress(c, run_id, progress)
        dispatch.publish_run(
            c, held.project_id, run_id, "running",
            commit=held.commit, suite=held.suite, testbed=held.testbed, progress=progress,
        )  # fmt: skip
    if any(event.kind is EventKind.LOG for event in events):
        live.publish(c, "log", held.project_id, {"run_id": run_id, "up_to": ids[-1]})
    return len(ids)


def events_of(c: Connection, run_id: str, after: int) -> list[dict[str, Any]]:
    """The run's events after event `after`, oldest first, at most a page of them."""
    if store.state_of(c, run_id) is None:
        raise NotFound.of("run", run_id)
    return event_store.run_events_after(c, run_id, after, PAGE)


def _checked(index: int, event: RunEvent) -> dict[str, Any]:
    where = f"events[{index}].detail"
    if event.kind is EventKind.STATE:
        return _state(where, event.detail)
    return _progress(where, event.detail) if event.kind is EventKind.PROGRESS else _log(where, event.detail)


def _state(where: str, detail: Mapping[str, Any]) -> dict[str, Any]:
    if detail.get("state", "running") != "running":
        raise BadRequest.field(f"{where}.state", detail["state"], ["running"])
    if detail.get("step") not in STEPS:
        raise BadRequest.field(f"{where}.step", detail.get("step"), STEPS)
    return {"state": "running", "step": detail["step"], **_texts(where, detail, "note")}


def _progress(where: str, detail: Mapping[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for name in ("done", "total", "eta_s"):
        value = detail.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise BadRequest.field(f"{where}.{name}", value, "a number of at least 0")
        known[name] = value
    return {**known, **_texts(where, detail, "note")}


def _log(where: str, detail: Mapping[str, Any]) -> dict[str, Any]:
    stream, lines = detail.get("stream", "stdout"), detail.get("lines")
    if stream not in STREAMS:
        raise BadRequest.field(f"{where}.stream", stream, STREAMS)
    if not isinstance(lines, list) or len(lines) > MAX_LINES or not all(isinstance(line, str) for line in lines):
        raise BadRequest.field(f"{where}.lines", lines, f"a list of at most {MAX_LINES} lines of text")
    return {"stream": stream, "lines": [storable(line[:MAX_LINE_CHARACTERS]) for line in lines]}


def _texts(where: str, detail: Mapping[str, Any], *names: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name in names:
        value = detail.get(name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise BadRequest.field(f"{where}.{name}", value, "text")
        texts[name] = storable(value[:MAX_TEXT_CHARACTERS])
    return texts


def storable(text: str) -> str:
    """`text` as Postgres can keep it: programs do print NUL and broken surrogates."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
