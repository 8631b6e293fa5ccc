"""Commands about verdicts: what regressed, and why a point is red or not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, TextIO

import typer

from tidemark.commands.options import Json, Token, Url, commands
from tidemark.refusal import Refusal

app = commands()


@app.command()
def detect() -> None:
    """Judge series: JSON lines in, JSON lines out.

    Input: one history per line, {"series_id": "a", "direction": "lower_is_better", "values": [10.1, 10.0]}; a value is
    a number, or the list of a commit's samples. Output: one line for each, with the regressions found: index,
    detected_at, magnitude_pct, and kind (step or drift).
    """
    from backend.regression.series.detect import main

    raise typer.Exit(_answered(main))


@app.command()
def judge(
    stream: Annotated[bool, typer.Option("--stream", help="Runs on stdin, incidents on stdout.")] = False,
) -> None:
    """Judge all series of a suite jointly: every change with its cause, every cause once."""
    from backend.regression.joint.stream import main

    if not stream:
        raise typer.BadParameter("judge reads runs as JSON lines: give --stream", param_hint="--stream")
    raise typer.Exit(_answered(main))


def _answered(main: Callable[[TextIO, TextIO], int]) -> int:
    """Every line answered; one that is not of the protocol ends it, with what is wrong."""
    read = _Counted(sys.stdin)
    try:
        return main(read, sys.stdout)  # type: ignore[arg-type]
    except KeyError as error:
        raise Refusal(f"line {read.number} has no {error}") from None
    except (ArithmeticError, TypeError, ValueError) as error:
        raise Refusal(f"line {read.number} is not of the protocol: {error}") from None


class _Counted:
    """Lines of a stream, and how many were read."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.number = stream, 0

    def __iter__(self) -> Iterator[str]:
        for line in self._stream:
            self.number += 1
            yield line


@app.command()
def regressions(
    project: Annotated[str | None, typer.Option(help="Only this project, e.g. demo/tinygpt.")] = None,
    state: Annotated[str | None, typer.Option(help="Only in this state, e.g. confirmed.")] = None,
    cause: Annotated[str | None, typer.Option(help="Only with this cause, e.g. code.")] = None,
    commits: Annotated[
        str | None,
        typer.Option(metavar="BASE..HEAD", help="Only those that began after BASE, up to HEAD; needs --project."),
    ] = None,
    suite: Annotated[str | None, typer.Option(help="Only this suite.")] = None,
    benchmark: Annotated[str | None, typer.Option(help="Only this benchmark, e.g. gpt.train.")] = None,
    metric: Annotated[str | None, typer.Option(help="Only this metric, e.g. step_ms.")] = None,
    testbed: Annotated[str | None, typer.Option(help="Only this testbed.")] = None,
    still_bad: Annotated[bool, typer.Option("--still-bad", help="Only those that are still slow.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most this many.")] = 50,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List regressions, newest first.

    To list what regressed between two commits and is still slow: --commits BASE..HEAD --still-bad.
    """
    from tidemark.connected import remote

    filters = {
        "project": project,
        "state": state,
        "cause": cause,
        "commits": commits,
        "suite": suite,
        "benchmark": benchmark,
        "metric": metric,
        "testbed": testbed,
        "still_bad": "true" if still_bad else None,
    }
    found = remote.service(url, token).regressions(limit, **filters)
    narrowed = any(filters.values())
    print(json.dumps(found) if as_json else remote.describe_regressions(found, narrowed=narrowed))


@app.command()
def explain(
    series: Annotated[
        int, typer.Argument(help="The series' number (it is in its page's address and in every verdict).")
    ],
    commit: Annotated[str, typer.Argument(help="The commit, at least 4 characters.")],
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Say why a point is red, or why it is not."""
    from tidemark.connected import remote

    answer = remote.service(url, token).explain(series, commit)
    print(json.dumps(answer) if as_json else remote.describe_explanation(answer))
