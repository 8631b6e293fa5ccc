"""Suspects of northsea/loom, the sessions that are asked for, and the rounds that a worker delivers."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import text

from backend.regression.confirmation import most_rounds
from backend.regression.policy import Policy
from backend.services.base.principal import Principal, Via
from backend.services.ingest import session_round as rounds
from backend.services.queue import dispatch
from backend.services.queue.dispatch import Protection, WorkerHello
from backend.services.sessions import request as confirm

ROOT = Principal(name="worker", scopes=frozenset({"worker", "write"}), project_id=None, via=Via.TOKEN)
QUIET = [100.0] * 24
SPEC = {"benchmarks": ["gpt.*"], "command": None, "preset": "cpu", "variants": [], "policy": {}}

MOST_ROUNDS = most_rounds(Policy())


@pytest.fixture
def watched(loom: Any) -> Any:
    """A project with a repository, a living worker, and a history that has just become slower by a fifth."""
    loom.history(QUIET)
    hello(loom, "box-02")
    connect(loom)
    return loom


def hello(loom: Any, name: str, testbed: str = "cpu") -> None:
    told = WorkerHello(worker=name, testbed=testbed, version="", capabilities={}, protection=Protection.NONE)
    dispatch.say_hello(loom.connection, told, loom.now)


def connect(loom: Any) -> None:
    loom.connection.execute(text("UPDATE project SET repository_url = 'file:///srv/loom.git', trusted = true"))


def asked_run(loom: Any, position: int, value: float, spec: Mapping[str, Any] = SPEC) -> Any:
    """A run that was asked for, as all runs of a worker are; its spec is what a session is made of."""
    run = loom.run_of(position, [loom.measurement("step_ms", value, seed=position)])
    loom.connection.execute(
        text("INSERT INTO commit (project_id, sha) SELECT id, :sha FROM project ON CONFLICT DO NOTHING"),
        {"sha": run["commit"]},
    )
    loom.connection.execute(
        text(
            """INSERT INTO branch_commit (branch_id, project_id, position, commit_id)
               SELECT b.id, b.project_id, :position, k.id FROM branch b JOIN commit k ON k.sha = :sha
               WHERE b.name = 'main'"""
        ),
        {"sha": run["commit"], "position": position},
    )
    loom.connection.execute(
        text(
            """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, kind, spec)
               SELECT :id, k.project_id, k.id, t.id, 'gpt', 'leased', 'main', CAST(:spec AS jsonb)
               FROM commit k, testbed t WHERE k.sha = :sha AND t.name = 'cpu'"""
        ),
        {"id": run["id"], "sha": run["commit"], "spec": json.dumps(spec)},
    )
    return loom.deliver(run)


def waiting(loom: Any) -> list[tuple[str, Mapping[str, Any]]]:
    return [
        (run_id, spec)
        for run_id, spec in loom.rows(
            "SELECT id, spec FROM run WHERE session_id IS NOT NULL AND state = 'queued' ORDER BY requested_at, id"
        )
    ]


def round_of(loom: Any, base: float, head: float, *, seed: int = 0, **more: Any) -> dict[str, Any]:
    """The waiting round, as a worker would deliver it."""
    ((run_id, spec),) = waiting(loom)
    task = spec["session"]
    chance = random.Random(seed)
    turns = []
    for number, letter in enumerate(task["order"]):
        arm = {"A": "base", "B": "head"}[letter]
        value = {"base": base, "head": head}[arm] * (1 + chance.gauss(0, 0.003))
        measured = {"metric": "step_ms", "unit": "ms", "direction": "lower", "role": "gate", "value": value}
        measured |= {"processes": [value], "samples": [[value, value]], "samples_taken": [2]}
        run = loom.run_of(0, [measured], id=f"{run_id}-{number}", commit=task[arm]["commit"], parents=[])
        turns.append({"number": number, "arm": arm, "run": run})
    return {
        "schema": "tidemark.session/1",
        "id": run_id,
        "project": "northsea/loom",
        "testbed": "cpu",
        "worker": "box-02",
        "attempt": 1,
        "status": "ok",
        "error": None,
        "turns": turns,
        **more,
    }


def deliver(loom: Any, said: Mapping[str, Any], lease: str | None = None) -> rounds.Delivered:
    return rounds.deliver_round(
        loom.connection, said["id"], json.dumps(said).encode(), lease=lease, principal=ROOT, now=loom.now
    )


def lease(loom: Any) -> str:
    """Gives the waiting round to a worker; the lease."""
    ((run_id, _),) = waiting(loom)
    loom.connection.execute(
        text("UPDATE run SET state = 'leased', lease_hash = :hash WHERE id = :id"),
        {"id": run_id, "hash": dispatch.lease_hash("a lease")},
    )
    return run_id


def states(loom: Any) -> list[str]:
    return [state for (state,) in loom.rows("SELECT state FROM regression ORDER BY id")]


def sessions(loom: Any) -> list[tuple[str, str | None]]:
    return loom.rows("SELECT state, decision FROM session ORDER BY id")


def compare(loom: Any, *, rounds_at_most: int = MOST_ROUNDS) -> str:
    """Asks for a comparison of a commit with itself in another environment."""
    ((project, testbed, commit),) = loom.rows(
        "SELECT p.id, t.id, k.id FROM project p, testbed t, commit k WHERE t.name = 'cpu' AND k.sha = :sha",
        sha=loom.sha_of(23),
    )
    request = confirm.SessionRequest(
        project_id=project,
        testbed_id=testbed,
        suite="gpt",
        purpose=confirm.Purpose.COMPARE,
        base_commit_id=commit,
        head_commit_id=commit,
        spec=SPEC,
        requested_by="ada",
        base_setup={},
        head_setup={"pip": "torch==2.14.0"},
        max_rounds=rounds_at_most,
    )
    return confirm.request_session(loom.connection, request, loom.now)


def choose(loom: Any, table: Mapping[str, Any]) -> None:
    chosen = text("UPDATE project SET settings = settings || CAST(:chosen AS jsonb)")
    loom.connection.execute(chosen, {"chosen": json.dumps({"policy": {"table": table}})})
