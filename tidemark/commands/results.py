"""Commands about results: measure, deliver, take over, compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tidemark.commands.options import DataDir, Json, Token, Url, commands, say, say_aside
from tidemark.refusal import Refusal

app = commands()


@app.command("run")
def run_here(
    suite: Annotated[str, typer.Argument(help="A suite of the tidemark.toml in this directory.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write.")] = Path("run.json"),
    submit_it: Annotated[bool, typer.Option("--submit", help="Deliver the result and print its verdicts.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Measure a suite of the current checkout.

    Runs what tidemark.toml says, as a worker would, on this machine and with the files as they are. Needs a service
    only to deliver the result.
    """
    from tidemark import suite_run
    from tidemark.connected import remote

    status = suite_run.run_suite(suite, Path.cwd(), out)
    if submit_it and out.exists():
        say(remote.describe_verdicts(remote.service(url, token).submit(remote.read_run(out))))
    raise typer.Exit(status)


PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy", metavar="tidemark.toml", help="Compare two files using the [policy] of this tidemark.toml."
    ),
]


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="A run.json (tidemark.run/1); - reads standard input.")],
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Deliver a run and print its verdicts."""
    from tidemark.connected import remote

    answer = remote.service(url, token).submit(remote.read_run(file))
    print(json.dumps(answer)) if as_json else say(remote.describe_verdicts(answer))


Files = Annotated[
    list[Path], typer.Argument(metavar="FILE…", help="Result files, or directories of them; - is standard input.")
]
Project = Annotated[str, typer.Option(help="The project they belong to, e.g. owner/name.")]
Format = Annotated[str | None, typer.Option("--format", help="Their format (default: detected from the content).")]
Testbed = Annotated[str | None, typer.Option(help="The hardware class, for files that name none.")]
Suite = Annotated[str | None, typer.Option(help="The suite (default: the file's, else the format's name).")]
Commit = Annotated[str | None, typer.Option(help="The full commit id, for files that name none.")]
Branch = Annotated[str | None, typer.Option(help="The branch, for files that name none.")]
At = Annotated[str | None, typer.Option(help="When it was measured (RFC 3339), for files that do not say.")]
Directions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=WAY", help="lower or higher is better; NAME is a metric or benchmark, with * and ? as wildcards."
    ),
]
Columns = Annotated[
    list[str] | None, typer.Option(metavar="NAME=PART", help="CSV: the meaning of a column, e.g. step=value.")
]
Variant = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A parameter to add to every result, e.g. model=llama-8b."),
]


@app.command("import")
def import_files(
    files: Files,
    project: Project,
    format_name: Format = None,
    testbed: Testbed = None,
    suite: Suite = None,
    commit: Commit = None,
    branch: Branch = None,
    at: At = None,
    direction: Directions = None,
    column: Columns = None,
    variant: Variant = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be stored, and store nothing.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Import the results of other tools.

    The formats are described in docs/formats.md. Importing a file again stores nothing twice, so start an interrupted
    import again. Exit status: 1 if a file or a run was refused.
    """
    from dataclasses import asdict

    from backend.importers import Context
    from tidemark.connected import importing, remote

    context = Context(
        project=project,
        testbed=testbed,
        suite=suite,
        commit=commit,
        branch=branch,
        at=at,
        directions=importing.directions(direction or []),
        columns=importing.pairs("--column", column or []),
        variant=importing.pairs("--variant", variant or [], cut_first=True),
    )
    found = importing.read_files(importing.find_files(files), context, format_name, say_aside)
    service = remote.service_if_any(url, token) if dry_run else remote.service(url, token)
    if service is None:
        report = importing.preview(found)
    else:
        report = importing.deliver(found, service, say_aside, dry_run=dry_run)
    print(json.dumps(asdict(report)) if as_json else importing.describe(report, found, dry_run=dry_run))
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def gate(
    files: Annotated[list[Path], typer.Argument(help="One run.json for the service to judge, or base and head.")],
    policy: PolicyFile = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Fail a pipeline if something got slower.

    Exit status: 1 on a regression, 2 if nothing could be judged. With one file, the run is delivered and the service
    judges it against its history; while that is short, nothing is slower. With two, head is compared with base on this
    machine and nothing is sent.
    """
    try:
        worse = _got_worse(files, policy, url, token, as_json=as_json)
    except Refusal as refusal:
        refusal.exit_status = 2
        raise
    raise typer.Exit(1 if worse else 0)


def _got_worse(files: list[Path], policy: Path | None, url: str | None, token: str | None, *, as_json: bool) -> bool:
    from tidemark import local
    from tidemark.connected import remote

    if len(files) > 2:
        raise Refusal(f"gate takes one run, or base and head; {len(files)} files were given")
    if len(files) == 2:
        comparison = local.compare_files(files[0], files[1], policy)
        print(json.dumps(comparison.as_dict()) if as_json else comparison.report())
        return bool(comparison.slower)
    if policy is not None:
        raise Refusal("--policy belongs to two files; of one run the service judges by the policy of its project")
    answer = remote.service(url, token).submit(remote.read_run(files[0]))
    print(json.dumps(answer)) if as_json else say(remote.describe_verdicts(answer))
    if not answer.get("verdicts"):
        raise Refusal(
            f"{files[0]} passes no gate: it has no measurement that is judged (its status is {answer['status']})"
        )
    return remote.regressed(answer)


@app.command()
def compare(
    base: Annotated[Path, typer.Argument(metavar="A.json", help="The run to compare with.")],
    head: Annotated[Path, typer.Argument(metavar="B.json", help="The run that may be slower.")],
    policy: PolicyFile = None,
    as_json: Json = False,
) -> None:
    """Compare two runs, metric by metric. Needs no service."""
    from tidemark import local

    comparison = local.compare_files(base, head, policy)
    print(json.dumps(comparison.as_dict()) if as_json else comparison.report())


@app.command("export")
def export_dataset(
    project: Annotated[str, typer.Argument(help="A project, such as demo/tinygpt.")],
    parquet: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write the data set to.")],
    data_dir: DataDir = None,
) -> None:
    """Export everything a project measured as a data set of Parquet files, one folder per project and month.

    Each row is a measurement with its samples, its commit and its verdict. Several projects may share a folder.
    DuckDB reads it with read_parquet('DIR/*/*/*.parquet', hive_partitioning = true), pandas with read_parquet('DIR').
    Months that the service has archived are in its data directory, in the same format.
    """
    from tidemark import administration
    from tidemark.settings import read_settings

    rows, files = administration.export_dataset(read_settings(data_dir=data_dir), project, parquet)
    print(f"{parquet}: {rows:,} measurements in {files} {'file' if files == 1 else 'files'}")
