"""nccl-tests: the table each `*_perf` program prints, several in one log, and their JSON."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.contract import Direction, Role
from backend.importers.file import ResultFile, Unreadable
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import listed, mapping, number, numbers

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoallv", "alltoall", "broadcast", "reduce", "sendrecv",
               "scatter", "gather", "hypercube")  # fmt: skip
OUR_NAMES = {"alltoall": "all_to_all", "alltoallv": "all_to_all_v", "sendrecv": "send_recv"}
NAMED = re.compile(rf"(?<![a-z])({'|'.join(COLLECTIVES)})(?:_perf|_mpi)?(?![a-z_])")
STARTING = re.compile(r"^#\s*Collective test starting:\s*(\S+)")
PROGRAM = re.compile(rf"(?:^|[\s/])({'|'.join(COLLECTIVES)})_perf(?:_mpi)?\b")
RANK = re.compile(r"^#\s+Rank\s+(\d+)\b")
VERSION = re.compile(r"\bNCCL version\s*:?\s*([\d.]+)", re.IGNORECASE)
# What launchers put before each line: `3: ` of srun -l, `[1,0]<stdout>:` of mpirun --tag-output.
PREFIX = re.compile(r"^\s*(?:\[\d+,\d+\]<std(?:out|err)>:?\s?|\d+:\s?)")
MODERN = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong")
METRICS = {
    "time": Metric("time_us", "us", Direction.LOWER),
    "algbw": Metric("algbw_gb_per_s", "GB/s", Direction.HIGHER, Role.DERIVED),
    "busbw": Metric("busbw_gb_per_s", "GB/s", Direction.HIGHER, Role.DERIVED),
}
UNNAMED = (
    "this table does not name its collective, and neither does the name of the file (such as "
    "all_reduce_perf.txt); state it with --variant collective=NAME"
)


@dataclass(slots=True)
class _Table:
    """One program's table as far as the log has been read."""

    program: str | None
    columns: Sequence[str] = MODERN
    ranks: set[int] = field(default_factory=set)
    environment: dict[str, Any] = field(default_factory=dict)
    rows: list[tuple[str, dict[str, str], dict[str, dict[str, str]]]] = field(default_factory=list)


def detect(file: ResultFile) -> bool:
    if file.is_json:
        first = file.first
        return "results" in first and ("nccl_version" in first or "average_bus_bandwidth" in first)
    return b"busbw" in file.data and b"algbw" in file.data


def read(file: ResultFile, context: Context) -> Draft:
    """A size sweep of each collective: time, algbw and busbw, out of place and in place; wrong values make it fail."""
    draft = Draft()
    if file.is_json:
        _read_json(file, context, draft)
        return draft
    times: Counter[tuple[str | None, int]] = Counter()
    for table in _tables(file, draft):
        operation = _operation(table.program) or _operation(file.path.name)
        times[operation, len(table.ranks)] += 1
        _read_table(operation, table, times[operation, len(table.ranks)], context, draft)
    if not draft.readings and not draft.problems:
        raise Unreadable(f"{file.name}: no row of nccl-tests' table ({', '.join(MODERN)})")
    return draft


def _tables(file: ResultFile, draft: Draft) -> Iterator[_Table]:
    """The tables of a log, each with what was said since the one before: which program, how many ranks."""
    table = _Table(None)
    for line_number, raw in enumerate(file.text.splitlines(), 1):
        line = PREFIX.sub("", raw)
        named = STARTING.match(line) or (None if line.startswith("#") else PROGRAM.search(line))
        begins = bool(named) or line.startswith("# nThread")
        if begins and table.rows:
            yield table
            table = _Table(None, environment=dict(table.environment))
        if named:
            table.program = named.group(1)
        elif RANK.match(line):
            table.ranks.add(int(RANK.match(line).group(1)))  # type: ignore[union-attr]
        elif line.startswith("#"):
            words = line.lstrip("# ").split()
            if words[:2] == ["size", "count"] and "time" in words:
                table.columns = words
        elif version := VERSION.search(line):
            table.environment["nccl"] = version.group(1)
        else:
            _take_row(f"{file.name}:{line_number}", line.split(), table, draft)
    if table.rows:
        yield table


def _take_row(where: str, cells: list[str], table: _Table, draft: Draft) -> None:
    """A row by the columns that its table states: those before the first `time` are its key, then one group a side."""
    if len(cells) < 3 or not cells[0].isdigit() or not cells[1].isdigit():
        return
    at = table.columns.index("time") if "time" in table.columns else MODERN.index("time")
    keys, sides = table.columns[:at], table.columns[at:]
    width = next((index for index in range(1, len(sides)) if sides[index] == "time"), len(sides))
    found = cells[at:]
    if len(cells) < at + 3 or (len(found) % width and len(found) < len(sides)):
        draft.refuse(where, f"a row has {' '.join(table.columns)}; found {' '.join(cells)!r}")
        return
    named = {
        place: dict(zip(sides[:width], found[start : start + width], strict=False))
        for place, start in (("out_of_place", 0), ("in_place", width))
        if len(found) >= start + width
    }
    table.rows.append((where, dict(zip(keys, cells, strict=False)), named))


def _read_table(operation: str | None, table: _Table, time: int, context: Context, draft: Draft) -> None:
    """The rows of one table; `time` says how many tables of its collective and ranks the log has had by then."""
    if operation is None and "collective" not in context.variant:
        draft.refuse(table.rows[0][0], UNNAMED)
        return
    cycles: dict[tuple[str, ...], list[tuple[str, dict[str, str], dict[str, dict[str, str]]]]] = {}
    for row in table.rows:
        cycles.setdefault(tuple(row[1].values()), []).append(row)
    for rows in cycles.values():
        where, key, sides = rows[0]
        variant = _variant(int(key["size"]), key.get("type", ""), key.get("redop", "none"), len(table.ranks))
        if time > 1:
            variant["table"] = time
            draft.note(
                "a collective that is measured again in one log, as with other settings, has `table` in its variant"
            )
        root = key.get("root", "-1")
        if root not in {"-1", "0"}:
            variant["root"] = root
        for place in sides:
            cells = [row[2][place] for row in rows if place in row[2]]
            placed = {
                "where": where,
                "benchmark": f"coll.{operation or 'collective'}",
                "variant": {**variant, "placement": place},
                "environment": table.environment,
            }
            _read_side(draft, placed, cells)


def _read_side(draft: Draft, placed: dict[str, Any], cycles: Sequence[Mapping[str, Any]]) -> None:
    """One side of one size; where the program ran it several times, the times are samples."""
    wrong = sum(number(cells.get("#wrong")) or 0.0 for cells in cycles)
    if wrong:
        draft.readings.append(METRICS["time"].failed(f"{wrong:g} wrong values", suite="coll", **placed))
        return
    for key, metric in METRICS.items():
        values = numbers([cells.get(key) for cells in cycles])
        if values is None:
            found = [cells.get(key) for cells in cycles]
            draft.refuse(placed["where"], f"{key} is {found[0]!r}; expected a finite number")
            continue
        samples = numbers(cycles[0].get("samples")) if key == "time" else None
        taken = samples or (values if len(values) > 1 else ())
        draft.readings.append(
            metric.reading(values[:1] if samples or not taken else (), samples=taken, suite="coll", **placed)
        )


def _read_json(file: ResultFile, context: Context, draft: Draft) -> None:
    document = file.object_with("nccl-tests' object with a list `results`", results=list)
    arguments = document.get("args")
    spoken = " ".join(map(str, arguments)) if isinstance(arguments, list) else str(arguments or "")
    test = str(mapping(document.get("config")).get("test", ""))
    operation = _operation(test) or _operation(spoken) or _operation(file.path.name)
    if operation is None and "collective" not in context.variant:
        raise Unreadable(f"{file.name}: {UNNAMED}")
    environment = {"nccl": str(document["nccl_version"])} if document.get("nccl_version") else {}
    ranks = len(listed(document.get("ranks")))
    for index, entry in enumerate(document["results"]):
        where = f"{file.name} results[{index}]"
        row = mapping(entry)
        size = number(row.get("size"))
        if size is None:
            draft.refuse(where, "needs a number `size`")
            continue
        variant = _variant(int(size), str(row.get("type", "")), str(row.get("redop", "none")), ranks)
        for place in ("out_of_place", "in_place"):
            side = row.get(place)
            if isinstance(side, dict):
                placed = {
                    "where": where,
                    "benchmark": f"coll.{operation or 'collective'}",
                    "variant": {**variant, "placement": place},
                    "environment": environment,
                }
                samples = mapping(side.get("per_iter")).get("times_us")
                cells = {"time": side.get("time"), "algbw": side.get("alg_bw"), "busbw": side.get("bus_bw"),
                         "#wrong": side.get("nwrong"), "samples": samples}  # fmt: skip
                _read_side(draft, placed, [cells])


def _operation(text: str | None) -> str | None:
    found = NAMED.search(text or "")
    return OUR_NAMES.get(found.group(1), found.group(1)) if found else None


def _variant(size: int, dtype: str, reduction: str, ranks: int) -> dict[str, Any]:
    variant: dict[str, Any] = {"bytes": size, "dtype": dtype}
    if reduction not in {"none", "-1", ""}:
        variant["reduction"] = reduction
    return {**variant, "ranks": ranks} if ranks else variant


FORMAT = Format(
    name="nccl-tests",
    title="nccl-tests output, text or JSON",
    detect=detect,
    read=read,
    identity="the collective of its own table, with size, type, reduction, ranks and placement",
    metrics=METRICS,
    suffixes=(".txt", ".log", ".out", ".json"),
)
