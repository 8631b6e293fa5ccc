"""Counters of requests: what is over is forgotten, and no thread is begun for that with each request."""

import threading

from backend.api.edge.rates import counters
from tidemark.machine.processes import wait_until


def test_what_is_over_is_forgotten_by_the_same_thread() -> None:
    storage = counters(forget_every_s=0.02)
    thread, before = storage.timer, threading.active_count()
    for number in range(200):
        storage.incr(f"caller {number}", expiry=0.05)
    storage.incr("who comes again", expiry=60)
    assert storage.timer is thread and threading.active_count() <= before
    assert wait_until(lambda: set(storage.storage) == {"who comes again"}, 10)
    assert set(storage.expirations) == {"who comes again"} and thread.is_alive()
    thread.cancel()
