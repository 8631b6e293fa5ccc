"""Change points become regressions: grouped, with their cause, told step by step."""

import random
from typing import Any

import pytest
from sqlalchemy import text

from backend.services.base.scope import LAST_GOOD, find_commit, find_scope
from backend.services.triage.detail import get_regression
from backend.services.triage.views import RegressionFilter, list_regressions

GOOD, BAD = 10, 10


def _levels(position: int) -> float:
    return 100.0 if position < GOOD else 125.0


def _slower(loom: Any, **changed: Any) -> None:
    """Ten good runs, six slow ones; `changed` holds what else is different from the first slow one on."""
    for position in range(GOOD + 6):
        loom.run(position, _levels(position), **(changed if position >= BAD else {}))


def _of_commits(loom: Any, paths: list[str]) -> None:
    loom.connection.execute(text("UPDATE commit SET changed_paths = :paths"), {"paths": paths})


def test_a_confirmed_step_is_one_regression_of_the_code(loom: Any) -> None:
    _slower(loom)
    (found,) = list_regressions(loom.connection, RegressionFilter()).items
    assert (found.state, found.cause, found.still_bad, found.held_back) == ("confirmed", "code", True, False)
    assert found.commit == loom.sha_of(10)
    assert found.last_good is not None and found.last_good.sha == loom.sha_of(9)
    assert found.suspect_commits == 1
    assert found.change == pytest.approx(0.25, abs=0.02)
    assert found.change_low < found.change < found.change_high
    assert (found.before, found.after) == (pytest.approx(100, rel=0.02), pytest.approx(125, rel=0.02))
    assert loom.events() == ["suspected", "confirmed"]
    assert loom.rows("SELECT alarms_confirmed, alarms_withdrawn FROM series") == [(1, 0)]


def test_a_suspect_that_settles_below_the_gate_is_withdrawn_and_its_level_is_as_good_as_the_one_before(
    loom: Any,
) -> None:
    chance, levels = random.Random(1), [100.0] * 25 + [106.0] * 2 + [104.4] * 20
    for position, level in enumerate(levels):
        loom.run(position, level * (1 + chance.gauss(0, 0.004)))
    assert loom.rows("SELECT state FROM regression") == [("withdrawn",)]
    assert loom.rows("SELECT state FROM change_point") == [("withdrawn",)]
    assert "confirmed" not in loom.events()
    scope = find_scope(loom.connection, "northsea/loom", None, "cpu")
    assert find_commit(loom.connection, scope, LAST_GOOD).sha == loom.sha_of(len(levels) - 1)


def test_a_suspect_that_turns_out_to_be_a_known_mode_is_withdrawn(loom: Any) -> None:
    chance = random.Random(1)
    for position in range(66):
        loom.run(position, (110.0 if position // 6 % 2 else 100.0) * (1 + chance.gauss(0, 0.006)))
    assert loom.rows("SELECT id FROM judgement WHERE reason = 'known_mode'")
    assert set(loom.rows("SELECT state, still_bad FROM regression")) <= {("fixed", False), ("withdrawn", False)}
    assert not loom.rows("SELECT id FROM change_point WHERE direction = 'regression' AND state = 'confirmed'")


def test_series_of_one_onset_are_one_regression(loom: Any) -> None:
    for position in range(16):
        slow = _levels(position) / 100
        metrics = [
            loom.measurement(f"m{number}_ms", level * slow, seed=position) for number, level in enumerate([5, 50, 9])
        ]
        metrics.append(loom.measurement("host_syncs", 2 if position < BAD else 3, exact=True, unit="1"))
        metrics.append(loom.measurement("forward_ms", 40.0 if position < BAD else 65.0, role="phase"))
        metrics.append(loom.measurement("steady_ms", 7.0, seed=position))
        recorded = loom.deliver(loom.run_of(position, metrics))
    (found,) = list_regressions(loom.connection, RegressionFilter()).items
    assert found.series >= 4
    detail = get_regression(loom.connection, found.id)
    assert {s.metric for s in detail.affected} >= {"m0_ms", "m1_ms", "m2_ms", "host_syncs"}
    assert {v.metric for v in recorded.verdicts if v.regression_id == found.id} >= {
        "m0_ms",
        "m1_ms",
        "m2_ms",
        "host_syncs",
    }
    assert not any(s.metric == "steady_ms" for s in detail.affected)
    assert "host_syncs moved, which is counted exactly: no machine moves it." in detail.evidence


def test_watched_metrics_alone_open_no_regression(loom: Any) -> None:
    for position in range(16):
        metric = loom.measurement("compile_s", _levels(position), role="watch", unit="s", seed=position)
        loom.deliver(loom.run_of(position, [metric]))
    assert len(loom.rows("SELECT 1 FROM change_point WHERE state = 'confirmed'")) == 1
    assert loom.value("SELECT count(*) FROM regression") == 0


def test_an_exact_counter_is_confirmed_at_once_with_its_commit(loom: Any) -> None:
    for position in range(6):
        metric = loom.measurement("graph_breaks", 0 if position < 4 else 1, exact=True, unit="1")
        recorded = loom.deliver(loom.run_of(position, [metric]))
        if position == 4:
            assert recorded.verdicts[0].verdict == "regression"
            assert [told.state for told in recorded.regressions] == ["confirmed"]
    assert loom.verdicts("graph_breaks")[4:] == [(4, "regression", True), (5, "regression", False)]


def test_a_fix_closes_the_regression_and_names_its_commit(loom: Any) -> None:
    loom.history([100.0] * 10 + [125.0] * 6 + [100.0] * 6)
    (found,) = list_regressions(loom.connection, RegressionFilter()).items
    assert (found.state, found.still_bad) == ("fixed", False)
    assert found.fixed_by is not None and found.fixed_by.sha == loom.sha_of(16)
    assert found.fixed_by.position == 16
    assert loom.events() == ["suspected", "confirmed", "fixed"]
    assert loom.red() == list(range(10, 16))
    assert loom.rows("SELECT DISTINCT regression_id FROM judgement WHERE superseded_at IS NULL AND position >= 16") == [
        (None,)
    ]


@pytest.mark.parametrize(
    ("levels", "regressions"),
    [
        ([100.0] * 10 + [125.0] * 6 + [100.0] * 6 + [125.0] * 6, 1),
        ([100.0] * 10 + [125.0] * 6 + [100.0] * 6 + [190.0] * 6, 2),
        ([100.0] * 10 + [125.0] * 6 + [100.0] * 26 + [125.0] * 6, 2),
    ],
    ids=["the same loss again", "another loss", "long after"],
)
def test_a_regression_that_comes_back_after_its_fix_opens_again(
    loom: Any, levels: list[float], regressions: int
) -> None:
    loom.history(levels)
    found = list_regressions(loom.connection, RegressionFilter()).items
    assert len(found) == regressions
    assert (found[0].state, found[0].still_bad, found[0].fixed_by) == ("confirmed", True, None)
    kinds = loom.events()
    assert ("reopened" in kinds) is (regressions == 1)
    if regressions == 1:
        assert kinds == ["suspected", "confirmed", "fixed", "reopened", "relocated", "confirmed"]
        assert found[0].first_bad is not None and found[0].first_bad.position == 22


def test_what_was_bad_between_two_commits_and_still_is_is_one_question(loom: Any) -> None:
    loom.history([100.0] * 10 + [125.0] * 6 + [100.0] * 26 + [140.0] * 8)
    span = f"{loom.sha_of(5)}..{loom.sha_of(45)}"
    between = RegressionFilter(project="northsea/loom", commits=span, still_bad=True)
    (found,) = list_regressions(loom.connection, between).items
    assert found.first_bad is not None and found.first_bad.position == 42


def test_two_regressions_of_different_commits_are_two(loom: Any) -> None:
    loom.history([100.0] * 10 + [125.0] * 8 + [160.0] * 8)
    found = list_regressions(loom.connection, RegressionFilter()).items
    assert [(r.state, r.first_bad.position) for r in found if r.first_bad] == [("confirmed", 18), ("confirmed", 10)]


# --- causes ----------------------------------------------------------------------------------------------------------

ENVIRONMENT = {"environment": {"torch": "2.14.0", "hash": "sha256:two"}}
CANARY = {"canary": [{"name": "gemm_tflops", "before": 500.0, "after": 500.0, "own_noise": 0.002}]}
THROTTLED = {"telemetry": {"throttle": ["hw_thermal_slowdown"], "foreign_processes": 0}}


def _with_steady_canary(loom: Any, after: dict[str, Any]) -> None:
    steady = {"name": "gemm_tflops", "before": 700.0, "after": 701.0, "own_noise": 0.002}
    for position in range(GOOD + 6):
        loom.run(position, _levels(position), **({"canary": [steady]} | (after if position >= BAD else {})))


@pytest.mark.parametrize(
    ("changed", "cause", "said"),
    [
        (ENVIRONMENT, "environment", "torch changed from 2.13.0 to 2.14.0"),
        (CANARY, "hardware", "Canary gemm_tflops moved by +40"),
        (THROTTLED, "hardware", "throttled: hw_thermal_slowdown"),
    ],
    ids=["environment", "canary", "throttle"],
)
def test_a_change_of_the_machine_is_one_alarm_of_that_cause_and_never_red(
    loom: Any, changed: dict[str, Any], cause: str, said: str
) -> None:
    _with_steady_canary(loom, changed)
    (found,) = list_regressions(loom.connection, RegressionFilter(cause=cause)).items
    assert (found.state, found.held_back) == ("suspect", True)
    assert any(said in sentence for sentence in get_regression(loom.connection, found.id).evidence)
    assert loom.red() == []
    assert {verdict for position, verdict, _ in loom.verdicts() if position >= BAD} == {"suspect"}
    assert loom.events() == ["suspected", "infra_alarm"]
    assert loom.rows("SELECT alarms_confirmed FROM series") == [(0,)]


def test_a_machine_always_at_its_power_limit_is_no_cause(loom: Any) -> None:
    telemetry = {"throttle": ["sw_power_cap"]}
    for position in range(GOOD + 6):
        loom.run(position, _levels(position), telemetry=telemetry)
    (found,) = list_regressions(loom.connection, RegressionFilter()).items
    assert (found.state, found.cause) == ("confirmed", "code")


def test_a_change_that_only_documentation_could_have_made_is_noise(loom: Any) -> None:
    loom.history([100.0] * 10)
    for position in range(10, 16):
        if position == 12:
            _of_commits(loom, ["docs/index.md", "README.md"])
        loom.run(position, 125.0)
    (found,) = list_regressions(loom.connection, RegressionFilter()).items
    assert (found.cause, found.held_back) == ("noise", True)
    assert loom.red() == []
