"""Weights of a seed: drawn on the device that uses them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from benchmarks.workloads.gpt import model as gpt_model  # noqa: E402
from benchmarks.workloads.gpt.config import GptConfig  # noqa: E402
from tests.benchmarks.fake_gpu import fake_gpu  # noqa: E402

SIZES = {"n_layer": 1, "n_head": 2, "n_embd": 32, "block_size": 16, "vocab_size": 64, "batch_size": 1}


class Draws(TorchDispatchMode):
    """The devices on which random numbers are drawn, and how many numbers are carried from one to another."""

    def __init__(self):
        super().__init__()
        self.devices, self.carried = set(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("randn", "normal", "normal_"):
            self.devices.add(found.device.type)
        if name == "_to_copy" and found.device != args[0].device:
            self.carried += found.numel()
        return found


def test_weights_of_a_gpu_are_drawn_there_and_none_is_carried_over(monkeypatch):
    """On the host they took 13 seconds of every process."""
    with fake_gpu(monkeypatch), Draws() as draws:
        weights = gpt_model.seeded_weights(GptConfig(**SIZES, device="cuda"))
        assert all(weight.is_cuda for weight in weights.values())
    assert draws.devices - {"meta"} == {"cuda"}, "on meta there are only names and shapes"
    assert draws.carried == 0


def test_weights_of_a_seed_are_the_same_each_time_and_others_with_another():
    config = GptConfig(**SIZES, device="cpu")
    one, again, other = (gpt_model.seeded_weights(config, seed) for seed in (1, 1, 2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["wte.weight"], other["wte.weight"])
