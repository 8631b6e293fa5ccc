"""Records of which a run makes hundreds, and a history hundreds of thousands."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(*, kw_only: bool = False, eq: bool = True) -> Callable[[type[T]], type[T]]:
    """A dataclass with slots that the type checker keeps frozen.

    Nothing guards it at run time: a guarded one takes three times as long to make, which was a sixth of the CPU that
    a history took to be judged again.
    """
    return dataclass(slots=True, kw_only=kw_only, eq=eq, unsafe_hash=eq)


@contextmanager
def uncollected() -> Iterator[None]:
    """Search for no garbage meanwhile.

    A history that is judged again or previewed becomes hundreds of thousands of records, and none refers back. The
    collector would go through all of them as they come: an eighth of the CPU of a preview. Of two that overlap, the
    one that began first ends the pause.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
