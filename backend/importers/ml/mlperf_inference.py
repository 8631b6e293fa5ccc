"""MLPerf Inference: LoadGen's `mlperf_log_summary.txt`."""

import re
from typing import Any

from backend.contract import Direction, Role
from backend.importers.file import ResultFile, Unreadable
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import number

TITLE = b"MLPerf Results Summary"
UP, DOWN = Direction.HIGHER, Direction.LOWER
LINE = re.compile(r"^\s*([^:]+?)\s*:+\s*(\S.*?)\s*$")
# The lines of the first part of a summary that are the result of their scenario.
RESULTS = {
    "Samples per second": Metric("samples_per_s", "1/s", UP),
    "Tokens per second": Metric("tokens_per_s", "tokens/s", UP),
    "Completed samples per second": Metric("samples_per_s", "1/s", UP),
    "Completed tokens per second": Metric("tokens_per_s", "tokens/s", UP),
    "Scheduled samples per second": Metric("scheduled_samples_per_s", "1/s", UP, Role.WATCH),
}
LATENCY = re.compile(
    r"(?P<percent>\d+(?:\.\d+)?)(?:th)? percentile "
    r"(?P<what>latency|first token latency|time to output token) \(ns\)"
)
NAMES = {"latency": "latency", "first token latency": "ttft", "time to output token": "tpot"}
GATED = {"SingleStream": "90", "MultiStream": "99"}
SCENARIOS = ("offline", "server", "singlestream", "multistream", "interactive")
NO_MODEL = "the summary names no model, and neither does its directory; state it with --variant model=NAME"


def detect(file: ResultFile) -> bool:
    return TITLE in file.data


def read(file: ResultFile, context: Context) -> Draft:
    """The result of the scenario gates: samples and tokens a second, or the latency of single and multi-stream."""
    said = {found[1]: found[2] for line in file.text.splitlines() if (found := LINE.match(line))}
    scenario, mode = said.get("Scenario"), said.get("Mode")
    if scenario is None or mode is None:
        raise Unreadable(f"{file.name}: expected lines `Scenario : …` and `Mode : …` of LoadGen's summary")
    draft = Draft()
    if mode != "PerformanceOnly":
        draft.note(f"summaries of mode {mode} are left out: they measure no speed")
        return draft
    model = _model(file)
    if model is None and "model" not in context.variant:
        draft.refuse(file.name, NO_MODEL)
        return draft
    placed: dict[str, Any] = {
        "where": file.name,
        "benchmark": f"mlperf.{model or 'inference'}",
        "suite": "mlperf-inference",
        "variant": {"scenario": scenario, "sut": said.get("SUT name", "")},
    }
    if said.get("Result is") != "VALID":
        why = f"Result is {said.get('Result is', 'not stated')}"
        draft.readings.append(RESULTS["Samples per second"].failed(why, **placed))
        return draft
    taken: dict[Metric, float] = {}
    for name, text in said.items():
        metric, value = _metric(name, scenario), number(text.split()[0])
        if metric is not None and value is not None:
            taken.setdefault(metric, value)  # the result stands again among the additional statistics
    draft.readings += [metric.reading((value,), **placed) for metric, value in taken.items()]
    return draft


def _metric(name: str, scenario: str) -> Metric | None:
    known = RESULTS.get(name.removesuffix(" (inferred)"))
    found = LATENCY.fullmatch(name)
    if known is not None or found is None:
        return known
    percent = found["percent"].rstrip("0").rstrip(".") if "." in found["percent"] else found["percent"]
    gate = found["what"] == "latency" and GATED.get(scenario) == percent
    return Metric(f"p{percent}_{NAMES[found['what']]}_ns", "ns", DOWN, Role.GATE if gate else Role.WATCH)


def _model(file: ResultFile) -> str | None:
    """Submissions lie in …/MODEL/SCENARIO/performance/run_1/."""
    parts = file.path.parts[:-1]
    at = next((index for index, part in enumerate(parts) if part.lower().replace("-", "") in SCENARIOS), 0)
    return parts[at - 1] if at else None


FORMAT = Format(
    name="mlperf-inference",
    title="MLPerf Inference summary (mlperf_log_summary.txt)",
    detect=detect,
    read=read,
    identity="the model, with scenario and system under test",
    metrics=RESULTS,
    suffixes=(".txt",),
)
