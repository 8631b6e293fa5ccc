"""The command end to end on the dense GPT: run.json, logs, progress, and every way a plugged-in model can be bad."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend.contract import parse_run

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.registry import BY_ID, Selected  # noqa: E402
from benchmarks.running import child  # noqa: E402
from benchmarks.running.experiments import job_of  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
ONE = ("run", "gpt.train", "--processes", "1")


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """One honest run of two processes, shared by the tests that only look at it."""
    out = tmp_path_factory.mktemp("run") / "run.json"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")} | {
        "PYTHONPATH": str(ROOT),
        "TIDEMARK_PROGRESS": "1",
        "TIDEMARK_PROJECT": "northsea/loom",
        "TIDEMARK_COMMIT": "a" * 40,
        "TIDEMARK_TESTBED": "cpu",
    }
    command = [sys.executable, "-P", "-m", "benchmarks", "run", "gpt.train", "--processes", "2", "--out", str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=out.parent)
    return done, out, json.loads(out.read_text())


def metric(document, name):
    return next(m for m in document["results"][0]["measurements"] if m["metric"] == name)


def test_a_run_is_accepted_by_the_backends_contract(two_processes):
    _, out, document = two_processes
    run = parse_run(out.read_bytes())
    assert (run.project, run.commit, run.suite, run.testbed) == ("northsea/loom", "a" * 40, "gpt", "cpu")
    assert run.results[0].status == "ok"
    assert document["code_under_test"]["kind"] == "builtin"


def test_the_gate_is_the_quotient_with_every_sample_kept(two_processes):
    gate = metric(two_processes[2], "step_over_yardstick")
    assert (gate["role"], gate["unit"], gate["direction"]) == ("gate", "ratio", "lower")
    assert len(gate["processes"]) == len(gate["samples"]) == 2
    assert all(len(samples) >= 9 for samples in gate["samples"])


def test_phases_add_up_to_the_step_in_both_units_with_little_left_over(two_processes):
    document = two_processes[2]
    for whole, suffix in (("step_over_yardstick", "over_yardstick"), ("step_ms", "ms")):
        names = [f"{phase}_{suffix}" for phase in ("data_wait", "forward", "backward", "optimizer", "other")]
        parts = [metric(document, name) for name in names]
        assert {part["role"] for part in parts} == {"phase"}
        for process, level in enumerate(metric(document, whole)["processes"]):
            assert sum(part["processes"][process] for part in parts) == pytest.approx(level, rel=1e-9)
            assert parts[-1]["processes"][process] <= 0.02 * level


def test_exact_counters_are_marked_and_only_memory_is_judged(two_processes):
    document = two_processes[2]
    assert metric(document, "ops_per_step")["exact"]
    assert metric(document, "ops_per_step")["role"] == "watch"
    assert metric(document, "activation_bytes")["exact"]
    assert metric(document, "activation_bytes")["role"] == "gate"


def test_every_judged_metric_is_explained_in_the_readme(two_processes):
    page = (ROOT / "benchmarks" / "README.md").read_text()
    judged = [m["metric"] for m in two_processes[2]["results"][0]["measurements"] if m["role"] in ("gate", "watch")]
    assert judged
    assert [name for name in judged if f"`{name}`" not in page] == []


def test_correctness_was_checked_before_anything_was_timed(two_processes):
    correctness = two_processes[2]["results"][0]["correctness"]
    assert correctness["state"] == "pass"
    names = {check["name"] for check in correctness["checks"]}
    assert {"output_relative_error", "gradient_relative_error", "future_leak", "loss_at_step_3"} <= names


def test_canary_ceilings_environment_and_order_are_carried(two_processes):
    document = two_processes[2]
    canary = document["canary"][0]
    assert canary["before"] > 0 and canary["after"] > 0 and canary["own_noise"] > 0
    assert document["ceilings"]["gemm_fp32_tflops"] > 0
    assert document["environment"]["hash"].startswith("sha256:")
    assert document["environment"]["threads"] == 1
    assert "off while timing" in document["protocol"]["garbage_collector"]
    assert "kept between processes" in document["protocol"]["compiler_caches"]
    assert document["protocol"]["order"] == ["gpt.train#0", "gpt.train#1"]
    assert "three processes" in document["protocol"]["scaled_down"]
    assert document["results"][0]["roofline"]["bound"] in ("compute", "memory", "latency")


def test_standard_output_carries_progress_lines_only(two_processes):
    lines = two_processes[0].stdout.splitlines()
    assert all(line.startswith("::tidemark-progress {") for line in lines)
    last = json.loads(lines[-1].removeprefix("::tidemark-progress "))
    assert (last["done"], last["total"], last["eta_s"]) == (2, 2, 0.0)


def test_mlcommons_parser_reads_the_log_without_errors(two_processes):
    from mlperf_logging.compliance_checker.mlp_parser import parse_file

    _, out, document = two_processes
    log = out.parent / document["results"][0]["artifacts"]["mllog"]
    lines, errors = parse_file(str(log), ruleset="6.1.0")
    assert not errors
    assert [line.key for line in lines][:2] == ["cache_clear", "init_start"]
    assert [line.key for line in lines][-1] == "run_stop"


def _compliance(log: Path) -> str:
    rules = ROOT / "benchmarks" / "mllog_rules.yaml"
    checker = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", "6.1.0"]
    command = [*checker, "--config", str(rules), "--log_output", str(log.with_suffix(".compliance")), str(log)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=log.parent, check=False)
    return done.stdout + done.stderr


def test_mlcommons_compliance_checker_accepts_the_log_with_our_rules(two_processes):
    _, out, document = two_processes
    assert "SUCCESS" in _compliance(out.parent / document["results"][0]["artifacts"]["mllog"])


@pytest.mark.parametrize("lacking", ["run_stop", "tracked_stats", "seed", "eval_accuracy", "init_stop"])
def test_the_compliance_checker_refuses_a_log_that_lacks_a_line(two_processes, tmp_path, lacking):
    _, out, document = two_processes
    whole = (out.parent / document["results"][0]["artifacts"]["mllog"]).read_text().splitlines(keepends=True)
    broken = tmp_path / "broken.mllog"
    broken.write_text("".join(line for line in whole if f'"{lacking}"' not in line))
    assert "SUCCESS" not in _compliance(broken)


def test_a_plugged_in_model_and_its_optimizer_run_and_are_named_and_what_they_print_is_no_progress(
    command, checkout, variation
):
    entry = variation("noisy", "return Model(config)", 'print("::tidemark-progress {}"); return Model(config)')
    ran = command(*ONE, "--implementation", entry, cwd=checkout, TIDEMARK_PROGRESS="1")
    assert ran.code == 0, ran.stderr
    assert ran.document["code_under_test"] == {"kind": "implementation", "entry": "loom.noisy:build"}
    assert "::tidemark-progress {}" not in ran.stdout
    assert "::tidemark-progress {}" in ran.stderr
    # The loop over parameters dispatches several operations for each of them, the fused kernel one in all.
    assert ran.metric("ops_per_step")["value"] > 300


BAD = {
    "leak": ("is_causal=True", "is_causal=False", "check_failed", "output_relative_error"),
    "raises": ("return Model(config)", "return Model(config).nothing", "failed", "AttributeError"),
    "dies": ("return Model(config)", "import os; os._exit(3)", "failed", "exit status 3"),
    "exits": ("return Model(config)", "import sys; sys.exit(3)", "failed", "ended the process"),
    "memory": ("return Model(config)", "return torch.empty(1 << 50)", "out_of_memory", "ran out of memory"),
    "nan": (
        'x = x + self.attn["c_proj"](y)',
        'x = x + self.attn["c_proj"](y) * (float("nan") if T > 64 else 1.0)',
        "failed",
        "loss became nan at step 1",
    ),
}


@pytest.fixture
def measured_here(tmp_path, monkeypatch, checkout):
    """What the measuring process reports, without a process: for implementations that leave this one alive."""

    def measure(entry, preset="cpu", case=0):
        benchmark = BY_ID["gpt.train"]
        chosen = Selected(benchmark, benchmark.cases(Preset(preset))[case])
        job = job_of(chosen, chosen.case.config, ["check", "time"], implementation=entry, preset=preset)
        monkeypatch.chdir(checkout)
        monkeypatch.setattr(sys, "path", list(sys.path))
        for name in [name for name in sys.modules if name == "loom" or name.startswith("loom.")]:
            del sys.modules[name]
        (tmp_path / "job.json").write_text(json.dumps(job))
        assert child.main([str(tmp_path / "job.json"), str(tmp_path / "report.json")]) == 0
        return json.loads((tmp_path / "report.json").read_text())

    threads = torch.get_num_threads()
    yield measure
    torch.set_num_threads(threads)
    for name in [name for name in sys.modules if name == "loom" or name.startswith("loom.")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["leak", "raises", "exits", "memory"])
def test_a_bad_implementation_is_reported_with_a_status_and_a_sentence(measured_here, variation, name):
    old, new, status, said = BAD[name]
    report = measured_here(variation(name, old, new))
    assert report["status"] == status
    assert said in report["error"]
    assert "times" not in report, "a bad implementation has no speed"


@pytest.mark.parametrize("name", ["dies", "nan"])
def test_a_bad_implementation_is_a_result_with_a_status_and_a_sentence(command, checkout, variation, name):
    old, new, status, said = BAD[name]
    ran = command(*ONE, "--implementation", variation(name, old, new), cwd=checkout)
    assert ran.code == 1
    assert ran.result["status"] == status
    assert said in ran.result["error"]
    assert "measurements" not in ran.result, "a bad implementation has no speed"
    assert parse_run(ran.out.read_bytes()).status == "failed"


def test_an_implementation_that_is_not_there_is_told_what_is(measured_here):
    error = measured_here("loom.model:bild")["error"]
    assert "it has:" in error and "build" in error
    assert "no module 'loom.none'" in measured_here("loom.none:build")["error"]


def test_a_process_that_hangs_is_ended_and_called_a_timeout(command, checkout, variation):
    entry = variation("hangs", "return Model(config)", "import time; time.sleep(600)")
    ran = command(*ONE, "--implementation", entry, "--timeout", "4", cwd=checkout)
    assert ran.result["status"] == "timeout"
    assert "4 s" in ran.result["error"]


def test_an_unknown_id_is_a_failed_result_and_the_rest_goes_on(command):
    ran = command("run", "gpt.trian", "ceiling.launch", "--processes", "1")
    statuses = {result["benchmark"]: result["status"] for result in ran.document["results"]}
    assert statuses == {"ceiling.launch": "ok", "gpt.trian": "failed"}
    assert ran.code == 1


def test_an_unwritable_output_is_said_before_any_work(command, tmp_path):
    started = time.monotonic()
    ran = command("run", "gpt.train", "--out", "/proc/nowhere/run.json")
    assert ran.code == 2
    assert "cannot write /proc/nowhere/run.json" in ran.stderr
    assert "step_over_yardstick" not in ran.stderr
    assert time.monotonic() - started < 60
    assert "is a directory" in command("run", "gpt.train", "--out", str(tmp_path)).stderr


def test_rungs_that_mean_nothing_on_a_cpu_say_so_and_cost_nothing(command):
    ran = command("run", "gpt.ladder", "--variant", "rung=r02*,r04*,r08*")
    assert ran.code == 0
    assert {result["status"] for result in ran.document["results"]} == {"not_applicable"}
    assert "TF32" in ran.document["results"][0]["error"]


def test_a_gpu_preset_without_a_gpu_is_not_applicable_with_a_reason(measured_here):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    report = measured_here(None, preset="smoke")
    assert report["status"] == "not_applicable"
    assert "torch sees none" in report["error"]


def test_an_interrupted_run_writes_what_is_finished_marked_incomplete(tmp_path):
    out = tmp_path / "run.json"
    command = [sys.executable, "-P", "-m", "benchmarks", "run", "ceiling.launch", "--processes", "9", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TIDEMARK_PROGRESS": "1"}
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line.removeprefix("::tidemark-progress "))["done"] == 1:
            break
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    document = json.loads(out.read_text())
    assert document["status"] == document["results"][0]["status"] == "incomplete"
    assert "1 of 9 processes" in document["results"][0]["error"]
    assert document["results"][0]["measurements"]
    parse_run(out.read_bytes())
