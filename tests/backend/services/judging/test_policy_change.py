"""The policy of a project: previewed over its own history, chosen, and then everything judged again by it."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.regression.policy import Policy
from backend.services.base.errors import BadRequest, Forbidden
from backend.services.base.principal import Principal, Scope, Via
from backend.services.judging import policy_change as policies
from backend.services.judging.rejudging import rejudge_series
from backend.store.judging.series import SeriesRow
from backend.store.policy.policies import Watched
from tidemark.machine.processes import wait_until

ADMIN = Principal(name="Ada", via=Via.TOKEN, scopes=frozenset(Scope))
PROJECT = "northsea/loom"


@pytest.fixture
def loom_of(loom):
    """The project on another connection: one that commits."""
    return type(loom)


@pytest.fixture
def slower(loom):
    """4 % slower from the 21st commit on: no regression by the built-in rules."""
    loom.history([10.0] * 20 + [10.4] * 14)
    return loom


def test_what_is_chosen_wins_over_what_is_declared_and_can_be_taken_back(slower):
    c = slower.connection
    c.exec_driver_sql("""UPDATE project SET policy = '{"min_change": 0.1}'""")
    chosen = policies.change(c, PROJECT, {"min_change": 0.03}, by=ADMIN, now=slower.now)
    assert {row.name: row.value for row in chosen.effective}["min_change"] == 0.03
    back = policies.change(c, PROJECT, {"min_change": None}, by=ADMIN, now=slower.now)
    assert back.chosen == {}
    assert {row.name: row.value for row in back.effective}["min_change"] == 0.1


def test_a_regression_that_a_threshold_took_away_is_told_again_when_the_threshold_is_taken_back(loom):
    loom.history([10.0] * 20 + [10.8] * 10)
    series = loom.value("SELECT id FROM series WHERE metric = 'step_ms'")
    red, onset = loom.red(), "SELECT state, first_bad_position FROM regression ORDER BY id"
    for chosen in (0.1, None):
        policies.change(loom.connection, PROJECT, {"min_change": chosen}, by=ADMIN, now=loom.now)
        rejudge_series(loom.connection, series, 0, now=loom.now)
    assert loom.red() == red
    assert loom.rows(onset) == [("withdrawn", 20), ("confirmed", 20)]
    rejudge_series(loom.connection, series, 0, now=loom.now)
    assert loom.rows(onset) == [("withdrawn", 20), ("confirmed", 20)], "and only once"


def test_a_threshold_that_cannot_be_is_refused_with_what_is_accepted(slower):
    with pytest.raises(BadRequest, match=r"min_change is 'much'; a number from 0\.0003 to 1 is accepted"):
        policies.change(slower.connection, PROJECT, {"min_change": "much"}, by=ADMIN, now=slower.now)


def test_a_token_of_another_project_chooses_nothing(slower):
    stranger = Principal(name="ci", via=Via.TOKEN, scopes=frozenset(Scope), project_id=999)
    with pytest.raises(Forbidden):
        policies.change(slower.connection, PROJECT, {"min_change": 0.03}, by=stranger, now=slower.now)


def test_a_new_run_is_judged_by_what_was_chosen(slower):
    policies.change(slower.connection, PROJECT, {"min_change": 0.5}, by=ADMIN, now=slower.now)
    slower.run(34, 10.4)
    version = slower.value("SELECT policy_version FROM judgement ORDER BY position DESC LIMIT 1")
    assert version == Policy(min_change=0.5).version


def test_a_project_with_a_heavy_load_asks_for_more_evidence(slower):
    c = slower.connection
    c.exec_driver_sql("""UPDATE project SET settings = '{"load": {"points_per_week": 200000}}'""")
    slower.run(34, 10.4)
    version = slower.value("SELECT policy_version FROM judgement ORDER BY position DESC LIMIT 1")
    assert version == Policy().for_load(200_000).version != Policy().version
    effective = {row.name: row.value for row in policies.policy_of(c, PROJECT).effective}
    assert effective["evidence_regression"] > Policy().evidence_regression


def test_the_load_is_the_points_of_gate_metrics_of_a_week(slower):
    newest = slower.value("SELECT max(measured_at) FROM judgement")
    policies.measure_load(slower.connection, newest + timedelta(hours=1))
    assert policies.policy_of(slower.connection, PROJECT).points_per_week == 34


def test_after_a_change_everything_is_judged_again_in_the_background_with_progress(committing_engine, loom_of):
    with committing_engine.begin() as c:
        loom = loom_of(c)
        loom.history([10.0] * 20 + [10.4] * 14)
        assert loom.red() == []
        asked = policies.change(c, PROJECT, {"min_change": 0.03}, by=ADMIN, now=loom.now).rejudging
        assert asked is not None
        assert (asked.done, asked.total, asked.finished_at) == (0, 1, None)
    judged = policies.rejudge_due(committing_engine, lambda: loom.now)
    assert len(judged) == 1
    with committing_engine.connect() as c:
        done = policies.policy_of(c, PROJECT).rejudging
        assert done is not None
        assert (done.done, done.finished_at) == (1, loom.now)
        assert loom_of(c).red()
        told = c.exec_driver_sql("SELECT payload FROM live_event WHERE kind = 'project' ORDER BY id").scalars().all()
        assert [each["rejudging"]["done"] for each in told if "rejudging" in each] == [0, 1, 1]
    assert policies.rejudge_due(committing_engine, lambda: loom.now) == []


def test_a_change_that_is_just_being_made_is_not_lost_to_the_progress_of_the_one_before(committing_engine, loom_of):
    with committing_engine.begin() as c:
        loom = loom_of(c)
        loom.history([10.0] * 20 + [10.4] * 14)
        policies.change(c, PROJECT, {"min_change": 0.2}, by=ADMIN, now=loom.now)
    waits = text("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
    with ThreadPoolExecutor(1) as other:
        with committing_engine.begin() as c:
            policies.change(c, PROJECT, {"min_change": 0.03}, by=ADMIN, now=loom.now + timedelta(seconds=1))
            judging = other.submit(policies.rejudge_due, committing_engine, lambda: loom.now)
            assert wait_until(lambda: bool(c.scalar(waits)), 20)
        assert len(judging.result(timeout=60)) == 2, "by the change before, and by the last one"
    with committing_engine.connect() as c:
        assert ("regression",) in c.execute(text("SELECT verdict FROM judgement WHERE superseded_at IS NULL")).all()


METRICS = [f"part_{number}_ms" for number in range(6)]


def deliver_parts(loom, levels):
    for position, level in enumerate(levels):
        loom.deliver(loom.run_of(position, [loom.measurement(name, level, seed=position) for name in METRICS]))


def test_one_series_that_cannot_be_judged_again_keeps_its_verdicts_and_no_other_waits(committing_engine, loom_of):
    with committing_engine.begin() as c:
        loom = loom_of(c)
        deliver_parts(loom, [10.0] * 20 + [10.4] * 14)
        broken = loom.value("SELECT id FROM series WHERE metric = :name", name=METRICS[2])
        c.execute(
            text("UPDATE measurement SET processes = '{Infinity,1,1,1,1}' WHERE series_id = :id AND run_id = :run"),
            {"id": broken, "run": "RUN-000030"},
        )
        policies.change(c, PROJECT, {"min_change": 0.03}, by=ADMIN, now=loom.now)
    judged = policies.rejudge_due(committing_engine, lambda: loom.now)
    with committing_engine.connect() as c:
        loom, done = loom_of(c), policies.policy_of(c, PROJECT).rejudging
        assert broken not in judged and len(judged) == 5
        assert done is not None and (done.done, done.total) == (6, 6)
        assert [bool(loom.red(name)) for name in METRICS] == [True, True, False, True, True, True]


@pytest.mark.parametrize(("points", "together"), [(400, 20), (4_000, 2), (40_000, 1)])
def test_the_longer_histories_are_the_fewer_are_judged_again_in_one_transaction(points, together):
    rows = [watched(number, first_position=7, newest=7 + points) for number in range(20)]
    parts = list(policies.judged_together(rows))
    assert [w for part in parts for w in part] == rows and len(parts[0]) == together


def test_series_that_begin_elsewhere_are_judged_again_apart():
    rows = [watched(1, 7, 90), watched(2, 7, 90), watched(3, 8, 90)]
    assert [[w.series.id for w in part] for part in policies.judged_together(rows)] == [[1, 2], [3]]


def test_a_series_of_which_only_what_cannot_be_judged_is_left_is_judged_again_like_others():
    (together,) = policies.judged_together([watched(1, first_position=8, newest=7)])
    assert [w.series.id for w in together] == [1]


def watched(number, first_position, newest):
    series = SeriesRow(
        id=number, suite="gpt", suite_version="1.0.0", benchmark="gpt.train", variant_key="", preset="full",
        metric="step_ms", unit="ms", direction="lower", role="gate", exact=False, state=None, state_tail=None,
        state_position=newest,
    )  # fmt: skip
    return Watched(series, "cpu", first_position)


def test_judging_again_that_was_stopped_goes_on_where_it_was(committing_engine, loom_of):
    with committing_engine.begin() as c:
        loom = loom_of(c)
        loom.history([10.0] * 6)
        policies.change(c, PROJECT, {"min_change": 0.03}, by=ADMIN, now=loom.now)
    assert policies.rejudge_due(committing_engine, lambda: loom.now, lambda: True) == []
    assert len(policies.rejudge_due(committing_engine, lambda: loom.now)) == 1
