"""Foreign result formats -> `tidemark.run/1`. `read_file` is the one door; `FORMATS` is what it knows."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from backend.contract import Invalid, Run, parse_run, to_json
from backend.importers.asv import read_asv
from backend.importers.logs import TOKEN, read_mllog, read_nccl_tests
from backend.importers.microbenchmarks import (
    read_custom_bigger,
    read_custom_smaller,
    read_data_js,
    read_google_benchmark,
    read_pytest_benchmark,
)
from backend.importers.model import Context, Draft, Imported, Problem, Unreadable, assemble, content_id
from backend.importers.pytorch import SERVING, read_userbenchmark, read_v3, read_vllm
from backend.importers.table import read_csv

__all__ = [
    "FORMATS",
    "RUN_FORMAT",
    "Context",
    "Imported",
    "Problem",
    "Unreadable",
    "delivered_bytes",
    "detect_format",
    "read_file",
]

Reader = Callable[[str, bytes, Context], Draft]


@dataclass(frozen=True, slots=True)
class Format:
    """A foreign format: its name in addresses and on the command line, its reader, and what it is."""

    name: str
    read: Reader
    title: str


FORMATS = {
    entry.name: entry
    for entry in (
        Format("mllog", read_mllog, "MLPerf log (`:::MLLOG` lines)"),
        Format("pytorch-v3", read_v3, "PyTorch benchmark database v3 records (JSON, or one object a line)"),
        Format("torchbench", read_userbenchmark, "TorchBench userbenchmark JSON"),
        Format("nccl-tests", read_nccl_tests, "nccl-tests output, text or JSON"),
        Format("pytest-benchmark", read_pytest_benchmark, "pytest-benchmark JSON"),
        Format("google-benchmark", read_google_benchmark, "google-benchmark JSON"),
        Format("asv", read_asv, "asv result file (results/<machine>/<commit>-<environment>.json)"),
        Format("vllm", read_vllm, "vLLM bench JSON (serve, throughput, latency)"),
        Format("github-action-benchmark", read_data_js, "github-action-benchmark history (data.js)"),
        Format("custom-smaller-is-better", read_custom_smaller, "a list of {name, unit, value}; smaller is better"),
        Format("custom-bigger-is-better", read_custom_bigger, "a list of {name, unit, value}; bigger is better"),
        Format("csv", read_csv, "CSV, one measurement a row, columns by --column"),
    )
}
RUN_FORMAT = "tidemark.run/1"


def read_file(name: str, data: bytes, context: Context, format_name: str | None = None) -> Imported:
    """The runs a file holds, the records it could not take, and what was assumed.

    Raises `Unreadable` when the file as a whole is not of the format, or the format is unknown or cannot be told.
    """
    chosen = format_name or detect_format(name, data)
    if chosen == RUN_FORMAT:
        return _read_run(name, data, context)
    if chosen not in FORMATS:
        raise Unreadable(f"unknown format {chosen!r}; known: {', '.join((*FORMATS, RUN_FORMAT))}")
    return assemble(chosen, FORMATS[chosen].read(name, data, context), context)


def _read_run(name: str, data: bytes, context: Context) -> Imported:
    try:
        run = parse_run(data)
    except Invalid as error:
        raise Unreadable(f"{name}: {error}") from None
    notes: tuple[str, ...] = ()
    if context.stated_wins:
        run = _as_stated(name, run, context)
        notes = ("project, commit, branch and pull request are those that were stated, not the file's",)
    measurements = sum(len(result.measurements) for result in run.results)
    return Imported(RUN_FORMAT, (run,), measurements, (), notes, rewritten=context.stated_wins)


def _as_stated(name: str, run: Run, context: Context) -> Run:
    """A stranger's run, with nothing believed of where it belongs; its id follows from its content."""
    if not context.commit:
        raise Unreadable(f"{name}: the file's own commit is not to be believed, and none is stated")
    document = {
        **to_json(run),
        "project": context.project,
        "commit": context.commit.lower(),
        "parents": [],
        "branch": context.branch,
        "pull_request": context.pull_request,
        "session": None,
        "testbed": context.testbed or run.testbed,
    }
    content = json.dumps({**document, "id": None}, sort_keys=True).encode()
    try:
        return parse_run(json.dumps({**document, "id": content_id(content)}).encode())
    except Invalid as error:
        raise Unreadable(f"{name}: {error}") from None


def detect_format(name: str, data: bytes) -> str:
    """The format of a file by its content, then its name; raises `Unreadable` when nothing fits or two do."""
    head = data[:200_000]
    if TOKEN.encode() in head:
        return "mllog"
    if b"window.BENCHMARK_DATA" in head[:200]:
        return "github-action-benchmark"
    if data.lstrip()[:1] in (b"{", b"["):
        found = _detect_json(data)
        if found:
            return found
        raise Unreadable(
            f"{name}: JSON of no known format; name it with --format (known: {', '.join((*FORMATS, RUN_FORMAT))})"
        )
    if b"busbw" in head and b"algbw" in head:
        return "nccl-tests"
    if PurePath(name).suffix.lower() == ".csv" or b"," in head.split(b"\n", 1)[0]:
        return "csv"
    known = ", ".join((*FORMATS, RUN_FORMAT))
    raise Unreadable(f"{name}: format not recognised; name it with --format (known: {known})")


def _detect_json(data: bytes) -> str | None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        lines = data.split(b"\n", 1)
        try:
            document = json.loads(lines[0])
        except (ValueError, RecursionError):
            return None
    first = next(iter(document), None) if isinstance(document, list) else document
    if not isinstance(first, dict):
        return None
    signs: tuple[tuple[str, bool], ...] = (
        (RUN_FORMAT, str(first.get("schema", "")).startswith("tidemark.run/")),
        ("pytorch-v3", isinstance(first.get("metric"), dict)),
        ("pytest-benchmark", "benchmarks" in first and ("machine_info" in first or "commit_info" in first)),
        ("google-benchmark", "benchmarks" in first and "context" in first),
        ("asv", "commit_hash" in first and "results" in first),
        ("torchbench", "metrics" in first and "environ" in first),
        ("nccl-tests", "results" in first and ("nccl_version" in first or "average_bus_bandwidth" in first)),
        ("github-action-benchmark", "entries" in first and "repoUrl" in first),
        ("vllm", any(key in first for key in SERVING)),
    )
    found = next((name for name, fits in signs if fits), None)
    if found is None and isinstance(document, list) and {"name", "value"} <= first.keys():
        raise Unreadable(
            "a list of {name, unit, value} does not say which way is better; "
            "name it with --format custom-smaller-is-better or --format custom-bigger-is-better"
        )
    return found


def delivered_bytes(imported: Imported, run: Run, data: bytes) -> bytes:
    """The run as it is delivered: the same bytes for the same content, so that importing twice stores nothing twice.

    A file that is a run already is delivered as it is, so that importing it and submitting it are the same thing.
    """
    if imported.format == RUN_FORMAT and not imported.rewritten:
        return data
    return json.dumps(to_json(run), ensure_ascii=False, separators=(",", ":")).encode()
