"""Alarms about machines and software: one for all series, over by themselves, or the beginning of a new baseline."""

from typing import Any

import pytest

from backend.services.triage import machine_alarms
from backend.services.triage.detail import get_regression
from backend.services.triage.triage import TriageDecision, triage
from backend.services.triage.views import RegressionFilter, list_regressions

LEVELS = [5, 50, 9, 20, 30, 40]
STEADY = {"name": "gemm_tflops", "before": 700.0, "after": 701.0, "own_noise": 0.002}
SLOWER = {"name": "gemm_tflops", "before": 600.0, "after": 601.0, "own_noise": 0.002}
ILL = 24


def _run(loom: Any, position: int, factors: list[float], **more: Any) -> None:
    metrics = [
        loom.measurement(f"m{n}_ms", level * factor, seed=position)
        for n, (level, factor) in enumerate(zip(LEVELS, factors, strict=True))
    ]
    loom.deliver(loom.run_of(position, metrics, **more))


def _alarms(loom: Any) -> list[tuple[Any, ...]]:
    return loom.rows("SELECT id, state, cause FROM regression WHERE cause <> 'code' ORDER BY id")


def _settle(loom: Any) -> list[int]:
    due = machine_alarms.due(loom.connection)
    return [alarm for alarm in due if machine_alarms.settle(loom.connection, alarm, loom.now)]


def test_one_slow_worker_of_two_is_one_alarm_and_no_regression(loom: Any) -> None:
    for position in range(40):
        ill = position % 2 == 0 and position >= ILL
        _run(loom, position, [1.25 if ill else 1.0] * 6, worker=f"box-{position % 2}")
    ((alarm, state, cause),) = _alarms(loom)
    assert (state, cause) == ("suspect", "hardware")
    assert "box-0" in " ".join(get_regression(loom.connection, alarm).evidence)
    assert "confirmed" not in loom.events()
    assert loom.red("m1_ms") == []


def test_both_workers_slow_from_one_commit_on_is_the_code(loom: Any) -> None:
    for position in range(40):
        _run(loom, position, [1.25 if position >= ILL else 1.0] * 6, worker=f"box-{position % 2}")
    (found,) = list_regressions(loom.connection, RegressionFilter(state="confirmed")).items
    assert (found.cause, found.first_bad.position) == ("code", ILL)


@pytest.mark.parametrize(
    ("rate", "every", "ill", "said"),
    [
        (1.0012, 5, "abc", ("code", "confirmed")),
        (1.0015, 6, "abc", ("code", "confirmed")),
        (1.001, 6, "abc", ("code", "confirmed")),
        # c runs every fifth commit and is well; the drift is told by a run of a.
        (1.002, 5, "a", ("hardware", "suspect")),
    ],
)
def test_a_drift_is_a_machines_where_the_others_have_not_lost_as_much_by_now(
    loom: Any, rate: float, every: int, ill: str, said: tuple[str, str]
) -> None:
    """Where it began it shows on no worker; boxes differ by 10 % from the first run on."""
    own = {"a": 1.0, "b": 1.1, "c": 0.93}
    for position in range(125):
        other = "c" if position >= 15 and position % every == 0 else "a"
        worker = other if ill == "a" or other == "c" else "ab"[position % 2]
        lost = rate ** max(0, position - 20) if worker in ill else 1.0
        _run(loom, position, [own[worker] * lost] + [own[worker]] * 5, worker=worker)
        found = loom.rows("SELECT cause, state FROM regression WHERE kind = 'drift'")
        if found and (found[0][1] == "confirmed" or found[0][0] != "code"):
            break
    assert found == [said]


def test_an_ill_machine_that_shows_in_other_series_later_is_one_alarm(loom: Any) -> None:
    for position in range(40):
        slow = [1.25 if position >= ILL + (0 if n < 3 else 5) else 1.0 for n in range(6)]
        _run(loom, position, slow, canary=[SLOWER if position >= ILL else STEADY])
    ((_, state, cause),) = _alarms(loom)
    assert (state, cause) == ("suspect", "hardware")
    assert loom.events().count("infra_alarm") == 1


@pytest.mark.parametrize(("counts", "cause"), [(True, "code"), (False, "hardware")])
def test_what_a_counter_shows_too_is_the_codes_whatever_the_canary_says(loom: Any, counts: bool, cause: str) -> None:
    for position in range(32):
        worse = position >= ILL
        step = loom.measurement("step_ms", 1.25 if worse else 1.0, seed=position)
        bytes_held = 11.4 if worse and counts else 5.0
        held = loom.measurement("activation_bytes", bytes_held, unit="MB", exact=True)
        loom.deliver(loom.run_of(position, [step, held], canary=[SLOWER if worse else STEADY]))
    assert loom.rows("SELECT cause FROM regression") == [(cause,)]


def test_an_alarm_that_nothing_shows_any_more_is_over(loom: Any) -> None:
    for position in range(ILL + 30 + 8):
        ill = position % 2 == 0 and ILL <= position < ILL + 6
        _run(loom, position, [1.25 if ill else 1.0] * 6, worker=f"box-{position % 2}")
    (alarm,) = _settle(loom)
    assert get_regression(loom.connection, alarm).regression.state == "withdrawn"
    assert _settle(loom) == []


@pytest.fixture
def upgraded(loom: Any) -> Any:
    for position in range(32):
        new = {"environment": {"torch": "2.14.0", "hash": "sha256:two"}} if position >= ILL else {}
        _run(loom, position, [1.25 if position >= ILL else 1.0] * 6, **new)
    return loom


def test_after_an_upgrade_a_new_baseline_begins_and_says_why(upgraded: Any) -> None:
    (alarm,) = _settle(upgraded)
    detail = get_regression(upgraded.connection, alarm).regression
    assert (detail.state, detail.cause) == ("expected", "environment")
    assert "torch changed from 2.13.0 to 2.14.0" in (detail.reason or "")
    for position in range(32, 40):
        _run(upgraded, position, [1.25] * 6, environment={"torch": "2.14.0", "hash": "sha256:two"})
    assert upgraded.verdicts("m1_ms")[-1][1] == "unchanged"
    assert upgraded.red("m1_ms") == []


def test_a_baseline_that_began_by_itself_can_be_undone(upgraded: Any) -> None:
    (alarm,) = _settle(upgraded)
    undone = triage(upgraded.connection, alarm, TriageDecision("undo"), "ada", now=upgraded.now)
    assert undone.regression.state == "suspect"
    assert _settle(upgraded) == [], "and it is not begun again behind that person's back"


@pytest.mark.parametrize(("runs", "state"), [(7, "suspect"), (8, "expected")])
def test_a_machine_slow_for_eight_runs_is_judged_from_its_new_level(loom: Any, runs: int, state: str) -> None:
    for position in range(ILL + runs):
        ill = position >= ILL
        _run(loom, position, [1.25 if ill else 1.0] * 6, canary=[SLOWER if ill else STEADY])
    _settle(loom)
    assert [(s, c) for _, s, c in _alarms(loom)] == [(state, "hardware")]


def test_an_alarm_that_somebody_settled_meanwhile_is_left_alone(upgraded: Any) -> None:
    (alarm,) = machine_alarms.due(upgraded.connection)
    triage(upgraded.connection, alarm, TriageDecision("invalid", reason="A loose cable."), "ada", now=upgraded.now)
    assert machine_alarms.settle(upgraded.connection, alarm, upgraded.now) is False
    assert get_regression(upgraded.connection, alarm).regression.state == "invalid"
