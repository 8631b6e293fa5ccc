"""Artifacts are kept for as long as the operator says."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backend.services.housekeeping import tidy
from tests.backend.api.conftest import run_document
from tests.conftest import LiveServer


def test_artifacts_go_after_the_days_that_the_operator_keeps_them(live_server: LiveServer) -> None:
    run_id = run_document(0)["id"]
    path = f"/api/v1/runs/{run_id}/artifacts/trace.json"
    with live_server.client("worker") as worker:
        worker.put(f"/api/v1/runs/{run_id}", content=json.dumps(run_document(0)))
        assert worker.put(path, content=b"{}").status_code == 201
        later = datetime.now(UTC) + timedelta(days=31)
        tidy(live_server.engine, live_server.config, later)
        tidy(live_server.engine, replace(live_server.config, artifact_days=32), later)
        assert worker.get(path).status_code == 200
        tidy(live_server.engine, replace(live_server.config, artifact_days=30), later)
        assert worker.get(path).status_code == 404
    assert not any(path.is_file() for path in live_server.config.artifacts_dir.rglob("*"))
