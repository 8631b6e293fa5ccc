"""Commands about GitHub: how a project is connected, what pull requests wait for, reports for other projects."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tidemark.commands.options import Json, Token, Url, commands
from tidemark.refusal import Refusal

app = commands()
github_app = commands("github", "GitHub: how a project is connected, and its pull requests.")

Project = Annotated[str, typer.Argument(metavar="NAME", help="The project, e.g. northsea/loom.")]


@github_app.command("settings")
def settings(
    project: Project,
    issues: Annotated[
        bool | None, typer.Option("--issues/--no-issues", help="Open an issue for each confirmed regression.")
    ] = None,
    approval_label: Annotated[str | None, typer.Option(help="The label that approves a fork's commit.")] = None,
    webhook_secret: Annotated[
        str | None, typer.Option(help="A webhook secret for this project, instead of the service's.")
    ] = None,
    ref: Annotated[
        list[str] | None, typer.Option(help="A ref whose workflows may deliver; * is a wildcard; repeatable.")
    ] = None,
    environment: Annotated[list[str] | None, typer.Option(help="An environment they must run in; repeatable.")] = None,
    repository: Annotated[str | None, typer.Option(help="Another repository that measures for this project.")] = None,
    repository_id: Annotated[str | None, typer.Option(help="GitHub's id of that repository.")] = None,
    any_workflow: Annotated[
        bool, typer.Option("--any-workflow", help="Remove these rules: any ref of its own repository may deliver.")
    ] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Show how a project is connected, or change it.

    Rules for workflows (--ref, --environment, --repository, --repository-id) replace the existing ones.
    """
    from tidemark.connected import remote

    service = remote.service(url, token)
    rules = {"refs": ref, "environments": environment, "repository": repository, "repository_id": repository_id}
    stated = {name: value for name, value in rules.items() if value}
    if stated and any_workflow:
        raise Refusal("--any-workflow takes the rules back; give either it or rules")
    change: dict[str, Any] = {"oidc": stated or None} if stated or any_workflow else {}
    told = {"issues": issues, "approval_label": approval_label, "webhook_secret": webhook_secret}
    if chosen := {name: value for name, value in told.items() if value is not None}:
        change["github"] = chosen
    if change:
        service.change_project(project, change)
    found = service.project(project)
    print(json.dumps(found) if as_json else remote.describe_project(found))


@github_app.command("pull-requests")
def pull_requests(
    project: Project,
    all_of_them: Annotated[bool, typer.Option("--all", help="Include closed and merged ones.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List pull requests, and say which wait for an approval."""
    from tidemark.connected import remote

    found = remote.service(url, token).pull_requests(project, None if all_of_them else "open")
    print(json.dumps(found) if as_json else remote.describe_pull_requests(found))


@github_app.command("approve")
def approve(
    project: Project,
    number: Annotated[int, typer.Argument(help="The pull request's number.")],
    commit: Annotated[str, typer.Argument(help="The full id of the commit you reviewed.")],
    url: Url = None,
    token: Token = None,
) -> None:
    """Approve exactly this commit of a fork to run on the workers."""
    from tidemark.connected import remote

    remote.service(url, token).approve(project, number, commit)
    print(f"#{number} is measured at {commit[:12]}; another push needs another approval")


@app.command("upstream-report")
def upstream_report(
    regression: Annotated[int, typer.Argument(help="The regression's number.")], url: Url = None, token: Token = None
) -> None:
    """Draft a report for the project that got slower.

    For a regression caused by the environment: a newer torch, driver or library rather than one of your own commits.
    """
    from tidemark.connected import remote

    print(remote.service(url, token).text(f"/api/v1/regressions/{regression}/upstream-report"), end="")
