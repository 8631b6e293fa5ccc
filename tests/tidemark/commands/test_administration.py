"""What cannot be undone is confirmed by a person, or by an option."""

import shlex
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from helpers_tidemark import environment

from backend.services.base.projects import find_project, save_project
from tests.conftest import LiveServer


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("</dev/null", "nobody is here to confirm this; --yes goes on without asking"),
        ("<&-", "nobody is here to confirm this; --yes goes on without asking"),
        ("<<< a/c", "that is not its name; a/b was not removed"),
    ],
)
def test_a_project_stays_where_nobody_confirms_that_it_is_removed(
    live_server: LiveServer, written: str, said: str
) -> None:
    with live_server.engine.begin() as c:
        save_project(c, "a/b", now=datetime.now(UTC))
    command = shlex.join([sys.executable, "-P", "-m", "tidemark", "project", "remove", "a/b"])
    done = subprocess.run(
        ["bash", "-c", f"{command} {written}"],
        env=environment(TIDEMARK_URL=live_server.url, TIDEMARK_TOKEN=live_server.token("admin")),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and done.stderr.splitlines()[-1].endswith(said), done.stderr
    with live_server.engine.connect() as c:
        assert find_project(c, "a/b").slug == "a/b"
