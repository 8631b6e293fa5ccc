"""CSV with a mapping: which column is what. Works for anything that can be exported from a spreadsheet."""

import csv
import io

from backend.contract import Direction, Role
from backend.importers.model import Context, Draft, Reading, Unreadable, moment_of, number, sha_of

# What a column can be; a column named like this needs no mapping. `variant.NAME` makes NAME a parameter of the variant.
PARTS = ("benchmark", "metric", "value", "unit", "direction", "role", "commit", "branch", "at", "suite", "testbed",
         "worker")  # fmt: skip
MOST_ROWS = 1_000_000


def read_csv(name: str, data: bytes, context: Context) -> Draft:
    """One measurement a row. Columns named as `PARTS` are understood; others by `--column NAME=PART`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{name}: not UTF-8 at byte {error.start}") from None
    rows = csv.DictReader(io.StringIO(text, newline=""))
    header = list(rows.fieldnames or [])
    parts = {column: context.columns.get(column, column) for column in header}
    missing = {"benchmark", "metric", "value"} - set(parts.values())
    if missing:
        raise Unreadable(
            f"{name}: no column for {', '.join(sorted(missing))}; found {', '.join(map(repr, header)) or 'none'}. "
            f"Say which column is what with --column NAME=PART (parts: {', '.join(PARTS)}, variant.NAME)"
        )
    unknown = sorted(part for part in context.columns.values() if not _is_part(part))
    if unknown:
        raise Unreadable(f"{name}: unknown part {unknown[0]!r}; accepted: {', '.join(PARTS)}, variant.NAME")
    draft = Draft()
    try:
        for row in rows:
            where = f"{name}:{rows.line_num}"
            if rows.line_num > MOST_ROWS:
                draft.refuse(where, f"more than {MOST_ROWS} lines; split the file")
                break
            _read_row(draft, where, {parts[column]: value for column, value in row.items() if column in parts})
    except csv.Error as error:
        draft.refuse(f"{name}:{rows.line_num}", f"no CSV from here on: {error}")
    left = sorted(column for column, part in parts.items() if not _is_part(part))
    if left:
        how = f"--column {left[0]}=variant.{left[0]}"
        draft.note(f"columns left out: {', '.join(left)} (a parameter of the variant is taken with {how})")
    return draft


def _is_part(part: str) -> bool:
    return part in PARTS or part.startswith("variant.")


def _read_row(draft: Draft, where: str, cells: dict[str, str | None]) -> None:
    value = number(cells.get("value"))
    if value is None:
        draft.refuse(where, f"value {cells.get('value')!r} is no finite number")
        return
    benchmark, metric = (cells.get("benchmark") or "").strip(), (cells.get("metric") or "").strip()
    if not benchmark or not metric:
        draft.refuse(where, "benchmark and metric must not be empty")
        return
    direction, role = cells.get("direction") or None, cells.get("role") or "gate"
    if direction not in {None, "lower", "higher"} or role not in {str(known) for known in Role}:
        draft.refuse(where, f"direction {direction!r}, role {role!r}; accepted: lower, higher and {', '.join(Role)}")
        return
    commit, at = cells.get("commit") or None, cells.get("at") or None
    if commit and sha_of(commit) is None:
        draft.refuse(where, f"commit {commit!r}; accepted: 40 hexadecimal digits")
        return
    if at and moment_of(at) is None:
        draft.refuse(where, f"at {at!r}; accepted: a time such as 2026-11-18T11:20:04Z")
        return
    draft.readings.append(
        Reading(
            where=where,
            benchmark=benchmark,
            metric=metric,
            unit=(cells.get("unit") or "")[:50],
            direction=Direction(direction) if direction else None,
            role=Role(role),
            values=(value,),
            variant={part.removeprefix("variant."): text for part, text in cells.items()
                     if part.startswith("variant.") and text},
            suite=cells.get("suite") or None,
            testbed=cells.get("testbed") or None,
            worker=cells.get("worker") or None,
            commit=sha_of(commit),
            branch=cells.get("branch") or None,
            at=moment_of(at),
        )
    )  # fmt: skip
