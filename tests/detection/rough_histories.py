"""Labelled histories as public machines of a CI leave them, rough where `labelled_histories` is smooth; by seed.

Chaotic first commits, excursions that return, noise that becomes wilder or calmer, several modes, gains that are lost
again after 100 commits and more, regressions fixed and made anew, stairs, slow wander, outliers in bursts, coarse
clocks.
A step is labelled where hindsight shows it; what hindsight cannot judge is in `dont_care`: [[first, last], ...].
"""

from __future__ import annotations

import labelled_histories as plain
import numpy as np

CVS_PCT = {0.2: 0.10, 0.5: 0.22, 1.0: 0.28, 2.0: 0.26, 3.0: 0.10, 5.0: 0.04}
SCENARIOS = {"none": 0.44, "step": 0.27, "stairs": 0.07, "lost": 0.09, "modes": 0.03, "pairs": 0.05, "drift": 0.05}
FAMILIES = ("gaussian", "gaussian", "gaussian", "student", "student", "lognormal", "ar1", "hetero", "spiky")
MUST_PCT = 6.5
FIRST, LAST = 30, 8
"""So many first and last commits are nobody's business."""


def step_size(rng):
    """Log size of a step: half of them 7 to 17 %, a few small, some up to 12 times."""
    if rng.random() < 0.12:
        return np.log1p(rng.uniform(0.02, 0.06))
    return np.log1p(min(2.5, 0.07 + rng.exponential(0.12) * (5 if rng.random() < 0.15 else 1)))


def far_away(rng):
    return np.log(1.1) + (np.log(40) - np.log(1.1)) * rng.random() ** 3


def warm_up(rng, n):
    """Log cost that the first commits add, and how many they are (0 where a machine was settled)."""
    x, kind, length = np.zeros(n), rng.random(), int(rng.integers(3, 26))
    if kind < 0.30:
        return x, 0
    if kind < 0.39:
        for at in np.sort(rng.integers(0, length, int(rng.integers(1, 4)))):
            x[at:length] = far_away(rng)
    elif kind < 0.47:
        x[:length] = (rng.random(length) < rng.uniform(0.3, 0.7)) * np.array([far_away(rng) for _ in range(length)])
    elif kind < 0.58:
        x[:length] = -rng.uniform(0.04, 0.35)
    else:
        first, length = int(rng.integers(3, 12)), int(rng.integers(18, 26))
        x[:first] = -rng.uniform(0.03, 0.25)
        x[first : first + 5] -= rng.uniform(0, 0.1)
        at = length - int(rng.integers(4, 10))
        x[at:length] = rng.uniform(0.1, 0.4)
    return x, length


class Level:
    """The latent log cost of a history, its jumps, how loud its noise is, and its drift if it has one."""

    def __init__(self, n):
        self.x, self.loud, self.jumps, self.drift = np.zeros(n), np.ones(n), [], None

    def jump(self, at, size):
        self.x[at:] += size
        self.jumps.append((at, size))


def happen(rng, name, n):
    """The level of one scenario."""
    level = Level(n)

    def place(low, high):
        return int(rng.integers(low, max(low + 1, high)))

    early = place(34, 68) if rng.random() < 0.6 else place(31, n - 40)
    if name == "step":
        level.jump(early, step_size(rng) * (1 if rng.random() < 0.8 else -1))
    elif name == "stairs":
        at = early
        while at < n - 20 and len(level.jumps) < 3:
            level.jump(at, step_size(rng) * (-1 if not level.jumps and rng.random() < 0.5 else 1))
            at += place(10, 45)
    elif name in ("lost", "modes"):
        better = place(34, max(35, n - 170))
        worse = min(n - 20, better + place(100, 220))
        gain = rng.uniform(0.07, 0.3) if name == "lost" else rng.uniform(0.3, 0.85)
        level.jump(better, -gain)
        level.jump(worse, gain * rng.uniform(0.6, 1.0) if name == "lost" else gain * rng.uniform(0.5, 1.3))
        if name == "modes":
            gaps = np.cumsum(rng.uniform(0.08, 0.18, int(rng.integers(1, 3))))
            level.x[:better] += rng.choice(np.append(0.0, gaps), better)
            level.x[:better] -= gain * (rng.random(better) < rng.choice((0, 0.04)))
            level.loud[worse:] *= rng.uniform(2, 6)
    elif name == "pairs":
        at = early
        for _ in range(place(2, 4)):
            size, held = step_size(rng), place(10, 50)
            if at + held > n - 20:
                break
            level.jump(at, size)
            level.jump(at + held, -size)
            at += held + place(10, 70)
        if at < n - 20 and rng.random() < 0.6:
            level.jump(at, step_size(rng))
    elif name == "drift":
        length, total = place(60, min(200, n - 70) + 1), rng.choice((6.0, 8.0, 10.0, 15.0, 20.0))
        at, shares = place(31, n - length - 30), rng.gamma(2.0, size=length)
        level.x[at : at + length] = np.log1p(total / 100) * np.cumsum(shares) / shares.sum()
        level.x[at + length :] = level.x[at + length - 1]
        level.drift = {"index": at, "end": at + length, "cost_pct": float(total), "kind": "drift"}
    return level


def is_clear(y, at, before, after):
    """Whether log cost changes here in hindsight, seen up to the changes before and after it."""
    early, late = y[max(before, at - 40) : at], y[at : min(after, at + 40)]
    if at < FIRST or at > len(y) - LAST or min(at - before, after - at) < 8:
        return False
    more, same = (late[:, None] > early).mean(), (late[:, None] == early).mean()
    above = more + same / 2
    return abs(np.median(late) - np.median(early)) >= np.log(1.05) and max(above, 1 - above) >= 0.95


def disturb(rng, x, cv_pct, n):
    """Add excursions, wander, a bump and outliers to a level; ranges that nobody can judge."""
    unclear = []
    if rng.random() < 0.25:
        for at in rng.integers(8, n - 20, int(rng.integers(1, 3))):
            length = int(rng.integers(3, 8))
            x[at : at + length] += np.log1p(rng.uniform(0.06, 0.4))
            unclear.append([int(at) - 10, int(at) + length + 10])
    if rng.random() < 0.5:
        wander, tau = rng.standard_normal(n), rng.uniform(8, 25)
        for t in range(1, n):
            wander[t] = np.exp(-1 / tau) * wander[t - 1] + np.sqrt(1 - np.exp(-2 / tau)) * wander[t]
        x += wander * min(cv_pct / 100 * rng.uniform(0.2, 0.9), 0.012)
    if rng.random() < 0.20:
        at, length = int(rng.integers(30, n - 30)), int(rng.integers(8, 26))
        x[at : at + length] += np.log1p(rng.uniform(0.02, 0.034))
    share = np.full(n, float(rng.choice((0, 0.005, 0.01, 0.03, 0.06, 0.09))))
    for at in rng.integers(0, n, int(rng.choice((0, 0, 1, 3)))):
        share[at : at + 6] *= 6
    if rng.random() < 0.5:
        away = np.log1p(rng.uniform(0.05, 0.35)) * rng.uniform(0.9, 1.1, n)
    else:
        away = np.log1p(6 * cv_pct / 100 + rng.exponential(0.12, n))
    hit = rng.random(n) < share
    x += hit * away * np.where(rng.random(n) < 0.85, 1, -1)
    bursts = np.flatnonzero(np.convolve(hit, np.ones(4), "valid") >= 3)
    return unclear + [[int(t) - 10, int(t) + 12] for t in bursts]


def change_of_noise(rng, level, cv_pct, n):
    """From some commit on wilder or calmer, often together with a change of level; that commit."""
    at = level.jumps[0][0] if level.jumps and rng.random() < 0.5 else int(rng.integers(30, n - 40))
    factor = float(3 * (20 / 3) ** rng.random() ** 2)
    wilder = cv_pct < 0.45 or (cv_pct * factor < 10 and rng.random() < 0.5)
    level.loud[at:] *= factor if wilder else max(1 / factor, 0.15 / cv_pct)
    return at


def history(rng, series_id, machine):
    """One labelled rough history."""
    n = 500 if rng.random() < 0.4 else int(rng.integers(150, 501))
    name = str(rng.choice(list(SCENARIOS), p=list(SCENARIOS.values())))
    cv_pct = float(rng.choice(list(CVS_PCT), p=list(CVS_PCT.values())))
    family, k = str(rng.choice(FAMILIES)), int(rng.choice((1, 1, 1, 3)))
    level = happen(rng, name, n)
    unclear, labels = [[0, FIRST], [n - LAST, n]], []
    start, warm = warm_up(rng, n)
    x = level.x
    x += start
    edges = [warm + 4 if warm else 0]
    if rng.random() < 0.20:
        at = change_of_noise(rng, level, cv_pct, n)
        labels.append({"index": at, "end": None, "cost_pct": 0.0, "kind": "variance"})
    unclear += disturb(rng, x, cv_pct, n)
    spread = np.minimum(cv_pct / 100 * level.loud, 0.15)
    noise = plain.samples(rng, n, getattr(plain, family), k)
    cost = np.exp(x)[:, None] * np.maximum(0.2, 1 + spread[:, None] * noise)
    if rng.random() < 0.12:
        tick = np.exp(x[-1]) * min(0.03, cv_pct / 100 * rng.uniform(0.7, 3))
        cost = np.maximum(1, np.round(cost / tick)) * tick
    y = np.log(cost.mean(axis=1))
    edges += [at for at, _ in level.jumps] + [n]
    for number, (at, size) in enumerate(level.jumps, 1):
        pct = float(100 * np.expm1(size))
        if -5 < pct < MUST_PCT or is_clear(y, at, edges[number - 1], edges[number + 1]):
            labels.append({"index": at, "end": None, "cost_pct": pct, "kind": "step"})
        else:
            unclear.append([at - 10, at + 10])
    labels += [level.drift] if level.drift else []
    scale, higher = float(10 ** rng.uniform(-3, 4)), bool(rng.random() < 0.3)
    for label in labels:
        label["regression"] = label["cost_pct"] > 0 and label["kind"] in ("step", "drift")
    return {
        "series_id": series_id,
        "direction": "higher_is_better" if higher else "lower_is_better",
        "machine": machine,
        "values": [[float(f"{v:.8g}") for v in row] for row in (scale / cost if higher else scale * cost)],
        "meta": {"scenario": name, "noise": family, "cv_pct": cv_pct, "samples": k},
        "labels": sorted(labels, key=lambda label: label["index"]),
        "dont_care": [[max(0, first), min(n, last)] for first, last in unclear],
    }


def generate(seed, count):
    """Labelled rough histories, deterministic in seed."""
    for made in range(count):
        yield history(np.random.default_rng([seed, made, 1]), f"r{seed}-{made:05d}", f"m{made % 40}")
