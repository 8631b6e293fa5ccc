"""Prints, for each commit of the repository it runs in, the operations and kept bytes of one training step.

Run by a test: arguments are the checkout of Tidemark and the commits.
"""

import importlib
import json
import os
import subprocess
import sys
from contextlib import nullcontext

sys.path[:0] = [os.getcwd(), sys.argv[1]]
sys.dont_write_bytecode = True

import torch  # noqa: E402

from benchmarks.harness.counters import count_activation_bytes, count_operations  # noqa: E402
from benchmarks.harness.timing.marks import NoMarks  # noqa: E402
from benchmarks.workloads.gpt.config import GptConfig  # noqa: E402
from benchmarks.workloads.gpt.training import GptStep, TokenStream, cross_entropy_of  # noqa: E402


def main() -> None:
    torch.set_num_threads(1)
    config = GptConfig(n_layer=2, n_head=4, n_embd=64, block_size=64, vocab_size=128, batch_size=1)
    for sha in sys.argv[2:]:
        subprocess.run(["git", "checkout", "--quiet", "--force", sha], check=True)
        for name in [name for name in sys.modules if name.split(".")[0] == "tinygpt"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        model_module = importlib.import_module("tinygpt.model")
        model = model_module.build(config).train()
        stream = TokenStream(config, config.vocab_size, pinned=False, seed=1)
        loss = cross_entropy_of(model)
        step = GptStep(model, loss, model_module.optimizer(model, config), stream, config, nullcontext)
        step.run(NoMarks())  # the optimizer makes its state at the first step
        operations = count_operations(lambda step=step: step.run(NoMarks())).total
        inputs, targets = step.batch(NoMarks())
        kept = count_activation_bytes(
            lambda step=step, inputs=inputs, targets=targets: step.forward(inputs, targets), model.parameters()
        )
        print(json.dumps([sha, operations, kept]))


if __name__ == "__main__":
    main()
