import numpy as np
import pytest

from backend.regression.confirmation import Decision, most_rounds, next_step, process_spread, processes_needed
from backend.regression.policy import Policy
from backend.regression.terms import Direction

POLICY = Policy()


def session(effect, spread, seed, direction=Direction.LOWER):
    rng = np.random.default_rng(seed)
    base, head = [], []
    while True:
        cost = np.exp(spread * rng.standard_normal(2))
        base.append(cost[0] if direction is Direction.LOWER else 1 / cost[0])
        head.append(cost[1] * (1 + effect) if direction is Direction.LOWER else 1 / (cost[1] * (1 + effect)))
        step = next_step(base, head, direction, spread, POLICY)
        if step.decision is not Decision.CONTINUE:
            return step


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.02])
@pytest.mark.parametrize("direction", list(Direction))
def test_nothing_is_confirmed_where_there_is_nothing_and_ten_percent_always_is(spread, direction):
    assert {session(0.0, spread, seed, direction).decision for seed in range(150)} == {Decision.WITHDRAWN}
    found = [session(0.1, spread, seed, direction).decision for seed in range(150)]
    assert found.count(Decision.CONFIRMED) >= 148


def test_five_percent_is_confirmed_with_the_power_of_the_policy_while_processes_allow_it():
    assert processes_needed(0.015, POLICY) <= POLICY.session_max_processes
    found = [session(0.05, 0.015, seed).decision for seed in range(300)]
    assert found.count(Decision.CONFIRMED) >= 0.9 * 300


def test_a_session_never_takes_more_processes_than_allowed_and_says_when_it_cannot_tell():
    steps = [session(0.05, 0.08, seed) for seed in range(50)]
    assert max(s.processes_a_side for s in steps) <= POLICY.session_max_processes
    assert Decision.UNDECIDED in {s.decision for s in steps}
    assert steps[0].needed_a_side > POLICY.session_max_processes


def test_one_process_a_side_decides_nothing_and_none_is_no_error():
    assert next_step([], [], Direction.LOWER, 0.01, POLICY).decision is Decision.CONTINUE
    assert next_step([1.0], [2.0], Direction.LOWER, 0.01, POLICY).decision is Decision.CONTINUE


def test_a_clear_session_stops_early():
    assert session(0.3, 0.01, 1).processes_a_side == 2


def test_the_interval_holds_the_estimate_and_narrows_with_processes():
    few = next_step([1.0] * 3, [1.1] * 3, Direction.LOWER, 0.02, POLICY)
    many = next_step([1.0] * 9, [1.1] * 9, Direction.LOWER, 0.02, POLICY)
    assert few.low < few.change < few.high
    assert many.high - many.low < few.high - few.low
    assert few.change == pytest.approx(0.1)


def past(spread, runs=30, processes=3, drift=0.0, seed=1):
    rng = np.random.default_rng(seed)
    return [np.exp(drift * run + spread * rng.standard_normal(processes)).tolist() for run in range(runs)]


@pytest.mark.parametrize("spread", [0.003, 0.01, 0.05])
def test_the_spread_of_a_process_is_learnt_from_the_past(spread):
    assert process_spread(past(spread), POLICY) == pytest.approx(spread, rel=0.3)
    assert process_spread(past(spread, runs=60, processes=1), POLICY) == pytest.approx(spread, rel=0.4)


def test_drift_steps_and_spikes_of_the_past_are_no_spread():
    drifting = past(0.005, drift=0.02)
    stepped = past(0.005) + [[2 * value for value in run] for run in past(0.005, seed=2)]
    spiky = [[run[0] * 3, *run[1:]] if number % 7 == 0 else run for number, run in enumerate(past(0.005))]
    for runs in (drifting, stepped, spiky):
        assert process_spread(runs, POLICY) == pytest.approx(0.005, rel=0.5)


def test_a_short_past_is_filled_up_with_the_policys_assumption():
    assert process_spread([], POLICY) == POLICY.prior_noise
    few = process_spread(past(0.001, runs=2), POLICY)
    assert 0.8 * POLICY.prior_noise < few < POLICY.prior_noise
    noisy = past(0.2, runs=2)
    assert process_spread(noisy, POLICY) > 2 * process_spread([], POLICY)


@pytest.mark.parametrize(("processes", "rounds"), [(2, 1), (3, 1), (4, 2), (12, 6), (13, 6), (100, 50)])
def test_a_session_has_as_many_rounds_as_its_processes_allow(processes, rounds):
    assert most_rounds(Policy(session_max_processes=processes)) == rounds


def share_confirmed(effect, spread, sessions, policy=POLICY):
    """Of so many sessions, a look after every round."""
    rng, confirmed = np.random.default_rng(5), 0
    for base, head in np.exp(spread * rng.standard_normal((sessions, 2, policy.session_max_processes))):
        for done in range(2, len(base) + 1, 2):
            step = next_step(base[:done], head[:done] * (1 + effect), Direction.LOWER, spread, policy)
            if step.decision is not Decision.CONTINUE:
                confirmed += step.decision is Decision.CONFIRMED
                break
    return confirmed / sessions


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.02])
def test_a_session_confirms_what_is_not_there_with_the_risk_of_the_policy_at_most(spread):
    assert share_confirmed(0.0, spread, 2000) <= POLICY.session_alpha


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.015])
def test_a_change_of_the_smallest_size_is_confirmed_with_the_power_of_the_policy_and_half_of_it_hardly_ever(spread):
    assert processes_needed(spread, POLICY) <= POLICY.session_max_processes
    assert share_confirmed(POLICY.min_change, spread, 2000) >= POLICY.session_power - 0.005
    assert share_confirmed(POLICY.min_change / 2, spread, 2000) <= 0.08


def test_more_processes_bring_the_power_back_to_a_noisy_series():
    noisy = 0.02
    assert share_confirmed(0.05, noisy, 1000) < POLICY.session_power
    assert share_confirmed(0.05, noisy, 1000, Policy(session_max_processes=24)) >= POLICY.session_power


def test_twenty_past_differences_speak_for_themselves_and_nineteen_are_filled_up():
    quiet = 0.001
    assert process_spread(past(quiet, runs=21, processes=1), POLICY) < 2 * quiet
    assert process_spread(past(quiet, runs=20, processes=1), POLICY) > 2 * quiet
