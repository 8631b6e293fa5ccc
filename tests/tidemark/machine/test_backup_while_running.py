"""A backup is made while results come in, and put back in a new place: every verdict is there, and none is another."""

from __future__ import annotations

import json
import threading
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_tidemark import tidemark
from sqlalchemy import create_engine, text

from backend.api import create_api
from backend.services.base.config import ServiceConfig
from tests.conftest import LiveServer, ServeApp
from tests.filled import filled_database, said
from tidemark import database as commands
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.refusal import Refusal
from tidemark.settings import read_settings


@pytest.fixture
def filled(
    postgres: EmbeddedPostgres, administer: Callable[[str], None], serve_app: ServeApp, tmp_path: Path
) -> Iterator[LiveServer]:
    """A service with a history."""
    with filled_database(postgres, administer, tmp_path) as url:
        commands.make_ready(url)
        engine = create_engine(url)
        config = ServiceConfig(database_url=url, redis_url="redis://127.0.0.1:1/0", data_dir=tmp_path / "data")
        with serve_app(create_api(config, engine), engine, config) as server:
            yield server
        engine.dispose()


def deliver_until(server: LiveServer, over: threading.Event, delivered: list[str]) -> None:
    """Runs of its newest commit again, as fast as they are taken."""
    with server.engine.connect() as c:
        packed = c.scalars(
            text("SELECT document FROM run WHERE status = 'ok' ORDER BY started_at DESC, id LIMIT 3")
        ).all()
    with server.client("write") as client:
        for number in range(10_000):
            if over.is_set():
                return
            document = {**json.loads(zlib.decompress(packed[number % len(packed)])), "id": f"again-{number:06}"}
            answer = client.put(f"/api/v1/runs/{document['id']}", json=document)
            assert answer.status_code in (200, 201), answer.text
            delivered.append(document["id"])


def test_what_was_backed_up_while_results_came_in_is_whole(
    filled: LiveServer, postgres: EmbeddedPostgres, administer: Callable[[str], None], tmp_path: Path
) -> None:
    over, delivered = threading.Event(), list[str]()
    name = f"restored_{uuid.uuid4().hex}"
    writer = threading.Thread(target=deliver_until, args=(filled, over, delivered))
    writer.start()
    try:
        while len(delivered) < 20:
            assert writer.is_alive()
        before = list(delivered)
        done = tidemark("db", "backup", str(tmp_path / "backup"), TIDEMARK_DATABASE_URL=filled.config.database_url)
        assert done.returncode == 0, done.stderr
        after = list(delivered)
    finally:
        over.set()
        writer.join(30)
    assert len(after) > len(before), "nothing came in meanwhile"
    try:
        done = tidemark("db", "restore", str(tmp_path / "backup"), TIDEMARK_DATABASE_URL=postgres.url_of(name))
        assert done.returncode == 0, done.stderr
        engine = create_engine(postgres.url_of(name))
        with engine.connect() as c, filled.engine.connect() as original:
            kept, there = said(c), said(original)
        engine.dispose()
    finally:
        administer(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    runs = {row[0] for row in kept["runs"]}
    assert set(before) <= runs
    # Each delivery is there with all that was said of it, or not at all; and nothing is said otherwise.
    assert kept["measurements"] == [row for row in there["measurements"] if row[0] in runs]
    assert judged(kept, runs) == judged(there, runs)
    theirs = {row[0]: row for row in there["judgements"]}
    assert all(lasting(row) == lasting(theirs[row[0]]) for row in kept["judgements"])
    assert kept["history"] == there["history"][: len(kept["history"])]


def judged(told: dict[str, list[Any]], runs: set[str]) -> set[tuple[int, str]]:
    """(series, run) of every point of these runs that was judged."""
    return {(row[1], row[2]) for row in told["judgements"] if row[2] in runs}


def lasting(judgement: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without what a later delivery may still change: the regression it belongs to, and when it was superseded."""
    return judgement[:19]


def test_a_backup_is_put_into_a_data_directory_that_is_not_there_yet(
    filled: LiveServer, data_place: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    commands.backup(filled.config.database_url, backup)
    done = tidemark("db", "restore", str(backup), "--data-dir", str(data_place))
    assert done.returncode == 0, done.stderr
    with commands.database_url(read_settings(data_dir=data_place)) as url:
        engine = create_engine(url)
        with engine.connect() as c, filled.engine.connect() as original:
            assert said(c) == said(original)
        engine.dispose()


def test_a_backup_of_a_later_version_is_refused_and_nothing_is_touched(filled: LiveServer, tmp_path: Path) -> None:
    with filled.engine.begin() as c:
        c.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    commands.backup(filled.config.database_url, tmp_path / "backup")
    with pytest.raises(Refusal, match=r"made by a later version of Tidemark \(its schema is at 9999\)"):
        commands.check_backup(tmp_path / "backup")
