"""The table of formats: one row each, tried in this order on a file. docs/add-a-format.md explains how to add one."""

from backend.importers.file import ResultFile, Unreadable
from backend.importers.general import (
    asv,
    bencher,
    benchmarkdotnet,
    conbench,
    criterion,
    github_action_benchmark,
    google_benchmark,
    hyperfine,
    k6,
    pytest_benchmark,
    table,
)
from backend.importers.ml import (
    aiperf,
    lm_eval,
    mllog,
    mlperf_inference,
    nccl_tests,
    pytorch_v3,
    serving,
    tensorboard,
    torchbench,
    traces,
)
from backend.importers.model import Format

RUN_FORMAT = "tidemark.run/1"
FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        mllog.FORMAT,
        mlperf_inference.FORMAT,
        pytorch_v3.FORMAT,
        *torchbench.FORMATS,
        nccl_tests.FORMAT,
        pytest_benchmark.FORMAT,
        google_benchmark.FORMAT,
        asv.FORMAT,
        *serving.FORMATS,
        aiperf.FORMAT,
        lm_eval.FORMAT,
        *github_action_benchmark.FORMATS,
        hyperfine.FORMAT,
        *criterion.FORMATS,
        conbench.FORMAT,
        benchmarkdotnet.FORMAT,
        k6.FORMAT,
        *traces.FORMATS,
        tensorboard.FORMAT,
        bencher.FORMAT,
        *table.FORMATS,
    )
}
SUFFIXES = frozenset(suffix for row in FORMATS.values() for suffix in row.suffixes)


def known() -> str:
    return ", ".join((*FORMATS, RUN_FORMAT))


def format_of(file: ResultFile) -> str:
    """The format of a file by its content, then by its name; raises `Unreadable` if none matches."""
    if str(file.first.get("schema", "")).startswith("tidemark.run/"):
        return RUN_FORMAT
    for row in FORMATS.values():
        if row.detect(file):
            return row.name
    if not file.data.strip():
        raise Unreadable(f"{file.name}: is empty")
    asked = github_action_benchmark.asked_which(file)
    if asked:
        raise Unreadable(f"{file.name}: {asked}")
    if file.is_json:
        raise Unreadable(f"{file.name}: JSON of no known format; name it with --format (known: {known()})")
    raise Unreadable(f"{file.name}: format not recognised; name it with --format (known: {known()})")
