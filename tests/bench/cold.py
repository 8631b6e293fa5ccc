"""Budget of a cold start: the first answer of a new process from an empty cache, beside the answers after it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from tests.bench.pages import page_paths
from tests.bench.registry import Figure, row
from tests.bench.stage import Client, Stage, timed

WARM_ROUNDS = 9


@row("cold")
def cold_pages(stage: Stage) -> Iterable[Figure]:
    """Each page of the large project, asked for first of a new process; PostgreSQL has nothing in memory."""
    for name, path in page_paths(stage).items():
        port = stage.serve_pages_anew()
        Client(port).get("/rule")  # what a process does once, whatever page is asked for first
        stage.forget_what_was_read()
        cold = timed(lambda port=port, path=path: Client(port).get(path))
        warm = statistics.median(timed(lambda port=port, path=path: Client(port).get(path)) for _ in range(WARM_ROUNDS))
        yield Figure(what=f"cold page: {name}", value_ms=cold, yardstick="warm", yardstick_ms=warm, at_most=3)
