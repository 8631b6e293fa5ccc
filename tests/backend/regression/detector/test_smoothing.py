import numpy as np
import pytest

from backend.regression.policy import Policy
from backend.regression.series.judge import judge_all
from backend.regression.terms import Direction, SeriesKind
from tests.backend.regression.judge_histories import points


def errors(estimate, truth):
    return float(np.sqrt(np.mean((np.log(estimate) - np.log(truth)) ** 2)))


def running_median(values, window=7):
    return [float(np.median(values[max(0, i - window + 1) : i + 1])) for i in range(len(values))]


def ewma(values, gain=0.2):
    out = [values[0]]
    for value in values[1:]:
        out.append(out[-1] + gain * (value - out[-1]))
    return out


def smoothed(levels, seed, noise=0.02, spikes=0.0):
    rng = np.random.default_rng(seed)
    levels = [v * (1.6 if rng.random() < spikes else 1.0) for v in levels]
    judged = judge_all(points(levels, rng, noise=noise, processes=1), SeriesKind(Direction.LOWER), Policy())
    return [j.value for j in judged], [j.smoothed for j in judged]


def compared(levels, spikes=0.0, part=slice(20, None)):
    """Root mean square error of ours, a running median and an EWMA over one part of some histories."""
    found = []
    for seed in range(12):
        raw, smooth = smoothed(levels, seed, spikes=spikes)
        found.append([errors(x[part], levels[part]) for x in (smooth, running_median(raw), ewma(raw))])
    return np.mean(found, axis=0)


def test_on_a_quiet_stretch_it_keeps_less_noise_than_a_running_median_and_an_ewma():
    ours, median, average = compared([10.0] * 100)
    assert ours < 0.9 * average and ours < 0.75 * median


def test_spikes_drag_it_less_than_a_running_median_and_an_ewma():
    ours, median, average = compared([10.0] * 100, spikes=0.05)
    assert ours < 0.5 * average and ours < 0.9 * median


def test_it_lags_less_than_either_once_a_step_is_confirmed():
    ours, median, average = compared([10.0] * 60 + [12.5] * 20, part=slice(62, 68))
    assert ours < median and ours < average


def test_after_a_step_it_is_at_the_new_level_with_the_run_that_confirms_it():
    _, smooth = smoothed([10.0] * 40 + [13.0] * 10, 1, noise=0.005)
    assert smooth[41] < 10.5
    assert smooth[42] == pytest.approx(13.0, rel=0.02)
