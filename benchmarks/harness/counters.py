"""Exact counters of one untimed step: dispatched operations, and bytes of activations kept for the backward pass."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.harness.workload import Counter as Figure

_FREE = frozenset(
    "detach alias view _unsafe_view t transpose permute expand as_strided unsqueeze squeeze slice select split "
    "split_with_sizes unbind".split()
)


_SYNCING = frozenset("_local_scalar_dense nonzero masked_select _unique2 item repeat_interleave equal".split())
"""Operations whose result the host must see before it can go on: on an accelerator each is a full stop."""


class OperationCounter(TorchDispatchMode):
    """Counts every operation that reaches a kernel. Views cost no kernel and are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: Counter[str] = Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Eager code only is counted.

        Asking torch's compiler to look away would import it, a second of a fresh process.
        """
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in _FREE:
            self.by_name[name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        """Operations in all."""
        return sum(self.by_name.values())


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

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = forward()
    total = sum(kept.values())
    del loss
    return total
