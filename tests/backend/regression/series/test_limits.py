"""Limits are kept as long as they are what the detector would ask for anew."""

import math
from dataclasses import fields, replace

import pytest

from backend.regression.policy import Policy
from backend.regression.series.judge import judge_history
from backend.regression.series.limits import limits_of
from backend.regression.terms import Direction, SeriesKind
from tests.backend.regression.judge_histories import any_history

KIND = SeriesKind(Direction.LOWER)


def state_after(runs, policy=None):
    return judge_history(any_history(11, runs), KIND, policy or Policy())[1]


def said(limits):
    return [getattr(limits, item.name) for item in fields(limits) if not item.name.startswith("_")]


@pytest.mark.parametrize("runs", range(10, 200, 13))
def test_limits_that_hold_are_those_that_would_be_made_anew(runs):
    state = state_after(runs)
    detector, limits = state.detector, state.limits
    assert limits is not None and detector.model is not None
    assert limits.hold(detector, Policy())
    assert said(limits) == said(limits_of(detector.model, detector, Policy()))


def test_limits_do_not_hold_for_another_policy_model_or_anchor():
    state = state_after(60)
    detector, limits = state.detector, state.limits
    assert limits is not None and detector.model is not None
    assert not limits.hold(detector, Policy(min_change=0.1))
    changed = detector.snapshot()
    changed.anchor = 1.0
    assert not limits.hold(changed, Policy())
    changed = detector.snapshot()
    changed.model = replace(detector.model)
    assert not limits.hold(changed, Policy())


def test_values_are_in_the_unit_of_the_metric_and_include_the_workers_offset():
    limits = state_after(60).limits
    assert limits is not None
    plain, other = limits.values(0.0, Direction.LOWER), limits.values(math.log(1.1), Direction.LOWER)
    assert plain.band_low < plain.baseline < plain.band_high
    assert other.baseline == pytest.approx(1.1 * plain.baseline)
    turned = limits.values(0.0, Direction.HIGHER)
    assert turned.baseline == pytest.approx(1 / plain.baseline)
    assert turned.band_low < turned.baseline < turned.band_high
