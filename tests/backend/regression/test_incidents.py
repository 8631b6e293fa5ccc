"""Which incident a change point is part of, on both sides of each boundary."""

from dataclasses import replace

import pytest

from backend.regression.change_points import KnownPoint
from backend.regression.grouping import NEAR
from backend.regression.incidents import ROLLS_OUT, ReportedIncident, cause_of, matching_incident

CODE = ReportedIncident(
    id=1,
    suite="gpt",
    kind="regression",
    cause="code",
    worker=None,
    testbeds=("cpu", "gpu"),
    series=frozenset({7, 8}),
    first_bad_position=50,
    range_start=48,
    range_end=51,
    magnitude=0.1,
    drift=False,
    closed_position=None,
    regression_id=None,
)
UPGRADE = replace(CODE, id=2, kind="environment", cause="environment", range_start=50, range_end=50)
ILL = replace(CODE, id=3, kind="infra", cause="hardware", worker="box-1", range_start=50, range_end=50)


def matching(incidents: list[ReportedIncident], series_id: int, onset: int, *, exact: bool = False) -> int | None:
    """The id of the incident that a change point at this onset is part of."""
    point = KnownPoint(
        id=1,
        series_id=series_id,
        testbed_id=1,
        regression_id=None,
        regression_state=None,
        kind="step",
        direction="regression",
        state="confirmed",
        onset_position=onset,
        last_good_position=onset - 1,
        detected_position=onset + 2,
        fixed_position=None,
        change=0.1,
        before=10.0,
        after=11.0,
        benchmark="gpt.train",
        metric="step_ms",
        role="gate",
        exact=exact,
    )
    found = matching_incident(incidents, point)
    return None if found is None else found.id


@pytest.mark.parametrize(
    ("incident", "first", "last"),
    [
        (CODE, 48 - NEAR, 51 + NEAR),
        (UPGRADE, 50 - NEAR, 50 + NEAR + ROLLS_OUT),
        (ILL, 50 - NEAR, 10_000),
        (replace(ILL, closed_position=60), 50 - NEAR, 60),
        (replace(CODE, drift=True, range_start=20), 20 - NEAR, 51 + NEAR),
    ],
)
def test_an_incident_reaches_from_where_it_may_have_begun_to_where_it_was_over(
    incident: ReportedIncident, first: int, last: int
) -> None:
    assert matching([incident], 7, first) == matching([incident], 7, last) == incident.id
    assert matching([incident], 7, first - 1) is None
    assert last == 10_000 or matching([incident], 7, last + 1) is None


def test_a_series_that_it_does_not_name_is_no_part_of_it() -> None:
    assert matching([CODE], 9, 50) is None


def test_an_improvement_by_new_software_explains_no_loss() -> None:
    assert matching([replace(UPGRADE, magnitude=-0.1)], 7, 50) is None


def test_what_a_counter_shows_is_part_of_no_machines_incident() -> None:
    assert matching([ILL], 7, 50, exact=True) is None
    assert matching([CODE], 7, 50, exact=True) == CODE.id


def test_of_two_incidents_the_nearer_one_counts_and_of_two_as_near_the_codes() -> None:
    far = replace(CODE, first_bad_position=70, range_start=70, range_end=70)
    assert matching([ILL, far], 7, 71) == far.id
    assert matching([ILL, CODE], 7, 50) == CODE.id
    assert matching([ILL, CODE], 7, 56) == ILL.id


def test_only_the_code_is_told_at_once() -> None:
    assert [cause_of(incident).suppress for incident in (CODE, UPGRADE, ILL)] == [False, True, True]
    assert "box-1" in cause_of(ILL).evidence[0]
