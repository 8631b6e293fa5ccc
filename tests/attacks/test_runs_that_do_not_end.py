"""A commit takes its worker down with it, again and again, and would be measured for ever."""

from __future__ import annotations

from typing import Any

import httpx

from tests.backend.api.results.test_worker_protocol import lease, run_id, state_of, worker

__all__ = ["run_id", "worker"]


def test_a_run_that_kills_its_worker_is_given_up_after_three_attempts(
    worker: httpx.Client, live_server: Any, run_id: str
) -> None:
    """kill -9, and a supervisor that starts the worker again before the lease has run out."""
    for attempt in (1, 2, 3):
        assert lease(worker, run_id)["attempt"] == attempt
        worker.post("/api/v1/workers", json={"name": "host-1", "testbed": "cpu", "starting": True})
    run = state_of(live_server, run_id)
    assert (run.state, run.status) == ("failed", "failed")
    assert run.error == "given up after 3 lost attempts; the last one: worker host-1 was restarted"


def test_a_run_that_makes_its_worker_hand_it_back_is_given_up_too(
    worker: httpx.Client, live_server: Any, run_id: str
) -> None:
    """SIGTERM to the worker is how an operator stops it, and costs a run nothing; a run may know how to send it."""
    for _ in range(20):
        secret = lease(worker, run_id)["lease"]
        worker.post(f"/api/v1/runs/{run_id}/release", json={"lease": secret, "reason": "worker host-1 was stopped"})
    run = state_of(live_server, run_id)
    assert run.state == "failed"
    assert run.error == "given up after 20 attempts; the last one: worker host-1 was stopped"
