"""One tool's files differ from version to version: each difference here was seen in a file of others."""

import json

import pytest

from backend.contract import Direction, ResultStatus
from backend.importers import Context, Imported, Unreadable, read_file

SHA = "9f3c2e1d0b5a4c7e8f90a1b2c3d4e5f60718293a"


def read(name: str, content: object, **stated: dict[str, str]) -> Imported:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    context = Context(project="northsea/loom", testbed="h200-sxm", commit=SHA, **stated)  # type: ignore[arg-type]
    return read_file(name, data, context)


def names(imported: Imported) -> list[str]:
    return [result.benchmark for run in imported.runs for result in run.results]


def test_old_criterion_capitalised_its_estimates() -> None:
    imported = read(
        "criterion_bak/sort/4/new/estimates.json", {"Median": {"point_estimate": 21.5, "standard_error": 1}}
    )
    assert names(imported) == ["sort/4"]
    assert imported.runs[0].results[0].measurements[0].value == 21.5


def test_a_place_that_is_not_below_criterion_names_no_benchmark() -> None:
    imported = read("elsewhere/sort/4/new/estimates.json", {"median": {"point_estimate": 21.5}})
    assert "state it with --variant benchmark=NAME" in imported.problems[0].reason


def test_old_sglang_stated_no_request_throughput() -> None:
    row = {"backend": "sglang", "request_rate": 4, "total_output_tokens_retokenized": 9, "median_ttft_ms": 91.0,
           "median_e2e_latency_ms": 240.0, "output_throughput": 4520.0}  # fmt: skip
    imported = read("offline.jsonl", row, variant={"model": "llama"})
    assert (imported.format, names(imported)) == ("sglang", ["sglang.serve"])


def test_what_a_sweep_of_vllm_varied_tells_its_rows_apart_and_its_repetitions_are_runs() -> None:
    def row(run: int, seqs: int, rate: float) -> dict[str, object]:
        return {"model_id": "opt", "request_throughput": rate, "median_ttft_ms": 3.0, "std_ttft_ms": rate, "rtfx": rate,
                "max_output_tokens_per_s": rate, "run_number": run, "max_num_seqs": seqs}  # fmt: skip

    imported = read("summary.json", [row(0, 4, 5.0), row(1, 4, 6.0), row(0, 8, 7.0), row(1, 8, 8.0)])
    assert (len(imported.runs), imported.problems) == (2, ())
    variants = [[result.variant for result in run.results] for run in imported.runs]
    assert variants == [[{"model_id": "opt", "max_num_seqs": 4}, {"model_id": "opt", "max_num_seqs": 8}]] * 2


def test_lm_evals_number_of_samples_is_no_metric_and_a_metric_has_the_way_of_its_task() -> None:
    imported = read(
        "results.json",
        {
            "results": {
                "humaneval": {"sample_len": 164, "pass@1,create_test": 0.15, "pass@1_stderr,create_test": "N/A"}
            },
            "higher_is_better": {"humaneval": {"pass_at_k": True}},
            "versions": {"humaneval": 1},
            "config": {"model": "hf", "model_args": "pretrained=llama"},
        },
    )
    (measurement,) = imported.runs[0].results[0].measurements
    assert (measurement.value, measurement.direction, imported.problems) == (0.15, Direction.HIGHER, ())


def test_a_test_of_torchbench_that_ended_with_a_word_has_failed() -> None:
    case = "model={}, test=eval, device=cuda, extra_args=--precision bf16, metric={}"
    metrics = {
        case.format("alexnet", "latencies"): 2.9,
        case.format("alexnet", "gpu_peak_mem"): 26.7,
        case.format("drq", "latencies"): "err",
        case.format("moco", "latencies"): "not_implemented",
        case.format("nan", "latencies"): "NaN",
        "resnet18-eval_latency": 42.1,
    }
    imported = read(
        "metrics.json", {"name": "group_bench", "environ": {"pytorch_git_version": SHA}, "metrics": metrics}
    )
    results = {str(result.variant["case"]): result for result in imported.runs[0].results}
    units = {case: result.measurements[0].unit for case, result in results.items() if result.measurements}
    assert list(units.values()) == ["ms", "GB", "ms"]
    failed = [result.error for result in results.values() if result.status is ResultStatus.FAILED]
    assert failed == ["the benchmark says 'err'", "the benchmark says 'not_implemented'"]
    assert [problem.reason for problem in imported.problems] == ["'NaN' is no finite number"]


def test_aiperf_names_model_and_load_in_lists_since_its_version_0_11() -> None:
    warm_up = {"name": "warm-up", "concurrency": 1, "exclude_from_results": True}
    phases = [warm_up, {"name": "profiling", "concurrency": 128}]
    asked = {"models": {"items": [{"name": "qwen3-4b"}]}, "phases": phases}
    imported = read(
        "profile_export_aiperf.json",
        {"request_throughput": {"unit": "requests/sec", "avg": 18.1}, "telemetry_data": {}, "input_config": asked,
         "min_request_timestamp": {"unit": "ns", "avg": 1.8e18}},
    )  # fmt: skip
    assert imported.read == 1  # when a request was sent is no measurement
    assert imported.runs[0].results[0].variant == {"model": "qwen3-4b", "concurrency": 128}


def test_a_line_may_hold_a_list_of_records() -> None:
    def record(model: str) -> dict[str, object]:
        return {
            "benchmark": {"name": "b"},
            "model": {"name": model},
            "metric": {"name": "latency", "benchmark_values": [1.0]},
        }

    lines = "\n".join([json.dumps(record("a")), json.dumps([record("b"), record("c")])]).encode()
    assert read("records.json", lines).read == 3


def test_a_text_in_a_line_may_hold_what_python_takes_for_the_end_of_one() -> None:
    metric = {"name": "x", "benchmark_values": [1]}
    record = {"benchmark": {"name": "b"}, "model": {"name": "a\u2028b"}, "metric": metric}
    lines = "\r\n".join(json.dumps(record, ensure_ascii=False) for _ in range(2)).encode()
    assert read("records.json", lines).read == 2


def test_what_windows_redirected_is_read() -> None:
    table = "benchmark,metric,value,unit\nroute,step,1.5,ms\n"
    assert read("table.csv", table.encode("utf-16")).read == 1


@pytest.mark.parametrize(
    ("data", "said"), [(b"", "is empty"), (b" \n", "is empty"), (b"\xff\xfea", "starts like UTF-16"),
                       (b"[" + b"9" * 5000 + b"]", "JSON of no known format")])  # fmt: skip
def test_a_file_of_no_use_says_why(data: bytes, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        read("results.json", data)


def test_a_profile_without_kernels_says_so() -> None:
    with pytest.raises(Unreadable, match="no GPU kernel in the trace"):
        read("trace.json", {"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 2}]}, variant={"trace": "x"})


def test_a_chart_that_wandb_exported_has_a_run_in_each_column_and_bounds_that_are_no_metrics() -> None:
    chart = (
        '"Step","sunny-1 - tokens_per_s","sunny-1 - tokens_per_s__MIN","sunny-1 - tokens_per_s__MAX",'
        '"misty-2 - tokens_per_s","misty-2 - tokens_per_s__MIN","misty-2 - tokens_per_s__MAX"\n'
        '"1","100","99","101","","",""\n"2","110","109","111","90","89","91"\n'
    )
    imported = read("wandb_export.csv", chart.encode())
    found = {str(result.variant["run"]): result.measurements[0].samples for result in imported.runs[0].results}
    assert found == {"sunny-1": ((100.0, 110.0),), "misty-2": ((90.0,),)}
    assert {m.metric for result in imported.runs[0].results for m in result.measurements} == {"tokens_per_s"}


@pytest.mark.parametrize("missing", [None, float("nan"), "NaN"])
def test_an_iteration_without_a_value_voids_a_result_of_conbench(missing: object) -> None:
    imported = read("results.json", [
        {"tags": {"name": "file-read"}, "github": {"commit": SHA}, "stats": {"data": [0.5, missing], "unit": "s"}},
        {"tags": {"name": "file-write"}, "github": {"commit": SHA}, "stats": {"data": [0.5, 0.6], "unit": "s"}},
    ])  # fmt: skip
    errors = {result.benchmark: result.error for result in imported.runs[0].results}
    assert errors == {"file-read": "iteration 2 of 2 gave no value", "file-write": None}
