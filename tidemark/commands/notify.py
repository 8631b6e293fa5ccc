"""Commands about notifications: who is told of what."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any

import typer

from tidemark.commands.options import Json, Token, Url, commands, say
from tidemark.refusal import Refusal

app = commands("notify", "Notifications: who is told of what, and where.")

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="E.g. northsea/loom.")]
Rule = Annotated[int, typer.Argument(metavar="RULE", help="The rule's number, as listed.")]
Name = Annotated[str, typer.Option(help="What the rule is called.")]
Suites = Annotated[list[str] | None, typer.Option("--suite", help="Of these suites (patterns); may be repeated.")]
Causes = Annotated[list[str] | None, typer.Option("--cause", help="code (default), hardware, environment, method.")]
States = Annotated[list[str] | None, typer.Option("--state", help="Events told: confirmed, infra_alarm, fixed, …")]
Owners = Annotated[list[str] | None, typer.Option("--owner", help="Only what they own, e.g. @northsea/moe.")]
MinChange = Annotated[float | None, typer.Option(help="From this change on, as a fraction of cost.")]
Digest = Annotated[str | None, typer.Option(help="daily or weekly, in place of single messages.")]
Quiet = Annotated[str | None, typer.Option(metavar="FROM-UNTIL", help="Quiet hours, e.g. 22:00-07:00.")]
TimeZone = Annotated[str | None, typer.Option(help="Of hours and digests, e.g. Europe/Berlin.")]

NONE = "none"
PATIENCE_S = 90.0


@app.command("list")
def list_rules(project: Project, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List the rules of a project, without the secrets of their addresses."""
    from tidemark.connected import notifying, remote

    found = notifying.notifications(remote.service(url, token), project)
    print(json.dumps(found)) if as_json else say(notifying.describe(found))


@app.command()
def add(
    project: Project,
    name: Name,
    suite: Suites = None,
    cause: Causes = None,
    state: States = None,
    owner: Owners = None,
    min_change: MinChange = None,
    digest: Digest = None,
    quiet: Quiet = None,
    time_zone: TimeZone = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Make a rule. The Apprise address is read from the first line of the standard input: it holds secrets."""
    from tidemark.connected import notifying, remote

    given = _given(
        quiet, name=name, suites=suite, causes=cause, states=state, owners=owner, min_change=min_change,
        digest=digest, time_zone=time_zone,
    )  # fmt: skip
    made = notifying.add(remote.service(url, token), project, given | {"address": _asked_address()})
    say(f"rule {made['id']}: {made['name']} to {made['address']}")


@app.command()
def change(
    project: Project,
    rule: Rule,
    name: Annotated[str | None, typer.Option(help="What it is called from now on.")] = None,
    suite: Suites = None,
    cause: Causes = None,
    state: States = None,
    owner: Owners = None,
    min_change: MinChange = None,
    digest: Digest = None,
    quiet: Quiet = None,
    time_zone: TimeZone = None,
    address: Annotated[bool, typer.Option("--address", help="Read a new address from the standard input.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Change what is named of a rule. The word none takes suites, owners, digest or quiet hours away."""
    from tidemark.connected import notifying, remote

    given = _given(
        quiet, name=name, suites=suite, causes=cause, states=state, owners=owner, min_change=min_change,
        digest=digest, time_zone=time_zone,
    )  # fmt: skip
    if address:
        given["address"] = _asked_address()
    if not given:
        raise Refusal("nothing to change: name at least one option, such as --min-change 0.1")
    made = notifying.change(remote.service(url, token), project, rule, given)
    say(f"rule {made['id']}: {made['name']} to {made['address']}")


def _hours(quiet: str | None) -> dict[str, str | None]:
    if quiet in (None, NONE):
        return dict.fromkeys(("quiet_from", "quiet_until"), quiet)
    begins, _, ends = quiet.partition("-")
    if not begins or not ends or "-" in ends:
        raise Refusal(f"--quiet {quiet!r}: FROM-UNTIL is accepted, e.g. 22:00-07:00")
    return {"quiet_from": begins, "quiet_until": ends}


def _given(quiet: str | None, **options: Any) -> dict[str, Any]:
    """The options that were given, with `none` as the service writes it: no text, or an empty list."""
    said = {key: value for key, value in (options | _hours(quiet)).items() if value not in (None, [])}
    return {key: None if value == NONE else [] if value == [NONE] else value for key, value in said.items()}


def _asked_address() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Address", hide_input=True, prompt_suffix=": ", err=True))
    address = sys.stdin.readline().strip()
    if not address:
        raise Refusal("the standard input is empty; accepted: an address on its first line, or a terminal to ask in")
    return address


@app.command()
def remove(project: Project, rule: Rule, url: Url = None, token: Token = None) -> None:
    """Remove a rule, and what it has not told yet."""
    from tidemark.connected import notifying, remote

    notifying.remove(remote.service(url, token), project, rule)
    say(f"rule {rule} is removed")


@app.command()
def test(project: Project, rule: Rule, url: Url = None, token: Token = None) -> None:
    """Have a test message sent, and say what came of it."""
    from tidemark.connected import notifying, remote

    service = remote.service(url, token)
    number = notifying.test(service, project, rule)
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        message = notifying.message(service, project, number)
        if message["state"] == "sent":
            say("sent")
            return
        if message["state"] not in ("waiting", "sending"):
            raise Refusal(f"not sent: {message['error']}")
        time.sleep(0.5)
    raise Refusal("not sent yet; is housekeeping (tidemark beat) running?")
