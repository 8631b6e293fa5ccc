"""Labelled synthetic benchmark histories, deterministic by seed, to measure a detector on.

A latent cost level carries the scenario (steps, reverts, spikes, drift, machine events, changes of variance); each
commit shows it with noise of one of seven families, in one or several samples whose mean has the stated coefficient of
variation. Changes are labelled in cost: up is worse, whichever way the metric points.
"""

from __future__ import annotations

import numpy as np

CVS_PCT = (0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0)
SIZES_PCT = (2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 50.0)
SCENARIOS = {
    "none": 0.24,
    "step": 0.30,
    "improve": 0.06,
    "revert": 0.08,
    "spike": 0.08,
    "multi": 0.07,
    "drift": 0.11,
    "environment": 0.03,
    "variance": 0.03,
}
MACHINE_SERIES = 6
"""Series that share one machine event."""


def gaussian(rng, n):
    return rng.standard_normal(n)


def lognormal(rng, n):
    """A right tail with a skewness of about 3."""
    s = 0.7
    x = np.exp(s * rng.standard_normal(n))
    return (x - np.exp(s * s / 2)) / np.sqrt((np.exp(s * s) - 1) * np.exp(s * s))


def student(rng, n):
    return rng.standard_t(3, n) / np.sqrt(3)


def ar1(rng, n):
    rho = rng.uniform(0.3, 0.7)
    x = np.empty(n)
    x[0] = rng.standard_normal()
    shocks = rng.standard_normal(n) * np.sqrt(1 - rho * rho)
    for t in range(1, n):
        x[t] = rho * x[t - 1] + shocks[t]
    return x


def bimodal(rng, n):
    """Two states of the machine with a short dwell."""
    share, gap, dwell = rng.uniform(0.2, 0.5), 3.0, rng.uniform(1.0, 2.5)
    state, now = np.empty(n), rng.random() < share
    for t in range(n):
        if rng.random() < 1 / dwell:
            now = rng.random() < share
        state[t] = now
    x = gap * (state - share) + rng.standard_normal(n)
    return x / np.sqrt(1 + gap * gap * share * (1 - share))


def hetero(rng, n):
    """A spread that changes slowly."""
    phase = np.arange(n) / rng.uniform(40, 120) + rng.random()
    width = np.exp(0.6 * np.sin(2 * np.pi * phase))
    return rng.standard_normal(n) * width / np.sqrt(np.mean(width * width))


def spiky(rng, n):
    """A quiet core and one-sided spikes of single commits."""
    hit = rng.random(n) < rng.uniform(0.02, 0.08)
    return rng.standard_normal(n) + hit * rng.exponential(7.0, n)


NOISES = (gaussian, lognormal, student, ar1, bimodal, hetero, spiky)


def samples(rng, n, family, k):
    """Noise of (commits, samples) whose mean over samples has unit variance: a part between runs, a part within."""
    between = family(rng, n)
    if k == 1:
        return between[:, None]
    within = min(rng.uniform(0.3, 2.0), 0.9 * np.sqrt(k))
    return (np.sqrt(1 - within * within / k) * between)[:, None] + within * rng.standard_normal((n, k))


class Level:
    """The latent cost of a history (1 at its start), and the labels of what happens to it."""

    def __init__(self, n):
        self.cost, self.labels = np.ones(n), []

    def step(self, at, pct, kind="step", end=None):
        self.cost[at:end] *= 1 + pct / 100
        self.label(at, pct, kind, end)

    def label(self, at, pct, kind, end=None):
        self.labels.append({"index": int(at), "end": end, "cost_pct": float(pct), "kind": kind})


def happen(rng, name, n):
    """The level of one scenario."""
    level = Level(n)
    at = int(rng.integers(35, n - 40))
    if name == "step":
        level.step(at, rng.choice(SIZES_PCT))
    elif name == "improve":
        level.step(at, -rng.choice(SIZES_PCT[:-1]))
    elif name == "revert":
        pct, end = rng.choice(SIZES_PCT[2:]), at + int(rng.choice((10, 20, 30)))
        level.step(at, pct)
        level.step(end, 100 * (1 / (1 + pct / 100) - 1), "revert")
    elif name == "spike":
        for start in np.sort(rng.choice(np.arange(20, n - 12, 12), 2, replace=False)):
            length = int(rng.integers(1, 3))
            level.step(int(start), rng.uniform(12, 60), "spike", int(start) + length)
    elif name == "multi":
        count = int(rng.integers(2, 4))
        for i in range(count):
            start = 30 + int((n - 60) * (i + 0.2 + 0.5 * rng.random()) / count)
            level.step(start, rng.choice((5.0, 7.0, 10.0, 20.0, -10.0, -7.0)))
    elif name == "drift":
        creep(rng, level, n)
    return level


def creep(rng, level, n):
    """Many small losses over 60 to 200 commits."""
    length, total = int(rng.integers(60, min(200, n - 70) + 1)), rng.choice((6.0, 8.0, 10.0, 15.0, 20.0))
    at = int(rng.integers(30, n - length - 30))
    shares = rng.gamma(2.0, size=length)
    level.cost[at : at + length] = (1 + total / 100) ** (np.cumsum(shares) / shares.sum())
    level.cost[at + length :] = level.cost[at + length - 1]
    level.label(at, total, "drift", at + length)


def history(rng, series_id, name, machine, event=None):
    """One labelled history; `event` is (relative position, percent, length) of a machine's event."""
    n = event[2] if event else int(rng.integers(150, 401))
    cv_pct, family, k = float(rng.choice(CVS_PCT)), rng.choice(NOISES), int(rng.choice((1, 1, 1, 3, 5, 10)))
    level = happen(rng, name, n)
    spread = np.full(n, cv_pct / 100)
    if event:
        level.step(int(event[0] * n), event[1], "environment")
    if name == "variance":
        at = int(rng.integers(40, n - 40))
        spread[at:] *= rng.choice((0.33, 3.0))
        level.label(at, 0.0, "variance")
    noisy = np.maximum(0.2, 1 + spread[:, None] * samples(rng, n, family, k))
    start, higher = float(10 ** rng.uniform(-3, 4)), bool(rng.random() < 0.3)
    raw = start / (level.cost[:, None] * noisy) if higher else start * level.cost[:, None] * noisy
    for label in level.labels:
        label["regression"] = label["cost_pct"] > 0 and label["kind"] in ("step", "drift")
    return {
        "series_id": series_id,
        "direction": "higher_is_better" if higher else "lower_is_better",
        "machine": machine,
        "values": [[float(f"{v:.8g}") for v in row] for row in raw],
        "meta": {"scenario": name, "noise": family.__name__, "cv_pct": cv_pct, "samples": k},
        "labels": sorted(level.labels, key=lambda label: label["index"]),
    }


def generate(seed, count):
    """Labelled histories, deterministic in (seed, count)."""
    names, weights = list(SCENARIOS), np.array(list(SCENARIOS.values()))
    made = 0
    while made < count:
        rng = np.random.default_rng([seed, made])
        name = str(rng.choice(names, p=weights / weights.sum()))
        if name == "environment" and made + MACHINE_SERIES <= count:
            event = (rng.uniform(0.3, 0.7), float(rng.choice((7.0, 10.0, 20.0))), int(rng.integers(150, 301)))
            for i in range(MACHINE_SERIES):
                yield history(rng, f"s{seed}-{made:05d}", "none", f"machine-{seed}-{made - i}", event)
                made += 1
        else:
            yield history(rng, f"s{seed}-{made:05d}", "none" if name == "environment" else name, f"m{made % 40}")
            made += 1
