"""Commands about notifications: who is notified of what."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any

import typer

from tidemark.commands.options import Json, Token, Url, commands, say
from tidemark.refusal import Refusal

app = commands("notify", "Notifications: who is notified of what, and where.")

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="The project, e.g. northsea/loom.")]
Rule = Annotated[int, typer.Argument(metavar="RULE", help="The rule's number, as listed.")]
Name = Annotated[str, typer.Option(help="Name of the rule.")]
Suites = Annotated[list[str] | None, typer.Option("--suite", help="Only these suites (patterns); repeatable.")]
Causes = Annotated[
    list[str] | None, typer.Option("--cause", help="Causes: code (default), hardware, environment, method; repeatable.")
]
States = Annotated[
    list[str] | None, typer.Option("--state", help="Events to notify of: confirmed, infra_alarm, fixed, …")
]
Owners = Annotated[list[str] | None, typer.Option("--owner", help="Only what this owner owns, e.g. @northsea/moe.")]
MinChange = Annotated[float | None, typer.Option(help="Only changes at least this large, as a fraction of cost.")]
Digest = Annotated[str | None, typer.Option(help="daily or weekly, instead of single messages.")]
Quiet = Annotated[str | None, typer.Option(metavar="FROM-UNTIL", help="Quiet hours, e.g. 22:00-07:00.")]
TimeZone = Annotated[str | None, typer.Option(help="Time zone of quiet hours and digests, e.g. Europe/Berlin.")]

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
    """Create a rule. Its Apprise address is read from the first line of standard input, as it holds secrets."""
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
    name: Annotated[str | None, typer.Option(help="The new name.")] = None,
    suite: Suites = None,
    cause: Causes = None,
    state: States = None,
    owner: Owners = None,
    min_change: MinChange = None,
    digest: Digest = None,
    quiet: Quiet = None,
    time_zone: TimeZone = None,
    address: Annotated[bool, typer.Option("--address", help="Read a new address from standard input.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Change the given parts of a rule. The word none removes suites, owners, digest or quiet hours."""
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
    """Remove a rule, and its messages that were not sent yet."""
    from tidemark.connected import notifying, remote

    notifying.remove(remote.service(url, token), project, rule)
    say(f"rule {rule} is removed")


@app.command()
def test(project: Project, rule: Rule, url: Url = None, token: Token = None) -> None:
    """Send a test message, and print the outcome."""
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
