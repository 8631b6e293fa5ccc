import json

import numpy as np
import pytest

from backend.regression.detector.detector import Detector
from backend.regression.policy import Policy
from backend.regression.series.detect import answers, detect_record
from backend.regression.series.judge import judge_all
from backend.regression.terms import ChangeState, Direction, Point, SeriesKind
from tests.backend.regression.judge_histories import points


def history(seed=0, size=0.1, noise=0.02, n=120, at=60):
    rng = np.random.default_rng(seed)
    return [10.0 * (1 + size * (i >= at)) * (1 + noise * rng.standard_normal()) for i in range(n)]


def record(values, direction="lower_is_better"):
    return {"series_id": "s", "direction": direction, "machine": "m", "values": values}


def test_a_planted_step_is_answered_with_its_index_and_when_it_was_clear():
    (found,) = detect_record(record(history()))["regressions"]
    assert abs(found["index"] - 60) <= 3 and found["index"] <= found["detected_at"] <= 75
    assert found["magnitude_pct"] == pytest.approx(10, abs=3) and found["kind"] == "step"


def test_lines_are_answered_in_order():
    lines = [json.dumps({**record(history(s)), "series_id": f"s{s}"}) for s in range(3)]
    assert [answer["series_id"] for answer in answers(lines)] == ["s0", "s1", "s2"]


@pytest.mark.parametrize("seed", range(6))
def test_an_answer_on_a_prefix_is_never_taken_back(seed):
    values = history(seed, 0.12, 0.04)
    whole = detect_record(record(values))["regressions"]
    for cut in range(20, len(values), 9):
        early = detect_record(record(values[:cut]))["regressions"]
        known = [(r["index"], r["detected_at"], r["magnitude_pct"]) for r in whole if r["detected_at"] < cut]
        assert [(r["index"], r["detected_at"], r["magnitude_pct"]) for r in early] == known


@pytest.mark.parametrize("seed", range(4))
def test_blocks_of_any_length_give_the_same_changes_as_single_runs(seed):
    rng = np.random.default_rng(seed)
    x = np.log(np.array(history(seed, 0.15, 0.03, 300, 150))).astype(np.float32).astype(np.float64)
    policy, places = Policy(), np.arange(len(x))
    whole = Detector(assumed_noise=0.015).feed(x, places, policy)
    cuts = np.sort(rng.choice(len(x), 25, replace=False))
    pieces = Detector(assumed_noise=0.015)
    found = [
        c for a, p in zip(np.split(x, cuts), np.split(places, cuts), strict=True) for c in pieces.feed(a, p, policy)
    ]
    assert found == whole and len(whole) >= 1


def test_the_judge_and_the_detector_tell_the_same_regressions():
    rng = np.random.default_rng(8)
    made = points([10.0] * 80 + [11.5] * 60 + [13.5] * 40, rng, noise=0.03, processes=1)
    answered = detect_record(record([p.values[0] for p in made]))["regressions"]
    judged = judge_all(made, SeriesKind(Direction.LOWER), Policy())
    told = [
        (e.onset_position, e.detected_position)
        for j in judged
        for e in j.events
        if e.state is ChangeState.CONFIRMED and e.past_threshold and e.magnitude > 0
    ]
    assert told == [(r["index"], r["detected_at"]) for r in answered]


def test_samples_and_ragged_samples_are_taken():
    values = [[v, v * 1.01, v * 0.99] for v in history()]
    ragged = [v if i % 2 else v[:2] for i, v in enumerate(values)]
    assert len(detect_record(record(values))["regressions"]) == 1
    assert len(detect_record(record(ragged))["regressions"]) == 1


def test_a_constant_history_is_quiet_and_a_constant_step_is_found():
    assert detect_record(record([5.0] * 200))["regressions"] == []
    (found,) = detect_record(record([5.0] * 50 + [6.0] * 10))["regressions"]
    assert (found["index"], found["detected_at"]) == (50, 52)


def test_short_and_empty_histories_are_answered():
    assert detect_record(record([]))["regressions"] == []
    assert detect_record(record([1.0, 2.0]))["regressions"] == []


ACCEPTED = "accepted: a number from 1e-100 to 1e100"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"values": [1]}', "'direction' is missing"),
        ('{"direction": "lower"}', "'values' is missing"),
        ('{"direction": ["lower"], "values": []}', 'direction is ["lower"]; accepted: lower_is_better, '),
        ('{"direction": "lower", "values": "12"}', 'values is "12"; accepted: a list'),
        ('{"direction": "lower", "values": [1], "series_id": {}}', "series_id is {}; accepted: "),
        ('{"direction": "lower", "values": [1, NaN]}', f"values[1] is NaN; {ACCEPTED}"),
        ('{"direction": "lower", "values": [1, 1e999]}', f"values[1] is Infinity; {ACCEPTED}"),
        ('{"direction": "lower", "values": [1, 2, 0]}', f"values[2] is 0; {ACCEPTED}"),
        ('{"direction": "lower", "values": [-0.5]}', f"values[0] is -0.5; {ACCEPTED}"),
        ('{"direction": "lower", "values": [null]}', f"values[0] is null; {ACCEPTED}"),
        ('{"direction": "lower", "values": [true, 1]}', f"values[0] is true; {ACCEPTED}"),
        ('{"direction": "lower", "values": ["1"]}', f'values[0] is "1"; {ACCEPTED}'),
        ('{"direction": "lower", "values": [[1, 2], [1, null]]}', f"values[1][1] is null; {ACCEPTED}"),
        ('{"direction": "lower", "values": [1, []]}', "values[1] is empty; accepted: "),
        ('{"direction": "lower", "values": [1, [[2]]]}', f"values[1][0] is [2]; {ACCEPTED}"),
        (f'{{"direction": "lower", "values": [1{"0" * 400}]}}', "values[0] is 1000"),
        ("[1]", "found [1]; expected a JSON object"),
        ("null", "found null; expected a JSON object"),
        ("{", "this is not JSON, one object a line: "),
        ('{"direction": "lower", "values": [1e-300, 1e300]}', f"values[0] is 1e-300; {ACCEPTED}"),
        ('{"direction": "lower", "values": [1.79e308, 1.79e308]}', f"values[0] is 1.79e+308; {ACCEPTED}"),
        ('{"direction": "lower", "values": [1], "series_id": NaN}', "series_id is NaN; accepted: "),
        ('{"direction": "lower", "values": [1], "series_id": true}', "series_id is true; accepted: "),
        ("[" * 100_000, "maximum recursion depth"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_its_place_and_what_is_accepted(line, error):
    good = json.dumps(record([1.0] * 5))
    first, refused, last = answers([good, line, good])
    assert refused["line"] == 2 and refused["error"].startswith(error)
    assert refused.get("series_id") in (None, "s")
    assert first == last and "error" not in first


def test_very_large_and_very_small_numbers_are_judged():
    assert detect_record(record([10**40] * 8))["verdict"] == "unchanged"
    assert detect_record(record([[10**25, 1e25], [10**25], [10**25] * 3] * 4))["verdict"] == "unchanged"
    (found,) = detect_record(record([1e-100] * 10 + [1e100] * 10))["regressions"]
    assert found["magnitude_pct"] == pytest.approx(1e202, rel=0.01)


def test_both_names_of_a_direction_mean_the_same():
    values = [1 / value for value in history()]
    for one, other in (("lower", "lower_is_better"), ("higher", "higher_is_better")):
        assert detect_record(record(values, one)) == detect_record(record(values, other))
    assert detect_record(record(values, "higher"))["regressions"] and not detect_record(record(values))["regressions"]


def said_of(values):
    return (answer := detect_record(record(values)))["verdict"], answer["why"]


def test_the_last_commit_has_a_verdict_and_a_reason():
    assert said_of([]) == (None, "There are no values.")
    verdict, why = said_of([1.0, 2.0])
    assert verdict == "insufficient" and "a baseline needs" in why
    verdict, why = said_of([10.0, 10.1, 9.9] * 10)
    assert verdict == "unchanged" and "within the band" in why
    verdict, why = said_of([10.0, 10.1, 9.9] * 10 + [13.0])
    assert verdict == "suspect" and "so far in this run alone" in why
    verdict, why = said_of([10.0, 10.1, 9.9] * 10 + [13.0, 13.1, 12.9, 13.0, 13.1])
    assert verdict == "regression" and "index 30" in why


def test_a_regression_that_ended_says_where():
    there, back = record([10.0] * 30 + [13.0] * 10), record([10.0] * 30 + [13.0] * 10 + [10.0] * 10)
    assert [found["ended"] for found in detect_record(there)["regressions"]] == [None]
    assert [found["ended"] for found in detect_record(back)["regressions"]] == [40]


def test_an_open_regression_whose_runs_are_too_unsteady_says_what_it_would_see_beside_it():
    levels = [(20, 5), (55, 3), (58, 3), (220, 4), (46, 5), (55.2, 8)]
    rng = np.random.default_rng(0)
    values = [level * float(np.exp(0.003 * rng.standard_normal())) for level, runs in levels for _ in range(runs)]
    answer = detect_record(record(values))
    assert answer["verdict"] == "regression" and answer["sees_pct"] > 100
    assert f"too unsteady to see another step of less than {answer['sees_pct']:.1f} % within 8 runs" in answer["why"]


def test_a_value_better_than_its_band_is_not_called_within_it():
    values = history(1, size=0, noise=0.003, n=40)
    answer = detect_record(record([*values, 0.97 * values[-1]]))
    assert (
        answer["verdict"] == "unchanged" and "outside the band, but by less than the 5.0 % that count" in answer["why"]
    )


def test_a_series_that_is_too_unsteady_says_what_it_would_see():
    answer = detect_record(record(history(3, size=0, noise=0.3)))
    assert (answer["verdict"], answer["regressions"]) == ("unsteady", [])
    assert answer["sees_pct"] > 20 and f"it sees {answer['sees_pct']:.1f} %" in answer["why"]
    assert "sees_pct" not in detect_record(record(history(3, size=0, noise=0.01)))


@pytest.mark.parametrize("seed", range(8))
def test_the_last_verdict_is_that_of_the_judge(seed):
    rng = np.random.default_rng(seed)
    levels = np.repeat(rng.choice([10.0, 10.8, 12.0, 14.0], 9), rng.integers(2, 30, 9))
    values = (levels * np.exp(rng.choice([0.005, 0.02, 0.08]) * rng.standard_normal(len(levels)))).tolist()
    made = [Point(place, "", (value,)) for place, value in enumerate(values)]
    judged = judge_all(made, SeriesKind(Direction.LOWER), Policy())
    for cut in range(1, len(values) + 1):
        assert detect_record(record(values[:cut]))["verdict"] == judged[cut - 1].verdict.value, cut
