"""A few labelled fleets with fixed seeds: attribution and grouping may not get worse than this without a word."""

import fleet_table as table
import pytest


@pytest.fixture(scope="module")
def ours():
    return table.evaluate(table.JudgeStream, [4, 11, 112])


@pytest.mark.parametrize(
    ("figure", "floor"),
    [
        ("hardware_ok", 0.9),
        ("environment_ok", 1.0),
        ("method_ok", 1.0),
        ("regressions_found", 0.96),
        ("hard_found", 0.94),
        ("drifts_found", 1.0),
        ("gains_found", 0.9),
        ("cause_accuracy", 0.97),
        ("series_listed", 0.97),
        ("range_right", 0.95),
        ("testbeds_found", 0.97),
        ("fixed_closed", 1.0),
    ],
)
def test_what_is_named_and_found_does_not_fall_below_the_floor(ours, figure, floor):
    assert ours[figure] >= floor


@pytest.mark.parametrize(
    ("figure", "ceiling"),
    [
        ("red_per_machine", 0.05),
        ("storm", 0),
        ("code_excused", 0),
        ("incidents_per_event", 1.05),
        ("series_wrong", 0.02),
        ("false_per_1000", 1),
        ("false_regressions_per_week", 1),
        ("docs_blamed", 0),
        ("delay_runs", 2),
        ("sessions_per_event", 1.6),
        ("sessions_per_1000", 52),
        ("retracted", 0.03),
        ("malformed", 0),
    ],
)
def test_what_nobody_wants_does_not_rise_above_the_ceiling(ours, figure, ceiling):
    assert ours[figure] <= ceiling


def test_a_program_that_cries_wolf_spends_more_than_the_budget_of_a_week():
    """One that confirms a regression at every thirtieth run, whatever it shows."""

    def wolf(record):
        if record["type"] != "run" or record["seq"] % 30:
            return {"incidents": []}
        at, series = record["commit"], next(iter(record["values"]))
        alarm = {"id": f"{record['seq']}", "action": "open", "kind": "regression", "cause": "code", "confirmed": True}
        where = {"series": [series], "testbed": record["testbed"], "worker": None, "first_bad_commit": at}
        return {"incidents": [alarm | where | {"range": [at, at], "magnitude_pct": 9.0}]}

    cried = table.evaluate(lambda: wolf, [11])
    assert cried["malformed"] == 0
    assert cried["false_regressions_per_week"] > 1


def test_a_program_that_says_nothing_finds_nothing(ours):
    silent = table.evaluate(lambda: lambda record: {"incidents": []}, [11])
    assert silent["regressions_found"] == silent["hardware_ok"] == 0
    assert silent["false_per_1000"] == silent["false_regressions_per_week"] == silent["malformed"] == 0


def test_nonsense_is_counted_and_not_applied():
    told = {"incidents": [{"id": 1, "action": "open", "kind": "regression"}], "request": {"kind": "tea"}}
    answers = iter([{"incidents": []}, told])
    silent = table.evaluate(lambda: lambda record: next(answers, {"incidents": []}), [11])
    assert silent["malformed"] == 2
    assert silent["false_per_1000"] == 0
