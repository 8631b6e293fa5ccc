"""Coroutines in tests whose process may have a browser open: its thread has a loop that runs already."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Answer = TypeVar("Answer")


def in_a_loop_of_its_own(coroutine: Coroutine[object, object, Answer]) -> Answer:
    """What the coroutine returns, run to its end in a thread made for it."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(coroutine)).result()
