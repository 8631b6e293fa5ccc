"""`tidemark up` for real: one address, every process watched, everything kept, nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from helpers_tidemark import ORDINARY, Background, all_gone, as_ordinary_user, place, tidemark, until

from tidemark.machine import ports
from tidemark.machine.datadir import DataDirectory, Running
from tidemark.settings import Settings
from tidemark.up import _Servers, missing_for_demo

CHILDREN = {"postgres", "valkey", "api", "beat", "worker"}
WORKER_VARIABLES = {"TIDEMARK_DATA_DIR", "TIDEMARK_REDIS_URL", "TIDEMARK_TOKEN", "TIDEMARK_URL"}


class Service:
    """A `tidemark up` on a data directory, which may be started again."""

    def __init__(self, data: Path, log: Path, *, ordinary: bool = False) -> None:
        self.data, self.log, self.port = data, log, ports.private_port()
        self.ordinary = ordinary
        self.background: Background | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *options: str) -> str:
        command = [
            sys.executable, "-P", "-m", "tidemark", "up",
            "--data-dir", str(self.data), "--port", str(self.port), "--no-demo", *options,
        ]  # fmt: skip
        home = {"HOME": str(self.data.parent)}
        self.background = Background(as_ordinary_user(command) if self.ordinary else command, self.log, home)
        self.background.wait_for("Tidemark runs at", 90)
        assert until(lambda: "Ctrl-C" in self.said or "admin token" in self.said)
        return self.said

    @property
    def said(self) -> str:
        assert self.background is not None
        return self.background.said

    @property
    def process(self) -> psutil.Process:
        assert self.background is not None
        return psutil.Process(self.background.process.pid)

    def children(self) -> dict[str, int]:
        running = self.running()
        return {name: child.pid for name, child in running.children.items()}

    def running(self) -> Running:
        running = DataDirectory(self.data).running()
        assert running is not None
        return running

    def answers(self, path: str = "/healthz") -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def token_count(self) -> int:
        done = tidemark("token", "list", "--json", "--data-dir", str(self.data))
        assert done.returncode == 0, done.stderr
        return len(json.loads(done.stdout))

    def family(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def stop(self) -> None:
        if self.background is not None:
            self.background.end()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with place() as path:
        started = Service(path / "data", tmp_path_factory.mktemp("up") / "log")
        started.start()
        yield started
        started.stop()


def test_it_prints_one_address_and_a_link_that_signs_in_once(service: Service) -> None:
    links = re.findall(r"http://\S+/sign-in/\S+", service.said)
    assert len(links) == 1
    assert links[0].startswith(service.url)
    assert service.answers()
    assert service.answers("/readyz")

    def open_link() -> int:
        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: object) -> None:
                return None

        try:
            with urllib.request.build_opener(Stay).open(links[0], timeout=5) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert open_link() < 400
    assert open_link() == 403


def test_the_admin_token_is_its_owners_alone_and_the_command_line_finds_it(service: Service) -> None:
    token = service.data / "admin-token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text().startswith("tm_")
    assert token.read_text().strip() not in service.said
    listed = tidemark("regressions", TIDEMARK_DATA_DIR=str(service.data))
    assert (listed.returncode, listed.stdout.strip()) == (0, "no regressions"), listed.stderr
    listed = tidemark("regressions", "--still-bad", TIDEMARK_DATA_DIR=str(service.data))
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.strip() == "no such regressions (`tidemark regressions` lists all)"
    listed = tidemark("regressions", "--commits", "a..b", TIDEMARK_DATA_DIR=str(service.data))
    assert listed.returncode == 1 and "base..head" in listed.stderr and "together with `project`" in listed.stderr


def test_a_repository_of_this_machine_is_watched_by_one_command_once_it_is_trusted(
    service: Service, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    add = ("project", "add", "me/words", str(tmp_path))
    refused = tidemark(*add, TIDEMARK_DATA_DIR=str(service.data))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "file:// only for trusted projects" in refused.stderr
    nowhere = tidemark("project", "add", "me/words", str(tmp_path / "typo"), TIDEMARK_DATA_DIR=str(service.data))
    assert (nowhere.returncode, f"{tmp_path / 'typo'} is no directory" in nowhere.stderr) == (1, True)
    manifest = "[suite.words]\ncommand = 'true'\ntestbeds = ['h200-sxm']\n"
    (tmp_path / "tidemark.toml").write_text(manifest)
    commit = ("-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "--quiet", "--message", "First")
    for step in (("checkout", "--quiet", "-B", "main"), ("add", "."), commit):
        subprocess.run(["git", "-C", str(tmp_path), *step], check=True)
    done = tidemark(*add, "--trusted", TIDEMARK_DATA_DIR=str(service.data))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"me/words is watched: file://{tmp_path}, branch main",
        "1 commit found, 1 run queued",
        "  h200-sxm: suite words; waits for a first worker of h200-sxm",
        f"board: {service.url}/board?project=me/words",
    ]


def test_every_child_that_is_killed_is_back_within_five_seconds(service: Service) -> None:
    assert set(service.children()) == CHILDREN
    for name in sorted(CHILDREN):
        before = service.children()[name]
        os.kill(before, signal.SIGKILL)
        assert until(lambda name=name, before=before: service.children()[name] != before, 5), name
    assert until(lambda: service.answers("/readyz"), 20)


def test_a_second_start_names_the_address_of_the_first(service: Service) -> None:
    second = tidemark("up", "--data-dir", str(service.data), "--port", str(ports.private_port()))
    assert second.returncode == 1
    assert second.stderr.count("\n") == 1
    assert f"already running on {service.data}: {service.url}" in second.stderr


def test_a_taken_port_is_one_line_and_starts_nothing(service: Service, data_place: Path) -> None:
    done = tidemark("up", "--data-dir", str(data_place), "--port", str(service.port))
    assert done.returncode == 1
    assert f"port {service.port} on 127.0.0.1 is taken by " in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (data_place / "postgres").exists()


def test_the_worker_is_told_nothing_of_the_database(data_place: Path) -> None:
    database, broker = "postgresql://tidemark:hunter2@db.example.org/tidemark", "redis://broker.example.org/0"
    chosen = Settings(data_dir=data_place, database_url=database, redis_url=broker)
    servers = _Servers(chosen, DataDirectory.prepare(data_place))
    variables = servers.worker_environment("http://127.0.0.1:1", "tm_worker")
    assert {name for name in variables if name.startswith("TIDEMARK_")} == WORKER_VARIABLES
    assert "hunter2" not in "".join(variables.values())


def test_nobody_but_root_reads_the_token_of_a_running_worker_which_is_not_the_admins(service: Service) -> None:
    worker = psutil.Process(service.children()["worker"])
    if os.geteuid() == 0:
        variables = worker.environ()
        assert {name for name in variables if name.startswith("TIDEMARK_")} == WORKER_VARIABLES
        assert variables["TIDEMARK_TOKEN"] != (service.data / "admin-token").read_text().strip()
    else:
        assert until(lambda: _is_closed_to_its_own_user(worker), 30)


def _is_closed_to_its_own_user(process: psutil.Process) -> bool:
    try:
        process.environ()
    except psutil.AccessDenied:
        return True
    return False


def test_doctor_finds_a_running_service_well(service: Service) -> None:
    done = tidemark("doctor", "--json", "--data-dir", str(service.data), "--data-dir", str(service.data))
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)}
    wrong = [name for name, finding in findings.items() if not finding["good"]]
    assert wrong in ([], ["disk"]), done.stdout  # how full this machine's disk is, is its own matter
    assert done.returncode == (1 if wrong else 0)
    assert CHILDREN | {"service"} <= set(findings)


def test_a_backup_can_be_made_while_it_runs_but_not_restored(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    made = tidemark("db", "backup", str(file), "--data-dir", str(service.data))
    assert made.returncode == 0, made.stderr
    assert file.read_bytes()[:5] == b"PGDMP"
    assert file.stat().st_mode & 0o777 == 0o600
    refused = tidemark("db", "restore", str(file), "--yes", "--data-dir", str(service.data))
    assert refused.returncode == 1
    assert "stop it first" in refused.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_soon_and_leaves_no_process(service: Service, number: signal.Signals) -> None:
    if service.process.status() == psutil.STATUS_ZOMBIE:
        service.start()
    family = service.family()
    assert len(family) > len(CHILDREN)
    assert service.background is not None
    service.background.process.send_signal(number)
    assert service.background.process.wait(10) == 0  # 5 s, and what a machine that runs other tests beside may add
    assert all_gone(family)
    assert not service.answers()
    service.start()


def test_killed_in_any_way_it_starts_again_with_everything_kept(service: Service) -> None:
    tokens = service.token_count()
    made = tidemark("token", "create", "--name", "kept", "--scope", "read", "--data-dir", str(service.data))
    assert made.returncode == 0, made.stderr
    for victims in ("the supervisor", "everything"):
        family = service.family()
        for process in family[:1] if victims == "the supervisor" else family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        assert service.background is not None
        service.background.process.wait()
        service.start()
        assert all_gone(family)
        assert service.answers("/readyz")
        assert service.token_count() == tokens + 1


def test_sign_in_prints_a_new_link(service: Service) -> None:
    done = tidemark("sign-in", "--data-dir", str(service.data))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{service.url}/sign-in/") and not done.stderr


def test_it_runs_for_an_ordinary_user(tmp_path: Path) -> None:
    with place(owner=ORDINARY if os.geteuid() == 0 else None) as path:
        service = Service(path / "data", tmp_path / "log", ordinary=True)
        try:
            service.start()
            family = service.family()
            assert {psutil.Process(pid).uids().effective for pid in service.children().values()} == {
                ORDINARY if os.geteuid() == 0 else os.geteuid()
            }
            assert (path / "data").stat().st_mode & 0o777 == 0o700
        finally:
            service.stop()
        assert all_gone(family)


def test_without_git_it_says_so_and_starts_nothing(data_place: Path, tmp_path: Path) -> None:
    done = tidemark("up", "--data-dir", str(data_place), PATH=str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "git is not on PATH" in done.stderr
    assert not data_place.exists()


def test_an_address_that_cannot_be_listened_on_is_one_line(data_place: Path) -> None:
    done = tidemark("up", "--data-dir", str(data_place), "--host", "192.0.2.1", TIDEMARK_SIGN_IN="links")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cannot listen on 192.0.2.1:8000" in done.stderr


def test_what_others_would_reach_and_nobody_could_sign_in_to_is_not_started(data_place: Path) -> None:
    done = tidemark("up", "--data-dir", str(data_place), "--host", "0.0.0.0")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "TIDEMARK_SIGN_IN=links" in done.stderr
    assert not data_place.exists()


def test_a_service_that_cannot_start_says_why_in_one_line_and_leaves_nothing(data_place: Path) -> None:
    broken = f"postgresql://nobody@127.0.0.1:{ports.private_port()}/none"
    done = tidemark(
        "up", "--data-dir", str(data_place), "--port", str(ports.private_port()), TIDEMARK_DATABASE_URL=broken
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "prepare failed" in done.stderr


def test_where_torch_is_missing_no_demo_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_for_demo() is None
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "torch, which is not installed" in (missing_for_demo() or "")
