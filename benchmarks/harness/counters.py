"""Exact counters of one untimed step: dispatched operations, compiled regions, bytes kept for the backward pass.

All of them watch from outside, and some of what watches keeps torch's compiler away. So a step is counted after it was
timed, never before.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.harness.timing.start_up import graphs_compiled
from benchmarks.harness.workload import StepCounter as Figure

_FREE = frozenset(
    "detach alias view _unsafe_view t transpose permute expand as_strided unsqueeze squeeze slice select split "
    "split_with_sizes unbind".split()
)


_SYNCING = frozenset("_local_scalar_dense nonzero masked_select _unique2 item repeat_interleave equal".split())
"""Operations whose result the host must see before it can go on: on an accelerator each is a full stop."""


class OperationCounter(TorchDispatchMode):
    """Counts every operation that reaches a kernel. Views cost no kernel and are left out.

    Of a compiled region it sees the library kernels that the region calls, not those that the compiler generated.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.by_name: Counter[str] = Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """The compiler need not be told to leave this class alone, which would import it, a second of a process."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code stays compiled while it is counted; a mode that says no makes the compiler skip it for good."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "overloadpacket", func).__name__
        if name not in _FREE:
            self.by_name[name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        """Operations in all."""
        return sum(self.by_name.values())


COMPILED_REGION = "Torch-Compiled Region"


def count_compiled_regions(step: Callable[[], object]) -> int:
    """How many compiled regions one step enters, by the compiler's own marks; 0 where everything ran eagerly."""
    if graphs_compiled() == 0:
        return 0
    with torch.autograd.profiler.profile() as profiler:
        step()
    return sum(event.name.startswith(COMPILED_REGION) for event in profiler.function_events or ())


def count_operations(step: Callable[[], object]) -> OperationCounter:
    """Runs one step under the counter."""
    with OperationCounter() as counter:
        step()
    return counter


def host_syncs(operations: OperationCounter, device: str, step: Callable[[], None]) -> Figure:
    """How often a step makes the host wait. Judged on an accelerator; on a CPU, where it costs nothing, watched."""
    if device == "cuda":
        return Figure(metric="host_syncs", value=_waits_on_device(step), role="gate")
    stops = sum(count for name, count in operations.by_name.items() if name in _SYNCING)
    return Figure(metric="host_syncs", value=stops, role="watch")


def _waits_on_device(step: Callable[[], None]) -> int:
    """Waits that the driver's own guard sees in one step: copies back to the host too, which no operation's name
    tells of.
    """
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum("synchronizing CUDA operation" in str(one.message) for one in said)


def count_activation_bytes(forward: Callable[[], torch.Tensor], parameters: Iterable[torch.Tensor]) -> int:
    """Bytes that the forward pass keeps alive for the backward pass, each storage once, parameters apart.

    It is what limits the batch on an accelerator, and it is exact on any machine: the same code keeps the same bytes.
    """
    owned = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in owned:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    def as_it_was(tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    hooks = [torch.compiler.disable(hook) if graphs_compiled() else hook for hook in (note, as_it_was)]
    with torch.autograd.graph.saved_tensors_hooks(*hooks):
        loss = forward()
    total = sum(kept.values())
    del loss
    return total
