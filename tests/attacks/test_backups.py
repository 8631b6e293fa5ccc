"""Another account of the machine reads a backup while it is being written, or plants a link where it will be."""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy import create_engine, text

from tidemark import database as commands


def test_a_backup_is_its_owners_alone_at_every_moment(database: str, tmp_path: Path) -> None:
    engine = create_engine(database)
    with engine.begin() as c:  # enough to take a moment
        c.execute(text("CREATE TABLE bulk AS SELECT md5(n::text) AS t FROM generate_series(1, 60000) AS n"))
    seen: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for file in tmp_path.iterdir():
                try:
                    seen.add(file.stat().st_mode & 0o777)
                except FileNotFoundError:
                    continue

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        commands.backup(database, tmp_path / "backup")
    finally:
        over.set()
        watcher.join()
        engine.dispose()
    assert seen == {0o600}
    assert (tmp_path / "backup").read_bytes()[:5] == b"PGDMP"
    assert [file.name for file in tmp_path.iterdir()] == ["backup"]


def test_a_link_in_the_place_of_a_backup_is_replaced_not_followed(database: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "backup").symlink_to(precious)
    commands.backup(database, tmp_path / "backup")
    assert precious.read_text() == "kept" and not (tmp_path / "backup").is_symlink()
