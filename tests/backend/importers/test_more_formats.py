"""Formats whose files need more than an example: wide tables, event files, traces, directories of criterion."""

import json
import sqlite3
import struct
from pathlib import Path

import pytest

from backend.contract import Direction, Measurement, ResultStatus, Role, variant_key
from backend.importers import Context, Imported, Unreadable, read_file

SHA = "9f3c2e1d0b5a4c7e8f90a1b2c3d4e5f60718293a"


def read(name: str, content: object, *, format_name: str | None = None, **stated: dict[str, str]) -> Imported:
    data = (
        content
        if isinstance(content, bytes)
        else content.encode()
        if isinstance(content, str)
        else json.dumps(content).encode()
    )
    context = Context(project="northsea/loom", testbed="h200-sxm", commit=SHA, **stated)  # type: ignore[arg-type]
    return read_file(name, data, context, format_name)


def measured(imported: Imported) -> dict[tuple[str, str, str], Measurement]:
    return {
        (result.benchmark, variant_key(result.variant), measurement.metric): measurement
        for run in imported.runs
        for result in run.results
        for measurement in result.measurements
    }


# --- wide tables -----------------------------------------------------------------------------------------------------


def test_a_column_of_a_wide_table_is_a_metric_or_tells_rows_apart() -> None:
    found = measured(read("softmax.csv", "N,provider,latency (ms),GB/s\n4096,triton,0.5,1300\n4096,torch,0.7,1200\n"))
    assert {key: m.value for key, m in found.items()} == {
        ("softmax", "N=4096,provider=triton", "latency"): 0.5,
        ("softmax", "N=4096,provider=triton", "GB/s"): 1300,
        ("softmax", "N=4096,provider=torch", "latency"): 0.7,
        ("softmax", "N=4096,provider=torch", "GB/s"): 1200,
    }
    ways = {key[2]: m.direction for key, m in found.items()}
    assert ways == {"latency": Direction.LOWER, "GB/s": Direction.HIGHER}


def test_columns_say_what_they_are_by_option() -> None:
    table = "case,run,Triton,Torch\nadd,1,5.0,6.0\n"
    columns = {"case": "benchmark", "Triton": "metric.triton_gbps", "Torch": "metric"}
    imported = read("x.csv", table, columns=columns, directions={"*": "higher"})
    assert set(measured(imported)) == {("add", "run=1", "triton_gbps"), ("add", "run=1", "Torch")}


def test_the_steps_of_a_training_are_samples_of_one_result() -> None:
    found = measured(read("export.csv", "Step,run,tokens_per_s\n1,a,100\n2,a,110\n3,a,120\n"))
    ((key, measurement),) = found.items()
    assert key == ("export", "run=a", "tokens_per_s")
    assert measurement.samples == ((100, 110, 120),) and measurement.value == 110


def test_two_rows_that_nothing_tells_apart_are_not_averaged() -> None:
    imported = read("x.csv", "latency (ms)\n1.0\n3.0\n")
    assert [m.value for m in measured(imported).values()] == [1.0]
    assert "x.csv:2" in imported.problems[0].reason and imported.problems[0].where == "x.csv:3"


# --- serving ---------------------------------------------------------------------------------------------------------

LINE = {"backend": "sglang", "request_rate": float("inf"), "completed": 8, "request_throughput": 3.9,
        "total_throughput": 81.5, "median_e2e_latency_ms": 12.0, "accept_length": None,
        "server_info": {"model_path": "llama-8b"}}  # fmt: skip


def test_lines_of_sglang_with_infinite_rates_and_the_model_of_the_server_are_taken() -> None:
    lines = "\n".join(json.dumps({**LINE, "max_concurrency": many}) for many in (8, 16))
    imported = read("serving.jsonl", lines)
    assert imported.format == "sglang" and not imported.problems
    assert {key[1] for key in measured(imported)} == {
        f"backend=sglang,max_concurrency={many},model=llama-8b,request_rate=inf" for many in (8, 16)
    }


# --- criterion -------------------------------------------------------------------------------------------------------


def test_criterion_names_a_benchmark_by_its_directories() -> None:
    estimates = {"median": {"point_estimate": 810.5}, "mean": {"point_estimate": 812.0}}
    imported = read("target/criterion/sort/quick/1000/new/estimates.json", estimates)
    assert [(key[0], m.value) for key, m in measured(imported).items()] == [("sort/quick/1000", 810.5)]
    assert read("target/criterion/sort/quick/base/estimates.json", estimates).runs == ()
    assert "--variant benchmark=NAME" in read("estimates.json", estimates).problems[0].reason


def test_cargo_criterion_gives_the_time_of_an_iteration() -> None:
    message = {"reason": "benchmark-complete", "id": "fib/20", "iteration_count": [10, 20], "unit": "ns",
               "measured_values": [100.0, 240.0], "median": {"estimate": 11.0, "unit": "ns"}}  # fmt: skip
    (measurement,) = measured(
        read("m.json", json.dumps(message) + "\n" + json.dumps({"reason": "group-complete"}))
    ).values()
    assert measurement.samples == ((10.0, 12.0),)


# --- MLPerf Inference ------------------------------------------------------------------------------------------------

SUMMARY = """\
MLPerf Results Summary
SUT name : PySUT
Scenario : SingleStream
Mode     : PerformanceOnly
90th percentile latency (ns) : 4100000
Result is : VALID
Additional Stats
90th percentile latency (ns) : 4100000
99.90 percentile latency (ns) : 9100000
"""


def test_the_latency_of_a_single_stream_gates_and_its_place_names_the_model() -> None:
    imported = read("closed/x/results/h200/bert-99/SingleStream/performance/run_1/mlperf_log_summary.txt", SUMMARY)
    found = {key[0::2]: m.role for key, m in measured(imported).items()}
    assert found == {
        ("mlperf.bert-99", "p90_latency_ns"): Role.GATE,
        ("mlperf.bert-99", "p99.9_latency_ns"): Role.WATCH,
    }
    invalid = read("x.txt", SUMMARY.replace(": VALID", ": INVALID"), variant={"model": "bert-99"})
    assert invalid.runs[0].results[0].status is ResultStatus.FAILED


# --- traces ----------------------------------------------------------------------------------------------------------


def event(category: str, name: str, start: float, length: float) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length}


def test_a_step_of_a_trace_is_computing_exposed_communication_copies_and_idleness() -> None:
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 10_000),
        event("gpu_user_annotation", "ProfilerStep#1", 0, 10_000),
        event("kernel", "gemm", 1000, 4000),
        event("kernel", "ncclDevKernel_AllReduce", 4000, 3000),  # 1 ms of it beside the gemm
        event("gpu_memcpy", "Memcpy HtoD", 8000, 500),
    ]
    found = {
        key[2] + key[1]: m.value
        for key, m in measured(read("t.json", {"traceEvents": events}, variant={"trace": "x"})).items()
    }
    assert found == {
        "step_mstrace=x": 10.0, "compute_mstrace=x": 4.0, "exposed_communication_mstrace=x": 2.0,
        "exposed_copies_mstrace=x": 0.5, "idle_mstrace=x": 3.5,
        "kernel_mskernel=gemm,trace=x": 4.0, "kernel_mskernel=ncclDevKernel_AllReduce,trace=x": 3.0,
    }  # fmt: skip


def test_a_profile_of_nsight_systems_gives_the_time_of_its_kernels(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "profile.sqlite") as made:
        made.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        made.execute(
            """CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
               (start INTEGER, "end" INTEGER, deviceId INTEGER, demangledName INTEGER)"""
        )
        made.execute("INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'softmax')")
        made.execute(
            """INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
               VALUES (0, 2000000, 0, 1), (1000000, 3000000, 0, 2), (5000000, 6000000, 0, 1)"""
        )
    made.close()
    data = (tmp_path / "profile.sqlite").read_bytes()
    found = {key[1:]: m.value for key, m in measured(read("profile.sqlite", data, variant={"trace": "x"})).items()}
    assert found == {("trace=x", "gpu_busy_ms"): 4.0, ("kernel=gemm,trace=x", "kernel_ms"): 3.0,
                     ("kernel=softmax,trace=x", "kernel_ms"): 2.0}  # fmt: skip
    with pytest.raises(Unreadable, match="SQLite"):
        read("profile.sqlite", data[:200], variant={"trace": "x"})


# --- TensorBoard -----------------------------------------------------------------------------------------------------


def field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def record(message: bytes) -> bytes:
    return struct.pack("<QI", len(message), 0) + message + struct.pack("<I", 0)


def scalar(tag: str, value: float, *, as_tensor: bool) -> bytes:
    simple = bytes([2 << 3 | 5]) + struct.pack("<f", value)
    tensor = field(8, bytes([1 << 3, 1]) + field(4, struct.pack("<f", value)))
    summary = field(1, field(1, tag.encode()) + (tensor if as_tensor else simple))
    return record(bytes([1 << 3 | 1]) + struct.pack("<d", 1758464000.0) + field(5, summary))


@pytest.mark.parametrize("as_tensor", [False, True])
def test_scalars_of_an_event_file_are_samples_and_losses_are_left_out(as_tensor: bool) -> None:
    began = record(bytes([1 << 3 | 1]) + struct.pack("<d", 1758464000.0) + field(3, b"brain.Event:2"))
    values = {"throughput(tps)": (1.0, 100.0, 120.0), "loss_metrics/global_avg_loss": (9.0, 8.0, 7.0)}
    steps = [scalar(tag, value, as_tensor=as_tensor) for tag, many in values.items() for value in many]
    cut = scalar("throughput(tps)", 130.0, as_tensor=as_tensor)[:-3]
    imported = read("events.out.tfevents.1.host", b"".join([began, *steps, cut]), variant={"config": "llama3-8b"})
    ((key, measurement),) = measured(imported).items()
    assert key == ("training", "config=llama3-8b", "tokens_per_s") and measurement.samples == ((100.0, 120.0),)
    assert imported.runs[0].started_at == "2025-09-21T14:13:20+00:00"
    assert "global_avg_loss" in " ".join(imported.notes)


@pytest.mark.parametrize(("tags", "reason"), [((), "no scalars"), (("loss", "lr"), "speed or memory: loss, lr")])
def test_an_event_file_without_a_speed_is_refused_with_the_reason(tags: tuple[str, ...], reason: str) -> None:
    began = record(bytes([1 << 3 | 1]) + struct.pack("<d", 1758464000.0) + field(3, b"brain.Event:2"))
    data = b"".join([began, *(scalar(tag, 1.0, as_tensor=False) for tag in tags)])
    imported = read("events.out.tfevents.1.host", data, variant={"config": "llama3-8b"})
    assert not imported.runs and reason in imported.problems[0].reason


def test_a_page_of_conbenchs_answer_holds_its_results() -> None:
    result = {"tags": {"name": "file-read", "cpu_count": None}, "stats": {"data": [0.2, 0.3], "unit": "s"}}
    imported = read("page.json", {"data": [result], "metadata": {"next_page_cursor": None}})
    assert imported.format == "conbench" and set(measured(imported)) == {("file-read", "", "seconds")}
