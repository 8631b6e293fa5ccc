"""Which phase an operation and its kernels belong to, also where the host runs far ahead of the device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from torch.autograd import DeviceType  # noqa: E402

from benchmarks.harness import profiling  # noqa: E402


def event(name, start, end, *, on=DeviceType.CPU, kernels=()):
    """What the profiler gives of a range, an operation or a kernel; times in microseconds."""
    launched = [SimpleNamespace(name=kernel, duration=10.0) for kernel in kernels]
    when = SimpleNamespace(start=start, end=end)
    return SimpleNamespace(
        name=name, time_range=when, device_type=on, kernels=launched, input_shapes=[], is_user_annotation=False
    )


def test_a_kernel_belongs_to_the_phase_in_which_the_host_launched_it():
    """The device is still in the forward pass when the host has launched all of the backward pass."""
    cuda = DeviceType.CUDA
    host = [
        event("phase: forward", 0, 10),
        event("aten::mm", 2, 4, kernels=["gemm_forward"]),
        event("phase: backward", 10, 20),
        event("aten::mm", 12, 14, kernels=["gemm_backward"]),
    ]
    device = [
        event("phase: forward", 5, 500, on=cuda),
        event("gemm_forward", 5, 500, on=cuda),
        event("phase: backward", 500, 900, on=cuda),
        event("gemm_backward", 500, 900, on=cuda),
    ]
    rows = profiling._rows([*host, *device], "cuda")
    assert [(row.phase, row.name) for row in rows] == [("forward", "gemm_forward"), ("backward", "gemm_backward")]
