"""Shared by the commands: options that mean the same everywhere, and how a line is printed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidemark.refusal import printable

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="The data directory (default: TIDEMARK_DATA_DIR)."),
]
Url = Annotated[
    str | None, typer.Option("--url", help="The service (default: TIDEMARK_URL, else the one running here).")
]
Token = Annotated[
    str | None,
    typer.Option("--token", help="A bearer token (default: TIDEMARK_TOKEN, else the one in the data directory)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script instead of text for a person.")]


def commands(name: str | None = None, about: str | None = None) -> typer.Typer:
    """A group of commands; without a name they stand at the top level."""
    return typer.Typer(name=name, help=about, no_args_is_help=True, rich_markup_mode=None)


def say(line: str) -> None:
    print(printable(line), flush=True)


def say_aside(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
