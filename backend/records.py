"""Records of which a run makes hundreds, and a history hundreds of thousands."""

from collections.abc import Callable
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
