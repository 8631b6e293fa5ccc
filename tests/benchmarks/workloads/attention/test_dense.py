"""Decoding: the kernel that torch took is named, and a graph that is replayed computes anew."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

from benchmarks.harness.workload import Job  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads.attention.dense import AttentionDecoding  # noqa: E402
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
