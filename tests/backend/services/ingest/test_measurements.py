"""Which measurements of a run are judged, and to which series they belong."""

from typing import Any

import pytest

from backend.contract import Invalid


@pytest.mark.parametrize("status", ["failed", "incomplete", "quarantined"])
def test_a_run_that_is_not_ok_is_stored_and_never_judged(loom: Any, status: str) -> None:
    recorded = loom.run(0, 100.0, status=status, error="out of disk", log_tail="…")
    assert recorded.verdicts == ()
    assert loom.value("SELECT count(*) FROM judgement") == 0
    state = "failed" if status == "failed" else "done"
    assert loom.rows("SELECT state, status, error FROM run") == [(state, status, "out of disk")]


@pytest.mark.parametrize("status", ["failed", "check_failed", "out_of_memory", "timeout", "not_applicable"])
def test_a_result_that_is_not_ok_is_never_judged(loom: Any, status: str) -> None:
    document = loom.run_of(0, [loom.measurement("step_ms", 100.0)])
    document["results"][0]["status"] = status
    assert loom.deliver(document).verdicts == ()
    assert loom.rows("SELECT benchmark, status FROM result") == [("gpt.train", status)]
    assert loom.value("SELECT count(*) FROM series") == 0


def test_a_zero_is_shown_and_not_judged_unless_it_is_counted(loom: Any) -> None:
    zero = [
        loom.measurement("data_wait_ms", 0.0, role="phase"),
        loom.measurement("host_syncs", 0, exact=True, unit="1"),
    ]
    for position in range(3):
        recorded = loom.deliver(loom.run_of(position, zero))
    told = {verdict.metric: verdict for verdict in recorded.verdicts}
    assert told["data_wait_ms"].verdict == "insufficient"
    assert "needs values above 0" in told["data_wait_ms"].explanation
    assert told["host_syncs"].verdict == "unchanged"


def test_a_measurement_that_does_not_fit_its_series_is_refused_by_path(loom: Any) -> None:
    loom.run(0, 100.0)
    with pytest.raises(Invalid) as caught:
        loom.deliver(loom.run_of(1, [loom.measurement("step_ms", 0.1, unit="s")]))
    assert caught.value.path == "results[0].measurements[0].unit"
    assert '"ms"' in caught.value.accepted


def test_a_metric_may_become_a_gate_without_losing_its_history(loom: Any) -> None:
    for position in range(6):
        loom.deliver(loom.run_of(position, [loom.measurement("step_ms", 100.0, seed=position, role="watch")]))
    assert loom.run(6, 100.0).verdicts[0].verdict == "unchanged"
    assert loom.rows("SELECT role FROM series") == [("gate",)]
