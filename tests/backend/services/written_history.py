"""A small history that went through the front door: thirty commits of one suite, delivered and judged one by one.

Commit 7 changed documentation only, run 5 crashed, commits 15 to 23 are a quarter slower in one variant, the
environment changed at 10, commit 27 was quarantined, 28 is running, 29 waits.
"""

import json
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from backend.contract import parse_run
from backend.services.ingest.record import record_run

PROJECT, TESTBED, SUITE = "northsea/loom", "cpu", "gpt"
BEGAN = datetime(2026, 11, 1, 8, tzinfo=UTC)
NOW = BEGAN + timedelta(hours=31)
DOCS, CRASHED, MOVED_HOUSE, SLOWER, FASTER, HELD, RUNNING, QUEUED = 7, 5, 10, 15, 24, 27, 28, 29


def sha_of(position: int) -> str:
    return f"{position + 1:08x}" + "c0ffee" * 5 + "ab"


def run_id_of(position: int) -> str:
    return f"RUN-{position:06d}"


def body(position: int, *, step_ms: float = 100.0, **more: Any) -> dict[str, Any]:
    """A run of two variants: `plain` never changes, `fused` takes `step_ms`."""
    noise = random.Random(position)

    def result(impl: str, level: float) -> dict[str, Any]:
        processes = [round(level * (1 + noise.gauss(0, 0.003)), 6) for _ in range(5)]
        forward = round(level * 0.4, 6) if level <= 100 else round(level - 60, 6)
        return {
            "benchmark": "gpt.train",
            "variant": {"impl": impl, "layers": 4},
            "preset": "cpu",
            "status": "ok",
            "correctness": {"state": "pass", "checks": [{"name": "loss_difference", "value": 0.001, "limit": 0.01}]},
            "roofline": {"flop_per_byte": 12.0, "bound": "memory", "share_of_ceiling": 0.4},
            "diagnosis": {"class": "memory_bound", "flags": []},
            "measurements": [
                {"metric": "step_ms", "unit": "ms", "direction": "lower", "role": "gate",
                 "value": statistics.median(processes), "processes": processes,
                 "samples": [[value, value] for value in processes]},
                {"metric": "host_syncs", "unit": "1", "direction": "lower", "role": "gate", "value": 3, "exact": True},
                {"metric": "forward_ms", "unit": "ms", "direction": "lower", "role": "phase", "value": forward},
                {"metric": "backward_ms", "unit": "ms", "direction": "lower", "role": "phase", "value": 60.0},
            ],
        }  # fmt: skip

    started = BEGAN + timedelta(hours=position, minutes=5)
    return {
        "schema": "tidemark.run/1",
        "id": run_id_of(position),
        "project": PROJECT,
        "commit": sha_of(position),
        "parents": [sha_of(position - 1)] if position else [],
        "branch": "main",
        "suite": SUITE,
        "suite_version": "1.0.0",
        "testbed": TESTBED,
        "worker": "box-01",
        "status": "ok",
        "started_at": started.isoformat(),
        "finished_at": (started + timedelta(minutes=4)).isoformat(),
        "environment": {"torch": "2.13.0" if position < MOVED_HOUSE else "2.13.1"},
        "telemetry": {"load_1m": 0.4},
        "canary": [{"name": "gemm", "before": 1.0, "after": 1.01, "own_noise": 0.01}],
        "results": [result("plain", 80.0), result("fused", step_ms)],
        **more,
    }


@dataclass
class History:
    """The project, and ways to add to it."""

    connection: Connection
    project_id: int
    branch_id: int
    testbed_id: int

    def deliver(self, document: dict[str, Any]) -> Any:
        raw = json.dumps(document).encode()
        return record_run(self.connection, parse_run(raw), raw, now=NOW)

    def execute(self, statement: str, **values: Any) -> None:
        self.connection.execute(text(statement), values)

    def scalar(self, statement: str, **values: Any) -> Any:
        return self.connection.scalar(text(statement), values)

    def add_commit(self, sha: str, position: int, branch_id: int | None = None, **more: Any) -> int:
        values = {
            "project": self.project_id,
            "sha": sha,
            "message": f"change {position}: <b>bold</b>\n\nBody.",
            "at": BEGAN + timedelta(hours=position),
            "skipped": more.get("skipped_reason"),
            "number": more.get("pull_request"),
            "paths": more.get("changed_paths", ["tinygpt/model.py"]),
            "branch": branch_id or self.branch_id,
            "position": position,
        }
        commit_id: int = self.scalar(
            """INSERT INTO commit (project_id, sha, message, author_name, committed_at, skipped_reason, pull_request,
                                   changed_paths)
               VALUES (:project, :sha, :message, 'Ana', :at, :skipped, :number, :paths) RETURNING id""",
            **values,
        )
        self.connection.execute(
            text(
                """INSERT INTO branch_commit (branch_id, project_id, position, commit_id)
                   VALUES (:branch, :project, :position, :commit)"""
            ),
            {**values, "commit": commit_id},
        )
        return commit_id

    def request(self, position: int, state: str, progress: dict[str, Any] | None = None) -> None:
        self.connection.execute(
            text(
                """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, requested_at, progress,
                                    branch_name)
                   SELECT :id, :project, id, :testbed, :suite, :state, :at, CAST(:progress AS jsonb), 'main'
                   FROM commit WHERE project_id = :project AND sha = :sha"""
            ),
            {
                "id": run_id_of(position),
                "project": self.project_id,
                "testbed": self.testbed_id,
                "suite": SUITE,
                "state": state,
                "at": BEGAN + timedelta(hours=position, minutes=1),
                "progress": json.dumps(progress) if progress else None,
                "sha": sha_of(position),
            },
        )

    def series(self, metric: str = "step_ms", impl: str = "fused") -> int:
        found: int = self.scalar(
            "SELECT id FROM series WHERE project_id = :project AND metric = :metric AND variant ->> 'impl' = :impl",
            project=self.project_id, metric=metric, impl=impl,
        )  # fmt: skip
        return found

    @property
    def regression_id(self) -> int:
        found: int = self.scalar("SELECT id FROM regression WHERE project_id = :project", project=self.project_id)
        return found


def begin(connection: Connection) -> History:
    scalar = connection.scalar
    project_id = scalar(text("INSERT INTO project (slug) VALUES (:slug) RETURNING id"), {"slug": PROJECT})
    branch_id = scalar(text(f"INSERT INTO branch (project_id, name) VALUES ({project_id}, 'main') RETURNING id"))
    testbed_id = scalar(text("INSERT INTO testbed (name) VALUES (:name) RETURNING id"), {"name": TESTBED})
    connection.execute(
        text("INSERT INTO worker (name, testbed_id, last_seen_at) VALUES ('box-01', :testbed, :at)"),
        {"testbed": testbed_id, "at": NOW},
    )
    return History(connection, project_id, branch_id, testbed_id)


def write(history: History) -> None:
    for position in range(QUEUED + 1):
        docs = "only documentation changed" if position == DOCS else None
        history.add_commit(
            sha_of(position), position, skipped_reason=docs, pull_request=100 + position,
            changed_paths=["README.md"] if docs else ["tinygpt/model.py"],
        )  # fmt: skip
        if position == DOCS:
            continue
        if position == CRASHED:
            history.deliver(body(position, status="failed", error="worker: make exited with 2", results=[]))
        elif position == HELD:
            history.deliver(body(position, status="quarantined", error="the canary moved by 4 %"))
        elif position == RUNNING:
            history.request(position, "running", {"done": 3, "total": 12, "step": "execute"})
        elif position == QUEUED:
            history.request(position, "queued")
        else:
            history.deliver(body(position, step_ms=125.0 if SLOWER <= position < FASTER else 100.0))
    history.connection.execute(
        text("UPDATE branch SET head_sha = :sha WHERE id = :id"), {"sha": sha_of(QUEUED), "id": history.branch_id}
    )


@pytest.fixture(scope="module")
def written(engine: Engine) -> Iterator[History]:
    """The history, written once for a file of tests; nobody commits."""
    with engine.connect() as connection, connection.begin() as transaction:
        history = begin(connection)
        write(history)
        yield history
        transaction.rollback()


@pytest.fixture
def history(written: History) -> Iterator[History]:
    """The history; what a test adds to it is taken back."""
    with written.connection.begin_nested() as savepoint:
        yield written
        savepoint.rollback()
