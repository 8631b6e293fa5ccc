"""Ranks: started here or by torchrun, two and three of them; a lost one is named; the slowest one is what counts."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from backend.contract import parse_run

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.analysis.bandwidth import Operation, least_elements  # noqa: E402
from benchmarks.harness import ranks as harness_ranks  # noqa: E402
from benchmarks.harness.ranks import RankFailed, run_ranks  # noqa: E402
from benchmarks.harness.workload import Job, NotApplicable  # noqa: E402
from benchmarks.registry import (  # noqa: E402
    BY_ID,
    find,
    for_ranks,
    select,
)
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.torchrun import BadPlace, place_of  # noqa: E402
from benchmarks.workloads.collectives import Collective, Payload, check, expected, prepare, sweep  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

BODIES = '''
import os, signal, sys, time
import torch, torch.distributed as dist
from benchmarks.workloads import collectives


def lost(rank, ranks, argument):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(4))


def raising(rank, ranks, argument):
    if rank == 1:
        raise ValueError("rank one has had enough")
    dist.all_reduce(torch.ones(4))


def late(rank, ranks, argument):
    """Rank 1 comes late to every barrier; what is timed begins after it."""
    whole = torch.ones(4)
    pause = (lambda: time.sleep(argument["pause_s"])) if rank == 1 else (lambda: None)
    ready = collectives.Ready(call=lambda: dist.all_reduce(whole), refill=pause, result=whole, base=whole, part=4)
    return [collectives._once(ready, "cpu") for _ in range(4)]


if __name__ == "__main__":
    from benchmarks.harness.ranks import RankFailed, run_ranks

    try:
        run_ranks(globals()[sys.argv[1]], int(os.environ["WORLD_SIZE"]), {}, "gloo", "k")
    except RankFailed as error:
        print(error)
'''


@pytest.fixture
def bodies(tmp_path, monkeypatch):
    """What ranks do; in a file, because they are processes of their own."""
    (tmp_path / "rank_bodies.py").write_text(BODIES)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    import rank_bodies

    yield rank_bodies
    sys.modules.pop("rank_bodies", None)


@pytest.mark.parametrize(
    ("body", "said"),
    [("lost", "rank 1 was lost: it was ended by SIGKILL"), ("raising", "rank 1 failed: ValueError: rank one has had")],
)
def test_a_lost_or_failed_rank_ends_the_others_with_its_reason(bodies, body, said):
    began = time.monotonic()
    with pytest.raises(RankFailed, match=said):
        run_ranks(getattr(bodies, body), 2, {}, "gloo", "k")
    assert time.monotonic() - began < harness_ranks.TIMEOUT_S / 2, "nobody waits for the group's own time limit"


def test_a_rank_that_arrives_late_is_not_charged_to_the_collective(bodies):
    pause_s = 0.5
    waited, _ = run_ranks(bodies.late, 2, {"pause_s": pause_s}, "gloo", "k")
    # Without the barrier every call of the punctual rank would last about as long as the other one's pause.
    assert min(waited) < pause_s / 2


def test_a_rank_lost_under_a_launcher_is_named_by_the_one_that_is_left(bodies):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, bodies.__file__, "lost"]
    both = [
        subprocess.Popen(command, env={**os.environ, **meeting, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = both[0].communicate(timeout=100)[0]
    assert both[1].wait(10) == -signal.SIGKILL
    assert said.startswith("rank 1 was lost: it gave no answer"), said


def collective_of(operation, **by_rank):
    case = BY_ID[f"coll.{operation}"].cases(Preset.CPU)[0]
    config = {**case.config, "sizes": [2**10, 2**30]}
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1, "tasks": ()}
    job = Job(benchmark="coll", workload="", variant=case.variant, config=config, preset="cpu", **fields)
    made = Collective(job)
    made.by_rank = [{"wrong": 0, "seconds": seconds} for seconds in by_rank.values()]
    return {value.metric: value for value in made.figures()}


def test_an_iteration_lasts_as_long_as_its_slowest_rank_and_the_mean_of_ranks_stands_beside_it():
    small = [1e-5, 1e-5, 1e-5]
    found = collective_of("all_reduce", first=[small, [0.010, 0.020, 0.010]], second=[small, [0.020, 0.010, 0.030]])
    size, factor = 2**30, 1.0
    assert found["busbw_gb_per_s"].samples == pytest.approx([factor * size / s / 1e9 for s in (0.020, 0.020, 0.030)])
    assert found["busbw_gb_per_s"].value == pytest.approx(size / 0.020 / 1e9)
    assert found["busbw_rank_mean_gb_per_s"].value == pytest.approx(size / 0.015 / 1e9)


@pytest.mark.parametrize(
    ("count", "arguments", "benchmark_", "metric"),
    [
        (2, ["gpt.ddp", "--variant", "strategy=ddp"], "gpt.ddp", "scaling_efficiency"),
        (3, ["coll.all_gather", "gpt.train"], "coll.all_gather", "busbw_gb_per_s"),
    ],
)
def test_torchrun_starts_the_ranks_and_rank_0_writes_the_run(tmp_path, count, arguments, benchmark_, metric):
    out = tmp_path / "run.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    command = [*launcher, "-m", "benchmarks", "run", *arguments, "--processes=1", f"--out={out}"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    parse_run(out.read_bytes())
    # The way that the case is about comes first; those between GPUs are registered after it.
    results = {result["benchmark"]: result for result in reversed(json.loads(out.read_text())["results"])}
    found = results[benchmark_]
    assert (found["status"], found["world_size"], found["variant"]["ranks"]) == ("ok", count, count), found["error"]
    assert found["correctness"]["state"] == "pass"
    assert any(m["metric"] == metric and m["value"] > 0 for m in found["measurements"])
    if benchmark_ == "gpt.ddp":
        roles = {m["metric"]: (m["role"], m["value"]) for m in found["measurements"]}
        assert found["correctness"]["checks"][0]["name"] == "gradient_relative_error"
        assert roles["exposed_communication_ms"][0] == "phase"
        assert roles["collective_calls"][1] >= 1
    if "gpt.train" in results:
        assert results["gpt.train"]["status"] == "not_applicable"
        assert "measured in one process" in results["gpt.train"]["error"]


@pytest.mark.parametrize("name", ["coll.all_reduce", "gpt.ddp"])
@pytest.mark.parametrize(
    ("gpus", "nccl", "said"), [(0, True, "torch sees none"), (8, False, "no NCCL"), (1, True, "2 ranks need 2 GPUs")]
)
def test_ranks_on_gpus_without_gpus_or_nccl_are_not_applicable_with_a_reason(monkeypatch, name, gpus, nccl, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: nccl)
    module, _, kind = BY_ID[name].workload.partition(":")
    case = next(case for case in BY_ID[name].cases(Preset.FULL) if case.variant["ranks"] == 2)
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1, "tasks": ()}
    job = Job(benchmark=name, workload="", variant=case.variant, config=case.config, preset="full", **fields)
    with pytest.raises(NotApplicable, match=said):
        getattr(importlib.import_module(module), kind)(job)


PLACE = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}


def test_without_torchruns_variables_there_is_no_place():
    assert place_of({}) is None
    assert place_of({"RANK": "1", "WORLD_SIZE": "4"}) is None
    place = place_of({**PLACE, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"})
    assert (place.rank, place.ranks, place.ranks_here, place.store_is_kept) == (1, 4, 2, True)


@pytest.mark.parametrize(("name", "value"), [("RANK", "one"), ("WORLD_SIZE", "-2"), ("RANK", "4")])
def test_a_place_that_cannot_be_is_named_with_its_value(name, value):
    with pytest.raises(BadPlace, match=f"{name} is '?{value}"):
        place_of({**PLACE, name: value})


def test_cases_take_torchruns_number_of_ranks_once_each():
    chosen = for_ranks(select(find("gpt.ddp"), Preset.FULL, {}), 4)
    measured = [selected.case.variant for selected in chosen if selected.case.not_applicable is None]
    assert {variant["ranks"] for variant in measured} == {4}
    assert len(measured) == 4, "two strategies, overlap on and off"
    alone = for_ranks(select(find("coll.all_reduce"), Preset.CPU, {}), 1)
    assert "one rank" in alone[0].case.not_applicable


SWEEP = {"sizes": [8, 2**10], "device": "cpu", "in_place": True, "seconds_per_size": 0.001, "transport": None}


def all_operations(rank, ranks, argument):
    """Wrong elements of every operation in both precisions."""
    found = {}
    for operation in map(Operation, argument["operations"]):
        for dtype in ("fp32", "bf16"):
            made = sweep(rank, ranks, {**SWEEP, "operation": str(operation), "dtype": dtype})
            found[f"{operation} {dtype}"] = (made["wrong"], [len(seconds) >= 10 for seconds in made["seconds"]])
    return found


def test_every_operation_arrives_exactly_in_both_precisions_from_eight_bytes_on(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for by_operation in run_ranks(all_operations, 2, {"operations": list(Operation)}, "gloo", "all"):
        assert {name for name, (wrong, _) in by_operation.items() if wrong} == set()
        assert all(all(enough) for _, enough in by_operation.values())


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("operation", list(Operation))
def test_a_collective_that_moves_the_wrong_elements_is_found(operation, dtype):
    rank = 1 if operation is Operation.BROADCAST else 0
    payload = Payload({"fp32": torch.float32, "bf16": torch.bfloat16}[dtype], rank, 2, "cpu")
    ready = prepare(operation, payload, 2**10, in_place=False)
    nothing_moves = replace(ready, call=lambda: None)
    assert check(operation, rank, 2, nothing_moves) > 0
    arrived = expected(operation, rank, 2, ready)
    assert check(operation, rank, 2, replace(ready, call=lambda: ready.result.copy_(arrived))) == 0
    shifted = replace(ready, call=lambda: ready.result.copy_(arrived.roll(1)))
    assert check(operation, rank, 2, shifted) > 0


def test_pairs_of_an_odd_number_of_ranks_are_not_applicable():
    case = BY_ID["coll.send_recv"].cases(Preset.CPU)[0]
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1, "tasks": ()}
    with pytest.raises(NotApplicable, match="3 ranks make no pairs"):
        Collective(
            Job(benchmark="coll", workload="", variant={}, config={**case.config, "ranks": 3}, preset="cpu", **fields)
        )


def test_sums_of_eight_ranks_are_exact_in_bf16_and_no_two_ranks_send_the_same():
    payloads = [Payload(torch.bfloat16, rank, 8, "cpu") for rank in range(8)]
    sent = [payload.base(64) + payload.apart * payload.rank for payload in payloads]
    assert torch.equal(sum(one.double() for one in sent), sum(sent[1:], sent[0]).double())
    assert len({tuple(one.tolist()) for one in sent}) == 8


def test_every_operation_is_swept_from_eight_bytes_or_an_element_a_rank_and_in_bf16_too():
    for operation in Operation:
        for case in BY_ID[f"coll.{operation}"].cases(Preset.FULL):
            width = 2 if case.variant.get("dtype") == "bf16" else 4
            least = width * least_elements(operation, case.world_size)
            assert case.config["sizes"][0] == max(8, least), case.variant
            assert case.config["sizes"] == sorted(set(case.config["sizes"]))
        assert {case.variant.get("dtype") for case in BY_ID[f"coll.{operation}"].cases(Preset.CPU)} == {None, "bf16"}
