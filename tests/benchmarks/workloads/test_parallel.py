"""Layers divided among ranks agree with the whole layer in one process, and wrong divisions do not; gloo, two ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.harness.ranks import run_ranks  # noqa: E402
from benchmarks.harness.workload import Job  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads import exchanges, parts  # noqa: E402
from benchmarks.workloads.parallel import DividedLayer, errors_of  # noqa: E402
from benchmarks.workloads.parts import KINDS, ContextParallel  # noqa: E402

CASES = [
    case.config
    for name in ("moe.parallel", "parallel.tensor", "parallel.context")
    for case in BY_ID[name].cases(Preset.CPU)
]


class Unmirrored(ContextParallel):
    """Gives every rank two neighbouring pieces, and puts them together as if they were mirrored."""

    def output(self, whole):
        both = whole.chunk(2 * self.ranks)
        return torch.cat(both[2 * self.rank : 2 * self.rank + 2])


class Forgetful(torch.autograd.Function):
    """Copies to all ranks and does not sum what comes back."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, *upstream):
        return upstream[0]


def divided(rank, ranks, argument):
    """Checks that failed, by layer and precision; then those of two wrong divisions."""
    torch.manual_seed(0)

    def failed(part, dtype):
        return [name for name, (value, limit) in errors_of(part, dtype).items() if not value <= limit]

    found = {}
    for config in CASES:
        for dtype in ("fp32", "bf16"):
            part = KINDS[config["kind"]](rank, ranks, {**config, "dtype": dtype}, 7)
            found[f"{config['kind']} {config.get('style', '')} {dtype}"] = failed(part, dtype)
    context = next(config for config in CASES if config["kind"] == "context")
    found["unmirrored"] = failed(Unmirrored(rank, ranks, context, 7), "fp32")
    parts.Copy = Forgetful
    tensor = next(config for config in CASES if config.get("style") == "all_reduce")
    found["forgetful"] = failed(KINDS["tensor"](rank, ranks, tensor, 7), "fp32")
    parts.Copy = exchanges.Copy
    return found


@pytest.fixture
def alone(monkeypatch):
    """No rank of anybody else's, and our modules for those that are started."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[3]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def test_every_division_agrees_with_one_process_in_both_precisions_and_wrong_ones_do_not(alone):
    for found in run_ranks(divided, 2, {}, "gloo", "divided"):
        wrong = {name: found.pop(name) for name in ("unmirrored", "forgetful")}
        assert {name: failed for name, failed in found.items() if failed} == {}
        assert "output_relative_error" in wrong["unmirrored"]
        assert wrong["forgetful"] == ["gradient_relative_error_x"]
        assert len(found) == 8


def test_a_divided_layer_says_its_step_its_collectives_and_its_rate(alone):
    case = next(case for case in BY_ID["parallel.tensor"].cases(Preset.CPU) if case.variant["style"] == "sequence")
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1, "tasks": ()}
    made = DividedLayer(
        Job(benchmark="parallel.tensor", workload="", variant={}, config=case.config, preset="cpu", **fields)
    )
    found = {value.metric: value for value in made.measure()}
    assert made.correctness().failed is None
    assert {finding.inputs for finding in made.correctness().findings} == {"rank 0 of 2", "rank 1 of 2"}
    assert found["collective_calls"].value == 4, "gathered and scattered, forward and backward"
    assert len(found["step_ms"].samples) == case.config["steps"]
    assert found["communication_share"].value == found["communication_ms"].value / found["step_ms"].value
    assert found["tokens_per_s"].value == pytest.approx(256 / found["step_ms"].value * 1000)
    made.by_rank[1]["errors"]["gradient_relative_error_up"] = (0.5, 0.1)
    assert made.correctness().failed.name == "gradient_relative_error_up"


def test_every_rank_of_a_divided_attention_sees_equally_many_keys():
    context = next(config for config in CASES if config["kind"] == "context")
    seen = []
    for rank in range(4):
        part = ContextParallel(rank, 4, {**context, "length": 64}, 7)
        seen.append(int((part.output(torch.arange(64)) + 1).sum()))
    assert len(set(seen)) == 1


def test_flop_of_all_ranks_are_those_of_the_whole_layer():
    for name in ("parallel.tensor", "parallel.context"):
        whole = {case.config["flop_per_rank"] * case.world_size for case in BY_ID[name].cases(Preset.FULL)}
        assert len(whole) == 1
    experts = BY_ID["moe.parallel"].cases(Preset.FULL)[0].config
    assert experts["flop_per_rank"] == 3 * 8192 * (2 * 2048 * 64 + 6 * 8 * 2048 * 1024)
