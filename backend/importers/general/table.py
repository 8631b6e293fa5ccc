"""CSV: one measurement a row, or (`csv-wide`) one configuration a row and one metric a column."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from backend.contract import Direction, Role
from backend.importers.direction import direction_of_name, direction_of_unit
from backend.importers.file import ResultFile, Unreadable
from backend.importers.model import Context, Draft, Format, Reading
from backend.importers.values import moment_of, number, sha_of

# What a column can be; a column named like this needs no mapping. `variant.NAME` makes NAME a parameter of the variant.
PARTS = ("benchmark", "metric", "value", "unit", "direction", "role", "commit", "branch", "at", "suite", "testbed",
         "worker")  # fmt: skip
# Of a wide table, `metric` makes a column a metric of its name, `metric.NAME` of another; rows that a `sample` column
# numbers, as the steps of a training, are samples of one result.
WIDE_PARTS = ("benchmark", "metric", "sample", "commit", "branch", "at", "suite", "testbed", "worker")
STEPS = frozenset({"step", "_step", "global_step", "train/global_step", "trainer/global_step"})
BOUNDS = ("__MIN", "__MAX")  # what W&B puts beside each column of a chart
MOST_ROWS = 1_000_000
MOST_CELL = 1_000_000
# A unit behind a column's name: `latency (ms)`, `TFLOPS [TF/s]`; otherwise its last words may be one.
UNIT = re.compile(r"^(?P<name>.*?)\s*[(\[](?P<unit>[^)\]]+)[)\]]\s*$")
_Row = tuple[str, dict[str, str]]
"""The place of a row, and its cells by column."""
ENDINGS = {"_ms": "ms", "_us": "us", "_ns": "ns", "_s": "s", "_gb": "GB", "_mb": "MB", "_bytes": "B", "_per_s": "1/s"}


def detect_long(file: ResultFile) -> bool:
    return _looks_like_csv(file) and not {"metric", "value"}.isdisjoint(_header_line(file))


def detect_wide(file: ResultFile) -> bool:
    return _looks_like_csv(file)


def _looks_like_csv(file: ResultFile) -> bool:
    head = file.data[:100_000]
    text = not file.is_json and b"\x00" not in head
    return text and (file.path.suffix.lower() == ".csv" or b"," in head.split(b"\n")[0])


def _header_line(file: ResultFile) -> list[str]:
    return [cell.strip() for cell in file.data[:100_000].split(b"\n")[0].decode("utf-8", "replace").split(",")]


def read_long(file: ResultFile, context: Context) -> Draft:
    """One measurement a row. Columns named as `PARTS` are understood; others by `--column NAME=PART`."""
    header, rows = _rows(file)
    parts = {column: context.columns.get(column, column) for column in header}
    missing = {"benchmark", "metric", "value"} - set(parts.values())
    if missing:
        raise Unreadable(
            f"{file.name}: no column for {', '.join(sorted(missing))}; found {_named(header)}. Say which column is "
            f"what with --column NAME=PART (parts: {', '.join(PARTS)}, variant.NAME); of a table with one metric a "
            "column say --format csv-wide"
        )
    _check_parts(file, context, PARTS)
    draft = Draft()
    for where, row in rows(draft):
        _read_row(draft, where, {parts[column]: value for column, value in row.items() if column in parts})
    _say_left_out(draft, [column for column, part in parts.items() if not _is_part(part, PARTS)])
    return draft


def read_wide(file: ResultFile, context: Context) -> Draft:
    """One configuration a row, one metric a column: Triton's `perf_report`, sweeps of vLLM and dstack, exports of W&B.

    Columns of numbers whose name or unit says which way is better are metrics, as are those that `--column NAME=metric`
    names; what is left are parameters of the variant.
    """
    header, rows = _rows(file)
    _check_parts(file, context, WIDE_PARTS)
    draft = Draft()
    table = list(rows(draft))
    if _is_chart(header):
        header, table = _by_run(table, draft)
    parts = _wide_parts(header, table, context)
    metrics = [column for column, part in parts.items() if part == "metric" or part.startswith("metric.")]
    if not metrics:
        raise Unreadable(
            f"{file.name}: no column is known to be a metric; found {_named(header)}. Say which are with "
            "--column NAME=metric"
        )
    taken = ", ".join(metrics)
    draft.note(f"metrics: {taken}; others distinguish rows (--column NAME=metric, NAME=variant.NAME change it)")
    name = file.path.stem or "table"
    sampled = "sample" in parts.values()
    found: dict[str, Reading] = {}
    for where, row in table:
        for reading in _read_wide_row(draft, where, row, parts, name):
            key = json.dumps([reading.benchmark, dict(reading.variant), reading.metric, reading.commit], sort_keys=True)
            if not sampled:
                draft.readings.append(reading)
            elif key in found:
                found[key] = replace(found[key], samples=(*found[key].samples, *reading.values))
            else:
                found[key] = replace(reading, values=(), samples=reading.values)
    draft.readings += found.values()
    return draft


def _rows(file: ResultFile) -> tuple[list[str], Any]:
    """The header, and what yields the rows with their places into a draft; a row that is no CSV ends the file."""
    try:
        text = file.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{file.name}: not UTF-8 at byte {error.start}") from None
    if "\x00" in text:
        raise Unreadable(f"{file.name}: not CSV: it has a NUL at character {text.index(chr(0))}")
    csv.field_size_limit(MOST_CELL)
    lines = (line for line in io.StringIO(text, newline="") if not line.startswith("# "))
    reader = csv.DictReader(lines, restkey="")
    try:
        header = [column for column in reader.fieldnames or [] if column is not None]
    except csv.Error as error:
        raise Unreadable(f"{file.name}:1: not CSV: {error}") from None

    def rows(draft: Draft) -> Iterator[tuple[str, dict[str, str]]]:
        try:
            for row in reader:
                where = f"{file.name}:{reader.line_num}"
                if reader.line_num > MOST_ROWS:
                    draft.refuse(where, f"more than {MOST_ROWS} lines; split the file")
                    return
                yield where, {column: (row[column] or "").strip() for column in header if isinstance(row[column], str)}
        except csv.Error as error:
            draft.refuse(f"{file.name}:{reader.line_num}", f"no CSV from here on: {error}")

    return header, rows


def _named(header: list[str]) -> str:
    shown = ", ".join(repr(column[:60]) for column in header[:30])
    return shown or "none"


def _check_parts(file: ResultFile, context: Context, known: tuple[str, ...]) -> None:
    unknown = sorted(part for part in context.columns.values() if not _is_part(part, known))
    if unknown:
        raise Unreadable(f"{file.name}: unknown part {unknown[0]!r}; accepted: {', '.join(known)}, variant.NAME")


def _is_part(part: str, known: tuple[str, ...]) -> bool:
    return part in known or part.startswith("variant.") or (known is WIDE_PARTS and part.startswith("metric."))


def _say_left_out(draft: Draft, columns: list[str]) -> None:
    if columns:
        left = _named(sorted(columns))
        draft.note(f"columns left out: {left} (a parameter of the variant is taken with "
                   f"--column NAME=variant.NAME)")  # fmt: skip


def _read_row(draft: Draft, where: str, cells: Mapping[str, str]) -> None:
    value = number(cells.get("value"))
    if value is None:
        draft.refuse(where, f"value {cells.get('value')!r} is no finite number")
        return
    benchmark, metric = cells.get("benchmark", ""), cells.get("metric", "")
    if not benchmark or not metric:
        draft.refuse(where, "benchmark and metric must not be empty")
        return
    direction, role = cells.get("direction") or None, cells.get("role") or "gate"
    if direction not in {None, "lower", "higher"} or role not in {str(known) for known in Role}:
        draft.refuse(where, f"direction {direction!r}, role {role!r}; accepted: lower, higher and {', '.join(Role)}")
        return
    placed = _placed(draft, where, cells)
    if placed is not None:
        draft.readings.append(
            Reading(
                benchmark=benchmark,
                metric=metric,
                unit=cells.get("unit", ""),
                direction=Direction(direction) if direction else None,
                role=Role(role),
                values=(value,),
                variant=_variant(cells),
                **placed,
            )
        )


def _placed(draft: Draft, where: str, cells: Mapping[str, str]) -> dict[str, Any] | None:
    """Where a row belongs; None after saying what is wrong with it."""
    commit, at = cells.get("commit") or None, cells.get("at") or None
    if commit and sha_of(commit) is None:
        draft.refuse(where, f"commit {commit!r}; accepted: 40 hexadecimal digits")
        return None
    if at and moment_of(at) is None:
        draft.refuse(where, f"at {at!r}; accepted: a time such as 2026-11-18T11:20:04Z")
        return None
    named = {part: cells.get(part) or None for part in ("suite", "testbed", "worker", "branch")}
    return {"where": where, "commit": sha_of(commit), "at": moment_of(at), **named}


def _variant(cells: Mapping[str, str]) -> dict[str, str]:
    return {part.removeprefix("variant."): text for part, text in cells.items() if part.startswith("variant.") and text}


def _is_chart(header: list[str]) -> bool:
    """Whether this is a chart that W&B exported: a column of steps, and `RUN - METRIC` with its bounds for each run."""
    return any(column.endswith(BOUNDS) and column[: -len(BOUNDS[0])] in header for column in header)


def _by_run(table: list[_Row], draft: Draft) -> tuple[list[str], list[_Row]]:
    """A chart's rows with the run as a column: one row for each step and run that has a value there."""
    rows: dict[tuple[str, str], _Row] = {}
    for where, row in table:
        common = {column: text for column, text in row.items() if " - " not in column}
        for column, text in row.items():
            run, sign, metric = column.partition(" - ")
            if sign and text and not column.endswith(BOUNDS):
                rows.setdefault((where, run), (where, {**common, "run": run}))[1][metric] = text
    draft.note(
        "a chart of W&B: each run's column is read as its metric, with `run` in the variant; bounds are left out"
    )
    return list(dict.fromkeys(column for _, row in rows.values() for column in row)), list(rows.values())


def _wide_parts(header: list[str], table: list[tuple[str, dict[str, str]]], context: Context) -> dict[str, str]:
    stated = {column: context.columns[column] for column in header if column in context.columns}
    chosen = any(part == "metric" or part.startswith("metric.") for part in stated.values())
    parts = {}
    for column in header:
        cells = [row[column] for _, row in table if row.get(column)]
        measured = not chosen and bool(cells) and all(number(cell) is not None for cell in cells[:1000])
        known = column if column in WIDE_PARTS and column != "metric" else None
        known = "sample" if column.strip().lower() in STEPS else known
        is_metric = measured and _says_direction(column)
        otherwise = "metric" if is_metric else f"variant.{column.strip() or 'index'}"
        parts[column] = stated.get(column) or known or otherwise
    return parts


def _says_direction(column: str) -> bool:
    name, unit = _metric(column)
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    if not unit and words & {"size", "n", "m", "k", "batch", "step", "steps", "tokens", "len", "length"}:
        return False  # `Size`, `global_step`: what was asked for, not what was found
    return direction_of_unit(unit) is not None or direction_of_name(name) is not None


def _metric(column: str) -> tuple[str, str]:
    """Metric and unit, from a column's name."""
    found = UNIT.match(column)
    if found is not None:
        return found["name"].strip() or column, found["unit"].strip()
    lowered = column.strip().lower()
    return column.strip(), next((unit for ending, unit in ENDINGS.items() if lowered.endswith(ending)), "")


def _read_wide_row(
    draft: Draft, where: str, row: Mapping[str, str], parts: Mapping[str, str], table: str
) -> Iterator[Reading]:
    cells = {parts[column]: text for column, text in row.items() if not parts[column].startswith("metric")}
    placed = _placed(draft, where, cells)
    for column, part in parts.items():
        text = row.get(column, "")
        if placed is None or not part.startswith("metric") or not text:
            continue
        value = number(text)
        if value is None:
            draft.refuse(f"{where} {column}", f"{text!r} is no finite number")
            continue
        name, unit = _metric(column)
        metric = part.removeprefix("metric").removeprefix(".") or name
        benchmark = cells.get("benchmark") or table
        yield Reading(benchmark=benchmark, metric=metric, unit=unit, values=(value,), variant=_variant(cells), **placed)


FORMATS = (
    Format(
        name="csv",
        title="CSV, one measurement a row, columns by --column",
        detect=detect_long,
        read=read_long,
        identity="the columns benchmark, metric and variant.NAME",
        repeats="rows of one benchmark, variant and metric at one commit are processes of one result",
        suffixes=(".csv",),
    ),
    Format(
        name="csv-wide",
        title="CSV, one metric a column, columns by --column",
        detect=detect_wide,
        read=read_wide,
        identity="the name of the file (or a column benchmark), with every column that is no metric",
        suffixes=(".csv",),
    ),
)
