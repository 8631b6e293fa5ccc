"""Different things are never one series: names, suites, versions, collectives, and values that a file has twice."""

import json

import pytest

from backend.contract import variant_key
from backend.importers import Context, Imported, read_file

SHA = "9f3c2e1d0b5a4c7e8f90a1b2c3d4e5f60718293a"
STATED = Context(project="northsea/loom", testbed="h200-sxm", commit=SHA)


def read(name: str, content: object, context: Context = STATED, format_name: str | None = None) -> Imported:
    data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
    return read_file(name, data, context, format_name)


def series(imported: Imported) -> set[tuple[str, str, str]]:
    return {
        (result.benchmark, variant_key(result.variant), measurement.metric)
        for run in imported.runs
        for result in run.results
        for measurement in result.measurements
    }


def values(imported: Imported) -> list[float]:
    return sorted(m.value for run in imported.runs for result in run.results for m in result.measurements)


@pytest.mark.parametrize(
    "names", [("加法", "减法"), ("a<b", "a>b"), ("a b", "a_b"), ("x" * 250 + "1", "x" * 250 + "2"), ("-a", "a")]
)
def test_names_that_differ_stay_two_series_and_are_shown_whole(names: tuple[str, str]) -> None:
    listed = [{"name": name, "unit": "ms", "value": at} for at, name in enumerate(names, start=1)]
    imported = read("x.json", listed, format_name="custom-smaller-is-better")
    assert not imported.problems and len(series(imported)) == 2 and values(imported) == [1, 2]
    shown = {result.variant.get("name", result.benchmark) for result in imported.runs[0].results}
    assert shown == set(names)


def test_suites_whose_names_cannot_be_written_stay_two_suites() -> None:
    def entry(value: float) -> list[dict[str, object]]:
        return [{"commit": {"id": SHA}, "date": 1, "benches": [{"name": "add", "value": value, "unit": "ns/iter"}]}]

    history = {"repoUrl": "x", "entries": {"加": entry(1), "减": entry(2), "Go Benchmark": entry(3)}}
    suites = {run.suite for run in read("data.js", f"window.BENCHMARK_DATA = {json.dumps(history)}").runs}
    assert len(suites) == 3 and "Go_Benchmark" in suites


def test_two_histories_of_one_project_are_kept_apart_by_a_suite_each() -> None:
    history = {"repoUrl": "x", "entries": {"Benchmark": [
        {"commit": {"id": SHA}, "date": 1, "benches": [{"name": "get", "value": 4879, "unit": "MiB/s"}]}]}}  # fmt: skip
    plain, limited = (
        read("data.js", history, Context(project="a/b", testbed="ci", suite=suite)) for suite in (None, "mem_limited")
    )
    assert [plain.runs[0].suite, limited.runs[0].suite] == ["Benchmark", "mem_limited"]
    assert plain.runs[0].id != limited.runs[0].id


def test_a_stated_variant_is_part_of_every_result() -> None:
    context = Context(project="a/b", testbed="t", commit=SHA, variant={"model": "llama-8b"})
    imported = read("latency.json", {"avg_latency": 1.5, "latencies": [1.4, 1.6]}, context)
    assert [dict(result.variant) for result in imported.runs[0].results] == [{"model": "llama-8b"}]


@pytest.mark.parametrize(
    ("name", "content", "asked"),
    [
        ("latency.json", {"avg_latency": 1.5, "latencies": [1.5]}, "--variant model=NAME"),
        ("summary.json", {"metrics": {"http_reqs": {"rate": 3.0}}, "root_group": {}}, "--variant test=NAME"),
        ("perf.log", "# nThread 1\n#  size count type redop root time algbw busbw #wrong\n"
                     " 8 2 float sum -1 1.0 2.0 3.0 0 1.0 2.0 3.0 0\n", "--variant collective=NAME"),
    ],
)  # fmt: skip
def test_what_no_file_names_is_asked_for_rather_than_merged(name: str, content: object, asked: str) -> None:
    imported = read(name, content)
    assert imported.runs == () and asked in imported.problems[0].reason


def test_a_group_of_pytest_does_not_hide_which_test_it_was() -> None:
    def entry(test: str, median: float) -> dict[str, object]:
        return {"group": "sort", "name": f"{test}[64]", "fullname": f"tests/x.py::{test}[64]",
                "params": {"n": 64, "kind": [1, 2]}, "stats": {"median": median}}  # fmt: skip

    imported = read("p.json", {"machine_info": {}, "benchmarks": [entry("test_quick", 1.0), entry("test_heap", 2.0)]})
    assert series(imported) == {
        ("tests/x.py::test_quick", "case=64,n=64", "seconds"),
        ("tests/x.py::test_heap", "case=64,n=64", "seconds"),
    }


def test_a_true_duplicate_is_left_out_with_a_word_that_names_both() -> None:
    listed = [{"name": "get", "unit": "ms", "value": value} for value in (4879.0, 1562.0, 4879.0)]
    imported = read("x.json", listed, format_name="custom-smaller-is-better")
    assert values(imported) == [4879.0]
    other, same = imported.problems
    assert other.where == "x.json [1]" and "x.json [0]" in other.reason
    assert "1562" in other.reason and "4879" in other.reason
    assert same.where == "x.json [2]" and "again, as 'x.json [0]' did" in same.reason


def test_rows_of_one_series_in_a_csv_are_processes_and_that_is_said() -> None:
    imported = read("x.csv", "benchmark,metric,value,unit\nb,step,1.0,ms\nb,step,3.0,ms\n")
    (measurement,) = imported.runs[0].results[0].measurements
    assert measurement.processes == (1.0, 3.0) and imported.records[imported.runs[0].id] == (2,)
    assert "x.csv:2 and x.csv:3" in " ".join(imported.notes)


def asv(version: str | None) -> dict[str, object]:
    row = [[0.5], [], version] if version else [[0.5], []]
    return {"commit_hash": SHA, "params": {"machine": "m"}, "result_columns": ["result", "params", "version"],
            "results": {"suite.time_x": row}}  # fmt: skip


def test_the_version_of_asvs_benchmark_is_part_of_what_it_is() -> None:
    found = [series(read("r.json", asv(version))) for version in (None, "a" * 64, "b" * 64, "2")]
    keys = [key for one in found for _, key, _ in one]
    assert keys == ["", f"version={'a' * 12}", f"version={'b' * 12}", "version=2"]


TWO_TABLES = """\
srun: job 7 queued
0: # nThread 1 nGpus 1 minBytes 8 maxBytes 8
0: #  Rank  0 Group  0 Pid 1 on a device 0
0: #  Rank  1 Group  0 Pid 2 on a device 1
0: + ./build/sendrecv_perf -b 8
0: #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
0:            8             2     float     sum      -1    10.00    1.00    1.00      0    11.00    1.00    1.00    N/A
# Collective test starting: alltoall_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 8
#  Rank  0 Group  0 Pid 1 on a device 0
#  Rank  1 Group  0 Pid 2 on a device 1
#  Rank  2 Group  0 Pid 2 on a device 2
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           8             2     float    none      -1    20.00    1.00    1.00      0    21.00    1.00    1.00      0
"""


def test_each_table_of_an_nccl_log_has_its_own_collective_and_ranks() -> None:
    results = read("log.txt", TWO_TABLES).runs[0].results
    assert {(r.benchmark, r.variant["ranks"]) for r in results} == {("coll.send_recv", 2), ("coll.all_to_all", 3)}
    assert len(results) == 4


def test_a_commit_that_was_measured_again_has_a_run_for_each_time() -> None:
    entries = [
        {"commit": {"id": SHA}, "date": 1000 + at, "benches": [{"name": "get", "value": value, "unit": "ms"}]}
        for at, value in enumerate((304.0, 305.0, 305.0))
    ]
    imported = read("data.js", {"repoUrl": "x", "entries": {"S": [*entries, entries[0]]}})
    assert values(imported) == [304.0, 305.0, 305.0] and len(imported.runs) == 3
    (again,) = imported.problems
    assert "again" in again.reason


def test_a_collective_that_one_log_measures_again_is_another_series() -> None:
    start = TWO_TABLES.index("# Collective")
    again = TWO_TABLES[start:] + "NCCL version 2.30.3+cuda13.0\n" + TWO_TABLES[start:]
    (run,) = read("log.txt", again).runs
    assert [result.variant.get("table") for result in run.results] == [None, None, 2, 2]
    assert run.environment["nccl"] == "2.30.3"
