"""An unexplained change in the newest rows, where a change began, and how much of a known change rows show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backend.regression.joint.rows import RecentRows
from backend.regression.joint.terms import Bools, Floats, Ints

SMALLEST = 0.66
"""Share of the threshold: smaller changes are ignored here."""
SMALLEST_SIZE = 0.4
"""The same of counts and sizes, which have next to no noise."""
SIGMAS = (np.inf, 5.2, 4.6, 4.4, 4.3, 4.2, 4.2, 4.2, 4.2, 4.2)
"""Evidence wanted from so many rows (1, 2, ...); one row alone only of counts and sizes."""
SIGMAS_SIZE = 8.0
SUPPORT = 0.3
PARTNER = 0.44
"""Share of the threshold that the headline metric of the benchmark must have moved with a phase."""


@dataclass(frozen=True, slots=True)
class ScanHit:
    """An unexplained change: the rows that show it, and per series its size and its evidence."""

    rows: Ints
    change: Floats
    z: Floats
    lead: int
    strength: float


def newest_change(
    tail: RecentRows, machine_bound: Bools, watched: Bools, partner: Ints, threshold: Floats
) -> ScanHit | None:
    """The strongest change that the last 1, 2, ... rows show relative to their levels.

    `partner`: per series the one of its benchmark that people look at; a phase counts only if that one moved too.
    `threshold`: per series the smallest change that is reported.
    """
    k = len(tail)
    if k == 0:
        return None
    residual = tail.residual[::-1]
    mask = tail.mask[::-1]
    count = np.cumsum(mask, axis=0)
    total = np.cumsum(residual, axis=0)
    spread = np.cumsum(tail.variance[::-1] * mask, axis=0)
    seen = np.maximum(count, 1)
    mean = total / seen
    error = np.sqrt(spread / seen**2 + tail.level_variance)
    z = np.where(count > 0, mean / error, 0.0)
    strong = np.abs(z) >= np.array(SIGMAS[:k])[:, None]
    large = np.abs(mean) >= SMALLEST * threshold
    runs = np.arange(1, k + 1)[:, None]
    hit = strong & large & machine_bound & (count >= np.minimum(runs, 2)) & mask[0]
    hit |= (np.abs(z) >= SIGMAS_SIZE) & (np.abs(mean) >= SMALLEST_SIZE * threshold) & ~machine_bound & (count == runs)
    hit &= watched
    hit &= (mean[:, partner] * np.sign(mean)) >= np.where(machine_bound, PARTNER * threshold, 0.0)
    if not hit.any():
        return None
    best: ScanHit | None = None
    for m in np.flatnonzero(hit.any(axis=1)):
        columns = np.flatnonzero(hit[m])
        sign = np.sign(mean[m, columns])
        rows = residual[: m + 1, columns] * sign
        with_it = (rows > SUPPORT * np.abs(mean[m, columns])) & mask[: m + 1, columns]
        enough = with_it.sum(axis=0) >= mask[: m + 1, columns].sum(axis=0) - (0 if m < 3 else 1 if m < 7 else 2)
        columns = columns[enough]
        if not len(columns):
            continue
        lead = int(columns[np.argmax(np.abs(z[m, columns]))])
        strength = float(abs(z[m, lead]))
        if best is None or strength > best.strength:
            best = ScanHit(tail.rows[k - 1 - m :], mean[m], z[m], lead, strength)
    return best


def pattern_of(found: ScanHit, machine_bound: Bools) -> Floats:
    """The change per series where it is clear, 0 elsewhere."""
    clear = (np.abs(found.z) >= 3.0) & (np.abs(found.change) >= 0.02)
    clear |= ~machine_bound & (np.abs(found.z) >= 6.0) & (np.abs(found.change) >= 0.01)
    clear[found.lead] = True
    same = np.sign(found.change) == np.sign(found.change[found.lead])
    return np.where(clear & same, found.change, 0.0)


def channels(pattern: Floats, variance: Floats, benchmarks: Ints) -> Ints:
    """Of every benchmark the series that shows the pattern best: metrics of one benchmark share their noise."""
    weight = pattern**2 / variance
    moved = np.flatnonzero(pattern)
    order = moved[np.argsort(-weight[moved], kind="stable")]
    _, first = np.unique(benchmarks[order], return_index=True)
    return order[np.sort(first)]


def share_of(tail: RecentRows, pattern: Floats, picked: Ints) -> tuple[Floats, Floats]:
    """How much of a pattern each row shows (1 = all of it), and the information in it (1 / variance)."""
    weight = pattern[picked] / tail.variance[:, picked] * tail.mask[:, picked]
    information = weight @ pattern[picked]
    shown = (weight * tail.residual[:, picked]).sum(axis=1)
    return shown / np.maximum(information, 1e-9), information


@dataclass(frozen=True, slots=True)
class OnsetRange:
    """Where a change began: the likeliest commit, and the first and last that it may be."""

    commit: int
    first: int
    last: int


CLIP = 6.0
NEAR_LIKELY = 3.5


def locate(positions: Ints, evidence: Floats, docs: frozenset[int], lowest: int, highest: int) -> OnsetRange:
    """The commit from which rows show a change. `evidence` of a row: log likelihood for having it minus against."""
    commits = np.arange(lowest, highest + 1)
    clipped = np.clip(evidence, -CLIP, CLIP)
    after = positions[None, :] >= commits[:, None]
    likelihood = np.where(after, clipped, 0.0).sum(axis=1)
    allowed = np.array([c not in docs for c in commits])
    if not allowed.any():
        allowed[:] = True
    likelihood = np.where(allowed, likelihood, -np.inf)
    best = float(likelihood.max())
    ties = np.flatnonzero(likelihood >= best - 1e-9)
    near = np.flatnonzero(likelihood >= best - NEAR_LIKELY)
    # Commits nobody ran are as likely as the first bad run after them; that one was seen bad, so it is named.
    return OnsetRange(int(commits[ties[-1]]), int(commits[near[0]]), int(commits[near[-1]]))
