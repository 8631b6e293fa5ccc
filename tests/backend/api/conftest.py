"""A service with a history: one project whose step gets 20 % slower, delivered over HTTP as a worker would."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import pytest
import requests
from sqlalchemy import create_engine

from backend.api import create_api
from backend.services.base.config import ServiceConfig
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.machine.valkey import EmbeddedValkey

COMMITS = 16
BROKEN_AT = 9
START = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)


def sha(position: int) -> str:
    return f"{position + 1:040x}"


def run_document(position: int, **changed: Any) -> dict[str, Any]:
    """The run of the commit at this position; slower from `BROKEN_AT` on."""
    chance = random.Random(position)
    factor = 1.2 if position >= BROKEN_AT else 1.0
    processes = [10.0 * factor * (1 + chance.gauss(0, 0.004)) for _ in range(5)]
    started = START + timedelta(hours=position)
    measurements = [
        measurement("step_ms", "ms", sorted(processes)[2], processes=processes),
        measurement("host_syncs", "1", 0, exact=True),
        measurement("forward_ms", "ms", 4.0 * factor, role="phase"),
        measurement("tokens_per_s", "1/s", 1000 / factor, role="derived", direction="higher"),
    ]
    return {
        "schema": "tidemark.run/1",
        "id": f"01RUN{position:021d}",
        "project": "demo/tinygpt",
        "commit": sha(position),
        "parents": [sha(position - 1)] if position else [],
        "branch": "main",
        "suite": "gpt",
        "suite_version": "1",
        "testbed": "cpu",
        "worker": "w1",
        "started_at": started.isoformat(),
        "finished_at": (started + timedelta(minutes=5)).isoformat(),
        "status": "ok",
        "environment": {"torch": "2.13.0", "python": "3.11"},
        "canary": [{"name": "yardstick", "before": 1.0, "after": 1.001, "own_noise": 0.002}],
        "results": [
            {
                "benchmark": "gpt.train",
                "variant": {"rung": "r03"},
                "preset": "cpu",
                "status": "ok",
                "correctness": {"state": "pass"},
                "measurements": measurements,
            }
        ],
        **changed,
    }


def kept_open() -> requests.Session:
    """What made-up cases are sent through: a connection that stays, and no cookie from one answer to the next request.
    Without it each of thousands of requests connects anew and looks for a proxy."""
    session = requests.Session()
    session.headers.clear()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session


def measurement(metric: str, unit: str, value: float, **more: Any) -> dict[str, Any]:
    return {"metric": metric, "unit": unit, "direction": "lower", "role": "gate", "value": value, **more}


@pytest.fixture(scope="module")
def seeded(
    template: str,
    postgres: EmbeddedPostgres,
    administer: Callable[[str], None],
    valkey: EmbeddedValkey,
    tmp_path_factory: pytest.TempPathFactory,
    serve_app: Any,
) -> Iterator[Any]:
    """A service of this module's own, with sixteen commits judged, one run failed and one waiting."""
    name = f"test_{uuid.uuid4().hex}"
    administer(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    config = ServiceConfig(
        database_url=postgres.url_of(name),
        redis_url=valkey.url,
        data_dir=tmp_path_factory.mktemp("data"),
        github_webhook_secret="a secret of the tests",
        sse_heartbeat_s=0.2,
    )
    engine = create_engine(config.database_url, pool_size=10)
    try:
        with serve_app(create_api(config, engine), engine, config) as server:
            with server.client("worker") as worker:
                for position in range(COMMITS):
                    answer = worker.put(f"/api/v1/runs/01RUN{position:021d}", json=run_document(position))
                    assert answer.status_code == 201, answer.text
            yield server
    finally:
        engine.dispose()
        administer(f"DROP DATABASE {name} WITH (FORCE)")
