"""The further commands over real runs: profiles, diagnosis of two commits, export, interleaving, experiments, ranks."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backend.contract import parse_run

pytestmark = pytest.mark.torch

pytest.importorskip("torch")

from benchmarks.harness.profiling import STEPS  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

SLOWER = (
    "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "a = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5; "
    "a = a.masked_fill(torch.tril(torch.ones(T, T)) == 0, float('-inf')); "
    "y = (torch.softmax(a, -1) @ v)",
)


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory, gpt_source):
    """Base and head of a project: the same model, and one whose attention is spelled out."""
    folders = {}
    for arm in ("base", "head"):
        folders[arm] = tmp_path_factory.mktemp(arm)
        (folders[arm] / "loom").mkdir()
        (folders[arm] / "loom" / "__init__.py").write_text("")
        text = gpt_source if arm == "base" else gpt_source.replace(*SLOWER)
        assert arm == "base" or text != gpt_source
        (folders[arm] / "loom" / "model.py").write_text(text)
    return folders


@pytest.fixture(scope="module")
def interleaved(checkouts, tmp_path_factory, run_command):
    """One ABBA round of the two, every turn's run kept."""
    kept = tmp_path_factory.mktemp("kept")
    arms = [f"--{arm}={folder}" for arm, folder in checkouts.items()]
    options = ["--implementation=loom.model:build", "--rounds=1", f"--keep={kept}", "--json"]
    return run_command("interleave", "gpt.train", *arms, *options), kept


def test_an_interleaved_session_finds_the_slower_arm(interleaved):
    done, _ = interleaved
    assert done.returncode == 0, done.stderr
    found = {one["metric"]: one for one in json.loads(done.stdout)}
    assert found["activation_bytes"]["change"] > 0.2
    assert found["step_over_yardstick"]["processes"] == {"base": 2, "head": 2}


def test_every_turn_is_a_run_of_its_own_that_names_session_and_arm(interleaved):
    runs = [
        parse_run((interleaved[1] / turn / "run.json").read_bytes())
        for turn in ("base-0", "head-0", "head-1", "base-1")
    ]
    assert len({run.session.id for run in runs}) == 1
    assert [run.session.arm for run in runs] == ["base", "head", "head", "base"]
    assert {run.session.order for run in runs} == {"ABBA"}
    assert len({run.id for run in runs}) == 4


def test_abba_turns_round_so_that_a_linear_drift_hits_both_arms_alike():
    from benchmarks.running.interleave import abba

    order = [turn.arm for turn in abba(2)]
    assert order == ["base", "head", "head", "base", "head", "base", "base", "head"]
    positions = {arm: sum(i for i, a in enumerate(order) if a == arm) for arm in ("base", "head")}
    assert positions["base"] == positions["head"]


def test_diagnose_of_two_runs_names_counters_that_moved(interleaved, run_command):
    runs = [str(interleaved[1] / turn / "run.json") for turn in ("base-0", "head-0")]
    done = run_command("diagnose", *runs, "--json")
    found = json.loads(done.stdout)
    assert "activation_bytes" in {name for name, _, _ in found["counters"]}
    assert "→" in run_command("diagnose", *runs).stdout


def test_diagnose_of_one_run_gives_each_result_its_class(interleaved, run_command):
    done = run_command("diagnose", str(interleaved[1] / "base-0" / "run.json"), "--json")
    assert json.loads(done.stdout)[0]["class"].endswith("_bound")


def test_a_file_that_is_no_run_is_said_so(tmp_path, run_command):
    (tmp_path / "x.json").write_text("{}")
    for path, said in ((tmp_path / "x.json", "is no run"), (tmp_path / "none.json", "cannot read")):
        done = run_command("diagnose", str(path))
        assert done.returncode == 2
        assert said in done.stderr


def test_v3_records_are_one_per_metric_with_unit_and_direction(interleaved, run_command):
    path = interleaved[1] / "base-0" / "run.json"
    records = [json.loads(line) for line in run_command("export", str(path)).stdout.splitlines()]
    measured = json.loads(path.read_text())["results"][0]["measurements"]
    assert [r["metric"]["name"] for r in records] == [m["metric"] for m in measured]
    gate = next(r for r in records if r["metric"]["name"] == "step_over_yardstick")
    assert gate["metric"]["extra_info"] == {"unit": "ratio", "direction": "lower", "role": "gate"}
    assert gate["schema_version"] == "v3"


def test_failed_results_are_not_exported_as_zero(interleaved):
    from benchmarks.output.v3 import records

    run = json.loads((interleaved[1] / "base-0" / "run.json").read_text())
    run["results"][0]["status"] = "out_of_memory"
    assert list(records(run)) == []


def test_a_profile_gives_kernels_by_phase_and_a_trace_outside_of_the_samples(tmp_path, run_command):
    out = tmp_path / "run.json"
    chosen = ("--variant=impl=grouped_mm", "--variant=load=uniform", "--processes=1")
    done = run_command("run", "moe.layer", *chosen, "--profile", f"--out={out}")
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())["results"][0]
    kernels = json.loads((tmp_path / result["artifacts"]["kernels"]).read_text())
    assert {"forward", "backward"} <= set(kernels["phase"])
    assert STEPS >= 5
    assert kernels["calls_per_step"][kernels["name"].index("aten::mm")] >= 1
    trace = json.loads(gzip.decompress((tmp_path / result["artifacts"]["trace"]).read_bytes()))
    names = {event.get("name") for event in trace["traceEvents"]}
    assert {"phase: forward", "phase: backward", "aten::mm"} <= names
    gate = next(m for m in result["measurements"] if m["metric"] == "step_over_yardstick")
    assert len(gate["processes"]) == 1


def test_an_experiment_compares_its_arms(run_command):
    done = run_command("experiment", "parts", "gpt.train", "--json")
    figures = json.loads(done.stdout)[0]["figures"]
    assert figures["forward_ms"] < figures["forward_backward_ms"] < figures["full_step_ms"]


def test_an_experiment_that_makes_no_sense_is_refused(run_command):
    done = run_command("experiment", "communication", "attn.decode")
    assert done.returncode == 2
    assert "does not communicate" in done.stderr


def test_ranks_agree_on_every_element_and_report_bandwidth(tmp_path, run_command):
    out = tmp_path / "run.json"
    done = run_command("run", "coll.reduce_scatter", "--processes=1", f"--out={out}")
    assert done.returncode == 0, done.stderr
    parse_run(out.read_bytes())
    applicable = [r for r in json.loads(out.read_text())["results"] if r["status"] != "not_applicable"]
    assert applicable
    for result in applicable:
        assert result["correctness"]["state"] == "pass"
        assert [point["bytes"] for point in result["notes"]["curve"]] == result["config"]["sizes"]
        assert result["world_size"] == 2
        found = {m["metric"]: m["value"] for m in result["measurements"]}
        assert found["wrong_elements"] == 0
        assert found["busbw_gb_per_s"] > 0
        assert found["latency_us"] > 0


def test_the_first_command_of_the_readme_works_in_a_bare_copy(tmp_path):
    """With `-P` and nothing else, python finds no module in the folder that holds the copy."""
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=skipped)
    readme = (tmp_path / "benchmarks" / "README.md").read_text()
    first = readme.partition("```sh\n")[2].splitlines()[0].partition("#")[0].split()
    assert first[0] == "python"
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "PYTHON"))}
    # Without what is installed, for an installed suite would be found from anywhere.
    command = [sys.executable, "-S", *first[1:]]
    done = subprocess.run(command, cwd=tmp_path, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "gpt.ladder" in done.stdout
