"""Compiled variants are checked through what the compiler made, and steady state begins when it has stopped."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.harness import start_up  # noqa: E402
from benchmarks.harness.workload import Job, NotApplicable  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads import compile_cold, gpt_model  # noqa: E402
from benchmarks.workloads.gpt_config import GptConfig  # noqa: E402
from benchmarks.workloads.llama import LlamaBlock  # noqa: E402
from benchmarks.workloads.moe_model import MoeModel  # noqa: E402

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
