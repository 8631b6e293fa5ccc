"""Commands of notifications refuse before they ask anything."""

from typer.testing import CliRunner

from tidemark.commands.notify import app
from tidemark.refusal import Refusal


def test_quiet_hours_have_a_beginning_and_an_end() -> None:
    done = CliRunner().invoke(app, ["add", "a/b", "--name", "us", "--quiet", "22:00"])
    assert isinstance(done.exception, Refusal) and "22:00-07:00" in str(done.exception)
