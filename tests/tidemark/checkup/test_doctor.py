"""The doctor: well on a healthy machine, and a way to mend for each thing that is not."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from helpers_tidemark import tidemark

from tidemark.checkup import doctor
from tidemark.settings import read_settings


def findings_of(**variables: str | None) -> tuple[int, dict[str, dict[str, object]]]:
    done = tidemark("doctor", "--json", **variables)
    assert done.stderr == ""
    return done.returncode, {str(finding["name"]): finding for finding in json.loads(done.stdout)}


def test_a_machine_that_runs_these_tests_is_well(data_place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free_in_a_moment:
        port = free_in_a_moment.getsockname()[1]
    status, findings = findings_of(TIDEMARK_DATA_DIR=str(data_place), TIDEMARK_PORT=str(port))
    assert [finding for finding in findings.values() if not finding["good"]] == []
    assert status == 0
    looked_at = {
        "python",
        "git",
        "packages",
        "torch",
        "data directory",
        "memory",
        "sandbox",
        "postgres",
        "valkey",
        "port",
    }
    assert looked_at <= set(findings)
    assert list(data_place.iterdir()) == [data_place / "logs"]  # it tried the servers elsewhere


def test_everything_that_is_bad_comes_with_a_way_to_mend_it(data_place: Path, tmp_path: Path) -> None:
    (data_place.parent / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as closing:
        port = closing.getsockname()[1]
        closing.close()
        status, findings = findings_of(
            PATH=str(tmp_path),
            TIDEMARK_DATA_DIR=str(data_place.parent / "file"),
            TIDEMARK_PORT=str(taken.getsockname()[1]),
            TIDEMARK_DATABASE_URL=f"postgresql://127.0.0.1:{port}/none",
            TIDEMARK_REDIS_URL=f"redis://127.0.0.1:{port}/0",
        )
    assert status == 1
    bad = {name for name, finding in findings.items() if not finding["good"]}
    assert bad >= {"git", "data directory", "port", "database", "broker"}
    assert all(findings[name]["mend"] for name in bad)


def test_a_finding_reads_as_a_line_with_its_remedy_below() -> None:
    bad = doctor.Finding(name="git", good=False, found="not on PATH", mend="install git")
    assert bad.line().splitlines() == ["BAD  git              not on PATH", f"     {'':<16} mend: install git"]
    good = doctor.Finding(name="git", good=True, found="2.39")
    assert good.line() == "ok   git              2.39"


def test_an_admin_token_that_others_can_read_is_found(data_place: Path) -> None:
    tidemark("doctor", TIDEMARK_DATA_DIR=str(data_place))
    (data_place / "admin-token").write_text("tm_x\n")
    (data_place / "admin-token").chmod(0o644)
    found = {finding.name: finding for finding in doctor._data_directory(read_settings(data_dir=data_place))}
    assert not found["admin token"].good
    assert "chmod 600" in found["admin token"].mend
