"""The database at the command line: made, migrated, backed up, put back; tokens made and revoked in it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers_tidemark import tidemark
from sqlalchemy import create_engine, make_url, text

from tidemark.machine.postgres import EmbeddedPostgres


@pytest.fixture
def nothing_yet(postgres: EmbeddedPostgres, administer: Callable[[str], None]) -> Iterator[str]:
    """The address of a database that does not exist yet."""
    name = f"new_{uuid.uuid4().hex}"
    yield postgres.url_of(name)
    administer(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def told(url: str, *arguments: str, status: int = 0) -> str:
    done = tidemark(*arguments, TIDEMARK_DATABASE_URL=url)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_upgrade_makes_the_database_and_is_no_harm_the_second_time(nothing_yet: str) -> None:
    assert told(nothing_yet, "db", "upgrade") == "the database is up to date\n"
    assert told(nothing_yet, "db", "upgrade") == "the database is up to date\n"
    engine = create_engine(nothing_yet)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM run")).scalar_one() == 0
    engine.dispose()


def test_a_token_is_shown_once_listed_without_its_secret_and_revoked(database: str) -> None:
    token = told(database, "token", "create", "--name", "ci", "--scope", "write", "--days", "30").strip()
    assert token.startswith("tm_")
    assert token not in told(database, "token", "list")
    (row,) = json.loads(told(database, "token", "list", "--json"))
    assert (row["name"], row["scopes"], row["revoked_at"]) == ("ci", ["write"], None)
    assert told(database, "token", "revoke", str(row["id"])) == f"token {row['id']} is revoked\n"
    assert "(revoked)" in told(database, "token", "list")
    assert told(database, "token", "revoke", str(row["id"]), status=1).count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--scope", "root"), "read, submit, write, worker, approve, admin"),
        (("--scope", "read", "--project", "no/such"), "no/such"),
    ],
)
def test_a_token_that_cannot_be_is_refused_with_what_can(database: str, arguments: tuple[str, ...], words: str) -> None:
    refused = told(database, "token", "create", "--name", "x", *arguments, status=1)
    assert words in refused and refused.count("\n") == 1


def test_a_backup_holds_everything_and_replaces_everything(database: str, tmp_path: Path) -> None:
    told(database, "token", "create", "--name", "before", "--scope", "read")
    file = tmp_path / "backup"
    told(database, "db", "backup", str(file))
    told(database, "token", "create", "--name", "after", "--scope", "read")
    refused = told(database, "db", "restore", str(file), status=1)
    assert "This replaces everything" in refused and "--yes goes on without asking" in refused
    assert len(json.loads(told(database, "token", "list", "--json"))) == 2
    assert told(database, "db", "restore", str(file), "--yes") == f"restored from {file}\n"
    assert [row["name"] for row in json.loads(told(database, "token", "list", "--json"))] == ["before"]
    assert f"{file} exists" in told(database, "db", "backup", str(file), status=1)
    told(database, "db", "backup", str(file), "--force")


def test_what_others_keep_in_a_database_is_not_replaced_without_asking(
    database: str, nothing_yet: str, administer: Callable[[str], None], tmp_path: Path
) -> None:
    file = tmp_path / "backup"
    told(database, "db", "backup", str(file))
    administer(f"CREATE DATABASE {make_url(nothing_yet).database}")
    engine = create_engine(nothing_yet)
    with engine.begin() as c:
        c.execute(text("CREATE TABLE ledger AS SELECT 7 AS owed"))
    assert "This replaces everything" in told(nothing_yet, "db", "restore", str(file), status=1)
    with engine.begin() as c:
        assert c.scalar(text("SELECT owed FROM ledger")) == 7
        assert c.scalar(text("SELECT to_regclass('run')")) is None, "a refused restore makes no tables of ours either"
    engine.dispose()


def test_what_is_no_backup_changes_nothing(database: str, tmp_path: Path) -> None:
    told(database, "token", "create", "--name", "kept", "--scope", "read")
    file = tmp_path / "notes"
    file.write_text("hello")
    assert "is not a backup made by `tidemark db backup`" in told(
        database, "db", "restore", str(file), "--yes", status=1
    )
    assert len(json.loads(told(database, "token", "list", "--json"))) == 1


def test_no_password_is_told_when_the_database_cannot_be_reached(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    wrong = f"postgresql://tidemark:s3cret-words@127.0.0.1:{postgres.port}/tidemark"
    for command in (("db", "upgrade"), ("token", "list"), ("db", "backup", str(tmp_path / "backup"))):
        refused = told(wrong, *command, status=1)
        assert "password authentication failed" in refused
        assert "s3cret-words" not in refused
        assert refused.count("\n") == 1
