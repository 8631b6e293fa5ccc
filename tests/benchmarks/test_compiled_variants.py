"""Compiled variants are checked through what the compiler made, and steady state begins when it has stopped."""

from __future__ import annotations

import functools
import json
import random
import textwrap
from dataclasses import replace

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.harness import counters  # noqa: E402
from benchmarks.harness.timing import paired, start_up  # noqa: E402
from benchmarks.harness.timing.clock import HostClock  # noqa: E402
from benchmarks.harness.timing.marks import NoMarks  # noqa: E402
from benchmarks.harness.workload import Job, NotApplicable  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.running import child  # noqa: E402
from benchmarks.running.launch import CPU_ENVIRONMENT, Launcher  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads.attention import dense as attention  # noqa: E402
from benchmarks.workloads.gpt import compile_cold  # noqa: E402
from benchmarks.workloads.gpt import model as gpt_model  # noqa: E402
from benchmarks.workloads.gpt.config import GptConfig  # noqa: E402
from benchmarks.workloads.gpt.training import GptLadder  # noqa: E402
from benchmarks.workloads.llama.block import LlamaBlock  # noqa: E402
from benchmarks.workloads.moe.model import MoeModel  # noqa: E402

SMALL = {"n_layer": 1, "n_head": 2, "n_embd": 32, "block_size": 32, "vocab_size": 64, "batch_size": 1}


@pytest.fixture(autouse=True)
def forgotten():
    yield
    torch._dynamo.reset()


def compiled_workload(kind, name, **sizes):
    case = BY_ID[name].cases(Preset.CPU)[0]
    config = {**case.config, "compile": "default", **sizes}
    fields = {"preset": "cpu", "implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1}
    return kind(Job(benchmark=name, workload="", variant={}, config=config, tasks=("check",), **fields))


def wrong_backend(graph, example_inputs):
    """A compiler that is off by two percent."""

    def run(*arguments):
        return tuple(out * 1.02 if out.is_floating_point() else out for out in graph(*arguments))

    return run


@pytest.mark.parametrize(("backend", "failed"), [("eager", None), (wrong_backend, "output_relative_error")])
@pytest.mark.parametrize(
    ("kind", "name", "sizes"),
    [
        (MoeModel, "moe.model", {**SMALL, "expert_width": 16, "experts": 1, "top_k": 1, "impl": "capacity"}),
        (LlamaBlock, "llama.block", {"width": 32, "heads": 2, "kv_heads": 1, "inner": 32, "context": 32}),
    ],
)
def test_what_the_compiler_got_wrong_fails_the_check(monkeypatch, kind, name, sizes, backend, failed):
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    found = compiled_workload(kind, name, **sizes).check().failed
    assert (found.name if found else None) == failed


def steps(tokens):
    model = gpt_model.build(GptConfig(**SMALL, dtype="fp32", device="cpu"))
    single = compile_cold.step(model, model, tokens)
    double = model.double()
    return single, compile_cold.step(double, double, tokens)


def test_a_compiled_step_may_be_no_further_from_the_truth_than_twice_the_eager_one():
    eager, exact = steps(torch.arange(33)[None])
    assert [f.name for f in compile_cold.differences(eager, eager, exact, "fp32") if not f.passed] == []
    wrong_gradient = replace(eager, gradients=[gradient * 1.01 for gradient in eager.gradients])
    wrong_logits = replace(eager, logits=eager.logits * 1.01)
    for bad, name in ((wrong_gradient, "gradient_relative_error"), (wrong_logits, "output_relative_error")):
        assert [f.name for f in compile_cold.differences(bad, eager, exact, "fp32") if not f.passed] == [name]


def test_without_a_compiler_for_c_plus_plus_compile_time_is_not_applicable(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NotApplicable, match=r"install g\+\+"):
        compiled_workload(compile_cold.CompileCold, "compile.cold")


def test_graphs_are_counted_and_forgotten_so_that_the_timed_sizes_are_compiled_for_themselves():
    before = start_up.graphs_compiled()
    double = torch.compile(lambda x: x * 2, backend="eager")
    shapes = []

    def seen(graph, example_inputs):
        # Code for any size takes the size itself as a further input.
        shapes.append([tuple(i.shape) if isinstance(i, torch.Tensor) else i for i in example_inputs])
        return graph

    double(torch.ones(3))
    assert start_up.graphs_compiled() == before + 1
    double = torch.compile(lambda x: x * 2, backend=seen)
    double(torch.ones(3))
    start_up.forget_compiled()
    double(torch.ones(5))
    assert shapes == [[(3,)], [(5,)]], "after forgetting, the second size is no symbolic shape"


def test_what_a_replayed_graph_gave_is_kept_when_it_writes_its_next_answer_there():
    model = gpt_model.build(GptConfig(**SMALL, dtype="fp32", device="cpu"))
    place = torch.empty(1, 32, 64)

    def replayed(tokens):
        logits = model(tokens)
        place.copy_(logits.detach())
        logits.data = place
        return logits

    tokens = torch.arange(33)[None]
    first = compile_cold.step(replayed, model, tokens)
    kept = first.logits.clone()
    compile_cold.step(replayed, model, tokens + 1)
    assert torch.equal(first.logits, kept)


def test_the_loss_of_a_compiled_step_is_within_the_compiled_region(monkeypatch):
    """Outside of it the logits are written in full, once more as soft-max and twice as gradients."""
    compiled = []

    def seen(graph, example_inputs):
        compiled.append({getattr(node.target, "__name__", str(node.target)) for node in graph.graph.nodes})
        return graph

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=seen))
    sizes = {**SMALL, "expert_width": 16, "experts": 1, "top_k": 1, "impl": "capacity"}
    made = compiled_workload(MoeModel, "moe.model", **sizes)
    made.prepare()
    made.step(NoMarks())
    assert sum("cross_entropy" in names for names in compiled) == 1
    assert made.compiles


def test_a_rungs_logits_are_compiled_and_its_loss_with_them(monkeypatch):
    compiled = []

    def seen(graph, example_inputs):
        compiled.append({getattr(node.target, "__name__", str(node.target)) for node in graph.graph.nodes})
        return graph

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=seen))
    sizes = {**SMALL, "rung": "r08_compile", "text_vocabulary": 64, "dtype": "fp32", "device": "cpu"}
    fields = {"preset": "cpu", "implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1}
    made = GptLadder(Job(benchmark="gpt.ladder", workload="", variant={}, config=sizes, tasks=(), **fields))
    # As on a GPU: the cpu preset leaves its ladder uncompiled.
    made.compiles = True
    made.prepare()
    made.step(NoMarks())
    assert [("cross_entropy" in names, "linear" in names) for names in compiled] == [(True, True)]


@pytest.mark.parametrize("fast", [False, True])
def test_a_block_in_eight_bits_is_one_compiled_graph(monkeypatch, fast):
    made = []

    def seen(graph, example_inputs):
        made.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=seen))
    sizes = {"width": 64, "heads": 2, "kv_heads": 1, "inner": 96, "context": 32, "dtype": "bf16", "batch_size": 1}
    workload = compiled_workload(LlamaBlock, "llama.block", **sizes, fp8=True, fast_accumulation=fast)
    assert workload.check().failed is None
    assert len(made) == 1, "products of our own between the others break no graph"


# counting what was compiled


def doubled_and_summed():
    weight = torch.randn(8, 8, requires_grad=True)
    compiled = torch.compile(lambda x: (torch.sin(x @ weight) * 2).sum(), backend="aot_eager")
    x = torch.randn(4, 8)
    return lambda: compiled(x).backward()


def test_counting_does_not_keep_the_compiler_away():
    step, before = doubled_and_summed(), start_up.graphs_compiled()
    assert counters.count_operations(step).by_name["mm"] == 2
    assert start_up.graphs_compiled() == before + 1, "compiled under the counter's eyes"
    step()
    assert counters.count_compiled_regions(step) == 1
    assert start_up.graphs_compiled() == before + 1, "and found again without it"


def test_what_a_compiled_region_keeps_for_the_backward_pass_is_counted_as_it_is_kept():
    """Eager code keeps the input of each operation; the compiler computes what is cheap again."""
    weight, x = torch.randn(8, 8, requires_grad=True), torch.randn(4, 8)

    def forward():
        return torch.cos(torch.sin(torch.cos(torch.sin(x @ weight)))).sum()

    compiled = torch.compile(forward, backend="aot_eager_decomp_partition")
    compiled()
    # 4·8 numbers of four bytes each: the left operand and four inputs; then the left operand and one input.
    assert counters.count_activation_bytes(forward, [weight]) == 5 * 128
    assert counters.count_activation_bytes(compiled, [weight]) == 2 * 128


def test_flex_attention_can_be_counted():
    q = torch.randn(1, 2, 32, 16)
    flex = attention.FlexAttention("cpu", gqa=False)
    found = counters.count_operations(lambda: flex(q, q, q, (None, 32), lambda: lambda b, h, i, j: i >= j))
    assert found.by_name["flex_attention"] == 1


PLUGGED_IN = """
    import torch
    from benchmarks.workloads.gpt import model as gpt_model

    def build(config):
        model = gpt_model.build(config)
        model.compile(backend="aot_eager")
        return model
"""


def reports_of(name, *, processes, environment=(), **fields):
    """What fresh processes report of one case: the first checks and counts too, as in a run."""
    tasks = [["time", "check", "count"], *[["time"]] * (processes - 1)]
    job = {"benchmark": name, "workload": BY_ID[name].workload, "variant": {}, "preset": "cpu", "extra": {}}
    job |= {"implementation": None, "builtin": None, "processes": processes, "seed": 1, **fields}
    numbered = [job | {"process": number, "tasks": what} for number, what in enumerate(tasks)]
    return [Launcher().run(one, 120, {**CPU_ENVIRONMENT, **dict(environment)}).report for one in numbered]


def test_every_process_of_a_plug_in_that_compiles_times_compiled_code(tmp_path, monkeypatch):
    (tmp_path / "plugged.py").write_text(textwrap.dedent(PLUGGED_IN))
    monkeypatch.chdir(tmp_path)
    config = {**SMALL, "dtype": "fp32", "device": "cpu"}
    reports = reports_of("gpt.train", processes=2, config=config, implementation="plugged:build")
    assert [report["error"] for report in reports] == [None, None]
    regions = [{c["metric"]: c["value"] for c in report["counters"]}["compiled_regions"] for report in reports]
    assert regions == [1, 1]


def test_a_compiled_variant_that_ran_eagerly_fails_with_that_reason():
    config = {"width": 32, "heads": 2, "kv_heads": 1, "inner": 32, "context": 32, "batch_size": 1}
    config |= {"compile": "default", "dtype": "fp32", "device": "cpu"}
    never = {"TORCH_COMPILE_DISABLE": "1"}.items()
    reports = reports_of("llama.block", processes=2, config=config, environment=never)
    assert [(report["status"], report["error"]) for report in reports] == [("failed", child.RAN_EAGERLY)] * 2
    assert "counters" not in json.dumps(reports)


def test_warm_up_on_a_cpu_begins_when_nothing_is_compiled_any_more():
    step = doubled_and_summed()
    budget = paired.Budget(warm_up_s=0.0, measure_s=0.0)
    times = paired.measure(lambda marks: step(), HostClock(), budget, random.Random(1))
    assert times.warm_up_steps == 4, "the one that compiled, and the least number of steps after it"
