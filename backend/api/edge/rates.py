"""How often one caller may ask: by its token, else by its address. Counted in memory, by each process."""

import hashlib
import math
import threading
import time

from limits import RateLimitItem, RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.datastructures import Headers
from starlette.types import Scope

from backend.services.base.config import ServiceConfig

UNCOUNTED = frozenset({"/healthz", "/readyz"})
FORGET_EVERY_S = 10.0


class NoThread(threading.Timer):
    """In place of the timer by which the library forgets what is over: it begins a new thread with nearly every
    request, which takes more CPU than all else that is done to count one."""

    def is_alive(self) -> bool:
        return True


class Rates:
    """The counters of one process."""

    def __init__(self, config: ServiceConfig) -> None:
        self.storage = MemoryStorage()
        self.storage.timer.cancel()
        self._forget = self.storage.timer.function
        self._forget_at = time.monotonic() + FORGET_EVERY_S
        self.storage.timer = NoThread(FORGET_EVERY_S, self._forget)
        self._limiter = SlidingWindowCounterRateLimiter(self.storage)
        self._by_secret = RateLimitItemPerMinute(config.requests_per_token, namespace="secret")
        self._by_address = RateLimitItemPerMinute(config.requests_per_address, namespace="address")
        self._refused = RateLimitItemPerMinute(config.refusals_per_address, namespace="refused")

    def wait_s(self, scope: Scope, headers: Headers) -> int | None:
        """Count this request. None: it may be answered; else the seconds until the next one may."""
        if scope["path"] in UNCOUNTED:
            return None
        self._forget_now_and_then()
        address = address_of(scope)
        if not self._limiter.test(self._refused, address):
            return self._seconds(self._refused, address)
        # Not by a cookie: anybody can send one, and where reading is public, a made-up one is answered.
        secret = headers.get("authorization")
        limit, key = self._by_address, address
        if secret is not None:
            # By address as well: who makes up tokens has as many keys as he likes.
            limit, key = self._by_secret, f"{address} {hashlib.sha256(secret.encode()).hexdigest()[:24]}"
        return None if self._limiter.hit(limit, key) else self._seconds(limit, key)

    def refused(self, scope: Scope) -> None:
        """A token was shown that is none of ours."""
        self._limiter.hit(self._refused, address_of(scope))

    def _forget_now_and_then(self) -> None:
        """Forget callers whose minute is over."""
        if time.monotonic() >= self._forget_at:
            self._forget()
            self._forget_at = time.monotonic() + FORGET_EVERY_S

    def _seconds(self, limit: RateLimitItem, key: str) -> int:
        return max(1, math.ceil(self._limiter.get_window_stats(limit, key).reset_time - time.time()))


def address_of(scope: Scope) -> str:
    """Where the request comes from, as the server (or the proxy that it trusts) says."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
