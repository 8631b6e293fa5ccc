"""The command line, put together. The commands themselves are in `tidemark/commands/`."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated

import typer

from tidemark import __version__
from tidemark.commands import administration, github, measuring, notify, people, policy, results, running, verdicts
from tidemark.commands.options import DataDir
from tidemark.refusal import Refusal, printable

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
for group in (
    running.app,
    results.app,
    verdicts.app,
    measuring.app,
    measuring.backfill_app,
    github.app,
    github.github_app,
    administration.project_app,
    policy.app,
    notify.app,
    administration.token_app,
    people.member_app,
    people.app,
    administration.db_app,
):
    app.add_typer(group)


def run() -> None:
    """The entry point: a refusal is one line on stderr and an exit status other than 0."""
    try:
        app(prog_name="tidemark")
    except Refusal as refusal:
        print(f"tidemark: {printable(str(refusal))}", file=sys.stderr)
        raise SystemExit(refusal.exit_status) from None
    except BrokenPipeError:  # the reader of our output has seen enough
        _write_no_more()
        raise SystemExit(141) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _write_no_more()
        print(f"tidemark: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from None


def _write_no_more() -> None:
    """What is still to be written would fail once more when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.callback(invoke_without_command=True)
def tidemark(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
    data_dir: DataDir = None,
) -> None:
    if version:
        print(f"tidemark {__version__}")
        raise typer.Exit
    if data_dir is not None:
        os.environ["TIDEMARK_DATA_DIR"] = str(data_dir)
