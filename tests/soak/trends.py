"""Memory, descriptors, threads and connections of a running installation, sampled and told as trends.

The slope is Theil and Sen's, of the samples after a warm-up of a quarter: the middle of the slopes between all pairs,
which a garbage collection or a burst does not move. Its interval is that of 95 %.
"""

from __future__ import annotations

import random
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import psutil
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from tests.soak.stack import SLUG, WORKERS, Repository, Stack

EVERY_S = 2.0
WARM_UP = 0.25
STREAMS = 8
OPEN_S = 20.0
PAGES = (
    "/",
    "/board",
    "/regressions",
    "/series",
    "/workers",
    "/measuring",
    "/metrics",
    "/api/v1/queue",
    f"/api/v1/board?project={SLUG}",
)
LEAK_PER_HOUR = 0.25
LEAK_MB = 10.0
LEAK_AFTER_S = 20 * 60
"""Memory leaks that grows for sure by a quarter of itself in an hour, and by 10 MB in what was seen. In less than
twenty minutes caches and pools that fill look the same: it is told, and not judged."""


@dataclass
class Sampler:
    """Looks at every process of the stack, and at the database, every few seconds."""

    stack: Stack
    values: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(EVERY_S):
            at = time.monotonic() - began
            for name, value in self._look().items():
                self.values.setdefault(name, []).append((at, value))

    def stop(self) -> None:
        self._stop.set()

    def _look(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in ("api", "beat", "valkey", "postgres", *WORKERS):
            child = self.stack.children[name].process
            if child is None:
                continue
            try:
                own = psutil.Process(child.pid)
                # A worker's runs come and go; PostgreSQL's processes are the server.
                family = [own, *own.children(recursive=True)] if name == "postgres" else [own]
                found[f"{name}: memory"] = sum(_private_mb(process) for process in family)
                if name in ("api", "beat", *WORKERS):
                    found[f"{name}: descriptors"] = own.num_fds()
                    found[f"{name}: threads"] = own.num_threads()
            except psutil.Error:
                continue
        engine = create_engine(self.stack.postgres.url, poolclass=NullPool)
        with engine.connect() as c:
            found["database: connections"] = c.execute(
                text("SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'")
            ).scalar_one()
            size = c.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
            found["database: size"] = size / 1e6
        engine.dispose()
        return found


def _private_mb(process: psutil.Process) -> float:
    """Its share of memory: what several processes use counts in parts (PSS) where the system says so."""
    full = process.memory_full_info()
    return float(getattr(full, "pss", full.rss)) / 1e6


@dataclass(frozen=True)
class Trend:
    """One quantity over the time after warming up; slopes are per hour."""

    name: str
    first: float
    last: float
    most: float
    slope: float
    slope_low: float
    slope_high: float
    seconds: float

    @property
    def leaks(self) -> bool:
        grown = self.last - self.first >= LEAK_MB and self.slope_low > LEAK_PER_HOUR * self.first
        return self.name.endswith(": memory") and self.seconds >= LEAK_AFTER_S and grown

    def line(self) -> str:
        unit = " MB" if self.name.endswith((": memory", ": size")) else ""
        return (
            f"{self.name:<24} {self.first:8.1f} {self.last:8.1f} {self.most:8.1f}{unit:<3} "
            f"{self.slope:+9.1f} [{self.slope_low:+.1f}, {self.slope_high:+.1f}] an hour"
        )


def trend(name: str, samples: Sequence[tuple[float, float]]) -> Trend:
    """What became of a quantity; `samples` are (seconds, value), ten or more."""
    from scipy.stats import theilslopes  # a second's import, which no collection of tests should wait for

    settled = samples[int(len(samples) * WARM_UP) :]
    hours = [at / 3600 for at, _ in settled]
    values = [value for _, value in settled]
    slope, _, low, high = theilslopes(values, hours)
    ends = max(1, len(values) // 10)
    return Trend(
        name=name,
        first=median(values[:ends]),
        last=median(values[-ends:]),
        most=max(value for _, value in samples),
        slope=float(slope),
        slope_low=float(low),
        slope_high=float(high),
        seconds=settled[-1][0] - settled[0][0],
    )


class Readers:
    """People with open pages: streams of events that are opened anew every so often, and pages that are read."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._listen, daemon=True) for _ in range(STREAMS)]
        self._threads.append(threading.Thread(target=self._read, daemon=True))
        self.pages = 0
        self.refused: list[str] = []
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _listen(self) -> None:
        while not self._stop.is_set():
            self._ask("/api/v1/events", self._follow)

    def _follow(self, answer: object) -> None:
        until = time.monotonic() + OPEN_S
        readline = getattr(answer, "readline")  # noqa: B009 (an HTTPResponse, which urllib types as Any)
        while time.monotonic() < until and not self._stop.is_set() and readline():
            pass

    def _read(self) -> None:
        while not self._stop.is_set():
            for path in PAGES:
                self._ask(path, lambda answer: answer.read())  # type: ignore[attr-defined]
                self.pages += 1
                self._stop.wait(0.2)

    def _ask(self, path: str, then: Callable[[object], object]) -> None:
        headers = {"Authorization": f"Bearer {self._stack.token}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self._stack.port}{path}", headers=headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as answer:
                then(answer)
        except OSError as failure:
            self.refused.append(f"{path}: {failure}")
            self._stop.wait(0.5)


@dataclass(frozen=True)
class Watched:
    """What was seen in calm."""

    pages: int
    trends: list[Trend]
    wrong: list[str]


def calm_weather(
    stack: Stack, repository: Repository, chance: random.Random, seconds: float, say: Callable[[str], None]
) -> Watched:
    """A push every few seconds, people who read, and a look at every process every other second."""
    sampler, readers = Sampler(stack), Readers(stack)
    watching = threading.Thread(target=sampler.run)
    watching.start()
    end_at = time.monotonic() + seconds
    next_push = next_word = 0.0
    try:
        while time.monotonic() < end_at:
            now = time.monotonic()
            if now >= next_push:
                repository.commit()
                stack.push(repository.shas[-1])
                next_push = now + chance.uniform(4, 10)
            if now >= next_word:
                say(f"{end_at - now:4.0f} s to go, {len(repository.shas)} commits, {readers.pages} pages")
                next_word = now + 30
            time.sleep(0.1)
    finally:
        readers.stop()
        sampler.stop()
        watching.join(30)
    found = [trend(name, samples) for name, samples in sampler.values.items() if len(samples) >= 10]
    grown = [f"grows: {each.line()}" for each in found if each.leaks]
    return Watched(pages=readers.pages, trends=found, wrong=[*grown, *readers.refused[:10]])
