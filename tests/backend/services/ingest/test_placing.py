"""Histories of other tools: their commits stand in their order, whichever file comes first."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from backend.importers import Context
from backend.services.base.principal import IMPLIED, Principal, Scope, Via
from backend.services.ingest.imports import ForeignFile, ImportAnswer, import_file
from backend.services.ingest.placing import Dated, merged

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ANYONE = Principal(name="test", via=Via.TOKEN, scopes=IMPLIED[Scope.WRITE])


def sha(number: int) -> str:
    return f"c{number:039x}"


def history(*numbers: int, level: float = 100.0, said: bool = True) -> bytes:
    """A data.js of these commits, one an hour, each with one benchmark."""
    entries = [
        {
            "commit": {"id": sha(n), "timestamp": (BEGAN + timedelta(hours=n)).isoformat(), "message": f"Commit {n}",
                       "author": {"name": "Ada"}} if said else {"id": sha(n)},
            "date": 1000 * int((BEGAN + timedelta(hours=n)).timestamp()),
            "benches": [{"name": "route", "value": level + n % 3, "unit": "ns"}],
        }
        for n in numbers
    ]  # fmt: skip
    return b"window.BENCHMARK_DATA = " + json.dumps({"repoUrl": "x", "entries": {"Go": entries}}).encode()


def take(loom: Any, data: bytes, *, dry_run: bool = False) -> ImportAnswer:
    context = Context(project="northsea/loom", testbed="cpu")
    file = ForeignFile(name="data.js", data=data, context=context)
    return import_file(loom.connection, file, dry_run=dry_run, principal=ANYONE, now=NOW)


def line(loom: Any) -> list[str]:
    return [row[0] for row in loom.rows(
        "SELECT sha FROM branch_commit JOIN commit ON commit.id = commit_id ORDER BY position")]  # fmt: skip


def points(loom: Any) -> list[tuple[int, str]]:
    return [tuple(row) for row in loom.rows(
        """SELECT j.position, k.sha FROM judgement j JOIN commit k ON k.id = j.commit_id
           WHERE j.superseded_at IS NULL ORDER BY j.position""")]  # fmt: skip


def test_an_older_file_that_comes_second_stands_first(loom: Any) -> None:
    take(loom, history(*range(10, 20)))
    take(loom, history(*range(10)))
    assert line(loom) == [sha(n) for n in range(20)]
    assert points(loom) == [(n, sha(n)) for n in range(20)]


def test_files_that_interleave_are_one_line(loom: Any) -> None:
    take(loom, history(*range(0, 20, 2)))
    take(loom, history(*reversed(range(1, 20, 2))))
    assert points(loom) == [(n, sha(n)) for n in range(20)]


def test_the_verdicts_are_those_of_the_history_in_its_order(loom: Any) -> None:
    """A loss at commit 12, whose second half is imported first."""
    take(loom, history(*range(12, 24), level=150.0))
    take(loom, history(*range(12)))
    told = loom.rows("SELECT first_bad_position, state FROM regression WHERE state <> 'withdrawn'")
    assert told == [(12, "confirmed")]


def test_what_a_history_says_of_its_commits_is_kept(loom: Any) -> None:
    take(loom, history(3))
    assert loom.rows("SELECT message, author_name, committed_at FROM commit") == [
        ("Commit 3", "Ada", BEGAN + timedelta(hours=3))
    ]


def test_where_a_repository_is_connected_its_order_stands(loom: Any) -> None:
    take(loom, history(5))
    loom.connection.execute(text("UPDATE project SET repository_url = 'https://example.org/loom.git'"))
    take(loom, history(1, said=False))
    assert line(loom) == [sha(5), sha(1)]


def test_a_dry_run_foretells_all_of_it_and_leaves_nothing(loom: Any) -> None:
    take(loom, history(*range(10, 14)))
    foretold = take(loom, history(*range(14)), dry_run=True)
    assert line(loom) == [sha(n) for n in range(10, 14)] and len(points(loom)) == 4
    told = take(loom, history(*range(14)))
    assert foretold.records == told.records
    assert (told.records.read, told.records.stored, told.records.duplicate) == (14, 10, 4)
    assert [run.run_id for run in foretold.runs] == [run.run_id for run in told.runs]


def test_new_commits_go_behind_the_last_one_that_is_not_younger_and_the_line_keeps_its_order() -> None:
    def at(hour: int | None) -> datetime | None:
        return None if hour is None else BEGAN + timedelta(hours=hour)

    stood = [Dated(name, at(hour)) for name, hour in (("a", 1), ("b", 5), ("rebased", 3), ("undated", None), ("c", 7))]
    new = [Dated(name, at(hour)) for name, hour in (("late", 9), ("early", 0), ("middle", 6), ("same", 5))]
    found = [commit.sha for commit in merged(stood, new)]
    assert found == ["early", "a", "b", "rebased", "undated", "same", "middle", "c", "late"]
