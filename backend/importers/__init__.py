"""Foreign result formats -> `tidemark.run/1`. `read_file` is the one door; `FORMATS` is what it knows."""

import json
from collections.abc import Sequence

from backend.contract import Invalid, Run, parse_run, to_json
from backend.importers.assemble import CONTENT_ID, NOT_BELIEVED, assemble, content_id
from backend.importers.file import ResultFile, Unreadable
from backend.importers.formats import FORMATS, RUN_FORMAT, SUFFIXES, format_of, known
from backend.importers.model import Context, Format, Imported, Problem, SkipReason, reasons

__all__ = [
    "CONTENT_ID",
    "FORMATS",
    "RUN_FORMAT",
    "SUFFIXES",
    "Context",
    "Format",
    "Imported",
    "Problem",
    "SkipReason",
    "Unreadable",
    "delivered_bytes",
    "read_file",
    "reasons",
]


def read_file(name: str, data: bytes, context: Context, format_name: str | None = None) -> Imported:
    """The runs in a file, the records that could not be used, and what was assumed.

    Raises `Unreadable` if the file as a whole is not in the format, or the format is unknown or cannot be recognized.
    """
    file = ResultFile(name, data)
    chosen = format_name or format_of(file)
    if chosen == RUN_FORMAT:
        return _read_runs(file, context)
    if chosen not in FORMATS:
        raise Unreadable(f"unknown format {chosen!r}; known: {known()}")
    return assemble(FORMATS[chosen], FORMATS[chosen].read(file, context), context)


def _read_runs(file: ResultFile, context: Context) -> Imported:
    """Runs of our own: one, or one a line."""
    runs: list[Run] = []
    problems: list[Problem] = []
    for where, document in [(file.name, file.data)] if file.first and _is_one(file) else file.rows:
        try:
            if isinstance(document, Unreadable):
                raise document
            runs.append(_as_stated(parse_run(document), context) if context.stated_wins else parse_run(document))
        except (Invalid, Unreadable) as error:
            problems.append(Problem(where, str(error)))
    if not runs:
        raise Unreadable(str(problems[0]) if problems else f"{file.name}: no run in it")
    records = {run.id: tuple(max(1, len(result.measurements)) for result in run.results) for run in runs}
    return Imported(
        RUN_FORMAT, tuple(runs), tuple(problems), _notes(runs, context), records, rewritten=context.stated_wins
    )


def _notes(runs: Sequence[Run], context: Context) -> tuple[str, ...]:
    """Where the file and what was stated beside it differ, and which of them counts."""
    if context.stated_wins:
        return ("project, commit, branch and pull request are those that were stated, not the file's",)
    others = ", ".join(sorted({run.project for run in runs} - {context.project}))
    return (f"runs belong to the project that they state ({others}), not to {context.project}",) if others else ()


def _is_one(file: ResultFile) -> bool:
    rows: Sequence[object] = file.rows
    return len(rows) == 1


def _as_stated(run: Run, context: Context) -> Run:
    """A stranger's run, with nothing believed of where it belongs; its id follows from its content."""
    if not context.commit:
        raise Unreadable(NOT_BELIEVED)
    document = {
        **to_json(run),
        "project": context.project,
        "commit": context.commit.lower(),
        "parents": [],
        "branch": context.branch,
        "pull_request": context.pull_request,
        "session": None,
        "testbed": context.testbed or run.testbed,
    }
    content = json.dumps({**document, "id": None}, sort_keys=True).encode()
    return parse_run(json.dumps({**document, "id": content_id(content)}).encode())


def delivered_bytes(imported: Imported, run: Run, data: bytes) -> bytes:
    """The run as it is delivered: the same bytes for the same content, so that importing twice stores nothing twice.

    A file that is a run already is delivered as it is, so that importing it and submitting it are the same thing;
    unless it is compressed, or begins with the mark of its encoding.
    """
    is_one = imported.format == RUN_FORMAT and len(imported.runs) == 1 and data.lstrip().startswith(b"{")
    if is_one and not imported.rewritten and not imported.problems:
        return data
    return json.dumps(to_json(run), ensure_ascii=False, separators=(",", ":")).encode()
