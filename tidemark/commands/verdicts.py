"""Commands about verdicts: what regressed, and why a point is red or not."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, TextIO

import typer

from tidemark.commands.options import Json, Token, Url, commands
from tidemark.refusal import Refusal

app = commands()


HISTORY = '{"series_id": "a", "direction": "lower", "values": [10.1, 10.0, 10.2]}'


@app.command()
def detect(
    file: Annotated[
        Path | None, typer.Argument(help="JSON lines; without it, or as '-', those of the standard input.")
    ] = None,
) -> None:
    """Judge histories of any benchmark, without a server: JSON lines in, JSON lines out.

    Input: one history per line, oldest commit first: {"series_id": "a", "direction": "lower", "values": [10.1, 10.0]}.
    A value is a number above 0, or the list of a commit's samples. Direction: lower or higher is better
    (lower_is_better and higher_is_better are the same).

    Output: one line for each, with the regressions found: index (of the first slow commit, counted from 0),
    detected_at (of the commit that made it certain), magnitude_pct (how much slower, against the level just before;
    where higher is better, half of it is 100 % slower), kind (step or drift), and ended (the first commit that was as
    before; null while it lasts). Then the verdict on the last commit, and why:
    regression (slow since one of these), suspect (looks slower, not certain yet), unsteady (too much noise to see a
    change that counts; sees_pct is what would be seen within 8 commits), insufficient (too few commits),
    improvement (certain at this commit), or unchanged.

    A line that cannot be judged is answered with its error, and the exit status is 1.

    Example: echo '{"direction": "lower", "values": [10, 10.1, 9.9, 10, 10.1, 10, 10, 13, 13.1, 13, 12.9, 13]}' |
    tidemark detect
    """
    from backend.regression.series.detect import answers

    lines, refused = 0, 0
    with _opened(file) as source:
        for answer in answers(source):
            lines += 1
            if "error" in answer:
                refused += 1
                print(f"tidemark: line {answer['line']} is not judged: {answer['error']}", file=sys.stderr)
            print(json.dumps(answer), flush=True)
    if not lines:
        print(f"tidemark: there was no line to judge. One looks like this: {HISTORY}", file=sys.stderr)
    raise typer.Exit(1 if refused else 0)


def _opened(file: Path | None) -> AbstractContextManager[Iterable[str]]:
    """The lines of a file, or of the standard input."""
    if file is None or str(file) == "-":
        if sys.stdin is None:
            raise Refusal("there is no standard input: give a file")
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace")  # type: ignore[union-attr]
        if sys.stdin.isatty():
            print(
                f"Reading histories from the terminal, one a line, such as {HISTORY}; end with Ctrl-D.", file=sys.stderr
            )
        return nullcontext(sys.stdin)
    try:
        return file.open(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise Refusal(f"cannot read {file}: {error.strerror}") from None


@app.command()
def judge(
    stream: Annotated[bool, typer.Option("--stream", help="Runs on stdin, incidents on stdout.")] = False,
) -> None:
    """Judge all series of a suite jointly: every change with its cause, every cause once."""
    from backend.regression.joint.stream import main

    if not stream:
        raise typer.BadParameter("judge reads runs as JSON lines: give --stream", param_hint="--stream")
    read = _Counted(sys.stdin)
    try:
        raise typer.Exit(main(read, sys.stdout))  # type: ignore[arg-type]
    except KeyError as error:
        raise Refusal(f"line {read.number} has no {error}") from None
    except (ArithmeticError, TypeError, ValueError) as error:
        raise Refusal(f"line {read.number} cannot be judged: {error}") from None


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
