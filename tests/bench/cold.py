"""Budget of a cold start: the first answer of a new process from an empty cache, beside the answers after it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from tests.bench.pages import page_paths
from tests.bench.registry import Figure, row
from tests.bench.stage import Client, Stage, timed

COLD_ROUNDS = 3
"""New processes for each page: one of many stalls that have nothing to do with it would be all of a single answer."""
WARM_ROUNDS = 9


@row("cold")
def cold_pages(stage: Stage) -> Iterable[Figure]:
    """Each page of the large project, asked for first of a new process; PostgreSQL has nothing in memory."""
    for name, path in page_paths(stage).items():
        cold, warm = zip(*(_cold_and_warm(stage, path) for _ in range(COLD_ROUNDS)), strict=True)
        yield Figure(
            what=f"cold page: {name}",
            value_ms=statistics.median(cold),
            yardstick="warm",
            yardstick_ms=statistics.median(warm),
            at_most=3,
        )


def _cold_and_warm(stage: Stage, path: str) -> tuple[float, float]:
    """Milliseconds of the first answer of a new process, and of those after it."""
    with stage.pages_anew() as port:
        Client(port).get("/rule")  # what a process does once, whatever page is asked for first
        stage.forget_what_was_read()
        cold = timed(lambda: Client(port).get(path))
        return cold, statistics.median(timed(lambda: Client(port).get(path)) for _ in range(WARM_ROUNDS))
