"""The commands. Each one reads its options, loads what it needs, and calls the module that does the work."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from tidemark import __version__
from tidemark.refusal import Refusal

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

app = typer.Typer(
    name="tidemark",
    help="Watches the speed of PyTorch workloads, commit by commit, and says which commit made them slower, and why.",
    epilog="Start with `tidemark up`: database, broker, API, worker, dashboard and a demo, all on this machine.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)
project_app = typer.Typer(help="Projects: what is watched.", no_args_is_help=True, rich_markup_mode=None)
token_app = typer.Typer(help="Tokens: who may use the API.", no_args_is_help=True, rich_markup_mode=None)
db_app = typer.Typer(help="The database: migrate, back up, restore.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(project_app, name="project")
app.add_typer(token_app, name="token")
app.add_typer(db_app, name="db")

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Where everything is kept (else TIDEMARK_DATA_DIR)."),
]
Url = Annotated[str | None, typer.Option("--url", help="The service (else TIDEMARK_URL, else the one running here).")]
Token = Annotated[
    str | None, typer.Option("--token", help="A bearer token (else TIDEMARK_TOKEN, else the data directory's).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script instead of text for a person.")]


def run() -> None:
    """The entry point: a refusal is one line on stderr and exit status 1."""
    try:
        app(prog_name="tidemark")
    except Refusal as refusal:
        print(f"tidemark: {refusal}", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None


@app.callback(invoke_without_command=True)
def tidemark(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"tidemark {__version__}")
        raise typer.Exit


# --- running it ------------------------------------------------------------------------------------------------------


@app.command()
def up(
    port: Annotated[int | None, typer.Option(help="Port of dashboard and API (else TIDEMARK_PORT, 8000).")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (else TIDEMARK_HOST, 127.0.0.1).")] = None,
    data_dir: DataDir = None,
    demo: Annotated[bool, typer.Option("--demo/--no-demo", help="Make the demo project at the first start.")] = True,
    browser: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open the board in a browser (default: where there is one).")
    ] = None,
) -> None:
    """Run everything on this machine, with one address to open.

    Database, broker, API, worker and dashboard: nothing needs to be installed or running. Ctrl-C stops it; what was
    measured is kept, and the next start goes on. With TIDEMARK_DATABASE_URL or TIDEMARK_REDIS_URL set, those servers
    are used instead of embedded ones.
    """
    from tidemark import up as launcher
    from tidemark.settings import read_settings

    launcher.up(
        read_settings(port=port, host=host, data_dir=data_dir),
        demo_commits=launcher.DEMO_COMMITS if demo else None,
        open_browser=_has_display() if browser is None else browser,
        say=_say,
    )


@app.command()
def demo(
    headless: Annotated[bool, typer.Option("--headless", help="Run without a browser, report, and end.")] = False,
    commits: Annotated[int | None, typer.Option(help="Headless: commits to measure, 12 to 20 (default 12).")] = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Headless: keep the data here (else a temporary directory).")
    ] = None,
    timeout_s: Annotated[int, typer.Option("--timeout-s", help="Headless: give up after this long.")] = 600,
    as_json: Json = False,
) -> None:
    """Measure the demo's history and see its slow commit found.

    The demo is a small GPT, 20 commits long, with one slow commit planted. Without --headless this is `tidemark up`.
    Headless, it starts everything in a directory of its own, really runs every commit, tells what was found, missed
    and false, and exits with 0 only when exactly the planted regression was confirmed and its fix was seen.
    """
    from tidemark.demo import headless as demonstration

    if not headless:
        up(port=None, host=None, data_dir=None, demo=True, browser=None)
        return
    found = demonstration.run(commits or 12, keep=keep, timeout_s=timeout_s, say=_say_aside if as_json else _say)
    print(json.dumps(found.as_dict()) if as_json else found.report())
    raise typer.Exit(0 if found.right else 1)


@app.command()
def serve(
    port: Annotated[int | None, typer.Option(help="Port to listen on (else TIDEMARK_PORT, 8000).")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (else TIDEMARK_HOST, 127.0.0.1).")] = None,
    listening_fd: Annotated[int | None, typer.Option("--listening-fd", hidden=True)] = None,
) -> None:
    """Run the API and the pages alone. Needs TIDEMARK_DATABASE_URL and TIDEMARK_REDIS_URL."""
    from tidemark import app as root
    from tidemark.settings import read_settings

    root.serve(read_settings(port=port, host=host), listening_fd=listening_fd)


@app.command()
def beat() -> None:
    """Run the housekeeping loop alone.

    It reads repositories, hands out runs and takes back lost ones. One is enough for a service. Needs
    TIDEMARK_DATABASE_URL and TIDEMARK_REDIS_URL.
    """
    from tidemark import app as root
    from tidemark.settings import read_settings

    root.beat(read_settings())


@app.command()
def worker(
    testbed: Annotated[str, typer.Option(help="The hardware class of this machine, e.g. cpu or h200-sxm.")] = "cpu",
    name: Annotated[str | None, typer.Option(help="Name of this worker (default: host name and testbed).")] = None,
    data_dir: DataDir = None,
) -> None:
    """Run one worker of a testbed.

    It takes runs, measures them on this machine and delivers the results. Needs TIDEMARK_REDIS_URL, TIDEMARK_URL (the
    service) and TIDEMARK_TOKEN (a token of scope worker).
    """
    from tidemark import app as root
    from tidemark.settings import read_settings

    settings = read_settings(data_dir=data_dir)
    raise typer.Exit(root.work(root.worker_config(settings, testbed=testbed, name=name)))


@app.command()
def doctor(data_dir: DataDir = None, as_json: Json = False) -> None:
    """Check what Tidemark needs and say how to mend it."""
    from tidemark import doctor as examination
    from tidemark.settings import read_settings

    findings = examination.examine(read_settings(data_dir=data_dir))
    if as_json:
        print(json.dumps([finding.as_dict() for finding in findings]))
    else:
        for finding in findings:
            print(finding.line())
    raise typer.Exit(0 if all(finding.good for finding in findings) else 1)


@app.command("sign-in")
def sign_in(data_dir: DataDir = None) -> None:
    """Print a new one-time sign-in link for the dashboard."""
    from tidemark import administration
    from tidemark.settings import read_settings

    print(administration.sign_in_link(read_settings(data_dir=data_dir)))


# --- results ---------------------------------------------------------------------------------------------------------


@app.command("run")
def run_here(
    suite: Annotated[str, typer.Argument(help="A suite of the tidemark.toml here.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the result goes.")] = Path("run.json"),
    submit_it: Annotated[bool, typer.Option("--submit", help="Deliver the result and print its verdicts.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Measure a suite of the checkout one stands in.

    Runs what tidemark.toml says, as a worker would, on this machine and on the files as they are. Needs no service,
    unless the result is to be delivered.
    """
    from tidemark import remote, suite_run

    status = suite_run.run_suite(suite, Path.cwd(), out)
    if submit_it and out.exists():
        print(remote.describe_verdicts(remote.service(url, token).submit(remote.read_run(out))))
    raise typer.Exit(status)


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="A run.json (tidemark.run/1); - reads standard input.")],
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Deliver a run and print its verdicts."""
    from tidemark import remote

    answer = remote.service(url, token).submit(remote.read_run(file))
    print(json.dumps(answer) if as_json else remote.describe_verdicts(answer))


@app.command("import")
def import_files(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Result files, or directories of them; - is standard input.")
    ],
    project: Annotated[str, typer.Option(help="The project they belong to, e.g. owner/name.")],
    format_name: Annotated[
        str | None, typer.Option("--format", help="Their format; told from the content when not named.")
    ] = None,
    testbed: Annotated[str | None, typer.Option(help="The hardware class, for files that name none.")] = None,
    suite: Annotated[str | None, typer.Option(help="The suite (default: the file's, else the format's name).")] = None,
    commit: Annotated[str | None, typer.Option(help="The full commit id, for files that name none.")] = None,
    branch: Annotated[str | None, typer.Option(help="The branch, for files that name none.")] = None,
    at: Annotated[str | None, typer.Option(help="When it was measured (RFC 3339), if the files do not say.")] = None,
    direction: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC=WAY", help="lower or higher is better; METRIC may hold * and ?."),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PART", help="CSV: what a column is, e.g. step=value.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be stored. Needs no service.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Take over the results of other tools.

    Twelve formats, described in docs/formats.md. Importing a file again stores nothing twice, so an import that was
    interrupted is started again. The exit status is 1 when a file or a run was refused.
    """
    from dataclasses import asdict

    from backend.importers import Context
    from tidemark import importing, remote

    context = Context(
        project=project,
        testbed=testbed,
        suite=suite,
        commit=commit,
        branch=branch,
        at=at,
        directions=importing.directions(direction or []),
        columns=importing.pairs("--column", column or []),
    )
    found = importing.read_files(importing.find_files(files), context, format_name, _say_aside)
    if dry_run:
        report = importing.preview(found)
    else:
        report = importing.deliver(found, remote.service(url, token), _say_aside)
    print(json.dumps(asdict(report)) if as_json else importing.describe(report, found, dry_run=dry_run))
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def gate(
    files: Annotated[list[Path], typer.Argument(help="One run.json to be judged by the service, or base and head.")],
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Fail a pipeline when something got slower.

    The exit status is 1 on a regression. With one file, the run is delivered and the service judges it against its
    history. With two, head is compared with base here and nothing is sent.
    """
    from tidemark import local, remote

    if len(files) > 2:
        raise Refusal(f"gate takes one run, or base and head; {len(files)} files were given")
    if len(files) == 2:
        comparison = local.compare_files(files[0], files[1])
        print(json.dumps(comparison.as_dict()) if as_json else comparison.report())
        raise typer.Exit(1 if comparison.slower else 0)
    answer = remote.service(url, token).submit(remote.read_run(files[0]))
    print(json.dumps(answer) if as_json else remote.describe_verdicts(answer))
    raise typer.Exit(1 if remote.regressed(answer) else 0)


@app.command()
def compare(
    base: Annotated[Path, typer.Argument(metavar="A.json", help="The run to compare with.")],
    head: Annotated[Path, typer.Argument(metavar="B.json", help="The run that may be slower.")],
    as_json: Json = False,
) -> None:
    """Compare two runs, metric by metric. Needs no service."""
    from tidemark import local

    comparison = local.compare_files(base, head)
    print(json.dumps(comparison.as_dict()) if as_json else comparison.report())


@app.command()
def detect() -> None:
    """Judge series: JSON lines in, JSON lines out."""
    from backend.regression.detect import main

    raise typer.Exit(main(sys.stdin, sys.stdout))


@app.command()
def regressions(
    project: Annotated[str | None, typer.Option(help="Only of this project, e.g. demo/tinygpt.")] = None,
    state: Annotated[str | None, typer.Option(help="Only in this state, e.g. confirmed.")] = None,
    cause: Annotated[str | None, typer.Option(help="Only of this cause, e.g. code.")] = None,
    still_bad: Annotated[bool, typer.Option("--still-bad", help="Only what is slow to this day.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 50,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List regressions, the newest first."""
    from tidemark import remote

    found = remote.service(url, token).regressions(
        limit, project=project, state=state, cause=cause, still_bad="true" if still_bad else None
    )
    print(json.dumps(found) if as_json else remote.describe_regressions(found))


@app.command()
def explain(
    series: Annotated[int, typer.Argument(help="The series' number (in its page's address and in every verdict).")],
    commit: Annotated[str, typer.Argument(help="The commit, at least 7 characters.")],
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Say why a point is red, or why it is not."""
    from tidemark import remote

    answer = remote.service(url, token).explain(series, commit)
    print(json.dumps(answer) if as_json else remote.describe_explanation(answer))


# --- administration --------------------------------------------------------------------------------------------------


@project_app.command("add")
def project_add(
    project: Annotated[str, typer.Argument(metavar="NAME", help="What it is called, e.g. northsea/loom.")],
    repository: Annotated[
        str, typer.Argument(metavar="REPOSITORY", help="https://, ssh://, user@host:path, or a directory here.")
    ],
    branch: Annotated[str, typer.Option(help="The branch whose commits are measured.")] = "main",
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Its commits may run on workers that cannot isolate them.")
    ] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Watch a repository: its tidemark.toml says what is measured.

    A directory of this machine, and any repository on a worker without protection (the fleet page says which), needs
    --trusted: the code of its commits then runs as the worker's own account. Adding a project again changes it.
    """
    from tidemark import remote

    service = remote.service(url, token)
    service.add_project(project, remote.address_of(repository), branch=branch, trusted=trusted)
    print(f"{project} is watched: {service.url}/board?project={quote(project, safe='/')}")


@token_app.command("create")
def token_create(
    name: Annotated[str, typer.Option(help="Who uses it.")],
    scope: Annotated[list[str], typer.Option(help="read, write, worker or admin; may be given several times.")],
    project: Annotated[str | None, typer.Option(help="Only for this project.")] = None,
    days: Annotated[int | None, typer.Option(min=1, help="Valid for so many days (else until revoked).")] = None,
    data_dir: DataDir = None,
) -> None:
    """Make a token and print it, this once."""
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
    """Make a token useless from now on."""
    from tidemark import administration
    from tidemark.settings import read_settings

    administration.revoke_token(read_settings(data_dir=data_dir), number)
    print(f"token {number} is revoked")


@db_app.command("upgrade")
def db_upgrade(data_dir: DataDir = None) -> None:
    """Make the database or bring its schema up to date."""
    from tidemark import database
    from tidemark.settings import read_settings

    with database.database_url(read_settings(data_dir=data_dir)) as url:
        database.make_ready(url)
    print("the database is up to date")


@db_app.command("backup")
def db_backup(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    data_dir: DataDir = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
) -> None:
    """Write the whole database to one file.

    The service may run meanwhile. Artifacts (logs, traces) are files in the data directory and not part of it.
    """
    from tidemark import database
    from tidemark.settings import read_settings

    if file.exists() and not force:
        raise Refusal(f"{file} exists; name another file, or give --force to write over it")
    with database.database_url(read_settings(data_dir=data_dir)) as url:
        database.backup(url, file)
    print(f"{file}: {file.stat().st_size:,} bytes")


@db_app.command("restore")
def db_restore(
    file: Annotated[Path, typer.Argument(help="A file that `db backup` wrote.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Put a backup in the place of what the database holds.

    The service must be stopped.
    """
    from tidemark import database
    from tidemark.settings import read_settings

    if not file.exists():
        raise Refusal(f"{file} does not exist")
    if not yes:
        typer.confirm("This replaces everything in the database. Go on?", abort=True)
    with database.database_url(read_settings(data_dir=data_dir), exclusive=True) as url:
        database.make_ready(url)
        database.restore(url, file)
        database.make_ready(url)
    print(f"restored from {file}")


def _say(line: str) -> None:
    print(line, flush=True)


def _say_aside(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _has_display() -> bool:
    if not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
