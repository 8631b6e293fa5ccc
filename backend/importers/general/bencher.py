"""Bencher Metric Format: {benchmark: {measure: {value, lower_value, upper_value}}}."""

from backend.contract import Direction
from backend.importers.file import ResultFile, Unreadable
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import mapping, number

DOWN = Direction.LOWER
# Bencher's own measures come with these units; of measures that its users made, the file says no unit.
MEASURES = {
    "latency": Metric("latency", "ns", DOWN),
    "throughput": Metric("throughput", "ops/s", Direction.HIGHER),
    "build-time": Metric("build-time", "s", DOWN),
    "file-size": Metric("file-size", "B", DOWN),
    **{
        name: Metric(name, "1", DOWN)
        for name in ("instructions", "l1-accesses", "l2-accesses", "ll-accesses", "ram-accesses", "estimated-cycles",
                     "total-accesses", "allocations")
    },
}  # fmt: skip


def detect(file: ResultFile) -> bool:
    found = [measure for name in file.first.values() for measure in (mapping(name).values() or [None])]
    return file.is_json and bool(found) and all("value" in mapping(measure) for measure in found)


def read(file: ResultFile, context: Context) -> Draft:
    document = file.document
    if not isinstance(document, dict):
        raise Unreadable(f"{file.name}: expected an object of benchmarks, found {type(document).__name__}")
    draft = Draft()
    for benchmark, measures in document.items():
        for measure, said in mapping(measures).items():
            where, value = f"{file.name} {benchmark} {measure}", number(mapping(said).get("value"))
            if value is None:
                draft.refuse(where, f"value is {mapping(said).get('value')!r}; expected a finite number")
                continue
            metric = MEASURES.get(measure, Metric(measure, ""))
            draft.readings.append(metric.reading((value,), where=where, benchmark=benchmark))
    return draft


FORMAT = Format(
    name="bencher",
    title="Bencher Metric Format (BMF JSON)",
    detect=detect,
    read=read,
    identity="the benchmark's name; each measure is a metric",
    metrics=MEASURES,
)
