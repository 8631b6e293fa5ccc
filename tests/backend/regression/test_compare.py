import numpy as np
import pytest

from backend.regression.compare import ComparedMetric, CompareReason, compare
from backend.regression.policy import Policy
from backend.regression.terms import Direction, Role, Verdict

POLICY = Policy()


def measured(key, values, direction=Direction.LOWER, role=Role.GATE, exact=False, status="ok", benchmark="b"):
    return ComparedMetric(key, key, "ms", direction, role, exact, tuple(values), status, benchmark)


def draws(level, noise=0.005, n=5, seed=0):
    return level * (1 + noise * np.random.default_rng(seed).standard_normal(n))


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(
    ("change", "verdict"),
    [(0.2, Verdict.REGRESSION), (-0.2, Verdict.IMPROVEMENT), (0.0, Verdict.UNCHANGED), (0.03, Verdict.UNCHANGED)],
)
def test_clear_cases_are_told_in_both_directions(direction, change, verdict):
    base, head = draws(10.0, seed=1), draws(10.0 * (1 + change), seed=2)
    if direction is Direction.HIGHER:
        base, head = 1 / base, 1 / head
    (row,) = compare([measured("a", base, direction)], [measured("a", head, direction)], POLICY, {"a": 0.005}).rows
    assert row.verdict is verdict
    assert row.low <= row.change <= row.high
    assert row.change == pytest.approx(change, abs=0.02)


def test_an_unclear_difference_says_how_many_more_runs_instead_of_tossing_a_coin():
    base, head = draws(10.0, 0.05, 3, 1), draws(10.6, 0.05, 3, 2)
    (row,) = compare([measured("a", base)], [measured("a", head)], POLICY, {"a": 0.05}).rows
    assert row.verdict is Verdict.INSUFFICIENT and row.reason is CompareReason.CANNOT_TELL_YET
    assert row.needed_runs > 3


def test_single_values_are_compared_with_the_noise_known_from_the_past():
    (clear,) = compare([measured("a", [10.0])], [measured("a", [12.0])], POLICY, {"a": 0.005}).rows
    (unclear,) = compare([measured("a", [10.0])], [measured("a", [10.6])], POLICY).rows
    assert clear.verdict is Verdict.REGRESSION and unclear.verdict is Verdict.INSUFFICIENT


def test_false_regressions_of_equal_runs_are_rare():
    wrong = 0
    for seed in range(300):
        base, head = draws(10.0, 0.03, 5, 2 * seed), draws(10.0, 0.03, 5, 2 * seed + 1)
        wrong += len(compare([measured("a", base)], [measured("a", head)], POLICY).regressions)
    assert wrong <= 6


def test_the_geometric_mean_is_over_what_both_sides_measured_and_says_how_much_that_is():
    base = [measured("a", draws(10.0)), measured("b", draws(10.0)), measured("gone", draws(1.0))]
    head = [measured("a", draws(12.0)), measured("b", [10.0], status="failed"), measured("new", draws(1.0))]
    found = compare(base, head, POLICY)
    assert found.geometric_mean == pytest.approx(0.2, abs=0.001)
    assert (found.covered, found.gates) == (1, 4)
    assert found.only_base == ("gone",) and found.only_head == ("new",)
    assert [(f.key, f.base_status, f.head_status) for f in found.failed] == [("b", "ok", "failed")]


def test_nothing_in_common_has_no_mean():
    found = compare([measured("a", [1.0])], [measured("b", [1.0])], POLICY)
    assert found.rows == () and found.geometric_mean is None


def test_twenty_percent_faster_at_twice_the_memory_says_both():
    base = [measured("step", draws(10.0)), measured("memory", [100.0], exact=True)]
    head = [measured("step", draws(8.0)), measured("memory", [200.0], exact=True)]
    rows = {r.key: r for r in compare(base, head, POLICY, {"step": 0.005}).rows}
    assert rows["step"].verdict is Verdict.IMPROVEMENT and rows["step"].traded_for == ("memory",)
    assert rows["memory"].verdict is Verdict.REGRESSION and rows["memory"].reason is CompareReason.EXACT


def test_twenty_percent_faster_at_the_same_memory_is_no_trade():
    base = [measured("step", draws(10.0)), measured("memory", [100.0], exact=True)]
    head = [measured("step", draws(8.0)), measured("memory", [100.0], exact=True)]
    rows = {r.key: r for r in compare(base, head, POLICY, {"step": 0.005}).rows}
    assert rows["step"].verdict is Verdict.IMPROVEMENT and rows["step"].traded_for == ()


def test_a_watch_metric_is_compared_and_no_regression():
    found = compare(
        [measured("a", draws(10.0), role=Role.WATCH)], [measured("a", draws(13.0), role=Role.WATCH)], POLICY
    )
    assert found.rows[0].verdict is Verdict.REGRESSION and found.regressions == ()
