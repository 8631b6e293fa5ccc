"""Documents that are small to send and dear to store."""

from __future__ import annotations

import json

from sqlalchemy import text

from backend.services.ingest.requested import MOST_MEASUREMENTS
from tests.backend.api.conftest import measurement, run_document
from tests.conftest import LiveServer


def test_a_run_of_sixty_thousand_measurements_is_refused_at_once(live_server: LiveServer) -> None:
    document = run_document(0)
    (result,) = document["results"]
    document["results"] = [
        {**result, "benchmark": f"b{part}", "measurements": [measurement(f"m{n}", "ms", 1.0) for n in range(1000)]}
        for part in range(60)
    ]
    with live_server.client("worker") as worker:
        refused = worker.put(f"/api/v1/runs/{document['id']}", content=json.dumps(document))
    assert refused.status_code == 422
    assert f"at most {MOST_MEASUREMENTS:,} measurements in a run" in refused.json()["detail"]
    with live_server.engine.connect() as c:
        assert c.scalar(text("SELECT count(*) FROM series")) == 0
