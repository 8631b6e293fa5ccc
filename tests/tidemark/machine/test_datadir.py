"""The data directory: where it is, what it refuses, and its secrets."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers_tidemark import ORDINARY, as_ordinary_user, environment, place

from tidemark.machine import datadir
from tidemark.machine.datadir import DataDirectory, default_data_dir, resolve_data_dir
from tidemark.refusal import Refusal


def test_root_gets_a_system_directory_and_a_person_the_data_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_data_dir() == Path("/var/lib/tidemark")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert default_data_dir() == Path("/home/ada/.local/share/tidemark")
    monkeypatch.setenv("XDG_DATA_HOME", "/data/ada")
    assert default_data_dir() == Path("/data/ada/tidemark")


def test_the_option_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_DATA_DIR", "/from/variable")
    assert resolve_data_dir(Path("/from/option")) == Path("/from/option")
    assert resolve_data_dir() == Path("/from/variable")


def test_a_secret_is_made_once_and_only_its_owner_may_read_it(data_place: Path) -> None:
    data = DataDirectory.prepare(data_place)
    secret = data.secret("postgres")
    assert len(secret) >= 32
    assert DataDirectory(data_place).secret("postgres") == secret
    assert data.secret("valkey") != secret
    assert (data_place / "postgres-password").stat().st_mode & 0o777 == 0o600


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    with pytest.raises(Refusal, match="is a file; choose another with --data-dir"):
        DataDirectory.prepare(tmp_path / "data")


def test_a_directory_that_this_user_cannot_write_is_refused_in_one_line() -> None:
    code = (
        "import pathlib, sys; from tidemark.machine.datadir import DataDirectory;"
        " DataDirectory.prepare(pathlib.Path(sys.argv[1]))"
    )
    with place() as path:
        path.chmod(0o555)
        done = subprocess.run(
            as_ordinary_user([sys.executable, "-P", "-c", code, str(path / "data")]),
            env=environment(),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "cannot be written by this user; choose another with --data-dir" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "is full; free some space"),
        (errno.EROFS, "is on a read-only file system"),
        (errno.EACCES, "cannot be written by this user"),
        (errno.EIO, "cannot be used: Input/output error"),
    ],
)
def test_each_reason_why_nothing_can_be_written_has_its_line(
    number: int, words: str, data_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_bytes", fails)
    with pytest.raises(Refusal, match=words):
        DataDirectory.prepare(data_place)


def test_a_nearly_full_disk_is_refused_with_both_figures(data_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        total: int
        used: int
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**10, 10**10, 12 * 2**20))
    with pytest.raises(Refusal, match=f"has 12 MB free; Tidemark needs {datadir.MIN_FREE_MB} MB"):
        DataDirectory.prepare(data_place)


def test_a_directory_with_other_things_in_it_keeps_its_mode(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o750)
    (mine / "notes").write_text("keep")
    DataDirectory.prepare(mine)
    assert mine.stat().st_mode & 0o777 == 0o750
    assert (mine / "notes").read_text() == "keep"


def test_what_the_last_supervisor_wrote_survives_garbage(data_place: Path) -> None:
    data = DataDirectory.prepare(data_place)
    assert data.running() is None
    for garbage in ("", "{", "[]", '{"supervisor": 1}', '{"supervisor": {"pid": 1}, "url": "x", "children": {}}'):
        (data_place / "supervisor.json").write_text(garbage)
        assert data.running() is None


def test_an_ordinary_user_is_who_the_tests_say_it_is() -> None:
    said = subprocess.run(
        as_ordinary_user([sys.executable, "-c", "import os; print(os.geteuid())"]),
        cwd="/", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == str(ORDINARY if os.geteuid() == 0 else os.geteuid())
