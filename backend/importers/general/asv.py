"""asv (airspeed velocity): the results directory, one file per commit and environment."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backend.contract import Direction
from backend.importers.file import ResultFile, Unreadable
from backend.importers.model import Commit, Context, Draft, Format, Metric, Reading
from backend.importers.values import mapping, moment_of, number, numbers, sha_of, text_of

# asv's time_*, mem_*, peakmem_*, track_*; the unit stands in benchmarks.json, the prefix tells it where that is absent.
PREFIXES = {
    "time": Metric("seconds", "s", Direction.LOWER),
    "timeraw": Metric("seconds", "s", Direction.LOWER),
    "mem": Metric("bytes", "B", Direction.LOWER),
    "peakmem": Metric("peak_bytes", "B", Direction.LOWER),
}
TRACKED = Metric("value", "1")
UNITS = {"seconds": "s", "bytes": "B"}
BENCHMARKS = "benchmarks.json"


def read_benchmarks(data: bytes) -> Mapping[str, Mapping[str, Any]]:
    """Benchmarks by name from asv's benchmarks.json; empty where the file is not one."""
    try:
        document = ResultFile(BENCHMARKS, data).document
    except Unreadable:
        return {}
    return {name: mapping(entry) for name, entry in mapping(document).items() if isinstance(entry, dict)}


def detect(file: ResultFile) -> bool:
    return "commit_hash" in file.first and "results" in file.first


def read(file: ResultFile, context: Context) -> Draft:
    """One `results/<machine>/<commit>-<environment>.json`. Lower is better, as asv has it, where a unit says nothing
    else."""
    document = file.object_with("asv's object with `commit_hash` and an object `results`", results=dict)
    commit = sha_of(document.get("commit_hash"))
    if commit is None:
        found = document.get("commit_hash")
        raise Unreadable(f"{file.name}: commit_hash is {found!r}; accepted: 40 hexadecimal digits")
    draft = Draft()
    placed, columns = _placed(document, commit), document.get("result_columns")
    without = 0
    for benchmark, raw in document["results"].items():
        where = f"{file.name} results[{json.dumps(benchmark)}]"
        row = _columns(raw, columns)
        if row is None:
            draft.refuse(where, "expected a list of columns, or an object with `result`")
            continue
        about = context.benchmarks.get(benchmark, {})
        metric, unit = _metric(benchmark, about)
        version = _version(row, mapping(document.get("benchmark_version")).get(benchmark))
        for index, (variant, stated, samples) in enumerate(_cases(row, about.get("param_names"))):
            if stated is None or stated != stated:  # noqa: PLR0124
                without += 1
                continue
            value = draft.number_at(f"{where}[{index}]", stated)
            if value is None:
                continue
            draft.readings.append(
                Reading(
                    where=f"{where}[{index}]",
                    benchmark=benchmark,
                    variant={**variant, **version},
                    metric=metric.name,
                    unit=unit,
                    direction=metric.direction,
                    supposed=Direction.LOWER,
                    values=(value,),
                    samples=samples,
                    **placed,
                )
            )
    if without:
        draft.note(f"{without:,} cases without a value (null or NaN: failed, or skipped) are left out of {file.name}")
    return draft


def _placed(document: Mapping[str, Any], commit: str) -> dict[str, Any]:
    """What all readings of the file share: where, when and of which commit they were taken."""
    parameters, at = mapping(document.get("params")), moment_of(document.get("date"))
    return {
        "suite": "asv",
        "testbed": text_of(parameters.get("machine")),
        "worker": text_of(parameters.get("machine")),
        "commit": commit,
        "about": Commit(at=at) if at else None,
        "at": at,
        "environment": {
            "asv_env": str(document.get("env_name", "")),
            **{key: str(parameters[key]) for key in ("cpu", "os", "python", "ram") if key in parameters},
            **{key: str(value) for key, value in mapping(document.get("requirements")).items()},
        },
    }


def _metric(benchmark: str, about: Mapping[str, Any]) -> tuple[Metric, str]:
    """Its metric, and its unit: as benchmarks.json states it, else as its name begins."""
    metric = PREFIXES.get(benchmark.rsplit(".", 1)[-1].split("_", 1)[0], TRACKED)
    stated = text_of(about.get("unit"))
    return metric, metric.unit if stated is None else UNITS.get(stated, stated)


def _version(row: Mapping[str, Any], elsewhere: object) -> dict[str, Any]:
    """The version of the benchmark's own code, by which asv tells results of other code apart. It is a digest, of which
    a few digits are enough, unless the author wrote a number of their own."""
    version = text_of(row.get("version")) or text_of(elsewhere)
    if version is None:
        return {}
    return {"version": version[:12] if re.fullmatch(r"[0-9a-f]{40,64}", version) else version}


def _columns(raw: object, names: object) -> Mapping[str, Any] | None:
    """A benchmark's entry by column name: version 2 of the format keeps positional lists, version 1 objects."""
    if isinstance(raw, dict):
        return raw
    if isinstance(raw, list) and isinstance(names, list):
        return {str(name): value for name, value in zip(names, raw, strict=False)}
    number_alone = number(raw)
    return None if number_alone is None else {"result": [number_alone]}


def _cases(row: Mapping[str, Any], names: object) -> Iterator[tuple[dict[str, Any], object, tuple[float, ...]]]:
    """Every combination of parameters with what is said of it and its samples, in asv's order: the last varies
    fastest."""
    results = row.get("result")
    values = results if isinstance(results, list) else [results]
    samples = row.get("samples")
    parameters = row.get("params")
    axes = [axis for axis in parameters if isinstance(axis, list)] if isinstance(parameters, list) else []
    for index, value in enumerate(values):
        own = samples[index] if isinstance(samples, list) and index < len(samples) else None
        yield _case(axes, names, index), value, numbers(own) or ()


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


FORMAT = Format(
    name="asv",
    title="asv result file (results/<machine>/<commit>-<environment>.json)",
    detect=detect,
    read=read,
    identity="the benchmark, its parameters, and the version of its own code",
    metrics=PREFIXES,
)
