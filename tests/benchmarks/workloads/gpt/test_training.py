"""What a GPT result says of the attention that it ran."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.harness.workload import Job  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads.gpt.training import GptLadder  # noqa: E402


def notes_of(rung):
    case = next(case for case in BY_ID["gpt.ladder"].cases(Preset.CPU) if case.variant["rung"] == rung)
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1, "tasks": ()}
    config = {**case.config, "n_layer": 1, "block_size": 32}
    workload = GptLadder(Job(benchmark="", workload="", variant=case.variant, config=config, preset="cpu", **fields))
    workload.prepare()
    workload.counters()
    return workload.notes()


def test_a_rung_with_fused_attention_names_the_kernel_that_torch_took():
    assert notes_of("r07_flash_attention") == {"fused_kernels": ["_scaled_dot_product_flash_attention_for_cpu"]}


def test_a_rung_with_attention_spelled_out_names_none():
    assert notes_of("r05_bf16") == {}
