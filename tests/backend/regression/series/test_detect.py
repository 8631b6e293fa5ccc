import io
import json

import numpy as np
import pytest

from backend.regression.detector.detector import Detector
from backend.regression.policy import Policy
from backend.regression.series.detect import detect_record, main
from backend.regression.series.judge import judge_all
from backend.regression.terms import ChangeState, Direction, SeriesKind
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
    lines = io.StringIO("".join(json.dumps({**record(history(s)), "series_id": f"s{s}"}) + "\n" for s in range(3)))
    out = io.StringIO()
    assert main(lines, out) == 0
    assert [json.loads(line)["series_id"] for line in out.getvalue().splitlines()] == ["s0", "s1", "s2"]


@pytest.mark.parametrize("seed", range(6))
def test_an_answer_on_a_prefix_is_never_taken_back(seed):
    values = history(seed, 0.12, 0.04)
    whole = detect_record(record(values))["regressions"]
    for cut in range(20, len(values), 9):
        early = detect_record(record(values[:cut]))["regressions"]
        assert early == [r for r in whole if r["detected_at"] < cut]


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
