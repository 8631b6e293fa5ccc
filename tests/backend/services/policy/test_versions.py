"""Every version of a project's policy: who changed it, and what a stored version stands for."""

from typing import Any

import pytest

from backend.regression.policy import Policy
from backend.services.base.principal import Principal, Scope, Via
from backend.services.judging import policy_change as policies
from backend.services.policy import versions as policy_versions
from backend.services.reports.explanations import explain_point

ADMIN = Principal(name="Ada", via=Via.TOKEN, scopes=frozenset(Scope))
PROJECT = "northsea/loom"


def choose(loom: Any, **thresholds: Any) -> None:
    policies.change(loom.connection, PROJECT, thresholds, by=ADMIN, now=loom.now)


def judged_by(loom: Any, position: int) -> dict[str, float] | None:
    series = loom.value("SELECT id FROM series WHERE metric = 'step_ms'")
    policy = explain_point(loom.connection, series, loom.sha_of(position)).policy
    return None if policy is None else {row.name: row.value for row in policy}


@pytest.fixture
def changed(loom: Any) -> Any:
    """Judged by the built-in policy, then by two that were chosen, one after the other."""
    loom.history([10.0] * 6)
    for start, share in ((6, 0.03), (8, 0.5)):
        choose(loom, min_change=share)
        loom.history([10.0] * 2, start=start)
    return loom


def test_each_change_is_a_version_with_who_made_it_the_newest_first(changed: Any) -> None:
    found = policies.policy_of(changed.connection, PROJECT).versions
    assert [(each.version, each.by, each.chosen) for each in found] == [
        (Policy(min_change=share).version, "Ada", {"min_change": share}) for share in (0.5, 0.03)
    ]
    choose(changed, min_change=0.5)
    assert len(policies.policy_of(changed.connection, PROJECT).versions) == 2, "the same again is no change"


def test_a_point_is_explained_by_the_thresholds_it_was_judged_by(changed: Any) -> None:
    assert judged_by(changed, 5) == {}, "the built-in ones"
    assert judged_by(changed, 7) == {"min_change": 0.03}
    assert judged_by(changed, 9) == {"min_change": 0.5}


def test_thresholds_for_some_series_count_for_these_alone(loom: Any) -> None:
    loom.run(0, 10.0)
    choose(loom, override=[{"metric": "step_*", "min_change": 0.2}, {"metric": "peak_*", "min_change": 0.3}])
    loom.run(1, 10.0)
    assert judged_by(loom, 1) == {"min_change": 0.2}


def test_what_the_load_and_false_alarms_made_of_it_is_found_again(loom: Any) -> None:
    loom.run(0, 10.0)
    loom.connection.exec_driver_sql("""UPDATE project SET settings = '{"load": {"points_per_week": 200000}}'""")
    loom.run(1, 10.0)
    asked = Policy().for_load(200_000)
    assert judged_by(loom, 1) == {"evidence_regression": asked.evidence_regression, "drift_z": asked.drift_z}
    c, stricter = loom.connection, asked.after_false_alarms(2)
    scope = policy_versions.PolicyScope(PROJECT, "", "", "", "")
    number = loom.value("SELECT id FROM project")
    found = policy_versions.thresholds_of(c, number, stricter.version, scope)
    assert found is not None and {row.name: row.value for row in found}["sustained_runs"] == 5


def test_a_version_that_nobody_kept_is_said_to_be_unknown(changed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the fifty that are kept (here: one) the oldest is forgotten first."""
    monkeypatch.setattr(policy_versions, "KEPT", 1)
    choose(changed, min_change=0.1)
    assert [version.chosen for version in policies.policy_of(changed.connection, PROJECT).versions] == [
        {"min_change": 0.1}
    ]
    assert judged_by(changed, 7) is None
    assert judged_by(changed, 5) == {}
