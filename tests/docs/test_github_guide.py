"""docs/github.md can be followed: every command in it is one that there is, with options that it has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from typer.main import get_command

from tidemark.cli import app

GUIDES = (Path(__file__).parents[2] / "docs" / "github.md", Path(__file__).parents[2] / "docs" / "formats.md")
COMMANDS = sorted(
    {
        line.split("  #")[0].strip()
        for guide in GUIDES
        for line in re.sub(r"\\\n\s+", " ", guide.read_text()).splitlines()
        if line.startswith("    tidemark ")
    }
)


def test_there_are_commands_to_follow() -> None:
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_guide_is_understood(line: str) -> None:
    name, *words = shlex.split(line)
    command: click.Command = get_command(app)  # type: ignore[assignment]
    parent: click.Context | None = None
    while hasattr(command, "resolve_command"):
        parent = command.make_context(name, list(words), parent=parent)
        name, command, words = command.resolve_command(parent, [*parent._protected_args, *parent.args])
        assert command is not None, line
    command.make_context(name, list(words), parent=parent)
