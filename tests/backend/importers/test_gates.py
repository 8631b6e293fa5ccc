"""The right gate and the right way: rates of MLPerf's blocks, units before tools, columns of old nccl-tests."""

import json
from dataclasses import replace

import pytest

from backend.contract import Direction, Measurement, ResultStatus, Role
from backend.importers import Context, Imported, read_file
from backend.importers.direction import direction_of_unit

SHA = "9f3c2e1d0b5a4c7e8f90a1b2c3d4e5f60718293a"
STATED = Context(project="northsea/loom", testbed="h200-sxm", commit=SHA)


def read(name: str, content: object, format_name: str | None = None) -> Imported:
    data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
    return read_file(name, data, STATED, format_name)


def measured(imported: Imported) -> dict[str, Measurement]:
    (result,) = imported.runs[0].results
    return {measurement.metric: measurement for measurement in result.measurements}


Event = tuple[int, str, object, dict[str, object]]
Events = list[Event]


def log(*events: Event) -> str:
    said = {"submission_benchmark": "llama31_8b", "global_batch_size": 64, "run_start": None}
    first: Events = [(0, key, value, {}) for key, value in said.items()]
    return "\n".join(
        ":::MLLOG " + json.dumps({"time_ms": at, "key": key, "value": value, "metadata": about})
        for at, key, value, about in (*first, *events)
    )


STOP: Event = (30_000, "run_stop", None, {"status": "success"})
ENDS = ((0, "block_start"), (9000, "block_stop"), (10_000, "block_start"), (15_000, "block_stop"))


def blocks(name: str, *values: int, **more: int) -> Events:
    """Two blocks whose ends state these values under a name."""
    return [(at, key, None, {**more, name: value}) for (at, key), value in zip(ENDS, values, strict=True)]


SIZES = blocks("samples_count", 640, 640, 640, 640)
STEPS = blocks("step", 0, 10, 10, 20, samples_count=9999)
COUNTS = blocks("samples_count", 0, 640, 640, 1280)


@pytest.mark.parametrize("found", [SIZES, STEPS, COUNTS], ids=["size at both ends", "steps", "counted from the start"])
def test_blocks_give_a_throughput_that_gates_however_they_state_their_samples(found: Events) -> None:
    throughput = measured(read("result_0.txt", log(*found, STOP)))["throughput"]
    assert throughput.value == 640 / 5.0 and throughput.role is Role.GATE


def test_step_times_have_their_unit_and_losses_are_no_speed() -> None:
    tracked = (1000, "tracked_stats", {"train_step_time": 0.085, "reduced_train_loss": 8.2, "warmup_time": 203.6}, {})
    found = measured(read("result_0.txt", log(tracked, STOP)))
    assert found["train_step_time"].unit == "s" and found["train_step_time"].direction is Direction.LOWER
    assert set(found) == {"time_to_train_s", "train_step_time", "warmup_time"}
    assert {m.role for m in found.values()} == {Role.WATCH}


@pytest.mark.parametrize("stop", [[], [(30_000, "run_stop", None, {"status": "aborted"})]])
def test_a_run_that_did_not_end_well_is_a_failed_result(stop: Events) -> None:
    (result,) = read("result_0.txt", log(*SIZES, *stop)).runs[0].results
    assert result.status is ResultStatus.FAILED and result.measurements == ()


UNITS = [
    ("ops/s", "higher"), ("MiB/s", "higher"), ("req/s", "higher"), ("tok/s", "higher"), ("iter/sec", "higher"),
    ("requests/sec", "higher"), ("tokens per second", "higher"), ("GFLOPS", "higher"),
    ("ms", "lower"), ("ns/op", "lower"), ("MiB", "lower"), ("ns/iter", "lower"), ("allocs/op", "lower"), ("s", "lower"),
    ("points", None), ("", None), ("1", None), ("%", None), ("steps", None),
]  # fmt: skip


@pytest.mark.parametrize(("unit", "way"), UNITS)
def test_a_unit_says_which_way_is_better_or_nothing(unit: str, way: str | None) -> None:
    assert direction_of_unit(unit) == (None if way is None else Direction(way))


@pytest.mark.parametrize(
    ("tool", "unit", "way"),
    [
        ("customSmallerIsBetter", "req/s", "higher"),
        ("customBiggerIsBetter", "MiB", "lower"),
        ("customBiggerIsBetter", "points", "higher"),
        ("cargo", "points", "lower"),
    ],
)
def test_a_unit_wins_over_the_habit_of_its_tool(tool: str, unit: str, way: str) -> None:
    bench = {"name": "x", "value": 3, "unit": unit}
    history = {"repoUrl": "x", "entries": {"S": [{"commit": {"id": SHA}, "tool": tool, "date": 1, "benches": [bench]}]}}
    assert measured(read("data.js", history))["value"].direction == Direction(way)


def test_a_unit_that_says_nothing_asks_for_the_direction() -> None:
    record = {"benchmark": {"name": "b"}, "head_sha": SHA,
              "metric": {"name": "score", "benchmark_values": [1], "extra_info": {"unit": "points"}}}  # fmt: skip
    (problem,) = read("v3.json", [record]).problems
    assert "'points'" in problem.reason and "--direction 'score=lower'" in problem.reason


OLD_NCCL = """\
# ./build/all_reduce_perf -b 8
#       size         count    type   redop     time   algbw   busbw    error     time   algbw   busbw    error
   536870912     134217728   float     sum    19335    27.8    41.6    2e+00    19340    27.8    41.6    N/A
"""


def test_the_error_column_of_old_nccl_tests_shifts_nothing() -> None:
    results = read("all_reduce_perf.log", OLD_NCCL).runs[0].results
    assert [result.status for result in results] == [ResultStatus.OK, ResultStatus.OK]
    first = {m.metric: m.value for m in results[0].measurements}
    assert first == {"time_us": 19335, "algbw_gb_per_s": 27.8, "busbw_gb_per_s": 41.6}


def test_torchbench_latencies_are_milliseconds_and_its_memory_is_gigabytes() -> None:
    metrics = {"resnet50[cuda-eager]_latency": 12.5, "bert[cuda-eager], gpu_peak_mem": 4.1}
    results = read("m.json", {"name": "eval", "environ": {}, "metrics": metrics}).runs[0].results
    assert [(m.metric, m.unit) for r in results for m in r.measurements] == [("latency", "ms"), ("gpu_peak_mem", "GB")]


def google(*entries: dict[str, object]) -> Imported:
    return read("g.json", {"context": {}, "benchmarks": [{"time_unit": "ns", **entry} for entry in entries]})


def test_counters_of_google_benchmark_are_metrics() -> None:
    found = measured(google({"name": "BM_Gemm", "run_type": "iteration", "real_time": 5.0, "cpu_time": 5.0,
                             "threads": 1, "iterations": 9, "GFLOPS": 812.5, "label": "fp32"}))  # fmt: skip
    assert set(found) == {"real_time", "cpu_time", "GFLOPS"} and found["GFLOPS"].direction is Direction.HIGHER


def test_aggregates_without_a_label_are_told_by_their_names_and_only_the_median_is_taken() -> None:
    imported = google(*({"name": f"BM_Gemm_{kind}", "real_time": value, "cpu_time": value}
                        for kind, value in (("mean", 1.0), ("median", 2.0), ("stddev", 0.1))))  # fmt: skip
    assert "only the median is a measurement" in " ".join(imported.notes)
    assert {result.benchmark for result in imported.runs[0].results} == {"BM_Gemm"}
    assert measured(imported)["real_time"].value == 2.0


def test_where_a_unit_and_its_tool_differ_that_is_said_and_the_benchmark_can_be_turned() -> None:
    listed = [{"name": "Free memory", "unit": "MB", "value": 812}]
    unit_counts = read("x.json", listed, "custom-bigger-is-better")
    assert measured(unit_counts)["value"].direction is Direction.LOWER
    assert "Free memory: its unit, MB, says that lower is better" in unit_counts.notes[0]
    turned = replace(STATED, directions={"Free *": "higher"})
    imported = read_file("x.json", json.dumps(listed).encode(), turned, "custom-bigger-is-better")
    assert measured(imported)["value"].direction is Direction.HIGHER and not imported.notes
