"""Prints, for each commit of the repository it runs in, the operations and kept bytes of one step of each suite.

Run by a test: arguments are the checkout of Tidemark and the commits.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

sys.path[:0] = [os.getcwd(), sys.argv[1]]
sys.dont_write_bytecode = True

import torch  # noqa: E402

from benchmarks.harness.counters import count_activation_bytes, count_operations  # noqa: E402
from benchmarks.harness.timing.marks import NoMarks  # noqa: E402
from benchmarks.workloads.gpt.config import GptConfig  # noqa: E402
from benchmarks.workloads.gpt.training import GptStep, TokenStream, cross_entropy_of  # noqa: E402

GPT = GptConfig(n_layer=2, n_head=4, n_embd=64, block_size=64, vocab_size=128, batch_size=1)
MOE = SimpleNamespace(width=32, expert_width=64, experts=8, top_k=2, tokens=256)


def main() -> None:
    torch.set_num_threads(1)
    for sha in sys.argv[2:]:
        subprocess.run(["git", "checkout", "--quiet", "--force", sha], check=True)
        for name in [name for name in sys.modules if name.split(".")[0] == "tinygpt"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        print(json.dumps({"gpt": gpt(), "moe": moe(), "attention": attention()}))


def gpt() -> tuple[int, int]:
    model_module = importlib.import_module("tinygpt.model")
    model = model_module.build(GPT).train()
    stream = TokenStream(GPT, GPT.vocab_size, pinned=False, seed=1)
    step = GptStep(model, cross_entropy_of(model), model_module.optimizer(model, GPT), stream, GPT, nullcontext)
    step.run(NoMarks())  # the optimizer makes its state at the first step
    operations = count_operations(lambda: step.run(NoMarks())).total
    inputs, targets = step.batch(NoMarks())
    return operations, count_activation_bytes(lambda: step.forward(inputs, targets), model.parameters())


def moe() -> tuple[int, int]:
    torch.manual_seed(1)
    layer = importlib.import_module("tinygpt.experts").layer
    x, bias = torch.randn(MOE.tokens, MOE.width, requires_grad=True), torch.zeros(MOE.tokens, MOE.experts)
    shape = (MOE.experts, MOE.width, MOE.expert_width)
    weights = SimpleNamespace(
        router_CE=torch.randn(MOE.width, MOE.experts, requires_grad=True),
        gate_ECF=torch.randn(shape, requires_grad=True),
        up_ECF=torch.randn(shape, requires_grad=True),
        down_EFC=torch.randn(MOE.experts, MOE.expert_width, MOE.width, requires_grad=True),
    )
    return counted(lambda: layer(x, bias, weights, MOE), [x, *vars(weights).values()])


def attention() -> tuple[int, int]:
    inputs = [torch.randn(1, 2, 512, 16, requires_grad=True) for _ in range(3)]
    blockwise = importlib.import_module("tinygpt.blockwise").attention
    return counted(lambda: blockwise(*inputs, causal=True), inputs)


def counted(forward: Callable[[], torch.Tensor], leaves: list[torch.Tensor]) -> tuple[int, int]:
    return count_operations(lambda: forward().sum().backward()).total, count_activation_bytes(forward, leaves)


if __name__ == "__main__":
    main()
