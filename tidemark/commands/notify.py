"""Commands about notifications: who is told of what."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from tidemark.commands.options import Json, Token, Url, commands, say
from tidemark.refusal import Refusal

app = commands("notify", "Notifications: who is told of what, and where.")

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="E.g. northsea/loom.")]
Rule = Annotated[int, typer.Argument(metavar="RULE", help="The rule's number, as listed.")]
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
    name: Annotated[str, typer.Option(help="What the rule is called.")],
    suite: Annotated[list[str] | None, typer.Option(help="Of these suites (patterns); may be repeated.")] = None,
    cause: Annotated[list[str] | None, typer.Option(help="code (default), hardware, environment, method.")] = None,
    state: Annotated[list[str] | None, typer.Option(help="Events told: confirmed, infra_alarm, fixed, …")] = None,
    owner: Annotated[list[str] | None, typer.Option(help="Only what they own, e.g. @northsea/moe.")] = None,
    min_change: Annotated[float | None, typer.Option(help="From this change on, as a fraction of cost.")] = None,
    digest: Annotated[str | None, typer.Option(help="daily or weekly, in place of single messages.")] = None,
    quiet: Annotated[str | None, typer.Option(metavar="FROM-UNTIL", help="Quiet hours, e.g. 22:00-07:00.")] = None,
    time_zone: Annotated[str | None, typer.Option(help="Of hours and digests, e.g. Europe/Berlin.")] = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Make a rule. The Apprise address is read from the first line of the standard input: it holds secrets."""
    from tidemark.connected import notifying, remote

    if quiet is not None and quiet.count("-") != 1:
        raise Refusal(f"--quiet {quiet!r}: FROM-UNTIL is accepted, e.g. 22:00-07:00")
    begins, _, ends = (quiet or "").partition("-")
    wanted: dict[str, Any] = {
        "suites": suite, "causes": cause, "states": state, "owners": owner, "min_change": min_change, "digest": digest,
        "quiet_from": begins or None, "quiet_until": ends or None, "time_zone": time_zone,
    }  # fmt: skip
    address = typer.prompt("Address", hide_input=True, prompt_suffix=": ", err=True)
    given = {key: value for key, value in wanted.items() if value not in (None, [])}
    made = notifying.add(remote.service(url, token), project, {"name": name, "address": address, **given})
    say(f"rule {made['id']}: {made['name']} to {made['address']}")


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
