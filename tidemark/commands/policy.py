"""Commands about the policy: what is in force, what other thresholds would have reported, and choosing them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemark.commands.options import Json, Token, Url, commands
from tidemark.refusal import Refusal

app = commands("policy", "The policy of a project: show it, try another one on the last days, choose it.")

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="The project, e.g. northsea/loom.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A threshold, e.g. min_change=0.03; repeatable."),
]
Unset = Annotated[
    list[str] | None, typer.Option("--unset", metavar="NAME", help="Go back to the defaults and the tidemark.toml.")
]


@app.command()
def show(project: Project, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Print the thresholds in force that differ from the defaults, and where they come from."""
    from tidemark.connected import remote

    answer = remote.service(url, token).policy(project)
    print(json.dumps(answer) if as_json else remote.describe_policy(answer))


@app.command()
def preview(
    project: Project,
    set_: Set = None,
    unset: Unset = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="A tidemark.toml whose [policy] replaces the present one.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=400, help="How many days back.")] = 90,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Preview what other thresholds would have reported in the last days. Nothing is changed."""
    from tidemark.connected import remote

    wanted = _change(set_, unset)
    if (file is None) == (not wanted):
        raise Refusal("give thresholds with --set and --unset, or a tidemark.toml with --file")
    declared = file is not None
    table = remote.read_policy(file) if file is not None else wanted
    answer = remote.service(url, token).preview_policy(project, table, days=days, declared=declared)
    print(json.dumps(answer) if as_json else remote.describe_preview(answer))


@app.command()
def choose(
    project: Project,
    set_: Set = None,
    unset: Unset = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Set thresholds; the last 90 days are judged again with them, in the background."""
    from tidemark.connected import remote

    wanted = _change(set_, unset)
    if not wanted:
        raise Refusal("give thresholds with --set and --unset")
    answer = remote.service(url, token).choose_policy(project, wanted)
    print(json.dumps(answer) if as_json else remote.describe_policy(answer))


def _change(given: list[str] | None, taken_back: list[str] | None) -> dict[str, Any]:
    change: dict[str, Any] = dict.fromkeys(taken_back or [])
    for item in given or []:
        name, equals, value = item.partition("=")
        try:
            change[name.strip()] = json.loads(value)
        except ValueError:
            raise Refusal(f"--set {item!r}: NAME=NUMBER is accepted, e.g. min_change=0.03") from None
        if not equals:
            raise Refusal(f"--set {item!r}: NAME=NUMBER is accepted, e.g. min_change=0.03")
    return change
