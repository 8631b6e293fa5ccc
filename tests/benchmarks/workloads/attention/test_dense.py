"""Attention: masked keys, the kernel that decoding took, and a graph that computes anew when it is replayed."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

from benchmarks.harness.workload import Job  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads.attention import dense  # noqa: E402
from benchmarks.workloads.attention.dense import AttentionDecoding, AttentionTraining  # noqa: E402
from tests.benchmarks.simulated_device import SimulatedDevice  # noqa: E402


def workload(**changed):
    case = BY_ID["attn.decode"].cases(Preset.CPU)[0]
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1, "tasks": ()}
    config = {**case.config, **changed}
    return AttentionDecoding(Job(benchmark="", workload="", variant={}, config=config, preset="cpu", **fields))


def prepared():
    made = workload()
    made.prepare()
    return made


def test_decoding_names_the_fused_kernel_that_torch_took():
    assert prepared().notes() == {"fused_kernels": ["_scaled_dot_product_flash_attention_for_cpu"]}


def test_decoding_by_plain_products_names_none():
    made = prepared()
    with sdpa_kernel([SDPBackend.MATH]):
        assert made.notes() == {"fused_kernels": []}


class RunsAgain(SimulatedDevice):
    """A device whose graph is the calls once more."""

    def graph(self, calls):
        def replay():
            for call in calls:
                call()

        replay()
        return replay


@pytest.mark.parametrize(("device", "failed"), [(RunsAgain, None), (SimulatedDevice, "replayed_graph_error")])
def test_a_graph_that_answers_with_what_it_was_captured_with_fails_the_check(device, failed):
    made = workload(launch="graph")
    made.queue = device()
    found = made.check().failed
    assert (found.name if found else None) == failed


def test_a_call_that_is_not_captured_has_no_graph_to_check():
    assert "replayed_graph_error" not in {finding.name for finding in workload().check().findings}


def test_a_kernel_that_rounds_differently_with_gradients_leaks_no_masked_key(monkeypatch):
    """A backend may take one kernel with gradients and another without; bit by bit only like is compared with like."""
    attention = dense.F.scaled_dot_product_attention

    def rounds(*tensors, **how):
        out = attention(*tensors, **how)
        return out * (1 + 2.0**-22) if torch.is_grad_enabled() else out

    monkeypatch.setattr(dense.F, "scaled_dot_product_attention", rounds)
    case = BY_ID["attn.train"].cases(Preset.CPU)[0]
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1, "tasks": ()}
    made = AttentionTraining(Job(benchmark="", workload="", variant={}, config=case.config, preset="cpu", **fields))
    leak = next(finding for finding in made.check().findings if finding.name == "masked_key_leak")
    assert leak.passed
