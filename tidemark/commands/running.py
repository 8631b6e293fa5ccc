"""Commands that run the service, or parts of it, on this machine."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from tidemark.commands.options import DataDir, Json, commands, say, say_aside

app = commands()


@app.command()
def up(
    port: Annotated[
        int | None, typer.Option(help="Port of dashboard and API (default: TIDEMARK_PORT, else 8000).")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on (default: TIDEMARK_HOST, else 127.0.0.1).")
    ] = None,
    data_dir: DataDir = None,
    demo: Annotated[bool, typer.Option("--demo/--no-demo", help="Create the demo project at the first start.")] = True,
    browser: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open the board in a browser (default: if there is one).")
    ] = None,
) -> None:
    """Run everything on this machine, with one address to open.

    Database, broker, API, worker and dashboard: nothing else needs to be installed or running. Ctrl-C stops it; the
    results are kept, and the next start continues from there. With TIDEMARK_DATABASE_URL or TIDEMARK_REDIS_URL set,
    those servers are used instead of the embedded ones.
    """
    from tidemark import up as launcher
    from tidemark.settings import read_settings

    launcher.up(
        read_settings(port=port, host=host, data_dir=data_dir),
        demo=demo,
        open_browser=_has_display() if browser is None else browser,
        say=say,
    )


@app.command()
def demo(
    headless: Annotated[
        bool, typer.Option("--headless", help="Run without a browser, print a report, and exit.")
    ] = False,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Headless: keep the data here (default: a temporary directory).")
    ] = None,
    timeout_s: Annotated[int, typer.Option("--timeout-s", help="Headless: give up after this long.")] = 1200,
    as_json: Json = False,
) -> None:
    """Measure the demo's history and see its slow commits found.

    The demo is a small GPT with a layer of experts, attention in blocks and collectives, 25 commits long. Two commits
    make something slower without saying so; one of them is fixed. Without --headless this is `tidemark up`. Headless,
    it starts everything in a separate directory, actually runs every commit, and prints what was planted, found, missed
    and falsely reported. Exit status: 0 only if exactly what was planted was confirmed, and its fix was seen.
    """
    from tidemark.demo import headless as demonstration

    if not headless:
        up(port=None, host=None, data_dir=None, demo=True, browser=None)
        return
    found = demonstration.run(keep=keep, timeout_s=timeout_s, say=say_aside if as_json else say)
    print(json.dumps(found.as_dict()) if as_json else found.report())
    raise typer.Exit(0 if found.right else 1)


@app.command()
def serve(
    port: Annotated[int | None, typer.Option(help="Port to listen on (default: TIDEMARK_PORT, else 8000).")] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on (default: TIDEMARK_HOST, else 127.0.0.1).")
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="Processes that answer on this address: one for two CPU cores, or for each if results arrive all day.",
        ),
    ] = 1,
    listening_fd: Annotated[int | None, typer.Option("--listening-fd", hidden=True)] = None,
    after_fd: Annotated[int | None, typer.Option("--after-fd", hidden=True)] = None,
    connections_fd: Annotated[int | None, typer.Option("--connections-fd", hidden=True)] = None,
    place: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Run only the API and the pages. Needs TIDEMARK_DATABASE_URL and TIDEMARK_REDIS_URL."""
    from tidemark import app as root
    from tidemark.settings import read_settings

    settings = read_settings(port=port, host=host)
    root.serve(
        settings,
        listening_fd=listening_fd,
        after_fd=after_fd,
        processes=workers,
        connections_fd=connections_fd,
        place=place,
    )


@app.command()
def beat() -> None:
    """Run only the housekeeping loop.

    It reads repositories, assigns runs to workers and queues lost ones again. One is enough for a service. Needs
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
    drain_after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Take no new run after this long, e.g. 3h30m, and exit: for jobs of a scheduler."
        ),
    ] = None,
) -> None:
    """Run one worker of a testbed.

    It takes runs, measures them on this machine and delivers the results. Needs TIDEMARK_REDIS_URL, TIDEMARK_URL (the
    service) and TIDEMARK_TOKEN (a token of scope worker). SIGTERM hands the run in progress back; with --drain-after
    it is finished first, so let the scheduler's limit be longer by one run.
    """
    from tidemark import app as root
    from tidemark.settings import read_settings

    settings = read_settings(data_dir=data_dir)
    drain_after_s = None if drain_after is None else seconds_of(drain_after)
    config = root.worker_config(settings, testbed=testbed, name=name, drain_after_s=drain_after_s)
    raise typer.Exit(root.work(config, settings.log_format))


def seconds_of(span: str) -> float:
    """Seconds in a span such as 90s, 45m, 3h30m or a bare number of seconds."""
    found = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", span.strip())
    if found is None or not any(found.groups()):
        raise typer.BadParameter(f"{span!r} is not a time; accepted: 90s, 45m, 3h30m, 1d", param_hint="--drain-after")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


@app.command()
def doctor(data_dir: DataDir = None, as_json: Json = False) -> None:
    """Check what Tidemark needs, and say how to fix what is missing."""
    from tidemark.checkup import doctor as examination
    from tidemark.settings import read_settings

    findings = examination.examine(read_settings(data_dir=data_dir))
    if as_json:
        print(json.dumps([finding.as_dict() for finding in findings]))
    else:
        for finding in findings:
            print(finding.line())
    raise typer.Exit(0 if all(finding.good for finding in findings) else 1)


@app.command("sign-in")
def sign_in(
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The name to sign in under (default: this account's).")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Print a new one-time sign-in link for the dashboard. Whoever opens it is an administrator with that name."""
    from tidemark import administration
    from tidemark.settings import read_settings

    settings = read_settings(data_dir=data_dir)
    print(administration.sign_in_link(settings, name))
    if settings.database_url is None and not administration.runs_here(settings):
        say_aside("nothing runs on this data directory now: start it with `tidemark up`, then open the link")


def _has_display() -> bool:
    if not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
