"""Counters of requests: what is over is forgotten, and no thread is begun for that with each request."""

import threading
from typing import Any

import pytest
from starlette.datastructures import Headers

from backend.api.edge import rates
from backend.services.base.config import ServiceConfig


def asked_by(address: str) -> dict[str, Any]:
    return {"path": "/api/v1/board", "client": (address, 50_000)}


def test_a_caller_whose_minute_is_over_is_forgotten_by_a_later_request(
    service_config: ServiceConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "FORGET_EVERY_S", 0.0)
    counted = rates.Rates(service_config)
    threads = threading.active_count()
    for number in range(200):
        assert counted.wait_s(asked_by(f"10.0.0.{number}"), Headers()) is None
    assert threading.active_count() <= threads
    storage = counted.storage
    assert len(storage.storage) == 200
    for key in storage.expirations:
        storage.expirations[key] = 0.0  # as two minutes later
    assert counted.wait_s(asked_by("10.0.1.1"), Headers()) is None
    assert len(storage.storage) == 1
