"""Sessions: requested when a suspect opens, and cancelled when it is settled otherwise.

A session runs base and head interleaved in fresh processes on one worker, one round of ABBA at a time. Each round is an
entry in the queue; its result is processed by `backend.services.ingest.session_round`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, RowMapping

from backend.contract import new_run_id
from backend.regression.confirmation import most_rounds
from backend.services.base import live
from backend.services.base.errors import Conflict, NotFound
from backend.services.policy.resolve import policy_book
from backend.services.sessions.budget import budget_of
from backend.store.base import live as live_store
from backend.store.queue import queue
from backend.store.sessions import sessions as store

ALIVE = timedelta(seconds=45)
"""A worker that has been silent for this long is not available to confirm anything."""
MOST_SESSIONS = 3
"""Sessions for one regression: if three leave it undecided, the following commits decide."""
MOST_SPOILED = 2
"""Rounds on a machine that changed; one more and the session is quarantined."""
ORDERS = ("ABBA", "BAAB")


class Purpose(StrEnum):
    CONFIRM = "confirm"
    BISECT = "bisect"
    COMPARE = "compare"
    ATTRIBUTE = "attribute"
    """What caused a change, over all series; requested by the joint detector."""


PRIORITY: Mapping[Purpose, tuple[str, int]] = {
    Purpose.CONFIRM: ("confirm", 40),
    Purpose.BISECT: ("confirm", 40),
    Purpose.COMPARE: ("scheduled", 15),
    Purpose.ATTRIBUTE: ("confirm", 40),
}
"""Kind, and so priority, of its queue entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """Two arms to compare. A setup is what an arm installs or sets in addition to its suite: `pip`, `setup`, `env`."""

    project_id: int
    testbed_id: int
    suite: str
    purpose: Purpose
    base_commit_id: int
    head_commit_id: int
    spec: Mapping[str, Any]
    requested_by: str
    base_setup: Mapping[str, Any]
    head_setup: Mapping[str, Any]
    regression_id: int | None = None
    bisection_id: str | None = None
    schedule: str | None = None
    lead_series_id: int | None = None
    avoid_worker_id: int | None = None
    max_rounds: int
    """ABBA rounds."""


def follow(c: Connection, regression_ids: Iterable[int], now: datetime) -> None:
    """These regressions have just changed: suspects get a session; sessions of settled ones are cancelled."""
    numbers = list(regression_ids)
    if not numbers:
        return
    for session_id, state in store.settled_without_session(c, numbers):
        cancel(c, session_id, f"settled without it: the regression is {state}", now)
    wanted = store.suspects_without_session(c, numbers, alive_since=now - ALIVE, at_most=MOST_SESSIONS)
    # Without one the following commits decide; the regressions are of one project, whose lock is held.
    left = budget_of(c, wanted[0]["project_id"], now).left if wanted else 0
    for suspect in wanted[:left]:
        named = {name: suspect[name] for name in ("suite", "benchmark", "metric", "testbed")}
        request_session(
            c,
            SessionRequest(
                project_id=suspect["project_id"],
                testbed_id=suspect["testbed_id"],
                suite=suspect["suite"],
                purpose=Purpose.CONFIRM,
                base_commit_id=suspect["last_good_commit_id"],
                head_commit_id=suspect["first_bad_commit_id"],
                spec=narrowed(suspect["spec"], suspect["benchmark"], suspect["variant"]),
                requested_by="tidemark",
                base_setup={},
                head_setup={},
                regression_id=suspect["id"],
                lead_series_id=suspect["lead_series_id"],
                avoid_worker_id=suspect["worker_id"],
                max_rounds=most_rounds(policy_book(c, suspect["project"]).of(**named)),
            ),
            now,
        )


def narrowed(spec: Mapping[str, Any], benchmark: str, variant: Mapping[str, Any]) -> dict[str, Any]:
    """The suite reduced to one variant of one benchmark: a session takes machine time from everyone else.

    A project's own command runs as it is.
    """
    if spec.get("command"):
        return dict(spec)
    # How many ranks there are, torchrun says: the registered variants need not name this number.
    known = {name: str(value) for name, value in variant.items() if not (name == "ranks" and spec.get("ranks"))}
    filters = [f"{name}={value}" for name, value in known.items() if not _is_pattern(value)]
    return {**spec, "benchmarks": [benchmark], "variants": filters}


def _is_pattern(text: str) -> bool:
    return any(letter in text for letter in "*?[],")


def request_session(c: Connection, request: SessionRequest, now: datetime) -> str:
    """Queue the first round of a session; returns its id. The caller makes sure that it was not requested before."""
    session_id = new_run_id()
    store.insert_session(
        c,
        {
            "id": session_id,
            "project_id": request.project_id,
            "testbed_id": request.testbed_id,
            "suite": request.suite,
            "purpose": request.purpose.value,
            "regression_id": request.regression_id,
            "bisection_id": request.bisection_id,
            "schedule": request.schedule,
            "lead_series_id": request.lead_series_id,
            "base_commit_id": request.base_commit_id,
            "head_commit_id": request.head_commit_id,
            "base_setup": dict(request.base_setup),
            "head_setup": dict(request.head_setup),
            "spec": dict(request.spec),
            "avoid_worker_id": request.avoid_worker_id,
            "state": "waiting",
            "max_rounds": request.max_rounds,
            "requested_by": request.requested_by,
            "requested_at": now,
        },
    )
    row = store.find_session(c, session_id)
    assert row is not None
    queue_round(c, row, now)
    return session_id


def queue_round(c: Connection, session: RowMapping, now: datetime) -> str:
    """Queue one more round of ABBA; returns the entry's id."""
    number = session["rounds_done"] + session["rounds_spoiled"]
    kind, priority = PRIORITY[Purpose(session["purpose"])]
    run_id = new_run_id()
    arms = {
        arm: {
            "commit": session[f"{arm}_sha"],
            "parents": list(session[f"{arm}_parents"]),
            "setup": dict(session[f"{arm}_setup"]),
        }
        for arm in ("base", "head")
    }
    task = {
        "id": session["id"],
        "purpose": session["purpose"],
        "round": number,
        "order": ORDERS[number % 2],
        **arms,
    }
    row = {
        "id": run_id,
        "project_id": session["project_id"],
        "commit_id": session["head_commit_id"],
        "testbed_id": session["testbed_id"],
        "suite": session["suite"],
        "state": "queued",
        "kind": kind,
        "priority": priority,
        "spec": {**session["spec"], "session": task},
        "session_id": session["id"],
        "avoid_worker_id": session["avoid_worker_id"] if number == 0 else None,
        "requested_by": session["requested_by"],
        "requested_at": now,
    }
    queue.insert_runs(c, [row])
    live_store.notify_work(c)
    publish(c, session, session["state"])
    return run_id


def cancel(c: Connection, session_id: str, reason: str, now: datetime) -> None:
    """The answer is no longer needed: a waiting round is withdrawn, a running one is stopped."""
    session = store.find_session(c, session_id, lock=True)
    if session is None:
        raise NotFound.of("session", session_id)
    if session["state"] not in store.OPEN:
        raise Conflict(f"session {session_id} is {session['state']} already", state=session["state"])
    take_back(c, store.rounds_at_hand(c, session_id), reason, now)
    end(c, session, "cancelled", reason, now)


def take_back(c: Connection, run_ids: Iterable[str], reason: str, now: datetime) -> None:
    """Withdraw rounds that are no longer needed, which the caller has locked."""
    for run_id in run_ids:
        if not queue.cancel_queued(c, [run_id], "cancelled", now, reason):
            queue.request_cancel(c, run_id)


def end(
    c: Connection, session: RowMapping, state: str, reason: str, now: datetime, *, decision: str | None = None
) -> None:
    store.change_session(c, session["id"], state=state, decision=decision, reason=reason, decided_at=now)
    publish(c, session, state)


def publish(c: Connection, session: RowMapping, state: str) -> None:
    """Notify live pages of a session's progress."""
    payload = {
        "session_id": session["id"],
        "state": state,
        "purpose": session["purpose"],
        "regression_id": session["regression_id"],
        "project": session["project"],
        "testbed": session["testbed"],
    }
    live.publish(c, "session", session["project_id"], payload)
