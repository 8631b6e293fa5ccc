"""Budgets of writes, end to end over HTTP: a run is durable, judged and answered with its verdicts.

The yardstick is one INSERT of one row, committed with fsync, on a connection kept open. Beside each row stand floors
of the same minute: what a client, the HTTP server and the disk take for the same bytes when nothing is done with them.
Where a floor is above the budget, no program of this kind can hold it on this machine.
"""

import hashlib
import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import orjson
import psutil

from backend.services.base import access
from backend.services.base.principal import Scope
from tests.bench.floors import Floors
from tests.bench.registry import Figure, row
from tests.bench.stage import Client, Stage, Times, in_turns

ROUNDS = 40
CLIENTS = 8
GAIN = 1.5
"""So many times what one client gets is wanted of eight, on two cores that also carry PostgreSQL and the clients."""
RUNS_A_CLIENT = 100
LARGE_RUNS_A_CLIENT = 25
WARM_UP_ROUNDS = 5  # of `in_turns`
WARM_UP_RUNS = 12  # until every series has a baseline, so that judging is what it is for the rest of their lives
METRICS = 10
RESULTS = 20
PROCESSES = 5
SMALL_STORE = 100_000
TURNS = 3
"""So often what one client gets and what eight get is measured; the middle one counts."""


class Size(NamedTuple):
    """Of a run."""

    results: int
    metrics: int


SMALL, LARGE = Size(1, 1), Size(RESULTS, METRICS)


@dataclass(frozen=True, slots=True)
class Delivery:
    run_id: str
    body: bytes


Put = Callable[[Delivery], bytes]


@row("PUT of a run with 200 measurements")
def put_of_a_run(stage: Stage) -> Iterable[Figure]:
    """200 measurements × 30 samples, all judged."""
    _ = stage.filled
    runs = bodies("bench/writes", results=RESULTS, metrics=METRICS)
    put = sender(stage, Client(stage.api_port))
    for _ in range(WARM_UP_RUNS):
        answer = orjson.loads(put(next(runs)))
    assert len(answer["verdicts"]) == 200, "every measurement has its verdict in the answer"
    prepared = list(itertools.islice(runs, ROUNDS + WARM_UP_ROUNDS))
    with Floors.of(stage) as floors:
        put_times, insert_times = in_turns_over(put, prepared, floors.insert)
        bare_times, copy_times = in_turns(
            lambda: floors.bare_put(prepared[0].body), lambda: floors.copy(RESULTS * METRICS), ROUNDS
        )
    floor_ms = bare_times.p50 + copy_times.p50
    yield Figure(
        what="PUT of a run with 200 measurements × 30 samples, p50",
        value_ms=put_times.p50,
        yardstick="INSERT with fsync",
        yardstick_ms=insert_times.p50,
        note=f"information: floor {floor_ms / insert_times.p50:.1f}×, bare PUT of the body {bare_times.p50:.2f} ms "
        f"+ bare COPY of its 200 rows {copy_times.p50:.2f} ms",
    )


@row("single-result PUT")
def single_result_put(stage: Stage) -> Iterable[Figure]:
    """One result of one metric × 30 samples; then eight clients at once, each with a benchmark of its own."""
    _ = stage.filled
    runs = bodies("bench/single", results=1, metrics=1)
    put = sender(stage, Client(stage.api_port))
    for _ in range(WARM_UP_RUNS):
        put(next(runs))
    prepared = list(itertools.islice(runs, 2 * ROUNDS + WARM_UP_ROUNDS))
    with Floors.of(stage) as floors:
        put_times, insert_times = in_turns_over(put, prepared, floors.insert)
        bare_times, _ = in_turns(lambda: floors.bare_put(prepared[0].body), floors.insert, ROUNDS)
    floor_ms = bare_times.p50 + insert_times.p50
    yield Figure(
        what="single-result PUT, p50",
        value_ms=put_times.p50,
        yardstick="INSERT with fsync",
        yardstick_ms=insert_times.p50,
        note=f"information: floor {floor_ms / insert_times.p50:.1f}×, bare PUT of the body {bare_times.p50:.2f} ms "
        "+ the INSERT",
    )
    with Floors.of(stage) as floors:
        gains = floors.gains_of(CLIENTS)
    yield Turns.of(stage, SMALL, RUNS_A_CLIENT).gain(f"… {CLIENTS} clients, time of a PUT", gains)


@row("PUT beside its floor")
def put_beside_its_floor(stage: Stage) -> Iterable[Figure]:
    """The same runs to a service that parses them, stores as many rows and commits; judged by neither, but by ours."""
    for what, results, metrics in (
        ("of 200 measurements × 30 samples", RESULTS, METRICS),
        ("of a single result", 1, 1),
    ):
        runs = bodies("bench/floor", results=results, metrics=metrics)
        put, floor = sender(stage, Client(stage.api_port)), Client(stage.floor_port)
        for delivery in itertools.islice(runs, WARM_UP_RUNS):
            put(delivery)
            floor.send("PUT", "/floor", delivery.body)
        prepared = list(itertools.islice(runs, ROUNDS + WARM_UP_ROUNDS))
        waiting = iter([delivery.body for delivery in prepared])
        put_times, floor_times = in_turns_over(put, prepared, partial(_next_to, floor, waiting))
        yield Figure(
            what=f"PUT {what}, p50",
            value_ms=put_times.p50,
            yardstick="parsed and stored alone",
            yardstick_ms=floor_times.p50,
            at_most=3,
        )


def _next_to(floor: Client, waiting: Iterator[bytes]) -> None:
    floor.send("PUT", "/floor", next(waiting))


@row("sustained ingest")
def sustained_ingest(stage: Stage) -> Iterable[Figure]:
    """Eight clients deliver runs of 200 measurements without a pause; and a large store against a small one."""
    _ = stage.filled
    turns = Turns.of(stage, LARGE, LARGE_RUNS_A_CLIENT)
    rows = RESULTS * METRICS
    rows_s = turns.middle(connected_to_two, CLIENTS).runs_s * rows
    by_one_s = turns.middle(connected_to_api, CLIENTS).runs_s * rows
    bare_s = turns.middle(connected_to_two_floors, CLIENTS).runs_s * rows
    with Floors.of(stage) as floors:
        copied_s, packed_s = floors.copied_rows_a_second(floors.copy_plain), floors.copied_rows_a_second(floors.copy)
    yield Figure(
        what=f"sustained ingest, {CLIENTS} clients, two API processes, time of a row",
        value_ms=1e3 / rows_s,
        yardstick="indexed COPY of a row",
        yardstick_ms=1e3 / copied_s,
        at_most=10,
        note=f"{rows_s:,.0f} rows/s against {copied_s:,.0f} rows/s; {_processes(stage)} "
        f"{by_one_s:,.0f} rows/s; against COPY of packed samples, {packed_s:,.0f} "
        f"rows/s, {packed_s / rows_s:.1f}×",
    )
    yield Figure(
        what=f"… {CLIENTS} clients, time of a run, beside its floor, two processes each",
        value_ms=1e3 * rows / rows_s,
        yardstick="parsed and stored alone",
        yardstick_ms=1e3 * rows / bare_s,
        at_most=3,
        note=f"the floor itself takes {bare_s:,.0f} rows/s",
    )
    yield turns.gain(f"… {CLIENTS} clients, time of a run")
    small = stage.beside(min(SMALL_STORE, stage.measurements), "bench_small")
    large_times, small_times = in_turns(put_into(stage), put_into(small), ROUNDS)
    yield Figure(
        what=f"… rate at {stage.measurements:,} against {small.measurements:,} measurements",
        value_ms=1e3 / large_times.p50,
        yardstick="rate of the small",
        yardstick_ms=1e3 / small_times.p50,
        at_least=0.8,
        note="runs/s of one client, not ms",
    )


def put_into(stage: Stage) -> Callable[[], bytes]:
    """Delivers one more run of 200 measurements to this stage, each time it is called."""
    _ = stage.filled
    runs = bodies("bench/size", results=RESULTS, metrics=METRICS)
    put = sender(stage, Client(stage.api_port))
    for _ in range(WARM_UP_RUNS):
        put(next(runs))
    prepared = itertools.islice(runs, ROUNDS + WARM_UP_ROUNDS)
    ready = iter(list(prepared))
    return lambda: put(next(ready))


class Rate(NamedTuple):
    """What clients get."""

    runs_s: float
    """Answered."""
    busy: float
    """The share of all cores' time that was used, by whatever: 0 to 1."""


def rate(stage: Stage, *, clients: int, size: Size, runs: int, to: Callable[[Stage], Put]) -> Rate:
    """What so many clients get answered. However many there are, they deliver the same: so many runs of
    each of eight projects, the first ones of each left out. Those are delivered by as many clients, so that the
    connections to the database that they need are open and used."""
    feeds = [bodies(f"bench/client{number}", results=size.results, metrics=size.metrics) for number in range(CLIENTS)]

    def of_each(number: int) -> list[Delivery]:
        """So many of each project, a run of each in turn."""
        turns = zip(*(itertools.islice(feed, number) for feed in feeds), strict=True)
        return list(itertools.chain.from_iterable(turns))

    first, counted = of_each(WARM_UP_RUNS), of_each(runs)
    puts = [to(stage) for _ in range(clients)]

    def deliver(prepared: Sequence[Delivery], number: int) -> None:
        for delivery in prepared[number::clients]:
            puts[number](delivery)

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(partial(deliver, first), range(clients)))
        began, _ = time.perf_counter(), psutil.cpu_percent()
        list(pool.map(partial(deliver, counted), range(clients)))
        return Rate(len(counted) / (time.perf_counter() - began), psutil.cpu_percent() / 100)


@dataclass(frozen=True, slots=True)
class Turns:
    """What one client and eight get of two API processes, one for each core; of one process; and of two that parse and
    store alone, more than which nothing can gain.

    In turns, so that a slow moment of the machine is not all of one of them; of each the middle one counts. The
    database is vacuumed before each turn: its newest month grows by a fifth within seconds here, not within a week, and
    autovacuum would come every minute.
    """

    stage: Stage
    found: Mapping[tuple[Callable[[Stage], Put], int], Sequence[Rate]]
    """By what they deliver to, and how many they are."""

    @classmethod
    def of(cls, stage: Stage, size: Size, runs: int) -> "Turns":
        of_each = [
            (to, clients)
            for to in (connected_to_two, connected_to_api, connected_to_two_floors)
            for clients in (1, CLIENTS)
        ]
        found: dict[tuple[Callable[[Stage], Put], int], list[Rate]] = {each: [] for each in of_each}
        for to, clients in of_each * TURNS:
            stage.settle_changes()
            found[to, clients].append(rate(stage, clients=clients, size=size, runs=runs, to=to))
        return cls(stage, found)

    def middle(self, to: Callable[[Stage], Put], clients: int) -> Rate:
        return sorted(self.found[to, clients])[TURNS // 2]

    def gain(self, what: str, note: str = "") -> Figure:
        """How much more eight clients get than one, of two API processes."""
        alone, together = self.middle(connected_to_two, 1), self.middle(connected_to_two, CLIENTS)
        said = (
            f"{self._compared(connected_to_two)}, with {together.busy:.0%} of the cores busy against {alone.busy:.0%}; "
            f"{_processes(self.stage)} {self._compared(connected_to_api)}; "
            f"parsed and stored alone, by two processes {self._compared(connected_to_two_floors)}"
        )
        return Figure(
            what=f"{what}, two API processes",
            value_ms=1e3 / together.runs_s,
            yardstick="one client",
            yardstick_ms=1e3 / alone.runs_s,
            at_most=1 / GAIN,
            note=f"{said}; {note}" if note else said,
        )

    def _compared(self, to: Callable[[Stage], Put]) -> str:
        one, all_of_them = self.middle(to, 1).runs_s, self.middle(to, CLIENTS).runs_s
        return f"{all_of_them:.0f}/s against {one:.0f}/s, {all_of_them / one:.2f}×"


def _processes(stage: Stage) -> str:
    """How many answer at the stage's own address."""
    return "one API process" if stage.processes == 1 else f"{stage.processes} API processes"


def connected_to_api(stage: Stage) -> Put:
    return sender(stage, Client(stage.api_port))


def connected_to_two(stage: Stage) -> Put:
    """Delivers to two API processes: the one with the fewest busy connections takes the next."""
    return sender(stage, Client(stage.two_apis_port))


def connected_to_two_floors(stage: Stage) -> Put:
    """Delivers to the service that parses, stores and commits alone, as two processes."""
    client = Client(stage.two_floors_port)
    return lambda delivery: client.send("PUT", "/floor", delivery.body)


def in_turns_over(put: Put, deliveries: Sequence[Delivery], yardstick: Callable[[], object]) -> tuple[Times, Times]:
    """Times of deliveries and of a yardstick, in turns so that both see the same machine and disk."""
    waiting = iter(deliveries)
    return in_turns(lambda: put(next(waiting)), yardstick, len(deliveries) - WARM_UP_ROUNDS)


_COUNTER = itertools.count()


def a_new_project(name: str) -> str:
    """A project that is in no store yet, also in one that was kept: a run delivered a second time measures nothing."""
    return f"{name}-{os.getpid()}-{int(time.time())}-{next(_COUNTER)}"


def bodies(project: str, *, results: int, metrics: int) -> Iterator[Delivery]:
    """Runs of one project, a new commit each, half an hour apart: noise of half a percent around constant levels."""
    chance = random.Random(project)
    name = a_new_project(project)
    began = datetime.now(UTC) - timedelta(days=20)
    for number in itertools.count():
        document = {
            "schema": "tidemark.run/1",
            "id": f"{name.replace('/', '-')}-{number:06d}",
            "project": name,
            "commit": sha(number),
            "parents": [sha(number - 1)] if number else [],
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


def sha(number: int) -> str:
    """A commit's, with letters among its digits as nearly all have: a long number in a body takes longer to read."""
    return hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest()


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


def sender(stage: Stage, client: Client) -> Put:
    """Delivers a body under the id it states, with a token that may write."""
    with stage.engine.begin() as connection:
        made = access.create_token(connection, "bench", [Scope.WRITE.value], now=datetime.now(UTC))
    headers = {"authorization": f"Bearer {made.token}", "content-type": "application/json"}

    def put(delivery: Delivery) -> bytes:
        return client.send("PUT", f"/api/v1/runs/{delivery.run_id}", delivery.body, headers)

    return put
