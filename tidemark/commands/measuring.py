"""Commands that request measurements: bisections, backfills, comparisons of two environments, and schedules."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemark.commands.options import Json, Token, Url, commands, say
from tidemark.refusal import Refusal

if TYPE_CHECKING:
    from tidemark.connected.remote import Service

app = commands()
backfill_app = commands("backfill", "Backfills: a suite over commits of the past.")

Follow = Annotated[bool, typer.Option("--follow", help="Wait until it ends and print each step.")]
Project = Annotated[str, typer.Argument(help="The project, e.g. demo/tinygpt.")]
SuiteName = Annotated[str, typer.Argument(help="The suite, as named in its tidemark.toml.")]
Testbed = Annotated[str | None, typer.Option(help="The testbed (default: the suite's first).")]

ASK_EVERY_S = 2.0
WITHOUT_ANSWER = ("failed", "cancelled", "quarantined")
"""How a session ends that says nothing of its two sides; its reason says why."""


@app.command()
def bisect(
    regression: Annotated[int, typer.Argument(help="The regression's number.")],
    follow: Follow = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the one that is running.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Find the commit that caused a regression.

    Commits between the last good and the first bad one are measured, the most informative first, until the answer is
    certain enough.

    Exit status: 0 if a commit was found (or the bisection is still running), 1 if it gave up.
    """
    from tidemark.connected import measuring, remote

    service = remote.service(url, token)
    if cancel:
        found = service.post(f"/api/v1/bisections/{_running_bisection(service, regression)}/cancel")
    else:
        found = service.post(f"/api/v1/regressions/{regression}/bisect")
    if follow and found["state"] == "running":
        found = _follow(lambda: service.get(f"/api/v1/bisections/{found['id']}"), measuring.bisection_line, as_json)
    say(json.dumps(found) if as_json else measuring.describe_bisection(found))
    raise typer.Exit(1 if found["state"] == "gave_up" else 0)


@app.command()
def ab(
    project: Project,
    suite: SuiteName,
    commit: Annotated[
        str, typer.Argument(help="Side A: a sha, branch, tag, #123 or last-good. Also side B, unless --head is given.")
    ],
    against: Annotated[str | None, typer.Option(help="Another commit for side B.")] = None,
    pip_a: Annotated[str | None, typer.Option(help='What side A installs, e.g. "torch==2.13.0".')] = None,
    pip_b: Annotated[str | None, typer.Option(help='What side B installs, e.g. "torch==2.14.0".')] = None,
    setup_a: Annotated[str | None, typer.Option(help="A command that side A runs after the suite's setup.")] = None,
    setup_b: Annotated[str | None, typer.Option(help="A command that side B runs after the suite's setup.")] = None,
    env_a: Annotated[list[str] | None, typer.Option(help="NAME=TEXT, for side A; repeatable.")] = None,
    env_b: Annotated[list[str] | None, typer.Option(help="NAME=TEXT, for side B; repeatable.")] = None,
    testbed: Testbed = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=20, help="At most this many ABBA rounds, each with two processes per side.")
    ] = 6,
    follow: Follow = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Compare two environments, or two commits, interleaved.

    Both sides run in turn on one worker, in fresh processes; A is the base.

    Exit status: 0 if it was decided (or --follow was not given), 1 if it ended without an answer.
    """
    from tidemark.connected import measuring, remote

    service = remote.service(url, token)
    body = {
        "project": project,
        "suite": suite,
        "testbed": testbed,
        "base": commit,
        "head": against,
        "base_setup": measuring.setup_of(pip_a, setup_a, env_a or []),
        "head_setup": measuring.setup_of(pip_b, setup_b, env_b or []),
        "rounds": rounds,
    }
    found = service.post("/api/v1/sessions", body)
    if follow:
        found = _follow(lambda: service.get(f"/api/v1/sessions/{found['id']}"), measuring.session_line, as_json)
    say(json.dumps(found) if as_json else measuring.describe_session(found))
    raise typer.Exit(1 if found["state"] in WITHOUT_ANSWER else 0)


@app.command()
def session(
    session_id: Annotated[str, typer.Argument(help="The session's id.")],
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel it.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Show a session: base and head, interleaved."""
    from tidemark.connected import measuring, remote

    service = remote.service(url, token)
    path = f"/api/v1/sessions/{session_id}"
    found = service.post(f"{path}/cancel") if cancel else service.get(path)
    say(json.dumps(found) if as_json else measuring.describe_session(found))


@app.command()
def schedules(
    project: Annotated[str | None, typer.Option(help="Only this project, e.g. demo/tinygpt.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List what is measured on a schedule."""
    from tidemark.connected import measuring, remote

    found = remote.service(url, token).get("/api/v1/schedules", project=project)
    say(json.dumps(found) if as_json else measuring.describe_schedules(found))


@backfill_app.command("start")
def backfill_start(
    project: Project,
    suite: SuiteName,
    testbed: Testbed = None,
    since: Annotated[str | None, typer.Option(help="The oldest commit (default: the first of the branch).")] = None,
    until: Annotated[str | None, typer.Option(help="The newest commit (default: the head).")] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="At most this many commits (default: all of them).")] = None,
    declared_at: Annotated[
        str | None, typer.Option(help="The commit whose tidemark.toml declares the suite (default: the head).")
    ] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Measure a range of commits: evenly spread at first, then finer where something changed."""
    from tidemark.connected import measuring, remote

    body = {
        "project": project,
        "suite": suite,
        "testbed": testbed,
        "since": since,
        "until": until,
        "runs": runs,
        "declared_at": declared_at,
    }
    found = remote.service(url, token).post("/api/v1/backfills", body)
    say(json.dumps(found) if as_json else measuring.describe_backfill(found))


@backfill_app.command("list")
def backfill_list(
    project: Annotated[str | None, typer.Option(help="Only this project.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List backfills and how far each is."""
    from tidemark.connected import measuring, remote

    found = remote.service(url, token).get("/api/v1/backfills", project=project)
    lines = [measuring.describe_backfill(item) for item in found["items"]]
    say(json.dumps(found) if as_json else "\n".join(lines) or "no backfills")


@backfill_app.command("cancel")
def backfill_cancel(
    backfill_id: Annotated[str, typer.Argument(help="The backfill's id.")],
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Stop a backfill; runs that are still queued are cancelled."""
    from tidemark.connected import measuring, remote

    found = remote.service(url, token).post(f"/api/v1/backfills/{backfill_id}/cancel")
    say(json.dumps(found) if as_json else measuring.describe_backfill(found))


def _running_bisection(service: Service, regression: int) -> str:
    newest = service.get("/api/v1/bisections", regression=regression, limit=1)["items"]
    if not newest or newest[0]["state"] != "running":
        raise Refusal(f"no bisection of regression {regression} is running")
    return str(newest[0]["id"])


def _follow(ask: Callable[[], dict[str, Any]], line: Callable[[Mapping[str, Any]], str], quiet: bool) -> dict[str, Any]:
    """Asks until it is over; says every line that is new."""
    said = ""
    while True:
        found = ask()
        now = line(found)
        if now != said and not quiet:
            say(now)
            said = now
        if found["state"] not in ("waiting", "running"):
            return found
        time.sleep(ASK_EVERY_S)
