"""Runs of one benchmark, delivered one by one, and what the store says of them afterwards."""

import json
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

from backend.contract import parse_run
from backend.services.ingest.answer import Recorded
from backend.services.ingest.record import record_run

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def sha_of(position: int, line: str = "a") -> str:
    """Of the commit at a position of the main line, or of another line of history."""
    return f"{line}{position:039x}"


def measurement(metric: str, value: float, *, noise: float = 0.003, seed: int = 0, **more: Any) -> dict[str, Any]:
    """Five processes around a value; an exact one or a phase has the value alone."""
    described = {"metric": metric, "unit": "ms", "direction": "lower", "role": "gate", **more}
    if described.get("exact") or described["role"] == "phase":
        return {**described, "value": value}
    chance = random.Random(f"{metric}{seed}")
    processes = [value * (1 + chance.gauss(0, noise)) for _ in range(5)]
    samples = [[process, process * 1.01] for process in processes]
    return {**described, "value": statistics.median(processes), "processes": processes, "samples": samples}


def run_of(position: int, measurements: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    result = {
        "benchmark": "gpt.train",
        "variant": {"dtype": "bf16"},
        "preset": "cpu",
        "status": "ok",
        "measurements": list(measurements),
    }
    return {
        "schema": "tidemark.run/1",
        "id": f"RUN-{position:06d}",
        "project": "northsea/loom",
        "commit": sha_of(position),
        "parents": [sha_of(position - 1)] if position else [],
        "branch": "main",
        "suite": "gpt",
        "suite_version": "1.0.0",
        "testbed": "cpu",
        "worker": "box-01",
        "status": "ok",
        "started_at": (BEGAN + timedelta(hours=position)).isoformat(),
        "environment": {"torch": "2.13.0", "hash": "sha256:one"},
        "results": [result],
        **more,
    }


@dataclass
class Loom:
    """The project northsea/loom: deliver runs to it, ask what is stored."""

    connection: Connection
    now = NOW
    sha_of = staticmethod(sha_of)
    measurement = staticmethod(measurement)
    run_of = staticmethod(run_of)

    def deliver(self, document: Mapping[str, Any], **more: Any) -> Recorded:
        raw = json.dumps(document).encode()
        return record_run(self.connection, parse_run(raw), raw, now=more.pop("now", NOW), **more)

    def run(self, position: int, step_ms: float, **more: Any) -> Recorded:
        """A run whose only metric is `step_ms`."""
        return self.deliver(run_of(position, [measurement("step_ms", step_ms, seed=position)], **more))

    def history(self, levels: Sequence[float], start: int = 0, **more: Any) -> list[Recorded]:
        return [self.run(start + number, level, **more) for number, level in enumerate(levels)]

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.connection.execute(text(statement), values)]

    def value(self, statement: str, **values: Any) -> Any:
        return self.connection.scalar(text(statement), values)

    def verdicts(self, metric: str = "step_ms") -> list[tuple[int, str, bool]]:
        """(position, verdict, onset) as they stand on the default branch."""
        return [
            (position, verdict, onset)
            for position, verdict, onset in self.rows(
                """SELECT j.position, j.verdict, j.onset FROM judgement j JOIN series s ON s.id = j.series_id
                   WHERE j.superseded_at IS NULL AND j.branch_id IS NULL AND s.metric = :metric ORDER BY j.position""",
                metric=metric,
            )
        ]

    def red(self, metric: str = "step_ms") -> list[int]:
        return [position for position, verdict, _ in self.verdicts(metric) if verdict == "regression"]

    def events(self) -> list[str]:
        """Of all regressions, in the order they happened."""
        return [kind for (kind,) in self.rows("SELECT kind FROM regression_event ORDER BY id")]


@pytest.fixture
def loom(connection: Connection) -> Iterator[Loom]:
    yield Loom(connection)


@pytest.fixture
def committing_loom(committing_engine: Engine) -> Iterator[Loom]:
    """Of a database of its own: what is committed there, other connections see."""
    with committing_engine.connect() as connection:
        yield Loom(connection)


@pytest.fixture(scope="module")
def shared_loom(shared_database: str) -> Iterator[Loom]:
    """A project that the tests of one module read together; none of them may change it."""
    engine = create_engine(shared_database)
    with engine.connect() as connection:
        yield Loom(connection)
    engine.dispose()
