"""A slow-down put into the steps of an accelerator: as large as it was asked to be, and made of work."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from benchmarks.harness.timing.injection import Slowed  # noqa: E402
from benchmarks.harness.timing.marks import NoMarks  # noqa: E402
from tests.benchmarks.fake_gpu import fake_gpu  # noqa: E402
from tests.benchmarks.simulated_device import SimulatedDevice  # noqa: E402

STEP_S, PRODUCT_S = 2.0, 1e-3


class ProductsTakeTime(TorchDispatchMode):
    """Every product keeps the simulated device busy for as long as any other."""

    def __init__(self, queue):
        super().__init__()
        self.queue, self.products = queue, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.mm.out:
            self.products += 1
            self.queue.work(PRODUCT_S)
        return func(*args, **(kwargs or {}))


class Reading:
    """A workload whose step reads one buffer: a third of its time where the cache still has it."""

    def __init__(self, queue, *, flushes):
        self.queue, self.flushes = queue, flushes

    def step(self, marks):
        marks.enter("forward")
        self.queue.work(STEP_S, buffer="weights", size=2**20)


@pytest.mark.parametrize(("flushes", "step_s"), [(True, STEP_S), (False, STEP_S / 3)])
@pytest.mark.parametrize("fraction", [0.02, 0.1])
def test_a_slowed_step_of_a_gpu_costs_the_fraction_more_in_products(monkeypatch, fraction, flushes, step_s):
    queue = SimulatedDevice()
    with fake_gpu(monkeypatch), ProductsTakeTime(queue) as counted:
        slowed = Slowed(Reading(queue, flushes=flushes), fraction, "cuda", queue)
        counted.products = 0
        queue.log.clear()
        slowed.step(NoMarks())
    assert counted.products * PRODUCT_S == pytest.approx(fraction * step_s, rel=0.05)
    assert "sleep" not in queue.log, "a device that sleeps cools, and makes up for it"
