"""Commands of notifications refuse before they ask anything."""

import json
from datetime import UTC, datetime

from typer.testing import CliRunner

from backend.services.base.projects import save_project
from tests.conftest import LiveServer
from tidemark.commands.notify import app
from tidemark.refusal import Refusal


def test_quiet_hours_have_a_beginning_and_an_end() -> None:
    done = CliRunner().invoke(app, ["add", "a/b", "--name", "us", "--quiet", "22:00"])
    assert isinstance(done.exception, Refusal) and "22:00-07:00" in str(done.exception)


def test_an_address_is_read_from_the_input_and_its_absence_is_one_line(live_server: LiveServer) -> None:
    place = ["--url", live_server.url, "--token", live_server.token("admin")]
    done = CliRunner().invoke(app, ["add", "a/b", "--name", "us", *place], input="")
    assert isinstance(done.exception, Refusal) and "an address on its first line" in str(done.exception)
    assert done.output == ""


def test_a_change_names_something() -> None:
    done = CliRunner().invoke(app, ["change", "a/b", "1"])
    assert isinstance(done.exception, Refusal) and "--min-change" in str(done.exception)


def test_a_change_sends_what_was_named_and_takes_away_what_is_none(live_server: LiveServer) -> None:
    place = ["--url", live_server.url, "--token", live_server.token("admin")]
    with live_server.engine.begin() as c:
        save_project(c, "a/b", now=datetime.now(UTC))
    made = ["add", "a/b", "--name", "us", "--quiet", "22:00-07:00", "--digest", "daily", "--suite", "moe*"]
    assert CliRunner().invoke(app, [*made, *place], input="jsons://example.org/hook\n").exit_code == 0
    asked = ["change", "a/b", "1", "--quiet", "none", "--suite", "none", "--digest", "weekly", "--min-change", "0.1"]
    done = CliRunner().invoke(app, [*asked, *place])
    assert done.exit_code == 0, done.output
    listed = json.loads(CliRunner().invoke(app, ["list", "a/b", "--json", *place]).stdout)["rules"][0]
    assert (listed["quiet_from"], listed["quiet_until"], listed["suites"]) == (None, None, [])
    assert (listed["digest"], listed["min_change"], listed["name"]) == ("weekly", 0.1, "us")
    assert listed["address"].startswith("jsons://example.org")
