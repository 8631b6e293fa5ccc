"""What the process that serves asks of the system, and what it tells the others that serve the same socket."""

import resource
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
import uvicorn
from sqlalchemy import Engine

from backend.api import create_api
from backend.api.edge import connections
from backend.api.edge.serving import OPEN_FILES, Server, allow_many_open_files, make_server
from backend.connection_counts import AWAY, ConnectionCounts
from backend.services.base.config import ServiceConfig
from tidemark.machine.processes import wait_until


@pytest.fixture
def hard() -> Iterator[float]:
    """The system's limit of open files, which are as many afterwards as before."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield float("inf") if before[1] == resource.RLIM_INFINITY else before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_server_may_open_as_many_files_as_the_system_allows(hard: float) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for _ in range(2):
        allow_many_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] in {min(hard, wanted) for wanted in OPEN_FILES}


@pytest.fixture
def serving(service_config: ServiceConfig, committing_engine: Engine) -> Iterator[tuple[ConnectionCounts, Any]]:
    """What a process that serves tells the others, and its address; another one that would share it accepts none."""
    app = create_api(service_config, committing_engine)
    with ConnectionCounts.file_for(2) as file, socket.create_server(("127.0.0.1", 0)) as listener:
        counts = ConnectionCounts(file.fileno(), 0)
        server = make_server(app, host="127.0.0.1", port=0, log_level="warning", counts=counts)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener.dup()]}, daemon=True)
        thread.start()
        try:
            assert wait_until(lambda: counts.all() == [0, AWAY], 30)
            yield counts, listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(30)
        assert counts.all() == [AWAY, AWAY] and not thread.is_alive()


def test_it_tells_the_others_how_many_of_its_connections_are_busy(
    serving: tuple[ConnectionCounts, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_S", 2.0)
    counts, address = serving
    client = HTTPConnection(*address)
    try:
        for _ in range(2):
            client.request("GET", "/healthz")
            assert client.getresponse().read()
            assert wait_until(lambda: counts.all() == [connections.MOST_CONNECTIONS + 2, AWAY], 10)
            assert wait_until(lambda: counts.all() == [1, AWAY], 10), "kept, and nothing comes on it"
    finally:
        client.close()


def test_a_connection_that_ends_is_counted_as_gone_at_once(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(Server, "on_tick", uvicorn.Server.on_tick)  # nobody counts now and then
    counts, address = request.getfixturevalue("serving")
    with socket.create_connection(address):
        assert wait_until(lambda: counts.all() == [connections.MOST_CONNECTIONS + 2, AWAY], 10)
    assert wait_until(lambda: counts.all() == [0, AWAY], 10)
