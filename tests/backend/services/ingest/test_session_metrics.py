"""What the rounds of a session measured, and what is decided of each metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from backend.services.ingest.session_metrics import SessionMetric, judged, metrics_so_far
from backend.services.sessions import views as session_views
from backend.store.sessions import sessions as store
from tests.backend.services.ingest.sessions_of_loom import (
    asked_run,
    choose,
    compare,
    connect,
    deliver,
    hello,
    round_of,
    states,
    waiting,
)


@pytest.mark.parametrize("processes", [12, 16])
def test_a_session_that_cannot_tell_ends_with_the_processes_of_the_policy(loom: Any, processes: int) -> None:
    for position in range(24):
        loom.deliver(loom.run_of(position, [loom.measurement("step_ms", 100.0, seed=position, noise=0.04)]))
    hello(loom, "box-02")
    connect(loom)
    choose(loom, {"session_max_processes": processes})
    asked_run(loom, 24, 150.0)
    number, taken = 0, None
    while taken is None or taken.state != "decided":
        taken = deliver(loom, round_of(loom, 100.0, 103.9, seed=number))
        number += 1
    view = session_views.session_view(loom.connection, taken.session_id)
    assert (taken.decision, len(view.series[0].base), number) == ("undecided", processes, processes // 2)


@pytest.mark.parametrize(("head", "word"), [(110.0, "slower"), (92.0, "faster"), (100.1, "same")])
def test_two_environments_are_compared_without_touching_a_series(watched: Any, head: float, word: str) -> None:
    session_id = compare(watched)
    ((_, spec),) = waiting(watched)
    assert spec["session"]["head"]["setup"] == {"pip": "torch==2.14.0"} and spec["session"]["base"]["setup"] == {}
    before = watched.verdicts()
    while waiting(watched):
        deliver(watched, round_of(watched, 100.0, head))
    view = session_views.session_view(watched.connection, session_id)
    assert (view.state, [series.decision for series in view.series]) == ("decided", [word])
    assert watched.verdicts() == before and states(watched) == []


def test_a_comparison_ends_after_its_rounds_even_if_it_is_unclear(loom: Any) -> None:
    for position in range(24):
        loom.deliver(loom.run_of(position, [loom.measurement("step_ms", 100.0, seed=position, noise=0.05)]))
    session_id = compare(loom, rounds_at_most=2)
    for number in range(2):
        deliver(loom, round_of(loom, 100.0, 103.0, seed=number))
    view = session_views.session_view(loom.connection, session_id)
    assert view.state == "decided" and view.rounds_done == 2
    assert [series.decision for series in view.series] == ["unclear"]


def _round_with(loom: Any, base: Mapping[str, Any] | None, head: Mapping[str, Any] | None) -> list[SessionMetric]:
    """The metrics of a comparison of which a round came, whose arms measured these beside `step_ms`."""
    session_id = compare(loom)
    said = round_of(loom, 100.0, 100.0)
    for turn in said["turns"]:
        extra = {"base": base, "head": head}[turn["arm"]]
        (result,) = turn["run"]["results"]
        result["measurements"] += [] if extra is None else [{"unit": "1", "direction": "lower", **extra}]
    deliver(loom, said)
    session = store.find_session(loom.connection, session_id)
    assert session is not None
    return judged(loom.connection, session, metrics_so_far(loom.connection, session), loom.now)


COUNTED = {"metric": "host_syncs", "role": "gate", "exact": True, "value": 0.0}


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (COUNTED, None),
        ({**COUNTED, "role": "phase", "metric": "forward_ms"}, {**COUNTED, "role": "phase", "metric": "forward_ms"}),
        ({**COUNTED, "exact": False}, {**COUNTED, "exact": False}),
    ],
    ids=["of one arm", "of a role that is not judged", "of which there is no ratio"],
)
def test_what_cannot_be_judged_is_left_out(
    watched: Any, base: Mapping[str, Any] | None, head: Mapping[str, Any] | None
) -> None:
    assert [metric.measurement.metric for metric in _round_with(watched, base, head)] == ["step_ms"]


@pytest.mark.parametrize(("head", "grew"), [(0.0, False), (2.0, True)])
def test_a_counter_may_be_none(watched: Any, head: float, grew: bool) -> None:
    found = {m.measurement.metric: m for m in _round_with(watched, COUNTED, {**COUNTED, "value": head})}
    step = found["host_syncs"].step
    assert step is not None and (step.change > 0) == grew
    assert found["host_syncs"].spread == 0.0 < found["step_ms"].spread


def test_a_metric_is_of_the_series_that_the_default_branch_has(watched: Any) -> None:
    found = {m.measurement.metric: m.series_id for m in _round_with(watched, COUNTED, COUNTED)}
    assert found == {"step_ms": watched.value("SELECT id FROM series"), "host_syncs": None}
