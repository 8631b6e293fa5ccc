"""Budgets of writes, end to end over HTTP: a run is durable, judged and answered with its verdicts.

The yardstick is one INSERT of one row, committed with fsync, on a connection kept open.
"""

import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import psycopg

from backend.services import access
from backend.services.access import Scope
from tests.bench.registry import Figure, row
from tests.bench.stage import Client, Stage, Times, in_turns

ROUNDS = 40
CLIENTS = 8
RUNS_A_CLIENT = 40
WARM_UP_ROUNDS = 5  # of `in_turns`
WARM_UP_RUNS = 12  # until every series has a baseline, so that judging is what it is for the rest of their lives
METRICS = 10
PROCESSES = 5


@row("PUT of a run with 200 measurements")
def put_of_a_run(stage: Stage) -> Iterable[Figure]:
    """200 measurements × 30 samples, all judged."""
    _ = stage.filled
    runs = bodies("bench/writes", results=200 // METRICS, metrics=METRICS)
    put = sender(stage, Client(stage.api_port))
    for _ in range(WARM_UP_RUNS):
        answer = orjson.loads(put(next(runs)))
    assert len(answer["verdicts"]) == 200, "every measurement has its verdict in the answer"
    prepared = itertools.islice(runs, ROUNDS + WARM_UP_ROUNDS)
    put_times, insert_times = beside_insert(stage, put, list(prepared))
    yield Figure(
        what="PUT of a run with 200 measurements × 30 samples, p50",
        value_ms=put_times.p50,
        yardstick="INSERT with fsync",
        yardstick_ms=insert_times.p50,
        at_most=10,
    )


@row("single-result PUT")
def single_result_put(stage: Stage) -> Iterable[Figure]:
    """One result of one metric × 30 samples; then eight clients at once, each with a benchmark of its own."""
    _ = stage.filled
    runs = bodies("bench/single", results=1, metrics=1)
    put = sender(stage, Client(stage.api_port))
    for _ in range(WARM_UP_RUNS):
        put(next(runs))
    prepared = itertools.islice(runs, 2 * ROUNDS + WARM_UP_ROUNDS)
    put_times, insert_times = beside_insert(stage, put, list(prepared))
    yield Figure(
        what="single-result PUT, p50",
        value_ms=put_times.p50,
        yardstick="INSERT with fsync",
        yardstick_ms=insert_times.p50,
        at_most=1.75,
    )
    alone = rate(stage, clients=1)
    together = rate(stage, clients=CLIENTS)
    yield Figure(
        what=f"… {CLIENTS} clients, time of a PUT",
        value_ms=1e3 / together,
        yardstick="one client",
        yardstick_ms=1e3 / alone,
        at_most=1 / 4,
        note=f"{together:.0f}/s against {alone:.0f}/s",
    )


def rate(stage: Stage, *, clients: int) -> float:
    """Runs a second that so many clients get answered, each delivering results of its own benchmark."""
    feeds = [
        (sender(stage, Client(stage.api_port)), bodies(f"bench/client{number}", results=1, metrics=1))
        for number in range(clients)
    ]
    for put, runs in feeds:
        for _ in range(WARM_UP_RUNS):
            put(next(runs))
    prepared = [(put, list(itertools.islice(runs, RUNS_A_CLIENT))) for put, runs in feeds]

    def deliver(feed: tuple[Callable[[Delivery], bytes], list[Delivery]]) -> None:
        put, runs = feed
        for run in runs:
            put(run)

    with ThreadPoolExecutor(clients) as pool:
        began = time.perf_counter()
        list(pool.map(deliver, prepared))
        return clients * RUNS_A_CLIENT / (time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class Delivery:
    run_id: str
    body: bytes


def beside_insert(stage: Stage, put: Callable[[Delivery], bytes], deliveries: list[Delivery]) -> tuple[Times, Times]:
    """Times of deliveries and of an INSERT of one row, taken in turns so that both see the same machine and disk."""
    waiting = iter(deliveries)
    with psycopg.connect(stage.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bench_yardstick (id bigserial PRIMARY KEY, value float8)")

        def insert() -> None:
            connection.execute("INSERT INTO bench_yardstick (value) VALUES (1.0)")

        return in_turns(lambda: put(next(waiting)), insert, len(deliveries) - WARM_UP_ROUNDS)


_COUNTER = itertools.count()


def bodies(project: str, *, results: int, metrics: int) -> Iterator[Delivery]:
    """Runs of one project, a new commit each, half an hour apart: noise of half a percent around constant levels."""
    chance = random.Random(project)
    name = f"{project}-{next(_COUNTER)}"
    began = datetime.now(UTC) - timedelta(days=20)
    for number in itertools.count():
        document = {
            "schema": "tidemark.run/1",
            "id": f"{name.replace('/', '-')}-{number:06d}",
            "project": name,
            "commit": f"{number:040x}",
            "parents": [f"{number - 1:040x}"] if number else [],
            "branch": "main",
            "suite": "gpt",
            "suite_version": "1.0.0",
            "testbed": "bench-cpu",
            "worker": "bench-cpu-01",
            "status": "ok",
            "started_at": (began + timedelta(minutes=30 * number)).isoformat(),
            "environment": {"torch": "2.13.0", "hash": "sha256:bench"},
            "results": [
                {
                    "benchmark": "gpt.train",
                    "variant": {"rung": variant, "dtype": "bf16"},
                    "preset": "cpu",
                    "status": "ok",
                    "measurements": [measurement(chance, metric, 5.0 + metric + variant) for metric in range(metrics)],
                }
                for variant in range(results)
            ],
        }
        yield Delivery(document["id"], orjson.dumps(document))


def measurement(chance: random.Random, number: int, level: float) -> dict[str, Any]:
    processes = [round(level * (1 + chance.gauss(0, 0.005)), 5) for _ in range(PROCESSES)]
    return {
        "metric": f"m{number}_ms",
        "unit": "ms",
        "direction": "lower",
        "role": "gate",
        "value": statistics.median(processes),
        "processes": processes,
        "samples": [[round(value * (1 + chance.gauss(0, 0.01)), 5) for _ in range(6)] for value in processes],
    }


def sender(stage: Stage, client: Client) -> Callable[[Delivery], bytes]:
    """Delivers a body under the id it states, with a token that may write."""
    with stage.engine.begin() as connection:
        made = access.create_token(connection, "bench", [Scope.WRITE.value], now=datetime.now(UTC))
    headers = {"authorization": f"Bearer {made.token}", "content-type": "application/json"}

    def put(delivery: Delivery) -> bytes:
        return client.send("PUT", f"/api/v1/runs/{delivery.run_id}", delivery.body, headers)

    return put
