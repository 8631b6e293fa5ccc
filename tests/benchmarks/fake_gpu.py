"""A GPU in name only: tensors of device `cuda` without storage, on any build of torch.

Shapes, types and devices are followed through every operation, so that code which mixes devices, asks a kernel for a
type that it has not, or reads a result on the host is found where there is no GPU. Nothing is computed: what is read
of the device is zero. What stands in for torch is said at each part.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

ATTENTION = torch.nn.functional.scaled_dot_product_attention
CUDA, META = 1, 14
"""Of `c10::DeviceType`."""


class HostReads(TorchDispatchMode):
    """Answers what the host asks of a tensor without data, and counts what it asked of one on the device.

    An operation whose result's size depends on data gets a size that is possible.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.of_device: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "overloadpacket", func).__name__
        answer = getattr(self, f"answer_{name}", None)
        if answer is None:
            return func(*args, **(kwargs or {}))
        found = answer(*args, **(kwargs or {}))
        if found is NotImplemented:
            return func(*args, **(kwargs or {}))
        if any(isinstance(part, torch.Tensor) and part.is_cuda for part in args):
            self.of_device[name] += 1
        return found

    def answer__local_scalar_dense(self, tensor: torch.Tensor) -> float | int | bool:
        """Nothing was wrong; what counts on the host in single precision is an optimizer's steps: one is made."""
        if tensor.is_floating_point():
            return 0.0 if tensor.is_cuda else 1.0
        return False if tensor.dtype is torch.bool else 0

    def answer_equal(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        return True

    def answer__pin_memory(self, tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        return tensor

    def answer_nonzero(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros(max(1, tensor.numel() // 8), tensor.dim(), dtype=torch.int64, device=tensor.device)

    def answer_bincount(self, tensor: torch.Tensor, weights: Any = None, minlength: int = 0) -> torch.Tensor:
        return torch.zeros(max(1, minlength), dtype=torch.int64, device=tensor.device)

    def answer_repeat_interleave(self, repeats: torch.Tensor, output_size: int | None = None) -> Any:
        if output_size is not None:
            return NotImplemented
        return torch.zeros(repeats.numel(), dtype=torch.int64, device=repeats.device)


class FirstGpu(TorchFunctionMode):
    """`cuda` without a number is `cuda:0`, for torch would ask the guard, which knows of no device.

    Numbers from Python are made on the host and moved.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        args, kwargs = [_named(value) for value in args], {name: _named(value) for name, value in kwargs.items()}
        if func is torch.tensor:
            device = kwargs.pop("device", None)
            made = func(*args, **kwargs)
            return made if device is None else torch.empty(made.shape, dtype=made.dtype, device=device)
        return func(*args, **kwargs)


def _named(value: Any) -> Any:
    is_name = isinstance(value, str | torch.device)
    return torch.device("cuda", 0) if is_name and value in ("cuda", torch.device("cuda")) else value


PASS = [0]
"""Which backward pass this is: checkpointing makes activations again once in each."""


def backward(tensor: torch.Tensor, gradient: torch.Tensor | None = None, **_: Any) -> None:
    """The backward pass, node by node: torch's engine wants streams, of which there are none here.

    Every gradient must be on the device of what it belongs to, and fit its shape.
    """
    start = tensor.grad_fn
    assert start is not None, "nothing here takes a gradient"
    PASS[0] += 1
    with torch.no_grad():
        arrived: dict[Any, list[Any]] = {start: [None] * len(start._input_metadata)}
        arrived[start][tensor.output_nr] = torch.ones_like(tensor) if gradient is None else gradient
        for node in _in_order(start):
            gradients = arrived.pop(node, None)
            if gradients is None or all(one is None for one in gradients):
                continue
            gradients = [_fitted(node, *pair) for pair in zip(gradients, node._input_metadata, strict=True)]
            if hasattr(node, "variable"):
                leaf = node.variable
                leaf.grad = gradients[0].detach() if leaf.grad is None else leaf.grad + gradients[0]
                continue
            sent = (
                node.apply(*gradients)
                if isinstance(node, torch.autograd.function.BackwardCFunction)
                else node(*gradients)
            )
            # A function of ours answers for its last arguments too, which are no tensors and have no gradient.
            sent = sent[: len(node.next_functions)] if isinstance(sent, tuple) else (sent,)
            for one, (further, slot) in zip(sent, node.next_functions, strict=True):
                if further is None or one is None:
                    continue
                waiting = arrived.setdefault(further, [None] * len(further._input_metadata))
                waiting[slot] = one if waiting[slot] is None else waiting[slot] + one


def _in_order(start: Any) -> list[Any]:
    """Every node after all of those that send it a gradient."""
    done, order, stack = set(), [], [(start, False)]
    while stack:
        node, left = stack.pop()
        if left:
            order.append(node)
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            stack.extend((further, False) for further, _ in node.next_functions if further is not None)
    return order[::-1]


def _fitted(node: Any, gradient: torch.Tensor | None, wanted: Any) -> torch.Tensor | None:
    """As torch's engine does: summed over what was broadcast, in the type of what it belongs to, never moved."""
    if gradient is None:
        return None
    assert gradient.device == wanted.device, f"{node.name()}: a gradient on {gradient.device}, not {wanted.device}"
    if (gradient.shape, gradient.dtype) == (wanted.shape, wanted.dtype):
        return gradient
    return gradient.sum_to_size(tuple(wanted.shape)).to(wanted.dtype)


@contextlib.contextmanager
def _a_guard_for_cuda() -> Iterator[None]:
    """Autograd asks each device for its guard, and a CPU build has none for CUDA: that of `meta` does nothing."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * (META + 1)).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    before, guards[CUDA] = guards[CUDA], guards[META]
    try:
        yield
    finally:
        guards[CUDA] = before


class _Properties:
    """Of an H200."""

    total_memory = 150_109_880_320
    multi_processor_count = 132
    major, minor = 9, 0


class _Generator(torch.Generator):
    """One of the host that says that it is of the device; no numbers are drawn."""

    def __new__(cls, device: Any = "cpu") -> _Generator:
        made = super().__new__(cls)
        made.of_device = _named(device)
        return made

    @property
    def device(self) -> torch.device:
        return torch.device(self.of_device)


def _captured(function: Any, sample: Any) -> Any:
    """What a graph would replay: the function under the mixed precision in which it was captured."""
    enabled, kind = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")

    def replayed(*inputs: torch.Tensor) -> Any:
        with torch.autocast("cuda", dtype=kind, enabled=enabled):
            return function(*inputs)

    return replayed


def _plain_attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Attention operation by operation: a build with CUDA asks the driver which of its kernels would take the call."""
    with sdpa_kernel(SDPBackend.MATH):
        return ATTENTION(*args, **kwargs)


class _Graph:
    """A graph whose capture runs what it captures; nothing is left to replay."""

    def replay(self) -> None:
        pass


@contextlib.contextmanager
def fake_gpu(monkeypatch: Any) -> Iterator[HostReads]:
    """Within it torch says that there is one H200, and tensors can be made there."""
    says: dict[str, Any] = {
        "is_available": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: _Properties,
        "get_device_name": lambda *_: "NVIDIA H200",
        "mem_get_info": lambda *_: (_Properties.total_memory,) * 2,
        "synchronize": lambda *_: None,
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": lambda _: None,
    }
    with monkeypatch.context() as patch, _a_guard_for_cuda():
        for name, answer in says.items():
            patch.setattr(torch.cuda, name, answer)
        patch.setattr(fake_tensor, "init_gpu_context", lambda _: None)
        patch.setattr(torch, "Generator", _Generator)
        patch.setattr(torch.Tensor, "backward", backward)
        patch.setattr(torch._C, "_current_graph_task_id", lambda: PASS[0])
        # A module moves its parameters by swapping, and torch refuses where a weak reference is left, as fakes leave.
        patch.setattr(torch.utils, "weakref", SimpleNamespace(getweakrefs=lambda _: ()))
        # What would be compiled or captured runs as it is written.
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", _plain_attention)
        patch.setattr(torch.cuda, "make_graphed_callables", _captured)
        patch.setattr(torch.cuda, "CUDAGraph", _Graph)
        patch.setattr(torch.cuda, "graph", contextlib.nullcontext)
        patch.setattr(torch, "compile", lambda function=None, **_: function or (lambda wrapped: wrapped))
        with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True), FirstGpu(), HostReads() as reads:
            yield reads
