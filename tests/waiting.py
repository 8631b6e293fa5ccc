"""Waiting for what another process or thread does."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(condition: Callable[[], Found], limit_s: float = 90.0) -> Found:
    """What the condition gives once it holds; fails the test when that does not come."""
    give_up_at = time.monotonic() + limit_s
    while time.monotonic() < give_up_at:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"did not happen within {limit_s} s")
