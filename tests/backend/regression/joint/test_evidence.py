"""Rows of a fleet beside each other: changes found and placed, machines examined, the evidence around one onset."""

import dataclasses

import numpy as np
import pytest

from backend.regression.cause.attribution import CauseName, Evidence, attribute
from backend.regression.joint.health import SERIES_MOVED, CanaryNoise, Health
from backend.regression.joint.rows import RowsOfTestbed, Shift
from backend.regression.joint.scan import locate, newest_change
from backend.regression.joint.terms import JointRun, JointSeries
from backend.regression.joint.window import examine_window
from backend.regression.terms import Role

SERIES = [JointSeries(id=f"b{n}/step_ms", suite="s", benchmark=f"b{n}", role=Role.GATE, sign=1.0) for n in range(6)] + [
    JointSeries(id="b0/memory", suite="s", benchmark="b0", role=Role.GATE, sign=1.0, machine_bound=False),
]
ALL = np.ones(len(SERIES), dtype=bool)
BOUND = np.array([s.machine_bound for s in SERIES])
SELF = np.arange(len(SERIES))
GATE = np.array([s.min_change for s in SERIES])


def run(position, *, worker="w0", by=0.0, only=None, memory=0.0, seed=0, **more):
    noise = 0.004 * np.random.default_rng([seed, position]).standard_normal(len(SERIES))
    noise[~BOUND] = 0.0
    moved = np.where(BOUND if only is None else np.arange(len(SERIES)) == only, by, 0.0)
    cost = 1.0 + noise + moved + np.where(BOUND, 0.03 * (worker == "w1"), memory)
    return JointRun(
        position=position, testbed="t", worker=worker, timestamp=float(position), cost=cost,
        spread=np.full(len(SERIES), 1e-4), **more,
    )  # fmt: skip


def rows_of(runs):
    rows = RowsOfTestbed("t", SERIES)
    for r in runs:
        rows.add(r, 0)
        rows.learn()
    rows.learn_noise()
    return rows


def newest(runs):
    rows = rows_of(runs)
    return newest_change(rows.tail(rows.by_position(10)), BOUND, ALL, SELF, GATE)


def quiet(count, **more):
    return [run(position, worker=f"w{position % 2}", **more) for position in range(count)]


# --- finding and placing ---------------------------------------------------------------------------------------------


def test_two_workers_that_always_differ_show_no_change():
    assert newest(quiet(40)) is None


@pytest.mark.parametrize(("by", "found"), [(0.025, False), (0.05, True)])
def test_a_change_is_found_from_three_percent_on(by, found):
    runs = quiet(30) + [run(p, worker=f"w{p % 2}", by=by) for p in range(30, 33)]
    assert (newest(runs) is not None) is found


@pytest.mark.parametrize(("bad", "found"), [(1, False), (2, True)])
def test_one_slow_run_is_no_change_and_two_are(bad, found):
    runs = quiet(30) + [run(p, worker=f"w{p % 2}", by=0.2) for p in range(30, 30 + bad)]
    assert (newest(runs) is not None) is found


def test_a_size_that_no_machine_moves_is_a_change_at_its_first_run():
    found = newest([*quiet(30), run(30, memory=0.06)])
    assert found is not None
    assert SERIES[found.lead].id == "b0/memory"


def test_what_is_explained_is_no_change_any_more():
    rows = rows_of(quiet(30) + [run(p, worker=f"w{p % 2}", by=0.1) for p in range(30, 33)])
    rows.put(("code", 1), Shift(np.where(BOUND, 0.1, 0.0), from_position=30))
    assert newest_change(rows.tail(rows.by_position(10)), BOUND, ALL, SELF, GATE) is None
    rows.put(("code", 1), None)
    assert newest_change(rows.tail(rows.by_position(10)), BOUND, ALL, SELF, GATE) is not None


def test_a_change_begins_after_the_last_good_run_and_never_at_a_commit_of_documentation():
    positions, evidence = np.array([1, 2, 3, 6, 7, 8]), np.array([-5.0, -5, -5, 5, 5, 5])
    place = locate(positions, evidence, frozenset(), 1, 8)
    assert (place.commit, place.first, place.last) == (6, 4, 6)
    assert locate(positions, evidence, frozenset({6}), 1, 8).commit == 5


# --- the health of a machine -----------------------------------------------------------------------------------------


@pytest.fixture
def health():
    known = Health(CanaryNoise())
    for position in range(20):
        known.learn(run(position, canary={"gemm": 0.001 * (position % 3)}, clock_mhz=1980.0, load=1.5))
    return known


@pytest.mark.parametrize(
    ("symptom", "points"),
    [
        ({"canary": {"gemm": 0.029}}, 0.0),
        ({"canary": {"gemm": 0.035}}, 1.0),
        ({"canary": {"gemm": 0.2}}, 2.0),
        ({"canary": {"gemm": -0.2}}, 0.0),
        ({"throttle": frozenset({"hw_thermal_slowdown"})}, 1.5),
        ({"clock_mhz": 1950.0}, 0.0),
        ({"clock_mhz": 1700.0}, 1.5),
        ({"load": 5.0}, 0.0),
        ({"load": 6.0}, 1.5),
        ({"load": 20.0}, 2.0),
        ({"foreign_processes": 1}, 0.5),
    ],
)
def test_symptoms_have_points_on_both_sides_of_their_limits(health, symptom, points):
    assert health.examine(run(30, **symptom), 0.0).points == points


def test_slower_series_alone_are_no_symptom_and_confirm_one(health):
    assert health.examine(run(30), 1.0).points == 0
    assert health.examine(run(30, canary={"gemm": 0.035}), 1.0).points == 2


@pytest.mark.parametrize(
    ("usual", "slower", "slowed"),
    [(0.0, SERIES_MOVED, True), (0.0, SERIES_MOVED - 0.01, False), (0.4, 0.69, False), (0.4, 0.7, True)],
)
def test_series_that_were_slower_already_confirm_no_symptom(health, usual, slower, slowed):
    """A level that nobody has explained yet is no news of the machine."""
    for position in range(20, 24):
        health.learn(run(position, canary={"gemm": 0.0}), usual)
    assert health.examine(run(30, canary={"gemm": 0.035}), slower).slowed is slowed


@pytest.mark.parametrize(
    ("symptom", "alone"),
    [
        ({"canary": {"gemm": 0.035}}, 1.0),
        ({"canary": {"gemm": 0.2}}, 2.0),
        ({"load": 6.0}, 1.0),
        ({"load": 20.0}, 2.0),
        ({"clock_mhz": 1700.0}, 1.5),
        ({"foreign_processes": 1}, 0.5),
    ],
)
def test_what_symptoms_are_worth_alone_leaves_out_the_series_and_what_chance_brings(health, symptom, alone):
    assert health.examine(run(30, **symptom), 1.0).alone == alone


def test_a_new_environment_may_move_a_canary_a_little(health):
    upgraded = run(30, canary={"gemm": 0.05})
    health.new_environment(upgraded)
    assert health.examine(upgraded, 0.0).points == 0


# --- around one onset ------------------------------------------------------------------------------------------------


def window(after, lead=0, before=None):
    return examine_window(SERIES, quiet(24) if before is None else before, after, lead)


def test_all_workers_slow_agree():
    found = window([run(p, worker=f"w{p % 2}", by=0.1) for p in range(24, 28)])
    assert (found.others_agree, found.moved, found.watched) == (True, 6, 6)


def test_one_worker_slow_is_named_and_the_others_disagree():
    found = window([run(p, worker=f"w{p % 2}", by=0.1 if p % 2 else 0.0) for p in range(24, 29)])
    assert (found.worker, found.others_agree) == ("w1", False)


def test_a_worker_alone_has_nobody_to_disagree():
    found = window([run(p, worker="w1", by=0.1) for p in range(24, 27)])
    assert (found.worker, found.others_agree) == ("w1", None)


def test_runs_before_the_onset_that_show_it_already_count():
    """The other worker's good run between two bad ones says that it is not the code."""
    before = [*quiet(30), run(30, worker="w0", by=0.1), run(31, worker="w1")]
    assert window([run(32, worker="w0", by=0.1)], before=before).others_agree is False


def test_a_change_of_one_series_moves_one_series():
    assert window([run(p, worker=f"w{p % 2}", by=0.1, only=2) for p in range(24, 28)], lead=2).moved == 1


def test_too_few_runs_before_say_nothing():
    assert window([run(p, by=0.1) for p in range(4, 8)], before=quiet(4)) is None


@pytest.mark.parametrize(("ill", "told"), [(1, False), (2, True)])
def test_a_lone_moderate_symptom_is_no_proof_and_two_in_a_row_are(ill, told):
    before = [dataclasses.replace(r, canary={"gemm": 0.0}) for r in quiet(24)]
    after = [run(24 + n, worker="w0", by=0.1, canary={"gemm": 0.06 if n < ill else 0.0}) for n in range(3)]
    assert bool(window(after, before=before).signals) is told


def test_symptoms_make_the_machine_the_cause_unless_others_agree():
    told = ("The load was 20.0, usually 1.5.",)
    assert attribute(Evidence(magnitude=0.1, signals=told)).cause is CauseName.HARDWARE
    assert attribute(Evidence(magnitude=0.1, signals=told, other_workers_agree=True)).cause is CauseName.CODE
