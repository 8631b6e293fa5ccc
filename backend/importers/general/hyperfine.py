"""hyperfine: the file of `--export-json`."""

from typing import Any

from backend.contract import Direction, Role
from backend.importers.file import ResultFile
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import mapping, numbers, scalars

METRICS = {
    "mean": Metric("seconds", "s", Direction.LOWER),
    "user": Metric("user_seconds", "s", Direction.LOWER, Role.WATCH),
    "system": Metric("system_seconds", "s", Direction.LOWER, Role.WATCH),
    "memory_usage_byte": Metric("peak_bytes", "B", Direction.LOWER, Role.WATCH),
}


def detect(file: ResultFile) -> bool:
    results = file.first.get("results")
    return isinstance(results, list) and "command" in mapping(next(iter(results), None))


def read(file: ResultFile, context: Context) -> Draft:
    """Each run of a command is a process; without the single times, the median is used instead."""
    document = file.object_with("hyperfine's object with a list `results`", results=list)
    draft = Draft()
    for index, raw in enumerate(document["results"]):
        where, entry = f"{file.name} results[{index}]", mapping(raw)
        command = entry.get("command")
        times = numbers(entry.get("times")) or numbers([entry.get("median", entry.get("mean"))])
        if not isinstance(command, str) or not times:
            draft.refuse(where, "needs a text `command` and a list of numbers `times`")
            continue
        placed: dict[str, Any] = {
            "where": where,
            "benchmark": command,
            "variant": scalars(mapping(entry.get("parameters"))),
        }
        draft.readings.append(METRICS["mean"].reading(times[:1000], **placed))
        for key in ("user", "system"):
            stated = entry.get(key)
            value = None if stated is None else draft.number_at(f"{where} {key}", stated)
            if value is not None:
                draft.readings.append(METRICS[key].reading((value,), **placed))
        memory = numbers(entry.get("memory_usage_byte"))
        if memory:
            draft.readings.append(METRICS["memory_usage_byte"].reading(memory[:1000], **placed))
    return draft


FORMAT = Format(
    name="hyperfine",
    title="hyperfine JSON (`--export-json`)",
    detect=detect,
    read=read,
    identity="the command (or the name given to it), with its parameters",
    metrics=METRICS,
)
