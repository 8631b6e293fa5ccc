"""What another policy would have told: counted as the list of regressions counts, over the project's own history."""

from datetime import timedelta

import pytest

from backend.regression.policy import Policy
from backend.services.base.principal import Principal, Scope, Via
from backend.services.judging import policy_change as policies
from backend.services.judging import what_if
from backend.services.triage import triage
from backend.services.triage import views as listed

ADMIN = Principal(name="Ada", via=Via.TOKEN, scopes=frozenset(Scope))
PROJECT = "northsea/loom"
GATE = Policy().min_change


@pytest.fixture
def slower(loom):
    """4 % slower from the 21st commit on: no regression by the built-in rules."""
    loom.history([10.0] * 20 + [10.4] * 14)
    return loom


@pytest.fixture
def told(loom):
    """Regressions of every kind that a list has: with a redundant gate and a redundant metric that is only watched,
    fixed, accepted, called not real, and open."""
    levels = [10.0] * 20 + [10.8] * 10 + [10.0] * 12 + [11.2] * 8 + [12.6] * 8 + [14.0] * 8
    for position, level in enumerate(levels):
        metrics = (("step_ms", {}), ("wall_ms", {}), ("idle_ms", {"role": "watch"}))
        measured = [loom.measurement(name, level, seed=position, **more) for name, more in metrics]
        loom.deliver(loom.run_of(position, measured))
        for onset, word in ((42, "expected"), (50, "invalid")):
            if position == onset + 6:
                number = loom.value("SELECT id FROM regression WHERE first_bad_position = :at", at=onset)
                triage.act(loom.connection, ADMIN, number, triage.TriageDecision(word, reason="known"), now=loom.now)
    return loom


def told_of_the_list(loom, series=None):
    """(number, state) of what the list holds: told, and not taken back."""
    page = listed.list_regressions(loom.connection, listed.RegressionFilter(project=PROJECT, limit=100))
    return [
        (it.id, it.state)
        for it in page.items
        if it.confirmed_at is not None and not it.held_back and it.state != "withdrawn"
    ]


@pytest.mark.parametrize("gate", [GATE, GATE + 1e-6])
def test_at_the_present_gate_it_counts_exactly_what_the_list_holds_closed_and_redundant_ones_included(told, gate):
    """A hair beside the present gate, every series is judged by both policies, and no case comes or goes."""
    held = told_of_the_list(told)
    assert sorted(state for _, state in held) == ["confirmed", "expected", "fixed", "invalid"]
    found = what_if.preview(told.connection, PROJECT, {"min_change": gate}, now=told.now)
    assert (found.now, found.then, found.added, found.removed) == (len(held), len(held), (), ())
    assert found.affected == found.judged == (0 if gate == GATE else 2)
    for metric in ("step_ms", "wall_ms"):
        series = told.value("SELECT id FROM series WHERE metric = :metric", metric=metric)
        of_one = what_if.preview_series(told.connection, PROJECT, series, gate, now=told.now)
        assert (of_one.now, of_one.then, of_one.added, of_one.removed) == (len(held), len(held), (), ())


def test_a_gate_that_nothing_passes_takes_every_case_away_by_its_number(told):
    held = told_of_the_list(told)
    found = what_if.preview(told.connection, PROJECT, {"min_change": 0.9}, now=told.now)
    assert (found.now, found.then) == (len(held), 0)
    assert sorted(flag.regression_id for flag in found.removed) == sorted(number for number, _ in held)
    assert {flag.series for flag in found.removed} == {2}


def test_a_case_that_another_series_still_shows_stays_in_the_count(told):
    scoped = {"override": [{"metric": "wall_ms", "min_change": 0.9}]}
    found = what_if.preview(told.connection, PROJECT, scoped, now=told.now)
    assert (found.affected, found.now, found.then, found.removed) == (1, 4, 4, ())


def test_a_stricter_policy_shows_what_it_would_have_told_and_changes_nothing(slower):
    c = slower.connection
    found = what_if.preview(c, PROJECT, {"min_change": 0.03}, now=slower.now)
    assert (found.series, found.affected, found.now, found.then) == (1, 1, 0, 1)
    (flag,) = found.added
    assert (flag.position, flag.sha, flag.metric) == (20, slower.sha_of(20), "step_ms")
    assert 0.03 < flag.change < 0.05
    assert policies.policy_of(c, PROJECT).chosen == {}
    assert not [verdict for _, verdict, _ in slower.verdicts() if verdict == "regression"]


def test_a_preview_looks_no_further_back_than_it_is_asked_to(slower):
    newest = slower.value("SELECT max(measured_at) FROM judgement")
    days_to_onset = (slower.now - newest + timedelta(hours=14)).days
    found = what_if.preview(slower.connection, PROJECT, {"min_change": 0.03}, now=slower.now, days=days_to_onset)
    assert (found.now, found.then) == (0, 0)


def test_a_preview_of_thresholds_that_no_series_uses_judges_none(slower):
    scoped = {"override": [{"metric": "peak_*", "min_change": 0.01}]}
    found = what_if.preview(slower.connection, PROJECT, scoped, now=slower.now)
    assert (found.series, found.affected) == (1, 0)


@pytest.mark.parametrize(("room", "judged"), [(34 * 5, 5), (34 * 5 - 1, 4), (34, 1), (1, 1)])
def test_a_preview_judges_so_many_points_at_most_and_says_of_how_many_series(loom, monkeypatch, room, judged):
    """Five series of 34 points each: what does not fit is left out, the first one never is."""
    levels = [10.0] * 20 + [10.4] * 14
    for position, level in enumerate(levels):
        measured = [loom.measurement(f"m{number}_ms", level, seed=position) for number in range(5)]
        loom.deliver(loom.run_of(position, measured))
    monkeypatch.setattr(what_if, "MOST_PREVIEWED", room)
    found = what_if.preview(loom.connection, PROJECT, {"min_change": 0.03}, now=loom.now)
    assert (found.series, found.affected, found.judged, found.now, found.then) == (5, 5, judged, 0, 1)
    assert [flag.series for flag in found.added] == [judged], "one onset, one case"
    again = what_if.preview(loom.connection, PROJECT, {"min_change": 0.03}, now=loom.now)
    assert again == found, "the same sample"


def test_a_lenient_policy_shows_what_it_would_no_longer_tell(loom):
    loom.history([10.0] * 20 + [10.8] * 8)
    found = what_if.preview(loom.connection, PROJECT, {"min_change": 0.2}, now=loom.now)
    assert (found.now, found.then) == (1, 0)
    assert [flag.position for flag in found.removed] == [20]
