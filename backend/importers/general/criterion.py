"""criterion.rs: the estimates it leaves in `target/criterion`, and the messages of cargo-criterion."""

from collections.abc import Mapping
from typing import Any

from backend.contract import Direction
from backend.importers.file import ResultFile, Unreadable
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import mapping, number, numbers, text_of

TIME = Metric("time", "ns", Direction.LOWER)
NEWEST, OTHERS = "new", ("base", "change")
MEDIANS = ("median", "Median")  # before criterion 0.3.1 the names of estimates were capitalised
COMPLETE = "benchmark-complete"
UNPLACED = (
    "the file does not name its benchmark, and neither does its place (…/criterion/NAME/new/estimates.json); "
    "state it with --variant benchmark=NAME"
)


def detect_estimates(file: ResultFile) -> bool:
    return any("point_estimate" in mapping(file.first.get(name)) for name in MEDIANS)


def detect_messages(file: ResultFile) -> bool:
    return file.first.get("reason") in {COMPLETE, "group-complete"}


def read_estimates(file: ResultFile, context: Context) -> Draft:
    """The median of one benchmark, named by the directories it lies in."""
    document = file.object_with("criterion's object with an object `median`")
    draft = Draft()
    stated = next((found for key in MEDIANS if (found := mapping(document.get(key)))), {}).get("point_estimate")
    median = number(stated)
    parts = file.path.parts[:-1]
    if parts and parts[-1] in OTHERS:
        draft.note(f"criterion's directories {' and '.join(OTHERS)} are left out: they repeat or compare earlier runs")
        return draft
    name = _name(parts)
    if name is None and "benchmark" not in context.variant:
        draft.refuse(file.name, UNPLACED)
    elif median is None:
        draft.refuse(file.name, f"median.point_estimate is {stated!r}; expected a finite number")
    else:
        draft.readings.append(TIME.reading((median,), where=file.name, benchmark=name or "criterion"))
    return draft


def _name(parts: tuple[str, ...]) -> str | None:
    """`criterion/sort/quick/1000/new` is the benchmark sort/quick/1000, also below `criterion_old`. Of a place that is
    not below such a directory, nothing says how many of its directories belong to the name."""
    if not parts or parts[-1] != NEWEST:
        return None
    above = parts[:-1]
    begin = max((index + 1 for index, part in enumerate(above) if part.startswith("criterion")), default=len(above))
    return "/".join(above[begin:]) or None


def read_messages(file: ResultFile, context: Context) -> Draft:
    """One message a line, of `cargo criterion --message-format=json`; each benchmark with its measured values."""
    draft = Draft()
    for where, message in file.rows:
        if isinstance(message, Unreadable):
            draft.refuse(where, str(message))
        elif mapping(message).get("reason") == COMPLETE:
            _read_message(draft, where, message)
    return draft


def _read_message(draft: Draft, where: str, message: Mapping[str, Any]) -> None:
    name = text_of(message.get("id"))
    estimate = mapping(message.get("median")) or mapping(message.get("typical"))
    value, unit = number(estimate.get("estimate")), str(estimate.get("unit") or message.get("unit") or "ns")
    if name is None or value is None:
        draft.refuse(where, "needs a text `id` and a number `median.estimate`")
        return
    totals, counts = numbers(message.get("measured_values")) or (), numbers(message.get("iteration_count")) or ()
    each = tuple(total / count for total, count in zip(totals, counts, strict=False) if count > 0)
    metric = Metric(TIME.name, unit, Direction.LOWER if unit in {"ps", "ns", "us", "ms", "s"} else None)
    draft.readings.append(metric.reading(() if each else (value,), samples=each, where=where, benchmark=name))


FORMATS = (
    Format(
        name="cargo-criterion",
        title="cargo-criterion messages (`--message-format=json`)",
        detect=detect_messages,
        read=read_messages,
        identity="the benchmark's id",
        metrics={"median": TIME},
        suffixes=(".json", ".jsonl"),
    ),
    Format(
        name="criterion",
        title="criterion.rs estimates (target/criterion/…/new/estimates.json)",
        detect=detect_estimates,
        read=read_estimates,
        identity="the directories between criterion and new",
        metrics={"median": TIME},
    ),
)
