"""Every foreign format: what a real-looking file gives, what is refused and why, and that no bytes crash a reader."""

import json
import re
import textwrap
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from backend.contract import Direction, ResultStatus, Role, parse_run, to_json, variant_key
from backend.importers import FORMATS, Context, Imported, Unreadable, read_file
from backend.importers.file import ResultFile
from backend.importers.formats import format_of
from backend.importers.general.asv import read_benchmarks

FIXTURES = Path(__file__).parent / "fixtures"
GUIDE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text()
SECTIONS = dict(re.findall(r"^### `([\w/.-]+)`\n(.*?)(?=^### |\Z)", GUIDE, re.MULTILINE | re.DOTALL))
SHA = "9f3c2e1d0b5a4c7e8f90a1b2c3d4e5f60718293a"
STATED = Context(project="northsea/loom", testbed="h200-sxm", commit=SHA)

# file, format, runs, measurements, what the problems must mention
TABLE = [
    ("result_0.txt", "mllog", 1, 2, ["no JSON after the token"]),
    ("all_reduce_perf.txt", "nccl-tests", 1, 15, []),
    ("nccl.json", "nccl-tests", 1, 6, []),
    ("pytest.json", "pytest-benchmark", 1, 2, ["no stats.median"]),
    ("google.json", "google-benchmark", 1, 5, ["real_time"]),
    ("asv.json", "asv", 1, 5, []),
    ("data.js", "github-action-benchmark", 3, 3, ["'n/a'", "40 hexadecimal"]),
    ("vllm.json", "vllm", 1, 8, ["p99_tpot_ms"]),
    ("v3.json", "pytorch-v3", 1, 1, ["benchmark_values"]),
    ("torchbench.json", "torchbench", 1, 2, ["which way is 'mystery' better", "'NaN'"]),
    ("table.csv", "csv", 1, 1, ["'oops'"]),
]


def example(name: str) -> bytes:
    """The example of a format in its section of docs/formats.md."""
    found = re.search(r"\n\n((?:    .*\n)+)", SECTIONS[name])
    assert found is not None
    return textwrap.dedent(found[1]).encode()


def read(name: str, context: Context = STATED, format_name: str | None = None) -> Imported:
    return read_file(name, (FIXTURES / name).read_bytes(), context, format_name)


@pytest.mark.parametrize(("name", "format_name", "runs", "measurements", "said"), TABLE, ids=[row[0] for row in TABLE])
def test_a_file_gives_its_runs_and_names_what_it_could_not_take(
    name: str, format_name: str, runs: int, measurements: int, said: list[str]
) -> None:
    imported = read(name)
    assert imported.format == format_name
    problems = "\n".join(map(str, imported.problems))
    assert (len(imported.runs), imported.measurements) == (runs, measurements), problems
    assert len(imported.problems) == len(said)
    for word in said:
        assert word.replace("'n/a'", "n/a") in problems
    for run in imported.runs:
        assert parse_run(to_json(run)) == run


@pytest.mark.parametrize("name", [row[0] for row in TABLE])
def test_reading_a_file_twice_gives_the_same_run_ids(name: str) -> None:
    assert [run.id for run in read(name).runs] == [run.id for run in read(name).runs]


def test_mllog_throughput_leaves_the_first_block_out_and_time_to_train_is_only_watched() -> None:
    result = read("result_0.txt").runs[0].results[0]
    by_metric = {measurement.metric: measurement for measurement in result.measurements}
    assert by_metric["throughput"].value == pytest.approx(100.0)
    assert by_metric["throughput"].direction is Direction.HIGHER
    assert by_metric["time_to_train_s"].value == pytest.approx(41.0)
    assert by_metric["time_to_train_s"].role is Role.WATCH
    assert result.variant == {"global_batch_size": 32}


def test_an_aborted_mllog_run_is_a_failed_result_and_no_number() -> None:
    aborted = (FIXTURES / "result_0.txt").read_bytes().replace(b'"success"', b'"aborted"')
    (result,) = read_file("result_0.txt", aborted, STATED).runs[0].results
    assert result.status is ResultStatus.FAILED
    assert result.measurements == ()
    assert "aborted" in (result.error or "")


def test_wrong_values_in_nccl_tests_void_that_size_only() -> None:
    results = read("all_reduce_perf.txt").runs[0].results
    failed = [result for result in results if result.status is ResultStatus.FAILED]
    assert [(result.variant["bytes"], result.variant["placement"]) for result in failed] == [(4194304, "out_of_place")]
    assert {result.benchmark for result in results} == {"coll.all_reduce"}
    assert all(result.variant["ranks"] == 2 for result in results)


def test_repetitions_of_google_benchmark_are_samples_of_one_process() -> None:
    gemm = next(result for result in read("google.json").runs[0].results if result.benchmark == "BM_Gemm")
    times = next(measurement for measurement in gemm.measurements if measurement.metric == "real_time")
    assert times.samples == ((5.1, 5.3),)
    assert times.processes == pytest.approx((5.2,))


def test_asv_parameters_become_the_variant_last_one_fastest() -> None:
    sort = [result for result in read("asv.json").runs[0].results if result.benchmark.endswith("time_sort")]
    assert [result.variant for result in sort] == [
        {"param1": "1000", "param2": "quick", "version": "abc"},
        {"param1": "1000", "param2": "heap", "version": "abc"},
        {"param1": "10000", "param2": "quick", "version": "abc"},
    ]


def test_the_tool_of_a_data_js_entry_says_which_way_is_better() -> None:
    ways = {run.suite: run.results[0].measurements[0].direction for run in read("data.js").runs}
    assert ways == {"Rust": Direction.LOWER, "Python": Direction.HIGHER}


@pytest.mark.parametrize(("format_name", "way"), [("smaller", Direction.LOWER), ("bigger", Direction.HIGHER)])
def test_a_custom_list_takes_its_direction_from_the_named_format_where_the_unit_says_none(
    format_name: str, way: Direction
) -> None:
    whole = (FIXTURES / "custom.json").read_bytes().replace(b'"unit": "MB"', b'"unit": "points"')
    imported = read_file("custom.json", whole, STATED, f"custom-{format_name}-is-better")
    assert imported.measurements == 2
    assert len(imported.problems) == 2
    ways = {result.benchmark: result.measurements[0].direction for result in imported.runs[0].results}
    assert ways == {"startup": Direction.LOWER, "rss": way}


def test_a_custom_list_without_a_named_format_asks_which_way_is_better() -> None:
    with pytest.raises(Unreadable, match="custom-smaller-is-better or --format custom-bigger-is-better"):
        read("custom.json")


def test_csv_columns_are_mapped_and_parameters_tell_rows_apart() -> None:
    context = Context(project="a/b", testbed="t", columns={"when": "at", "dtype": "variant.dtype"})
    (run,) = read("table.csv", context).runs
    assert run.started_at == "2026-11-18T11:20:04+00:00"
    assert [dict(result.variant) for result in run.results] == [{"dtype": "bf16"}, {"dtype": "fp32"}]


def test_what_a_format_lacks_is_asked_for_by_option() -> None:
    nothing = read("vllm.json", Context(project="a/b"))
    assert nothing.runs == ()
    assert {problem.reason for problem in nothing.problems} >= {"the file names no commit; state it with --commit"}
    no_testbed = read("vllm.json", Context(project="a/b", commit=SHA))
    assert "state it with --testbed" in str(no_testbed.problems[-1])


def test_a_stated_direction_wins() -> None:
    context = Context(project="a/b", testbed="t", commit=SHA, directions={"mystery": "higher"})
    imported = read("torchbench.json", context)
    mystery = next(result for result in imported.runs[0].results if result.variant["case"] == "mystery")
    assert mystery.measurements[0].direction is Direction.HIGHER


def test_a_bad_record_does_not_take_the_good_ones_with_it() -> None:
    rows = b"benchmark,metric,value,unit\ngood,latency,1.0,ms\nbad,latency,-3,ms\nlong,latency,1,ms\n"
    imported = read_file("x.csv", rows.replace(b"long", b"n" * 5000), STATED)
    assert imported.measurements == 2
    assert [problem.where for problem in imported.problems] == ["x.csv:3"]


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(Unreadable, match="unknown format 'junit'; known: mllog, mlperf-inference"):
        read("custom.json", format_name="junit")


@pytest.mark.parametrize("name", [row[0] for row in TABLE])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_no_damage_to_a_file_crashes_its_reader(name: str, data: st.DataObject) -> None:
    whole = (FIXTURES / name).read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    damaged = whole[:start] + data.draw(st.binary(max_size=40)) + whole[end:]
    for format_name in (detected(name, damaged), next(row[1] for row in TABLE if row[0] == name)):
        if format_name is None:
            continue
        try:
            imported = read_file(name, damaged, STATED, format_name)
        except Unreadable as error:
            assert str(error)
        else:
            assert all(problem.reason for problem in imported.problems)


EXAMPLES = [name for name in SECTIONS if name in FORMATS]


@pytest.mark.parametrize("name", EXAMPLES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_damage_to_an_example_crashes_its_reader(name: str, data: st.DataObject) -> None:
    whole = example(name)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 40)))
    filling = data.draw(st.sampled_from([b"", b" ", b"null", b"[]", b"{}", b"1e999", b'"', b"-1", b"NaN", b"\xff\x00"]))
    damaged = whole[:start] + filling + whole[end:]
    stated = replace(
        STATED, variant={key: "x" for key in ("model", "test", "trace", "config", "collective", "benchmark")}
    )
    for format_name in {name, detected(name, damaged)} - {None}:
        try:
            imported = read_file(name, damaged, stated, format_name)
        except Unreadable as error:
            assert str(error)
        else:
            assert all(problem.reason for problem in imported.problems)
            assert imported.read == len(imported.problems) + sum(map(sum, imported.records.values()))


TOLD_APART = replace(
    STATED, variant={key: "x" for key in ("model", "test", "trace", "config", "collective", "benchmark")}
)
ASSIGNED = b"window.BENCHMARK_DATA = "
JSON_EXAMPLES = [name for name in EXAMPLES if example(name).removeprefix(ASSIGNED)[:1] in (b"{", b"[")]


@pytest.mark.parametrize("name", JSON_EXAMPLES)
def test_a_number_that_became_a_word_is_never_dropped_in_silence(name: str) -> None:
    """Whatever number it was: its record is still counted, or there is a problem that names it."""
    begin = ASSIGNED if example(name).startswith(ASSIGNED) else b""
    document = json.loads(example(name).removeprefix(ASSIGNED))
    whole = read_file("x.json", begin + json.dumps(document).encode(), TOLD_APART, name)
    for place in numbers_in(document):
        holder = changed = deepcopy(document)
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = "oops"
        try:
            imported = read_file("x.json", begin + json.dumps(changed).encode(), TOLD_APART, name)
        except Unreadable:
            continue
        assert imported.read >= whole.read or imported.problems, place


def numbers_in(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the numbers of a JSON document are."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers_in(inner, (*place, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place


def detected(name: str, content: bytes) -> str | None:
    try:
        return format_of(ResultFile(name, content))
    except Unreadable:
        return None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["benchmarks", "context", "results", "metric", "metrics", "entries", "commit_hash", "params",
                         "stats", "name", "value", "result_columns", "out_of_place", "commit", "benches", "runners"])
        | st.text(max_size=6), inner, max_size=5),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(document=JSON)
def test_no_json_of_another_shape_crashes_a_reader(document: object) -> None:
    """Each document is read as every format: making one up costs more than reading it two dozen times."""
    content = json.dumps(document).encode()
    for format_name in sorted(FORMATS):
        note(f"read as {format_name}")  # the last one that is told of a failure is the one that failed
        try:
            read_file("fuzz.json", content, STATED, format_name)
        except Unreadable as error:
            assert str(error)


def test_asv_says_its_units_and_the_names_of_its_parameters_in_another_file() -> None:
    said = (FIXTURES / "asv-benchmarks.json").read_bytes()
    context = Context(project="northsea/loom", benchmarks=read_benchmarks(said))
    results = {(r.benchmark, variant_key(r.variant)): r for r in read("asv.json", context).runs[0].results}
    assert results["suite.track_ratio", ""].measurements[0].unit == "hits per query"
    sort = results["suite.TimeSort.time_sort", "kind=quick,n=1000,version=abc"].measurements[0]
    assert (sort.metric, sort.unit, sort.value) == ("seconds", "s", 0.0012)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"version": 2, "a": 3}', b"\xff"])
def test_a_file_that_is_not_asvs_says_nothing_of_its_benchmarks(content: bytes) -> None:
    assert read_benchmarks(content) == {}
