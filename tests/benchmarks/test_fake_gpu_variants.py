"""Every CUDA variant is built, checked and stepped on a GPU in name only: see `fake_gpu`, and docs/suite-on-gpus.md."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.analysis.bandwidth import Operation  # noqa: E402
from benchmarks.harness.timing.marks import NoMarks  # noqa: E402
from benchmarks.harness.workload import Job  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads import collectives, parts  # noqa: E402
from benchmarks.workloads.attention import dense as attention  # noqa: E402
from benchmarks.workloads.gpt import distributed as gpt_ddp  # noqa: E402
from benchmarks.workloads.gpt import training as gpt_training  # noqa: E402
from benchmarks.workloads.moe import layer as moe  # noqa: E402
from tests.benchmarks.fake_gpu import fake_gpu  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs" / "suite-on-gpus.md"

IN_PROCESSES_OF_THEIR_OWN = {"compile.cold": "compiles in a process of its own, for the GPU that is there"}
"""Benchmarks whose measured code is never in the process that could be made to believe in a GPU."""

ON_RANKS = {
    "gpt.ddp": "one rank's step",
    "moe.parallel": "inputs and the whole layer",
    "parallel.tensor": "inputs and the whole layer",
    "parallel.context": "inputs and the whole layer",
    **{name: "buffers" for name in BY_ID if name.startswith("coll.")},
}
"""What is reached of benchmarks that need links between ranks."""

AT_MOST = {
    "n_layer": 1,
    "experts": 4,
    "top_k": 2,
    "batch_size": 2,
    "window": 64,
    "length": 512,
    "tokens": 512,
    "context": 256,
    "side": 1024,
    "bytes": 2**20,
}
"""Sizes that decide how often the same code runs, not which: a sweep's further points are the same variant here."""


def shrunk(config: dict[str, Any]) -> dict[str, Any]:
    return {name: min(value, AT_MOST.get(name, value)) if name in AT_MOST else value for name, value in config.items()}


def cuda_variants() -> Iterator[Any]:
    """Each way of each benchmark once."""
    seen = set()
    for benchmark in BY_ID.values():
        if benchmark.distributed or benchmark.mode == "collective" or benchmark.id in IN_PROCESSES_OF_THEIR_OWN:
            continue
        for preset in (Preset.SMOKE, Preset.FULL):
            for case in benchmark.cases(preset):
                config = shrunk(dict(case.config))
                key = (benchmark.id, json.dumps(config, sort_keys=True))
                if config.get("device") == "cuda" and key not in seen:
                    seen.add(key)
                    name = "-".join(map(str, (benchmark.id, *case.variant.values())))
                    yield pytest.param(benchmark, replace(case, config=config), id=name)


@pytest.fixture(autouse=True)
def no_more_often_than_needed(monkeypatch):
    """Nothing is computed, so that a further round is the same code over the same shapes: an optimizer makes its state
    in the first step and finds it in the second, and each attention is tried once."""
    monkeypatch.setattr(gpt_training, "CHECK_STEPS", 2)
    monkeypatch.setattr(attention, "TRIES", 1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def workload_of(benchmark: Any, case: Any) -> Any:
    fields = {
        "implementation": None,
        "process": 0,
        "processes": 1,
        "seed": 1,
        "tasks": (),
        "builtin": benchmark.builtin,
    }
    job = Job(
        benchmark=benchmark.id,
        workload=benchmark.workload,
        variant=case.variant,
        config=case.config,
        preset="full",
        **fields,
    )
    module, _, name = benchmark.workload.partition(":")
    return getattr(importlib.import_module(module), name)(job)


@pytest.mark.parametrize(("benchmark_", "case"), list(cuda_variants()))
def test_a_cuda_variant_is_built_checked_and_stepped_without_a_mixture_of_devices(monkeypatch, benchmark_, case):
    with fake_gpu(monkeypatch) as reads:
        workload = workload_of(benchmark_, case)
        if case.config.get("backend") == "flex":
            # Its backward pass is traced by torch's own engine, which is out of reach here.
            inputs = workload.inputs(reduced=True).to(torch.bfloat16, "cuda")
            with torch.no_grad():
                assert workload.function(inputs).is_cuda
            reads.of_device.clear()
            with torch.no_grad():
                workload.function(inputs)
            assert dict(reads.of_device) == {}, "the mask is made once"
            return
        failed = {finding.name for finding in workload.check().findings if not finding.passed}
        # Which kernel takes the call, and whether 400 additions add up, only a GPU can say.
        assert failed <= {"silent_fallback", "lost_launches"}
        workload.prepare()
        if not hasattr(workload, "step"):
            return
        reads.of_device.clear()
        workload.step(NoMarks())
        waits = dict(reads.of_device)
        assert set(waits) <= ({"nonzero"} if case.config.get("impl") == "loop" else set()), "the host waits in a step"


L2_OF_AN_H200 = 60 * 2**20
DECODING = ("attn.decode", "attn.mla_decode", "attn.paged")


@pytest.mark.parametrize("name", DECODING)
def test_a_step_of_decoding_finds_nothing_of_the_cache_near(monkeypatch, name):
    """Small caches stay in the L2 from one step to the next, and its speed was taken for the memory's."""
    case = next(case for case in BY_ID[name].cases(Preset.SMOKE))
    with fake_gpu(monkeypatch):
        workload = workload_of(BY_ID[name], case)
        assert workload.flushes
        assert workload.work.bytes > 4 * L2_OF_AN_H200, "where one case stands for all, memory must decide"


def test_a_graph_of_decoding_is_captured_once_and_asks_for_nothing_more(monkeypatch):
    case = next(case for case in BY_ID["attn.decode"].cases(Preset.SMOKE) if case.variant.get("launch") == "graph")
    calls = []
    with fake_gpu(monkeypatch):
        workload = workload_of(BY_ID["attn.decode"], replace(case, config=shrunk(dict(case.config))))
        function = workload.function
        monkeypatch.setattr(workload, "function", lambda tensors: calls.append(1) or function(tensors))
        workload.prepare()
        captured, output = len(calls), workload.output
        workload.step(NoMarks())
        assert captured == 2, "one call to warm up, one that is captured"
        assert len(calls) == captured
        assert workload.output is output and output.is_cuda


@pytest.mark.parametrize("load", ["uniform", "zipf", "hot"])
def test_a_load_is_drawn_on_the_device_that_routes(monkeypatch, load):
    """A tensor of ones without a device failed every uniform case on a GPU."""
    with fake_gpu(monkeypatch):
        assert moe.load_bias(load, 16, 4, torch.Generator("cuda")).is_cuda


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("operation", list(Operation))
def test_the_buffers_of_a_collective_are_on_the_device(monkeypatch, operation, in_place):
    with fake_gpu(monkeypatch):
        payload = collectives.Payload(torch.bfloat16, 0, 2, "cuda")
        ready = collectives.prepare(operation, payload, 4096, in_place=in_place)
        ready.refill()
        assert ready.result.is_cuda and ready.base.is_cuda


@pytest.mark.parametrize("name", ["moe.parallel", "parallel.tensor", "parallel.context"])
def test_what_a_rank_has_of_a_divided_layer_is_on_the_device(monkeypatch, name):
    config = shrunk(dict(BY_ID[name].cases(Preset.FULL)[0].config))
    with fake_gpu(monkeypatch):
        part = parts.KINDS[config["kind"]](0, 2, config, 7)
        whole = {name: tensor.to(torch.bfloat16) for name, tensor in part.whole(reduced=True).items()}
        assert all(tensor.is_cuda for tensor in part.local(whole).values())
        assert part.output(part.plain(whole)).is_cuda


def test_a_rank_trains_on_the_device(monkeypatch):
    case = next(c for c in BY_ID["gpt.ddp"].cases(Preset.FULL) if c.variant["ranks"] == 1)
    with fake_gpu(monkeypatch):
        rank = gpt_ddp._Rank(0, 1, {"job": shrunk(dict(case.config)), "seed": 1})
        model = rank.shared()
        rank.loss(model, rank.stream.next()).backward()
        assert all(parameter.grad.is_cuda for parameter in model.parameters())


def how_far(benchmark, case):
    """How far a CUDA case gets on a GPU in name only."""
    if benchmark.id in IN_PROCESSES_OF_THEIR_OWN:
        return "out of reach"
    if benchmark.id in ON_RANKS:
        return ON_RANKS[benchmark.id]
    if case.config.get("backend") == "flex":
        return "forward pass"
    return "built and checked" if benchmark.family == "ceiling" else "built, checked, stepped"


def row_of(benchmark):
    counted = Counter(how_far(benchmark, case) for case in benchmark.cases(Preset.FULL))
    return f"| `{benchmark.id}` | {'; '.join(f'{far}: {count}' for far, count in counted.items())} |"


def test_the_docs_say_of_every_benchmark_how_far_its_cuda_variants_get():
    """A benchmark that is new is reached by the fake GPU, or says why it is not: it has a row either way."""
    lacking = [row for benchmark in BY_ID.values() if (row := row_of(benchmark)) not in PAGE.read_text().splitlines()]
    assert lacking == [], "these rows belong into the table:\n" + "\n".join(lacking)


def test_what_has_no_other_reach_is_stepped_here():
    stepped = {param.values[0].id for param in cuda_variants()}
    assert stepped | set(ON_RANKS) | set(IN_PROCESSES_OF_THEIR_OWN) == set(BY_ID)
    assert not stepped & (set(ON_RANKS) | set(IN_PROCESSES_OF_THEIR_OWN))


@pytest.mark.parametrize("name", [*IN_PROCESSES_OF_THEIR_OWN, "coll.*", "gpt.ddp", "moe.parallel", "parallel.tensor"])
def test_what_is_out_of_reach_is_in_the_table_of_the_docs(name):
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert any(f"`{name}`" in row for row in rows)


def test_tensors_of_two_devices_do_not_mix_on_the_gpu_in_name_only(monkeypatch):
    with fake_gpu(monkeypatch):
        there = torch.ones(3, device="cuda", requires_grad=True)
        (there * 2).sum().backward()
        assert there.grad.is_cuda
        with pytest.raises(RuntimeError, match="same device"):
            there + torch.ones(3)


def test_a_read_on_the_host_is_noticed(monkeypatch):
    with fake_gpu(monkeypatch) as reads:
        torch.ones(3, device="cuda").sum().item()
        assert dict(reads.of_device) == {"_local_scalar_dense": 1}
        torch.ones(3).sum().item()
        assert sum(reads.of_device.values()) == 1
