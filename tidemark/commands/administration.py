"""Commands of the administrator: projects, tokens, the database."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemark.commands.options import DataDir, Json, Token, Url, commands, say
from tidemark.refusal import Refusal

project_app = commands("project", "Projects: what is watched.")
token_app = commands("token", "Tokens: who may use the API.")
db_app = commands("db", "The database: migrate, back up, restore.")


def _asked(ask: Callable[[], Any]) -> Any:
    """The answer of a person. Refuses where none is there to give it."""
    nobody = Refusal("nobody is here to confirm this; --yes goes on without asking")
    if sys.stdin is None:
        raise nobody
    try:
        return ask()
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        typer.echo(err=True)  # ends the line of the question
        raise nobody from None


@project_app.command("add")
def project_add(
    project: Annotated[str, typer.Argument(metavar="NAME", help="Name of the project, e.g. northsea/loom.")],
    repository: Annotated[
        str, typer.Argument(metavar="REPOSITORY", help="https://, ssh://, user@host:path, or a directory here.")
    ],
    branch: Annotated[str | None, typer.Option(help="The branch whose commits are measured (default: main).")] = None,
    trusted: Annotated[
        bool | None,
        typer.Option("--trusted/--not-trusted", help="Allow its commits on workers that cannot isolate them."),
    ] = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Watch a repository; its tidemark.toml says what is measured.

    --trusted is needed for a directory on this machine, and for any repository whose workers have no protection (the
    Workers page says which): the code of its commits then runs under the worker's own account. Adding a project again
    changes the options that are given.
    """
    from tidemark.connected import remote, watching

    service = remote.service(url, token)
    service.add_project(project, remote.address_of(repository), branch=branch, trusted=trusted)
    say("\n".join(watching.what_happens(service, project)))


@project_app.command("list")
def project_list(url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List the projects you may see, with their open regressions."""
    from tidemark.connected import remote

    found = remote.service(url, token).get("/api/v1/projects")["items"]
    print(json.dumps(found)) if as_json else say(remote.describe_projects(found))


@project_app.command("remove")
def project_remove(
    project: Annotated[str, typer.Argument(metavar="NAME", help="The project, e.g. northsea/loom.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the name as confirmation.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Remove a project and everything it has: results, tokens, members, mirror, artifacts.

    This cannot be undone. The audit trail keeps a record that it existed.
    """
    from tidemark.connected import people, remote

    service = remote.service(url, token)
    say(people.describe_contents(people.contents(service, project)))
    if (
        not yes
        and _asked(lambda: typer.prompt("This cannot be undone. Type its name to continue", err=True)) != project
    ):
        raise Refusal(f"that is not its name; {project} was not removed")
    people.remove_project(service, project)
    say(f"{project} is removed")


@project_app.command("private")
def project_private(
    project: Annotated[str, typer.Argument(metavar="NAME", help="The project, e.g. northsea/loom.")],
    off: Annotated[bool, typer.Option("--off", help="Make it visible to everyone who may read.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Make a project visible only to its members, its tokens and the workers."""
    from tidemark.connected import remote

    remote.service(url, token).change_project(project, {"private": not off})
    say(f"{project} is {'visible to everyone who may read' if off else 'private'}")


@token_app.command("create")
def token_create(
    name: Annotated[str, typer.Option(help="Name of the person or program that uses it.")],
    scope: Annotated[list[str], typer.Option(help="read, submit, write, worker, approve or admin; may be repeated.")],
    project: Annotated[str | None, typer.Option(help="Only for this project.")] = None,
    days: Annotated[
        int | None, typer.Option(min=1, help="Days until it expires (default: valid until revoked).")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Create a token and print it, this once."""
    from tidemark import administration
    from tidemark.settings import read_settings

    print(administration.create_token(read_settings(data_dir=data_dir), name, scope, project=project, days=days))


@token_app.command("list")
def token_list(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List tokens, without their secrets."""
    from tidemark import administration
    from tidemark.settings import read_settings

    rows: list[dict[str, Any]] = administration.list_tokens(read_settings(data_dir=data_dir))
    print(json.dumps(rows) if as_json else administration.describe_tokens(rows))


@token_app.command("revoke")
def token_revoke(
    number: Annotated[int, typer.Argument(help="The token's number, as listed.")], data_dir: DataDir = None
) -> None:
    """Revoke a token."""
    from tidemark import administration
    from tidemark.settings import read_settings

    administration.revoke_token(read_settings(data_dir=data_dir), number)
    print(f"token {number} is revoked")


@db_app.command("upgrade")
def db_upgrade(data_dir: DataDir = None) -> None:
    """Create the database, or bring its schema up to date."""
    from tidemark import database
    from tidemark.settings import read_settings

    with database.database_url(read_settings(data_dir=data_dir)) as url:
        database.make_ready(url, begins=say)
    print("the database is up to date")


@db_app.command("backup")
def db_backup(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    data_dir: DataDir = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write the whole database to one file.

    The service may keep running. Artifacts (logs, traces) are files in the data directory and are not included.
    """
    from tidemark import database
    from tidemark.settings import read_settings

    if file.exists() and not force:
        raise Refusal(f"{file} exists; name another file, or give --force to overwrite it")
    with database.database_url(read_settings(data_dir=data_dir)) as url:
        database.backup(url, file)
    print(f"{file}: {file.stat().st_size:,} bytes")


@db_app.command("restore")
def db_restore(
    file: Annotated[Path, typer.Argument(help="A file written by `db backup`.")],
    yes: Annotated[bool, typer.Option("--yes", help="Replace existing data without asking.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Restore a backup, replacing what the database holds, or into a new place.

    Stop the service first. A backup of an earlier version is brought up to date; one of a later version is refused.
    If there is no database yet, one is created.
    """
    from tidemark import database
    from tidemark.settings import read_settings

    if not file.exists():
        raise Refusal(f"{file} does not exist")
    database.check_backup(file)
    with database.database_url(read_settings(data_dir=data_dir), exclusive=True, make=True) as url:
        question = "This replaces everything in the database. Go on?"
        if not yes and not database.is_new(url) and not _asked(lambda: typer.confirm(question, err=True)):
            raise typer.Abort
        database.make_ready(url, begins=say)
        database.restore(url, file)
        database.make_ready(url, begins=say)
    print(f"restored from {file}")
