"""A service that has become quiet gives back what it does not need."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from backend.api.admission import Lanes
from backend.api.edge import memory
from backend.services.base.config import ServiceConfig
from tests.loops import in_a_loop_of_its_own


def test_it_gives_back_once_after_each_time_it_was_busy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[float] = []
    monkeypatch.setattr(memory, "QUIET_S", 0.05)
    monkeypatch.setattr(memory, "give_back", lambda: given.append(1.0))

    async def busy_and_quiet() -> None:
        lanes = Lanes(ServiceConfig(database_url="", redis_url="", data_dir=tmp_path))
        task = asyncio.create_task(memory.give_back_when_quiet(lanes))
        await asyncio.sleep(0)
        for expected in (1, 2):
            async with lanes.reading.place():
                pass
            async with asyncio.timeout(20):
                while len(given) < expected:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            assert len(given) == expected, "nothing was done since"
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    in_a_loop_of_its_own(busy_and_quiet())


def test_what_is_free_really_goes_back() -> None:
    """Where the C library can be asked; elsewhere the call does nothing, and harms nobody."""
    memory.give_back()
