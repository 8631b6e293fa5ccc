"""A whole project at once: judged again after a change of its policy, previewed before one, imported from a file.

What is counted is our CPU, of one core; PostgreSQL's share stands in the notes. The yardsticks are seconds: what a
person who waits, or works beside it, can be asked to bear.
"""

import random
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import islice

import orjson

from backend.api.edge.memory import settle_memory
from backend.contract import parse_run
from backend.importers import Context
from backend.services.base.principal import Principal, Scope, Via
from backend.services.ingest.imports import ForeignFile, import_file
from backend.services.ingest.record import record_run
from backend.services.judging import policy_change as policies
from backend.services.judging import what_if
from tests.bench.analysis import POINTS
from tests.bench.registry import Figure, row
from tests.bench.stage import Stage
from tests.bench.writes import METRICS, RESULTS, a_new_project, bodies

OPERATOR = Principal(name="bench", scopes=frozenset(Scope), project_id=None, via=Via.TOKEN)
AGAIN_S, FIRST_PREVIEW_S, PREVIEW_S, IMPORT_S = 3, 2, 1, 15
PREVIEWED = 1_000
"""Commits of each series."""
IMPORTED_RUNS, IMPORTED_RESULTS = 1_000, 20
DRAGGED = (0.05, 0.07, 0.04)
"""Smallest regressions that are previewed, one after the other."""


@row("judged again", in_process=True)
def judged_again(stage: Stage) -> Iterable[Figure]:
    """Runs of 200 series through ingest; a policy is chosen, and all is judged again; more runs, and previews."""
    series = RESULTS * METRICS
    settle_memory()  # as the processes are that do this
    deliveries = bodies("bench/again", results=RESULTS, metrics=METRICS)

    def deliver(count: int) -> str:
        stage.say(f"delivering {count} runs of {series} series …")
        for delivery in islice(deliveries, count):
            with stage.engine.begin() as c:
                record_run(c, parse_run(delivery.body), delivery.body, now=datetime.now(UTC))
        return str(orjson.loads(delivery.body)["project"])

    project, now = deliver(POINTS), datetime.now(UTC)
    with stage.engine.begin() as c:
        policies.change(c, project, {"min_change": 0.06}, by=OPERATOR, now=now)
    judged: list[int] = []
    spent = cpu_and_wall_s(lambda: judged.extend(policies.rejudge_due(stage.engine, lambda: now)))
    assert len(judged) == series, "every series is judged again"
    yield figure(f"{series} series × {POINTS} points judged again and stored", spent, AGAIN_S, POINTS * series)

    deliver(PREVIEWED - POINTS)
    now = datetime.now(UTC)

    def preview(min_change: float) -> None:
        with stage.engine.begin() as c:
            found = what_if.preview(c, project, {"min_change": min_change}, now=now)
        assert found.judged == series, "every series is previewed"

    for number, min_change in enumerate(DRAGGED):
        spent = cpu_and_wall_s(lambda size=min_change: preview(size))
        which, limit_s = ("while the slider is dragged", PREVIEW_S) if number else ("the first", FIRST_PREVIEW_S)
        yield figure(f"preview of {series} series × {PREVIEWED:,} commits, {which}", spent, limit_s, PREVIEWED * series)


@row("import", in_process=True)
def imported(stage: Stage) -> Iterable[Figure]:
    """A history of 20,000 results from a file of another tool, in one transaction."""
    results = IMPORTED_RUNS * IMPORTED_RESULTS
    context = Context(project=a_new_project("bench/imported"), testbed="bench-cpu")
    file = ForeignFile(name="data.js", data=history_file(), context=context)

    def take() -> None:
        with stage.engine.begin() as c:
            answer = import_file(c, file, dry_run=False, principal=OPERATOR, now=datetime.now(UTC))
        assert answer.records.stored == results, "all of it is stored"

    _, wall_s = spent = cpu_and_wall_s(take)
    yield figure(f"import of {results:,} results, until it is stored", (wall_s, spent[0]), IMPORT_S, results, "CPU")


def history_file() -> bytes:
    """A data.js as github-action-benchmark writes it: commits eight an hour, every tenth benchmark slower halfway."""
    chance = random.Random(1)
    began = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    entries = []
    for run in range(IMPORTED_RUNS):
        at = datetime.fromtimestamp(began + 450 * run, UTC)
        benches = []
        for number in range(IMPORTED_RESULTS):
            slower = 1.1 if number % 10 == 0 and run >= IMPORTED_RUNS // 2 else 1.0
            value = (10 + number) * slower * (1 + chance.gauss(0, 0.006))
            benches.append({"name": f"bench-{number}", "value": value, "unit": "ms"})
        commit = {"id": f"{run:040x}", "timestamp": at.isoformat(), "message": f"Commit {run}"}
        entries.append({"commit": commit, "date": 1000 * int(at.timestamp()), "benches": benches})
    content = {"repoUrl": "https://github.com/bench/imported", "entries": {"Benchmark": entries}}
    return b"window.BENCHMARK_DATA = " + orjson.dumps(content)


def figure(what: str, spent: tuple[float, float], at_most_s: float, points: int, also: str = "in all") -> Figure:
    """Seconds beside the seconds that they may be; `also` is what the second number of `spent` is."""
    return Figure(
        what=what,
        value_ms=1e3 * spent[0],
        yardstick=f"{at_most_s} s",
        yardstick_ms=1e3 * at_most_s,
        at_most=1,
        note=f"{1e6 * spent[0] / points:.1f} µs a point; {also} {spent[1]:.1f} s",
    )


def cpu_and_wall_s(act: Callable[[], object]) -> tuple[float, float]:
    """Seconds of this process's CPU that an act takes, and seconds until it is over."""
    began, cpu_began = time.perf_counter(), time.process_time()
    act()
    return time.process_time() - cpu_began, time.perf_counter() - began
