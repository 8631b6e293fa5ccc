"""google-benchmark: the file of `--benchmark_out=FILE --benchmark_out_format=json`."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from backend.contract import Direction
from backend.importers.file import ResultFile
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import mapping, moment_of, number, text_of

TIME_UNITS = ("ns", "us", "ms", "s")
RATES = {
    "bytes_per_second": Metric("bytes_per_second", "B/s", Direction.HIGHER),
    "items_per_second": Metric("items_per_second", "1/s", Direction.HIGHER),
}
# What an entry says of itself; every other number in it is a counter that the benchmark's author added.
ABOUT = frozenset(
    "name run_name run_type family_index per_family_instance_index repetitions repetition_index threads iterations "
    "real_time cpu_time time_unit aggregate_name aggregate_unit error_occurred error_message skipped skip_message "
    "label big_o rms cpu_coefficient real_coefficient bytes_per_second items_per_second".split()
)
KEPT_AGGREGATE = "median"


def detect(file: ResultFile) -> bool:
    return "context" in file.first and "benchmarks" in file.first and "machine_info" not in file.first


def read(file: ResultFile, context: Context) -> Draft:
    """Repetitions are samples of one process, because one program measured them all. From a file with only aggregates
    the median is used. A counter that the benchmark reports (GFLOPS, say) is a separate metric."""
    document = file.object_with("google-benchmark's object with `context` and a list `benchmarks`", benchmarks=list)
    draft = Draft()
    entries = [(f"{file.name} benchmarks[{i}]", mapping(entry)) for i, entry in enumerate(document["benchmarks"])]
    repeated = {_name(entry) for _, entry in entries if _is_iteration(entry)}
    samples: dict[tuple[str, Metric], list[float]] = defaultdict(list)
    first: dict[str, str] = {}
    failed: dict[str, str] = {}
    for where, entry in entries:
        name = _name(entry)
        if not _is_iteration(entry):
            if name in repeated:
                continue  # what it sums up is there itself
            kind = entry.get("aggregate_name") or str(entry.get("name", "")).rpartition("_")[2]
            if kind != KEPT_AGGREGATE:
                draft.note(f"aggregates ({kind}) are left out: of aggregates alone, only the median is a measurement")
                continue
        unit, time = str(entry.get("time_unit", "ns")), number(entry.get("real_time"))
        if entry.get("error_occurred") and name:
            failed[name] = str(entry.get("error_message") or "error_occurred")
        elif not name or time is None or unit not in TIME_UNITS:
            draft.refuse(where, f"needs a name, a number `real_time` and a `time_unit` of {', '.join(TIME_UNITS)}")
            continue
        else:
            for metric in _metrics(entry, unit):
                value = draft.number_at(f"{where} {metric.name}", entry[metric.name])
                if value is not None:
                    samples[name, metric].append(value)
        first.setdefault(name, where)
    machine = mapping(document.get("context"))
    kept = ("num_cpus", "mhz_per_cpu", "library_build_type")
    placed: dict[str, Any] = {
        "at": moment_of(machine.get("date")),
        "worker": text_of(machine.get("host_name")),
        "environment": {key: machine[key] for key in kept if key in machine},
    }
    for name, why in failed.items():
        time_ns = Metric("real_time", "ns", Direction.LOWER)
        draft.readings.append(time_ns.failed(why, where=first[name], **_benchmark(name), **placed))
    for (name, metric), values in samples.items():
        draft.readings.append(
            metric.reading((), samples=tuple(values), where=first[name], **_benchmark(name), **placed)
        )
    return draft


def _is_iteration(entry: Mapping[str, Any]) -> bool:
    """Whether this was run. Aggregates of old versions are not labelled: their name ends with what they are."""
    if "run_type" in entry:
        return bool(entry["run_type"] == "iteration")
    return not str(entry.get("name", "")).endswith(("_mean", "_median", "_stddev", "_cv", "_BigO", "_RMS"))


def _name(entry: Mapping[str, Any]) -> str:
    name = str(entry.get("run_name") or entry.get("name") or "")
    if "run_type" in entry or _is_iteration(entry):
        return name
    return name.rpartition("_")[0]


def _metrics(entry: Mapping[str, Any], unit: str) -> list[Metric]:
    metrics = [Metric("real_time", unit, Direction.LOWER), Metric("cpu_time", unit, Direction.LOWER), *RATES.values()]
    metrics += [Metric(key, "") for key, value in entry.items() if key not in ABOUT and not isinstance(value, str)]
    return [metric for metric in metrics if metric.name in entry]


def _benchmark(name: str) -> dict[str, Any]:
    benchmark, _, arguments = name.partition("/")
    return {"benchmark": benchmark, "variant": {"arguments": arguments} if arguments else {}}


FORMAT = Format(
    name="google-benchmark",
    title="google-benchmark JSON",
    detect=detect,
    read=read,
    identity="the benchmark's name up to its first /, with what follows as its arguments",
    metrics=RATES,
)
