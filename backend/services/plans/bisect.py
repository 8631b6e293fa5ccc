"""Bisection: the commits between the last good and the first bad one are measured, the most informative first, until it
is certain which of them made the difference.

A commit of the default branch is measured by an ordinary run, whose late point also moves the judge's onset.
If the culprit turns out to be a merge, the commits of the merged side are measured by sessions against the commit
where that side began; their arms never enter the history of the series.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping

from backend.contract import new_run_id
from backend.regression.bisection import BisectionStatus, Observation, looks_bad, processes_a_step
from backend.regression.regression_state import OPEN
from backend.services.base import live
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import Conflict, NotFound
from backend.services.base.savepoints import apart
from backend.services.plans.bisection_evidence import PlacedCandidate, compared, confidence_of, observed, status_of
from backend.services.plans.bisection_range import levels_of, range_of
from backend.services.plans.bisection_views import BisectionView, bisection_view, view_of
from backend.services.queue import request as queue_request
from backend.services.queue.request import WantedRun
from backend.services.queue.scheduling import Kind
from backend.services.repository import reading, sync
from backend.services.repository.mirror import GitFailure
from backend.services.sessions import request as confirm
from backend.services.sessions.request import Purpose, SessionRequest
from backend.store.base import commits as commit_store
from backend.store.base import projects
from backend.store.plans import bisections as store
from backend.store.queue import queue
from backend.store.regressions import regressions as regression_store

SESSION_ROUNDS = 3
"""Sessions for one commit on a merged side; the bisection itself weighs unclear results."""


# --- started ---------------------------------------------------------------------------------------------------------


def start_bisection(c: Connection, regression_id: int, by: str, config: ServiceConfig, now: datetime) -> BisectionView:
    """Begin to bisect the range of a regression; if a bisection is already running, return it."""
    asked = store.question(c, regression_id)
    if asked is None:
        raise NotFound.of("regression", regression_id)
    known = store.newest_of_regression(c, regression_id)
    if known is not None and known["state"] == "running":
        return view_of(c, known)
    places = range_of(c, asked, config)
    good_level, shift, spread = levels_of(c, asked)
    bisection_id = new_run_id()
    store.insert_bisection(
        c,
        {
            "id": bisection_id,
            "project_id": asked["project_id"],
            "testbed_id": asked["testbed_id"],
            "regression_id": regression_id,
            "series_id": asked["lead_series_id"],
            "suite": asked["suite"],
            "spec": dict(asked["spec"]),
            "state": "running",
            "last_good_commit_id": asked["last_good_commit_id"],
            "first_bad_commit_id": asked["first_bad_commit_id"],
            "candidates": [place.as_json(1 / len(places)) for place in places],
            "shift": shift,
            "spread": spread,
            "good_level": good_level,
            "requested_by": by,
            "requested_at": now,
        },
    )
    detail = {"bisection_id": bisection_id, "commits": len(places)}
    regression_store.insert_event(c, regression_id, "bisecting", now=now, actor=by, detail=detail)
    advance(c, bisection_id, config, now)
    return bisection_view(c, bisection_id)


# --- moved on --------------------------------------------------------------------------------------------------------


def advance_all(c: Connection, config: ServiceConfig, now: datetime) -> int:
    """Advance every running bisection; returns how many there are."""
    running = store.running(c)
    for bisection_id in running:
        with apart(c, f"bisection {bisection_id}"):
            advance(c, bisection_id, config, now)
    return len(running)


def advance(c: Connection, bisection_id: str, config: ServiceConfig, now: datetime) -> None:
    """Process new measurements, and request the next commit, or end."""
    row = store.lock_bisection(c, bisection_id)
    if row is None or row["state"] != "running":
        return
    if row["regression_state"] not in OPEN:
        _call_off(c, row, f"the regression is {row['regression_state']}", now)
        return
    steps = [_settled(c, row, step, now) for step in store.steps_of(c, bisection_id)]
    if any(state in ("waiting", "running") for state in steps):
        return
    row = store.find_bisection(c, bisection_id)
    assert row is not None
    places, standing = status_of(c, row)
    stored = [place.as_json(p) for place, p in zip(places, standing.probabilities, strict=True)]
    store.change_bisection(c, bisection_id, candidates=stored)
    if row["side_of"] is None:  # beyond a merge, what stands there is how sure it is of the merge
        store.change_bisection(c, bisection_id, confidence=standing.confidence)
    if standing.next_index is not None:
        _ask_for(c, row, places[standing.next_index], now)
        _publish(c, row, "running")
    else:
        _conclude(c, row, places, standing, config, now)


def _settled(c: Connection, row: RowMapping, step: RowMapping, now: datetime) -> str:
    """The state of a step, brought up to date."""
    if step["state"] not in ("waiting", "running"):
        return str(step["state"])
    if step["session_id"] is not None:
        return _settled_session(c, row, step, now)
    run = store.run_of(c, step["run_id"])
    if run is not None and run["state"] in ("queued", "leased", "running"):
        state = "waiting" if run["state"] == "queued" else "running"
        if state != step["state"]:
            store.change_step(c, row["id"], step["number"], state=state)
            _publish(c, row, "running")
        return state
    values = None if run is None else store.measured(c, step["run_id"], row["series_id"])
    if not values or (min(values) <= 0):
        why = "its run is gone" if run is None else run["error"] or f"its run is {run['state']} and measured nothing"
        return _skip(c, row, step, why, now)
    seen = observed(row, 0, values)
    return _answered(c, row, step, seen, len(values), now)


def _settled_session(c: Connection, row: RowMapping, step: RowMapping, now: datetime) -> str:
    session = store.session_of(c, step["session_id"])
    if session is not None and session["state"] in ("waiting", "running"):
        if session["state"] != step["state"]:
            store.change_step(c, row["id"], step["number"], state=session["state"])
        return str(session["state"])
    arms = None if session is None else store.arms_of(c, step["session_id"], row["series_id"])
    if arms is None or not arms[0] or not arms[1]:
        why = "its session is gone" if session is None else session["reason"] or f"its session is {session['state']}"
        return _skip(c, row, step, why, now)
    return _answered(c, row, step, compared(row, 0, *arms), len(arms[1]), now)


def _skip(c: Connection, row: RowMapping, step: RowMapping, why: str, now: datetime) -> str:
    store.change_step(c, row["id"], step["number"], state="skipped", reason=why[:2000], finished_at=now)
    return "skipped"


def _answered(
    c: Connection, row: RowMapping, step: RowMapping, seen: Observation, processes: int, now: datetime
) -> str:
    state = "bad" if looks_bad(seen, row["shift"]) else "good"
    store.change_step(
        c,
        row["id"],
        step["number"],
        state=state,
        change=math.expm1(seen.shift),
        processes=processes,
        finished_at=now,
    )
    return state


def _ask_for(c: Connection, row: RowMapping, place: PlacedCandidate, now: datetime) -> None:
    """The next step: an ordinary run on the default branch, a session on a merged side."""
    number = len(store.steps_of(c, row["id"]))
    step: dict[str, Any] = {
        "bisection_id": row["id"],
        "number": number,
        "sha": place.sha,
        "position": place.position,
        "state": "waiting",
        "requested_at": now,
    }
    if row["side_of"] is None:
        step["run_id"] = _request_run(c, row, place, now)
    else:
        step["session_id"] = _request_session(c, row, place, now)
    store.insert_step(c, step)


def _request_run(c: Connection, row: RowMapping, place: PlacedCandidate, now: datetime) -> str:
    spec = dict(row["spec"])
    needed = processes_a_step(row["shift"], row["spread"])
    if not spec.get("command") and needed > (spec.get("processes") or 3):
        spec["processes"] = needed
    wanted = WantedRun(commit_id=place.commit_id, suite=row["suite"], testbed=row["testbed"], spec=spec)
    (asked,) = queue_request.request_runs(
        c,
        row["project_id"],
        [wanted],
        kind=Kind.CONFIRM,
        requested_by=_asker(row),
        now=now,
        branch=row["default_branch"],
        again=True,
    )
    return asked.run_id


def _request_session(c: Connection, row: RowMapping, place: PlacedCandidate, now: datetime) -> str:
    base = commit_store.ids_of(c, row["project_id"], [row["side_base_sha"]])[row["side_base_sha"]]
    request = SessionRequest(
        project_id=row["project_id"],
        testbed_id=row["testbed_id"],
        suite=row["suite"],
        purpose=Purpose.BISECT,
        base_commit_id=base,
        head_commit_id=place.commit_id,
        spec=row["spec"],
        requested_by=_asker(row),
        base_setup={},
        head_setup={},
        regression_id=row["regression_id"],
        bisection_id=row["id"],
        lead_series_id=row["series_id"],
        max_rounds=SESSION_ROUNDS,
    )
    return confirm.request_session(c, request, now)


# --- ended -----------------------------------------------------------------------------------------------------------


def _conclude(
    c: Connection,
    row: RowMapping,
    places: Sequence[PlacedCandidate],
    standing: BisectionStatus,
    config: ServiceConfig,
    now: datetime,
) -> None:
    culprit = places[standing.best]
    if not standing.sure:
        likely = [place.sha[:12] for place, p in zip(places, standing.probabilities, strict=True) if p > 0.01]
        skipped = sum(1 for step in store.steps_of(c, row["id"]) if step["state"] == "skipped")
        why = f"{skipped} commits could not be measured" if skipped else "further measurements would not help"
        reason = f"one of {len(likely)} commits, and {why}: {', '.join(likely[:10])}"
        _end(c, row, "gave_up", reason, now, Culprit(culprit, standing.confidence))
        return
    if row["side_of"] is None and len(culprit.parents) > 1 and _enter_side(c, row, culprit, standing, config, now):
        advance(c, row["id"], config, now)
        return
    where = "" if row["side_of"] is None else f", on the side that {row['side_of'][:12]} merged"
    if row["side_of"] == culprit.sha:
        where = ": the merge itself, none of the commits it merged"
    confidence = confidence_of(row, standing)
    reason = f"{culprit.sha[:12]} made it worse{where} ({confidence:.1%} sure)"
    _end(c, row, "done", reason, now, Culprit(culprit, confidence))


def _enter_side(
    c: Connection,
    row: RowMapping,
    merge: PlacedCandidate,
    standing: BisectionStatus,
    config: ServiceConfig,
    now: datetime,
) -> bool:
    """Go on with the commits that the merge brought; False where they cannot be read."""
    project = projects.find(c, row["project"])
    assert project is not None
    try:
        mirror = reading.mirror_of(config, project)
        base, side = mirror.merged_side(merge.sha)
        infos = mirror.commits([base, *side])
    except GitFailure:
        return False
    if not side:
        return False
    commit_store.save_commits(c, row["project_id"], (sync.row_of(info) for info in infos))
    ids = commit_store.ids_of(c, row["project_id"], [base, *side])
    parents = {info.sha: info.parents for info in infos}
    places = [
        PlacedCandidate(sha=sha, commit_id=ids[sha], position=None, parents=tuple(parents[sha]), untouched=False)
        for sha in side
    ]
    places.append(merge)
    store.change_bisection(
        c,
        row["id"],
        side_of=merge.sha,
        side_base_sha=base,
        candidates=[place.as_json(1 / len(places)) for place in places],
        confidence=standing.confidence,
    )
    return True


@dataclass(frozen=True, slots=True)
class Culprit:
    """The commit that a bisection found, and the probability that it made the difference."""

    commit: PlacedCandidate
    confidence: float


def _end(
    c: Connection, row: RowMapping, state: str, reason: str, now: datetime, culprit: Culprit | None = None
) -> None:
    named = {} if culprit is None else {"culprit_sha": culprit.commit.sha, "confidence": culprit.confidence}
    store.change_bisection(c, row["id"], state=state, reason=reason, finished_at=now, **named)
    if culprit is not None:
        detail = {
            "bisection_id": row["id"],
            "state": state,
            "commit": culprit.commit.sha,
            "position": culprit.commit.position,
            "confidence": culprit.confidence,
        }
        regression_store.insert_event(c, row["regression_id"], "bisected", now=now, note=reason, detail=detail)
    _publish(c, row, state)


def cancel_bisection(c: Connection, bisection_id: str, reason: str, now: datetime) -> BisectionView:
    """End a bisection; runs that it requested and nobody else needs are withdrawn."""
    row = store.lock_bisection(c, bisection_id, wait=True)
    if row is None:
        raise NotFound.of("bisection", bisection_id)
    if row["state"] != "running":
        raise Conflict(f"bisection {bisection_id} is {row['state']} already", state=row["state"])
    _call_off(c, row, reason, now)
    return bisection_view(c, bisection_id)


def _call_off(c: Connection, row: RowMapping, reason: str, now: datetime) -> None:
    for step in store.cancel_steps(c, row["id"], reason, now):
        if step["session_id"] is not None:
            session = store.session_of(c, step["session_id"])
            if session is not None and session["state"] in ("waiting", "running"):
                confirm.cancel(c, step["session_id"], reason, now)
            continue
        run = store.run_of(c, step["run_id"])
        if run is None or run["requested_by"] != _asker(row):
            continue  # somebody else asked for it before, and still waits for it
        if not queue.cancel_queued(c, [step["run_id"]], "cancelled", now, reason):
            queue.request_cancel(c, step["run_id"])
    _end(c, row, "cancelled", reason, now)


def _asker(row: RowMapping) -> str:
    """By this name a bisection asks for runs and sessions."""
    return f"bisection of regression {row['regression_id']}"


def _publish(c: Connection, row: RowMapping, state: str) -> None:
    payload = {"bisection_id": row["id"], "regression_id": row["regression_id"], "state": state}
    live.publish(c, "bisection", row["project_id"], {**payload, "project": row["project"], "testbed": row["testbed"]})
