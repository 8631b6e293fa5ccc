"""asv (airspeed velocity): the results directory, one file per commit and environment."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backend.contract import Direction
from backend.importers.model import (
    Context,
    Draft,
    Reading,
    Unreadable,
    decode,
    mapping,
    moment_of,
    number,
    numbers,
    sha_of,
    text_of,
)

# asv's time_*, mem_*, peakmem_*, track_*; the unit stands in benchmarks.json, the prefix tells it where that is absent.
PREFIXES = {
    "time": ("seconds", "s"),
    "timeraw": ("seconds", "s"),
    "mem": ("bytes", "B"),
    "peakmem": ("peak_bytes", "B"),
}
UNITS = {"seconds": "s", "bytes": "B"}
BENCHMARKS = "benchmarks.json"


def read_benchmarks(data: bytes) -> Mapping[str, Mapping[str, Any]]:
    """What asv's benchmarks.json says of each benchmark; nothing, where the file is not one."""
    try:
        document = decode(data, BENCHMARKS)
    except Unreadable:
        return {}
    return {name: mapping(entry) for name, entry in mapping(document).items() if isinstance(entry, dict)}


def _metric(benchmark: str, about: Mapping[str, Any]) -> tuple[str, str]:
    """Its metric and unit: as benchmarks.json states them, else as its name begins."""
    base = benchmark.rsplit(".", 1)[-1].split("_", 1)[0]
    metric, unit = PREFIXES.get(base, ("value", "1"))
    stated = text_of(about.get("unit"))
    return metric, unit if stated is None else UNITS.get(stated, stated)[:50]


def read_asv(name: str, data: bytes, context: Context) -> Draft:
    """One `results/<machine>/<commit>-<environment>.json`. Lower is better throughout, as asv has it."""
    document = decode(data, name)
    if not isinstance(document, dict) or not isinstance(document.get("results"), dict):
        raise Unreadable(f"{name}: expected asv's object with `commit_hash` and an object `results`")
    commit = sha_of(document.get("commit_hash"))
    if commit is None:
        raise Unreadable(f"{name}: commit_hash is {document.get('commit_hash')!r}; accepted: 40 hexadecimal digits")
    draft = Draft()
    parameters = mapping(document.get("params"))
    columns = document.get("result_columns")
    for benchmark, raw in document["results"].items():
        where = f"{name} results[{json.dumps(benchmark)}]"
        row = _columns(raw, columns)
        if row is None:
            draft.refuse(where, "expected a list of columns, or an object with `result`")
            continue
        about = context.benchmarks.get(benchmark, {})
        metric, unit = _metric(benchmark, about)
        for index, (variant, value, samples) in enumerate(_cases(row, about.get("param_names"))):
            if value is None:  # null: failed or skipped; NaN reads as no number
                continue
            draft.readings.append(
                Reading(
                    where=f"{where}[{index}]",
                    benchmark=benchmark,
                    variant=variant,
                    metric=metric,
                    unit=unit,
                    direction=Direction.LOWER,
                    values=(value,),
                    samples=samples,
                    suite="asv",
                    testbed=text_of(parameters.get("machine")),
                    worker=text_of(parameters.get("machine")),
                    commit=commit,
                    at=moment_of(document.get("date")),
                    environment={
                        "asv_env": str(document.get("env_name", "")),
                        **{key: str(parameters[key]) for key in ("cpu", "os", "python", "ram") if key in parameters},
                        **{key: str(value) for key, value in mapping(document.get("requirements")).items()},
                    },
                )
            )
    return draft


def _columns(raw: object, names: object) -> Mapping[str, Any] | None:
    """A benchmark's entry by column name: version 2 of the format keeps positional lists, version 1 objects."""
    if isinstance(raw, dict):
        return raw
    if isinstance(raw, list) and isinstance(names, list):
        return {str(name): value for name, value in zip(names, raw, strict=False)}
    number_alone = number(raw)
    return None if number_alone is None else {"result": [number_alone]}


def _cases(row: Mapping[str, Any], names: object) -> Iterator[tuple[dict[str, Any], float | None, tuple[float, ...]]]:
    """Every combination of parameters with its value and samples, in asv's order: the last varies fastest."""
    results = row.get("result")
    values = results if isinstance(results, list) else [results]
    samples = row.get("samples")
    parameters = row.get("params")
    axes = [axis for axis in parameters if isinstance(axis, list)] if isinstance(parameters, list) else []
    for index, value in enumerate(values):
        own = samples[index] if isinstance(samples, list) and index < len(samples) else None
        yield _case(axes, names, index), number(value), numbers(own) or ()


def _case(axes: Sequence[Sequence[Any]], names: object, index: int) -> dict[str, Any]:
    """The parameters of one case, by their names where benchmarks.json has them."""
    named = names if isinstance(names, list) and len(names) == len(axes) else []
    chosen: dict[str, Any] = {}
    for position in range(len(axes) - 1, -1, -1):
        axis = axes[position]
        if not axis:
            continue
        index, at = divmod(index, len(axis))
        name = text_of(named[position]) if named else None
        chosen[name or f"param{position + 1}"] = str(axis[at]).strip("'")
    return dict(sorted(chosen.items()))
