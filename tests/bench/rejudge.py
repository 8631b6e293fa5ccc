"""A whole project judged again, as after a change of its policy: read, judged, told, stored; one series a transaction.

The yardstick is the budget of the analysis itself (`analysis.py`), which reads and stores nothing: numpy's medians of
the same number of points.
"""

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice

import numpy as np
import orjson

from backend.contract import parse_run
from backend.services.base.principal import Principal, Scope, Via
from backend.services.ingest.record import record_run
from backend.services.judging import policy_change as policies
from tests.bench.analysis import OTAVA_TO_MEDIANS, POINTS, cpu_in_turns, histories
from tests.bench.registry import Figure, row
from tests.bench.stage import Stage
from tests.bench.writes import METRICS, RESULTS, bodies

OPERATOR = Principal(name="bench", scopes=frozenset({Scope.ADMIN}), project_id=None, via=Via.TOKEN)


@row("judged again")
def judged_again(stage: Stage) -> Iterable[Figure]:
    """500 runs of 200 series through ingest, then another smallest regression, and the background judges them all."""
    stage.say(f"delivering {POINTS} runs of {RESULTS * METRICS} series …")
    for delivery in islice(bodies("bench/again", results=RESULTS, metrics=METRICS), POINTS):
        with stage.engine.begin() as c:
            record_run(c, parse_run(delivery.body), delivery.body, now=datetime.now(UTC))
    project = orjson.loads(delivery.body)["project"]
    now = datetime.now(UTC)
    with stage.engine.begin() as c:
        policies.change(c, project, {"min_change": 0.06}, by=OPERATOR, now=now)
    began, cpu_began = time.perf_counter(), time.process_time()
    judged = policies.rejudge_due(stage.engine, lambda: now)
    cpu_ms, wall_ms = (time.process_time() - cpu_began) * 1e3, (time.perf_counter() - began) * 1e3
    assert len(judged) == RESULTS * METRICS, "every series is judged again"
    costs = histories()
    medians_ms, _ = cpu_in_turns(lambda: np.median(costs, axis=1), lambda: None)
    points = POINTS * RESULTS * METRICS
    yield Figure(
        what=f"{RESULTS * METRICS} series × {POINTS} points judged again by the service, CPU",
        value_ms=cpu_ms,
        yardstick="numpy medians",
        yardstick_ms=medians_ms,
        at_most=OTAVA_TO_MEDIANS,
        note=f"{1e3 * cpu_ms / points:.0f} µs of CPU a point; {wall_ms / 1e3:.1f} s in all, with PostgreSQL's share",
    )
