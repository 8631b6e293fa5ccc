"""Commands that ask for measurements, against a real service."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from helpers_tidemark import tidemark
from sqlalchemy import text

from backend.services.base import projects
from backend.services.repository import sync
from backend.services.sessions import request as confirm


def test_to_call_off_what_is_not_running_is_refused_and_begins_nothing(live_server: Any) -> None:
    here = {"TIDEMARK_URL": live_server.url, "TIDEMARK_TOKEN": live_server.token("write")}
    done = tidemark("bisect", "17", "--cancel", **here)
    assert done.returncode != 0
    assert done.stderr.strip().endswith("no bisection of regression 17 is running")


def test_a_followed_comparison_that_ends_without_an_answer_exits_with_1_and_the_reason(
    live_server: Any, tmp_path: Path
) -> None:
    path = tmp_path / "loom"
    path.mkdir()
    (path / "tidemark.toml").write_text('[suite.own]\ncommand = "python bench.py"\ntestbeds = ["cpu"]\n')
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-C", str(path)]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "Begin"]):
        subprocess.run([*git, *words], check=True)
    engine = live_server.engine
    with engine.begin() as c:
        projects.save_project(c, "northsea/loom", repository_url=path.as_uri(), trusted=True, now=datetime.now(UTC))
        project = projects.find_project(c, "northsea/loom")
    synced = sync.sync_project(engine, live_server.config, project, lambda: datetime.now(UTC))
    assert synced.error is None
    asked: list[Any] = []

    def follow() -> None:
        here = {"TIDEMARK_URL": live_server.url, "TIDEMARK_TOKEN": live_server.token("admin")}
        words = ("ab", "northsea/loom", "own", "main", "--pip-b", "torch==2.14.0", "--follow", "--json")
        asked.append(tidemark(*words, **here))

    follower = threading.Thread(target=follow)
    follower.start()
    until = time.monotonic() + 60
    session = None
    while session is None and time.monotonic() < until:
        time.sleep(0.1)
        with engine.connect() as c:
            session = c.scalar(text("SELECT id FROM session"))
    with engine.begin() as c:
        confirm.cancel(c, session, "the testbed was taken down", datetime.now(UTC))
    follower.join(60)
    (done,) = asked
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["reason"] == "the testbed was taken down"
