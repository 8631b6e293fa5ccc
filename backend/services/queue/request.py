"""Requests for runs: queued once per key, parents before children."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from backend.contract import new_run_id
from backend.services.base import live
from backend.services.queue.scheduling import PRIORITY, Kind
from backend.store.base import live as live_store
from backend.store.github import outbox as github_outbox
from backend.store.queue import queue as store
from backend.store.queue.queue import RunKey

REQUEST_LOCK = "tidemark run requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRun:
    """One requested run: a suite of a commit on a testbed."""

    commit_id: int
    suite: str
    testbed: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """The result of one request. `created` is false if a run with that key already existed."""

    run_id: str
    commit_id: int
    suite: str
    testbed: str
    state: str
    created: bool


def request_runs(
    c: Connection,
    project_id: int,
    wanted: Sequence[WantedRun],
    *,
    kind: Kind,
    requested_by: str,
    now: datetime,
    branch: str | None = None,
    pull_request: int | None = None,
    again: bool = False,
) -> list[Requested]:
    """Queue the requested runs, each key once, parents before children. `again` also repeats finished ones, never
    those that are waiting or running."""
    # Two requests at once (a push and a person) must not both find that nothing stands.
    live_store.lock(c, REQUEST_LOCK, project_id)
    testbed_ids = {name: store.testbed_id(c, name) for name in dict.fromkeys(w.testbed for w in wanted)}
    standing = store.runs_by_key(c, project_id, {w.commit_id for w in wanted})
    # The queue takes runs of one moment by their ids, so ids rise in the order in which the runs are to go.
    ids = iter(sorted(new_run_id() for _ in wanted))
    answers: dict[int, Requested] = {}
    common = {
        "project_id": project_id,
        "branch_name": branch,
        "pull_request": pull_request,
        "state": "queued",
        "kind": kind.value,
        "priority": PRIORITY[kind],
        "requested_by": requested_by,
        "requested_at": now,
    }
    rows = []
    for place in _in_order(c, project_id, wanted, kind, branch):
        wish = wanted[place]
        key = RunKey(commit_id=wish.commit_id, suite=wish.suite, testbed_id=testbed_ids[wish.testbed])
        there = standing.get(key)
        if there is not None and not (again and there.state == "done"):
            answers[place] = _answer(wish, there.id, there.state, created=False)
            continue
        run_id = next(ids)
        standing[key] = store.KeyedRun(id=run_id, state="queued")
        answers[place] = _answer(wish, run_id, "queued", created=True)
        rows.append(common | asdict(key) | {"id": run_id, "spec": dict(wish.spec)})
    store.insert_runs(c, rows)
    # Asked for again by somebody with less patience: it goes with the more urgent ones now.
    waiting = [answer.run_id for answer in answers.values() if answer.state == "queued" and not answer.created]
    store.make_more_urgent(c, waiting, kind=kind.value, priority=PRIORITY[kind])
    _announce(c, project_id, [str(row["id"]) for row in rows])
    return [answers[place] for place in sorted(answers)]


def _announce(c: Connection, project_id: int, run_ids: Sequence[str]) -> None:
    """Tell GitHub, whoever hands out runs, and open pages that runs were queued."""
    if run_ids:
        github_outbox.want(c, run_ids)
        live_store.notify_work(c)
        live.publish(c, "queue", project_id, {"queued": len(run_ids)})


def _in_order(c: Connection, project_id: int, wanted: Sequence[WantedRun], kind: Kind, branch: str | None) -> list[int]:
    """Places in `wanted`, parents before children. A backfill says itself which commits tell most: its order stays."""
    if kind is Kind.BACKFILL or branch is None:
        return list(range(len(wanted)))
    positions = store.positions(c, project_id, branch, {wish.commit_id for wish in wanted})
    beyond = max(positions.values(), default=0) + 1
    return sorted(range(len(wanted)), key=lambda place: (positions.get(wanted[place].commit_id, beyond), place))


def _answer(wish: WantedRun, run_id: str, state: str, *, created: bool) -> Requested:
    return Requested(
        run_id=run_id, commit_id=wish.commit_id, suite=wish.suite, testbed=wish.testbed, state=state, created=created
    )
