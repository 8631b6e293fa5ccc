"""A real service for the pages' tests: the application on a free port, filled through its own API."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import frontend_history as history
import httpx
from sqlalchemy import Engine, create_engine

from backend.api import create_api
from backend.api.edge.serving import Server, make_server
from backend.services.base import access
from backend.services.base.config import ServiceConfig
from backend.services.base.projects import find_project
from backend.services.repository.sync import sync_project
from frontend.app import mount


@dataclass(slots=True)
class Site:
    """A running service. `put` delivers a run as a worker would, `sync` reads the project's repository."""

    url: str
    engine: Engine
    config: ServiceConfig
    token: str
    client: httpx.Client
    server: Server
    commits: dict[str, list[history.Commit]] = field(default_factory=dict)

    def sign_in_link(self) -> str:
        with self.engine.begin() as c:
            return access.create_sign_in_link(c, self.config, datetime.now(UTC))

    def put(self, document: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.put(f"/api/v1/runs/{document['id']}", json=document)
        assert answer.status_code in (200, 201), answer.text[:2000]
        told: dict[str, Any] = answer.json()
        return told

    def put_kernels(self, document: dict[str, Any], *, fused: bool) -> None:
        """The kernel tables that the results of a run name."""
        for result in document["results"]:
            for name in result.get("artifacts", {}).values():
                address = f"/api/v1/runs/{document['id']}/artifacts/{name}"
                answer = self.client.put(address, json=history.kernel_table(fused))
                assert answer.status_code in (200, 201), answer.text[:2000]

    def add_project(self, slug: str, repository: Path, commits: list[history.Commit]) -> None:
        """Make the project and read its repository."""
        body = {"project": slug, "repository_url": f"file://{repository}", "default_branch": "main", "trusted": True}
        answer = self.client.post("/api/v1/projects", json=body)
        assert answer.status_code in (200, 201), answer.text[:2000]
        self.sync(slug)
        self.commits[slug] = commits

    def sync(self, slug: str) -> None:
        with self.engine.connect() as c:
            project = find_project(c, slug)
        synced = sync_project(self.engine, self.config, project, lambda: datetime.now(UTC))
        assert synced.error is None, synced.error

    def deliver(self, slug: str, suite: str, **options: Any) -> None:
        """One run of `suite` for every commit, oldest first."""
        for commit in self.commits[slug]:
            self.put(history.run_document(slug, commit, suite, **options))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def form(client: httpx.Client, site: Site, path: str, **fields: Any) -> httpx.Response:
    """Sends a form of a page, as who is signed in with this client."""
    found = re.search(r'<meta name="csrf" content="([^"]+)">', client.get("/settings").text)
    assert found is not None
    return client.post(path, data={"csrf_token": found[1], **fields}, headers={"Origin": site.url})


def wait_for(condition: Callable[[], bool], patience_s: float = 15) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "the service did not come up"
        time.sleep(0.02)


@contextmanager
def serving(engine: Engine, config: ServiceConfig, port: int) -> Iterator[Server]:
    """The application under uvicorn in a thread of this process."""
    app = create_api(config, engine)
    mount(app, config, engine)
    server = make_server(app, host="127.0.0.1", port=port, log_level="warning")
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def running_site(database_url: str, directory: Path, port: int | None = None) -> Iterator[Site]:
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    directory.mkdir(parents=True, exist_ok=True)
    config = ServiceConfig(
        database_url=database_url, redis_url="redis://127.0.0.1:1", data_dir=directory, public_url=url
    )
    engine = create_engine(database_url, pool_size=10)
    with engine.begin() as c:
        token = access.create_token(c, "tests", ["admin"], now=datetime.now(UTC)).token
    with (
        serving(engine, config, port) as server,
        httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client,
    ):
        yield Site(url, engine, config, token, client, server)
    engine.dispose()
