"""What a result of decoding says of the kernel that torch took."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

from benchmarks.harness.workload import Job  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads.attention.dense import AttentionDecoding  # noqa: E402


def prepared():
    case = BY_ID["attn.decode"].cases(Preset.CPU)[0]
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1, "tasks": ()}
    made = AttentionDecoding(Job(benchmark="", workload="", variant={}, config=case.config, preset="cpu", **fields))
    made.prepare()
    return made


def test_decoding_names_the_fused_kernel_that_torch_took():
    assert prepared().notes() == {"fused_kernels": ["_scaled_dot_product_flash_attention_for_cpu"]}


def test_decoding_by_plain_products_names_none():
    made = prepared()
    with sdpa_kernel([SDPBackend.MATH]):
        assert made.notes() == {"fused_kernels": []}
