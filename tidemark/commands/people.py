"""Commands about people: members and their roles, the audit trail."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from tidemark.commands.options import Json, Token, Url, commands, say

member_app = commands("member", "Members: who has which role, in a project or in every one.")
app = commands()

Project = Annotated[str | None, typer.Option("--project", help="The project (default: every project).")]
Login = Annotated[str, typer.Argument(metavar="LOGIN", help="A GitHub login, or an address at the OpenID provider.")]


class RoleName(StrEnum):
    viewer = "viewer"
    submitter = "submitter"
    triager = "triager"
    admin = "admin"


class AuditFormat(StrEnum):
    text = "text"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"


@member_app.command("list")
def member_list(project: Project = None, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List who has which role."""
    from tidemark.connected import people, remote

    answer = people.members(remote.service(url, token), project)
    print(json.dumps(answer["items"])) if as_json else say(people.describe_members(answer))


@member_app.command("add")
def member_add(
    login: Login,
    role: Annotated[RoleName, typer.Option(help="Their role.")],
    project: Project = None,
    provider: Annotated[
        str | None, typer.Option(help="openid, github or local, if the login alone is ambiguous.")
    ] = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Give a person a role, or change it. Someone who has not signed in yet gets it when they do.

    A viewer reads; a submitter also delivers results and requests measurements; a triager also decides about
    regressions; an admin also changes policy, members and tokens and approves forks. An admin of every project
    administers the service.
    """
    from tidemark.connected import people, remote

    people.set_role(remote.service(url, token), project, login, role.value, provider)
    say(f"{login} is {role.value} of {project or 'every project'}")


@member_app.command("remove")
def member_remove(login: Login, project: Project = None, url: Url = None, token: Token = None) -> None:
    """Take a person's role back."""
    from tidemark.connected import people, remote

    people.remove_role(remote.service(url, token), project, login)
    say(f"{login} has no role in {project or 'every project'} any more")


@app.command()
def audit(
    project: Annotated[str | None, typer.Option(help="Only this project.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only people whose name contains this.")] = None,
    action: Annotated[str | None, typer.Option(help="Only actions that begin with this, e.g. token.")] = None,
    since: Annotated[str | None, typer.Option(help="Only from this time on (RFC 3339).")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many (csv and jsonl hold all).")] = 50,
    format: Annotated[AuditFormat, typer.Option(help="text, json, jsonl or csv.")] = AuditFormat.text,
    url: Url = None,
    token: Token = None,
) -> None:
    """Print who triaged, changed a policy, created a token, approved a fork or changed members, newest first."""
    from tidemark.connected import people, remote

    service = remote.service(url, token)
    wanted = {"project": project, "actor": actor, "action": action, "since": since}
    if format in (AuditFormat.csv, AuditFormat.jsonl):
        print(people.exported_audit(service, format.value, **wanted), end="")
        return
    items = people.audit(service, limit=limit, **wanted)
    print(json.dumps(items)) if format is AuditFormat.json else say(people.describe_audit(items))
