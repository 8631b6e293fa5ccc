"""Several processes accept from one socket; here each is a listener of one loop, with its own counts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import IO

import pytest

from backend.api.edge import sharing
from backend.api.edge.sharing import FairListener
from backend.connection_counts import AWAY, ConnectionCounts
from tests.loops import in_a_loop_of_its_own


class Process:
    """One of the processes: keeps what it accepted."""

    def __init__(self, listening: socket.socket, file: IO[bytes], place: int) -> None:
        self.connections: set[asyncio.BaseTransport] = set()
        self.counts = ConnectionCounts(file.fileno(), place)
        self.listener = FairListener(listening, self.counts, lambda: len(self.connections), self.protocol)

    def protocol(self) -> asyncio.Protocol:
        return Kept(self)


class Kept(asyncio.Protocol):
    def __init__(self, by: Process) -> None:
        self.by = by

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.by.connections.add(transport)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as made:
        yield made


async def accepted(processes: list[Process], number: int) -> list[int]:
    async with asyncio.timeout(10):
        while sum(len(process.connections) for process in processes) < number:
            await asyncio.sleep(0.01)
    return [len(process.connections) for process in processes]


def test_each_takes_its_share_of_connections_that_wait(listening: socket.socket) -> None:
    async def shares() -> list[int]:
        with ConnectionCounts.file_for(2) as file:
            clients = [socket.create_connection(listening.getsockname()) for _ in range(20)]
            processes = [Process(listening, file, place) for place in range(2)]
            found = await accepted(processes, 20)
            await end(processes, clients)
            return found

    assert in_a_loop_of_its_own(shares()) == [10, 10]


def test_the_one_that_lost_its_connections_takes_the_next(listening: socket.socket) -> None:
    async def shares() -> list[int]:
        with ConnectionCounts.file_for(2) as file:
            first = [Process(listening, file, 0)]
            clients = [socket.create_connection(listening.getsockname()) for _ in range(6)]
            assert await accepted(first, 6) == [6]
            processes = [*first, Process(listening, file, 1)]
            clients += [socket.create_connection(listening.getsockname()) for _ in range(6)]
            found = await accepted(processes, 12)
            await end(processes, clients)
            return found

    assert in_a_loop_of_its_own(shares()) == [6, 6]


def test_one_that_does_not_come_is_not_waited_for(listening: socket.socket) -> None:
    async def shares() -> list[int]:
        with ConnectionCounts.file_for(2) as file:
            ConnectionCounts(file.fileno(), 1).write(0)  # stopped, or killed a moment ago
            one = [Process(listening, file, 0)]
            clients = [socket.create_connection(listening.getsockname()) for _ in range(5)]
            found = await accepted(one, 5)
            await end(one, clients)
            assert one[0].counts.all() == [AWAY, 0], "whoever ends takes no more"
            return found

    assert in_a_loop_of_its_own(shares()) == [5]


def test_a_connection_that_cannot_be_served_is_not_the_last_one(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "AGAIN_S", 0.01)
    refused: list[bool] = []

    class Once(Process):
        def protocol(self) -> asyncio.Protocol:
            if not refused:
                refused.append(True)
                raise OSError("too many open files")
            return super().protocol()

    async def served_after_an_error() -> list[int]:
        with ConnectionCounts.file_for(1) as file:
            one = [Once(listening, file, 0)]
            clients = [socket.create_connection(listening.getsockname()) for _ in range(3)]
            found = await accepted(one, 2)
            await end(one, clients)
            return found

    assert in_a_loop_of_its_own(served_after_an_error()) == [2] and refused


async def end(processes: list[Process], clients: list[socket.socket]) -> None:
    for process in processes:
        process.listener.close()
        await process.listener.wait_closed()
        for connection in process.connections:
            connection.abort()  # type: ignore[attr-defined]
    for client in clients:
        client.close()
