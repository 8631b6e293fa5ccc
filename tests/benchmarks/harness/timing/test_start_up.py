"""A measuring process that compiles nothing starts without torch's compiler, a second of every start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
EAGER = """
import sys

import torch
import torch.distributed as dist

from benchmarks.harness.timing.start_up import spare_the_compiler_import
from benchmarks.workloads.gpt import model
from benchmarks.workloads.gpt.config import GptConfig

spare_the_compiler_import()
config = GptConfig(n_layer=1, n_head=2, n_embd=16, block_size=8, vocab_size=32, batch_size=1)
built = model.build(config)
built.load_state_dict(model.seeded_weights(config), strict=False)
optimizer = model.optimizer(built, config)
built(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
optimizer.step()
optimizer.zero_grad()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
print([name for name in sys.modules if name.startswith("torch._dynamo.")])
"""


@pytest.mark.torch
def test_training_and_ranks_without_compiled_code_import_no_part_of_the_compiler():
    done = subprocess.run([sys.executable, "-c", EAGER], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
