"""The online change-point detector of one series: CUSUMs watch, and what they notice gets a close look.

Runs enter as log cost. The detector keeps the runs since the last accepted change (the segment), residuals carried
from earlier segments, a fitted noise model, and a bank of CUSUMs over the sizes a shift may have. Each run costs a
few table look-ups; only when a CUSUM passes a low limit is the history examined: the model is refitted strictly
before the suspect block, and the evidence for every onset and size is weighed.

`feed` takes any number of runs at once and gives exactly the same answers as one by one: the sums are of whole numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from backend.regression.density import NAT, Floats, Ints, NoiseModel, fit, inflation, middle
from backend.regression.evidence import (
    SHIFTS,
    backwards,
    calm,
    far_beyond,
    gains,
    known_modes,
    little_known,
    local_noise,
    locate,
    log_sum,
    seen_before,
    unruly,
    without_best,
)
from backend.regression.policy import Policy

# Constants of the method: how it looks. What counts as a regression is policy.
BOTH_WAYS = np.concatenate((SHIFTS, -SHIFTS))
NOTICE = 5 * NAT
"""A CUSUM past this asks for a close look."""
PATIENCE = 0.5
"""After a look that refused, a CUSUM must rise by this share of the evidence that was missing."""
BLOCK = 128
"""Runs that are watched at a time, at most."""
WINDOW = 160
"""Runs among which a close look seeks the onset."""
SUSPECT_RUNS = 12
"""The model is not refitted on the first runs of what looks like a change."""
REUSE = 1.25
"""A close look refits the model unless it is from before the block and at most this much shorter than what is now."""
SHORT = 6.0
"""A reference of n runs is worth n / (n + this) of its evidence."""
SHARPEN = 0.7
"""Share of the tempering that is undone for locating: an onset may be sharp where detection must be careful."""
LONG_REFERENCE = 2
"""A reference less than so many times as long as the block must look different from the block's side, too."""
YOUNG = 20
"""With fewer runs before it, a change far beyond the gate is accepted on its confidence limit."""
DRIFT_EVERY = 10
DRIFT_NOISE = 0.4
"""The noise of a drifting series is that between neighbours, and at least this share of its spread."""
CARRIED = 150
"""Residuals of earlier levels that are kept."""
LEVELS = 24
"""Levels of earlier segments that are remembered."""
SHELF = 40
"""Runs before a regression that are kept, to be the baseline again once it is fixed."""


@dataclass(frozen=True, slots=True)
class Change:
    """An accepted change of level. Places are first-parent positions (or indices of a history)."""

    onset: int
    first: int
    last: int
    """The onset lies between these, as far as the data can tell."""
    last_good: int | None
    detected: int
    size: float
    """Log cost: above 0 is worse."""
    before: float
    after: float
    evidence: float
    drift: bool = False
    told: bool = True
    """At least the policy's smallest regression (or improvement)."""
    known: bool = False
    """The series keeps going between these two levels: not told again."""
    fixed: tuple[Opened, ...] = ()
    """Regressions that ended here, because the level returned."""


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A told regression that has not ended, and what the series was like before it."""

    onset: int
    last_good: int | None
    before: float
    after: float
    drift: bool
    runs: Floats
    """The newest runs before the onset."""
    places: Ints


def _empty() -> Floats:
    return np.empty(0)


def _nowhere() -> Ints:
    return np.empty(0, dtype=np.int64)


def _zeros() -> Ints:
    return np.zeros(2 * len(SHIFTS), dtype=np.int64)


@dataclass(slots=True, eq=False)
class Detector:
    """State of one series. Arrays are replaced, never written into, so a shallow copy is a snapshot.

    Counts (`started`, `next_look`, `next_fit`) are indices into the segment.
    """

    segment: Floats = field(default_factory=_empty)
    places: Ints = field(default_factory=_nowhere)
    carried: Floats = field(default_factory=_empty)
    correlation: float = 0.0
    assumed_noise: float = 0.0
    replicated: bool = False
    """Runs have several processes, so that their spread is known from the first."""
    model: NoiseModel | None = None
    cusum: Ints = field(default_factory=_zeros)
    started: Ints = field(default_factory=_zeros)
    """Index of the first run of each CUSUM's excursion."""
    notice: int = NOTICE
    """A CUSUM this high gets a close look; raised after a look that refused."""
    next_look: int = 0
    next_fit: int = 0
    fitted: int = 0
    """Runs of the segment in the model."""
    anchor: float | None = None
    """Level that small losses add up against: that before the first of them since the last told change."""
    levels: tuple[float, ...] = ()
    """Levels of the last few segments, oldest first."""
    opened: tuple[Opened, ...] = ()

    def snapshot(self) -> Detector:
        """A copy that later feeding of this one does not change."""
        twin = object.__new__(Detector)
        for name in FIELDS:
            setattr(twin, name, getattr(self, name))
        return twin

    def least(self, policy: Policy) -> int:
        """Runs a level must have before anything is compared with it."""
        return min(3, policy.min_baseline_runs) if self.levels else policy.min_baseline_runs

    def settled(self, policy: Policy) -> bool:
        """True when there is a baseline to compare with."""
        return self.model is not None and len(self.segment) >= self.least(policy)

    def feed(self, x: Floats, places: Ints, policy: Policy, noises: Floats | None = None) -> list[Change]:
        """Take further runs; the changes accepted on the way, in order. `noises`: what was assumed at each run."""
        found: list[Change] = []
        assumed = np.full(len(x), self.assumed_noise) if noises is None else noises
        at = 0
        while at < len(x):
            if not self.settled(policy):
                self.assumed_noise = float(assumed[at])
                self._begin(float(x[at]), int(places[at]), policy)
                at += 1
                continue
            room = min(BLOCK, max(1, self.next_fit - len(self.segment)))
            block = slice(at, at + room)
            used, change = self._watch(x[block], places[block], policy, assumed[block])
            at += used
            if change is not None:
                found.append(change)
        return found

    # ---- the first runs of a level

    def _begin(self, x: float, place: int, policy: Policy) -> None:
        """A run before there is a baseline: a gain restarts the level, so that a ladder of them settles on its top."""
        n = len(self.segment)
        if n:
            noise = self.model.scale if self.model else self.assumed_noise
            gain = middle(self.segment) - x
            if gain > max(math.log1p(policy.min_change), 5 * noise * math.sqrt(1 + 1 / n)):
                self.segment, self.places, self.model, self.anchor = _empty(), _nowhere(), None, None
        self.segment = np.append(self.segment, x)
        self.places = np.append(self.places, place)
        if len(self.segment) >= self.least(policy):
            self._refit()
            self._restart_watch()

    def _restart_watch(self) -> None:
        self.cusum = _zeros()
        self.started = np.full(2 * len(SHIFTS), len(self.segment), dtype=np.int64)
        self.next_look = 0
        self.notice = NOTICE

    def _refit(self) -> None:
        n = self.fitted = len(self.segment)
        self.model = fit(self.segment, self.carried, self.correlation, self.assumed_noise)
        self.next_fit = n + max(2, 3 * n // 5)

    # ---- watching

    def _watch(self, x: Floats, places: Ints, policy: Policy, assumed: Floats) -> tuple[int, Change | None]:
        """Feed a block under one model; stops early at an accepted change. Returns runs used and the change."""
        model = self.model
        assert model is not None
        sums = self._cumulate(model, x)
        peak = sums.max(axis=0)
        old = len(self.segment)
        history = np.concatenate((self.segment, x))
        where = np.concatenate((self.places, places))
        drift_at = range(-(old + 1) % DRIFT_EVERY, len(x), DRIFT_EVERY)
        high = peak >= NOTICE
        for t in sorted({*np.flatnonzero(high).tolist(), *drift_at}):
            n = old + t + 1
            self.assumed_noise = float(assumed[t])
            change: Change | None = None
            if t and not high[t - 1]:
                self.notice = NOTICE
            if n >= self.next_look and peak[t] >= self.notice:
                change = self._notice(history[:n], where[:n], sums, t, policy)
            if change is None and n % DRIFT_EVERY == 0:
                change = self._drift(history[:n], where[:n], policy)
            if change is not None:
                return t + 1, self._accept(history[:n], where[:n], change, policy)
        if not high[-1]:
            self.notice = NOTICE
        self.assumed_noise = float(assumed[-1])
        self._keep(sums, history, where, policy)
        return len(x), None

    def _cumulate(self, model: NoiseModel, x: Floats) -> Ints:
        """CUSUMs of every bank after every run of the block."""
        gain = gains(model, x, BOTH_WAYS)
        total = gain.cumsum(axis=1)
        total += self.cusum[:, None]
        return total - np.minimum(np.minimum.accumulate(total, axis=1), 0)

    def _notice(self, y: Floats, where: Ints, sums: Ints, t: int, policy: Policy) -> Change | None:
        """A CUSUM is high after run t of the block: look closely, or put the next look off."""
        n = len(y)
        bank = int(np.argmax(sums[:, t]))
        sign = 1 if bank < len(SHIFTS) else -1
        zero = np.flatnonzero(sums[bank, : t + 1] == 0)
        began = n - t + int(zero[-1]) if len(zero) else int(self.started[bank])
        length = n - began
        change: Change | None = None
        if sign < 0 and self.opened and length >= policy.fixed_runs:
            change = self._return(y, where, policy)
        if change is None and length >= policy.sustained_runs:
            change, missing = self._look(y, where, began, sign, policy)
            self.next_look = n + max(1, length // 16)
            self.notice = int(sums[bank, t]) + int(PATIENCE * NAT * missing)
        return change

    def _keep(self, sums: Ints, history: Floats, where: Ints, policy: Policy) -> None:
        """Move to the end of a block in which nothing was accepted."""
        n, old = sums.shape[1], len(self.segment)
        zero = sums == 0
        last = n - np.argmax(zero[:, ::-1], axis=1)
        self.started = np.where(zero.any(axis=1), old + last, self.started)
        self.cusum = sums[:, -1].copy()
        drop = len(history) - policy.memory_runs
        if drop >= 40 and self.model is not None:
            self.carried = _single(np.concatenate((self.carried, history[:drop] - self.model.level))[-CARRIED:])
            history, where = history[drop:], where[drop:]
            self.started = self.started - drop
            self.next_look -= drop
            self.next_fit -= drop
            self.fitted -= drop
        self.segment, self.places = history, where
        if len(history) >= self.next_fit:
            self._refit_unless_suspect(policy)

    def _refit_unless_suspect(self, policy: Policy) -> None:
        """Refit, but leave the model alone while the newest few runs look like the start of something."""
        n = len(self.segment)
        high = self.cusum >= NOTICE
        if high.any() and n - int(self.started[high].max()) <= SUSPECT_RUNS:
            self.next_fit = n + 2 + n // 10
        else:
            self._refit()
        self.next_fit = min(self.next_fit, policy.memory_runs + 40)

    # ---- the close look

    def _look(self, y: Floats, where: Ints, hint: int, sign: int, policy: Policy) -> tuple[Change | None, float]:
        """A change, or how many nats of evidence are missing."""
        n = len(y)
        least = self.least(policy)
        cut = max(least, min(hint, n - policy.sustained_runs))
        if n - cut < policy.sustained_runs:
            return None, 0.0
        model = self.model
        if model is None or not self.fitted <= cut <= REUSE * self.fitted:
            model = fit(y[:cut], self.carried, self.correlation, self.assumed_noise)
        low = max(least, cut - 40, n - WINDOW)
        gain = gains(model, y[low:], SHIFTS if sign > 0 else -SHIFTS)
        evidence = gain[:, ::-1].cumsum(axis=1)[:, ::-1] / NAT
        starts = np.arange(low, n)
        length = (n - starts).astype(np.float64)
        before = np.minimum(starts, 200).astype(np.float64)
        temper = 1 / (inflation(model.correlation, length) + length * inflation(model.correlation, before) / before)
        weighed = evidence * temper * before / (before + SHORT)
        enough = length >= policy.sustained_runs
        best = int(np.argmax(np.where(enough, weighed.max(axis=0), -np.inf)))
        block = y[low + best :]
        wildness = unruly(block, model)
        weighed = weighed * (min(1.0, 1.0 / wildness) * calm(y[: low + best], model))
        bank = int(np.argmax(weighed[:, best]))
        top = float(weighed[bank, best])
        mixture = log_sum(weighed[:, enough]) - math.log(len(SHIFTS))
        total = max(top, mixture)
        needed = policy.evidence_regression if sign > 0 else policy.evidence_improvement
        if self.replicated and low + best < YOUNG and far_beyond(y, low + best, sign, model, wildness, policy):
            total = max(total, 2 * needed)
        elif total < needed:
            return None, needed - total
        elif not without_best(gain[bank, best:] / NAT, top, policy):
            return None, 0.0
        onset, first, last = locate(weighed + SHARPEN * (evidence - weighed), low)
        at = (min(onset, n - policy.sustained_runs), first, last)
        return self._settle(y, where, at, total, sign, model, policy), 0.0

    def _settle(
        self,
        y: Floats,
        where: Ints,
        at: tuple[int, int, int],
        evidence: float,
        sign: int,
        model: NoiseModel,
        policy: Policy,
    ) -> Change | None:
        """The further conditions on a block whose evidence is enough."""
        n = len(y)
        onset, first, last = at
        block = y[onset:]
        before = middle(y[max(0, onset - 150) : onset])
        size = middle(block) - before
        if sign * size <= 0:
            return None
        bad = sign * (block - before) > 0.5 * abs(size)
        if bad.sum() < policy.sustained_runs or bad[-3:].sum() < min(3, policy.sustained_runs):
            return None
        if seen_before(y, onset, size, model) or little_known(onset, size, evidence, model, policy):
            return None
        if onset < LONG_REFERENCE * len(block):
            behind = backwards(y, onset, sign, self.carried, model)
            if behind < policy.evidence_regression:
                return None
        gate = math.log1p(policy.min_change)
        inflated = float(inflation(model.correlation, np.array([float(len(block))]))[0])
        error = model.scale * math.sqrt(1.57 * inflated * (1 / len(block) + 1 / min(onset, 150)))
        adds_up = sign > 0 and self.anchor is not None and before + size - self.anchor >= gate + error
        unclear = abs(size) + 1.5 * error > gate or evidence < policy.evidence_improvement
        if abs(size) < gate and unclear and not adds_up:
            return None
        return Change(
            onset=int(where[onset]),
            first=int(where[first]),
            last=int(where[last]),
            last_good=int(where[onset - 1]),
            detected=int(where[n - 1]),
            size=size,
            before=before,
            after=before + size,
            evidence=evidence,
            told=self._told(size, before + size, gate),
        )

    def _told(self, size: float, after: float, gate: float) -> bool:
        """Red is decided against the anchor, so that two losses of 4 % are one regression of 8 %."""
        if size < 0:
            return -size >= gate
        return size >= gate or (self.anchor is not None and after - self.anchor >= gate)

    def _drift(self, y: Floats, where: Ints, policy: Policy) -> Change | None:
        """Many small losses: the newest runs against the first ones after the anchor."""
        new, old = policy.drift_recent_runs, policy.drift_reference_runs
        n = len(y)
        model = self.model
        if n < new + old or model is None:
            return None
        now = middle(y[-new:])
        if now - model.level < 0.1 * math.log1p(policy.min_change):
            return None
        first = middle(y[:old])
        start = first if self.anchor is None else min(first, self.anchor)
        size = now - start
        if size < math.log1p(policy.min_change) or now - first < 0.3 * size:
            return None
        rho = model.correlation
        variance = inflation(rho, np.array([float(new)]))[0] / new + inflation(rho, np.array([float(old)]))[0] / old
        noise = max(DRIFT_NOISE * model.scale, min(model.scale, local_noise(y)))
        wild = max(1.0, unruly(y[-new:], model))
        if size < policy.drift_z * noise * math.sqrt(1.57 * variance * wild):
            return None
        above = y - (first + 0.5 * (now - first))
        onset = int(np.argmin(np.cumsum(above))) + 1
        onset = min(max(onset, self.least(policy)), n - new)
        return Change(
            onset=int(where[onset]),
            first=int(where[min(old // 2, onset)]),
            last=int(where[max(onset, n - new)]),
            last_good=int(where[onset - 1]),
            detected=int(where[n - 1]),
            size=size,
            before=start,
            after=now,
            evidence=size / noise,
            drift=True,
        )

    # ---- the level returns

    def _return(self, y: Floats, where: Ints, policy: Policy) -> Change | None:
        """The newest runs are back at the level before an open regression, clearly away from the present one."""
        model = self.model
        assert model is not None
        newest = y[-policy.fixed_runs :]
        for earlier in self.opened:
            gap = model.level - earlier.before
            if gap < 6 * model.scale:
                continue
            if bool((newest - earlier.before < 0.4 * gap).all()) and bool(
                (model.level - newest > 3 * model.scale).all()
            ):
                back = model.level - y > 0.5 * gap
                onset = len(y) - int(np.argmin(back[::-1])) if not back.all() else 0
                if onset < 1:
                    continue
                after = middle(y[onset:])
                return Change(
                    onset=int(where[onset]),
                    first=int(where[onset]),
                    last=int(where[onset]),
                    last_good=int(where[onset - 1]),
                    detected=int(where[-1]),
                    size=after - model.level,
                    before=model.level,
                    after=after,
                    evidence=policy.evidence_improvement,
                )
        return None

    # ---- acceptance

    def _accept(self, y: Floats, where: Ints, change: Change, policy: Policy) -> Change:
        """Start a new segment at the onset; what was learnt of the noise is carried over."""
        onset = int(np.searchsorted(where, change.onset))
        old = y[:onset]
        model = fit(old, self.carried, self.correlation, self.assumed_noise)
        if not change.drift:
            self.carried = _single(np.concatenate((self.carried, old - model.level))[-CARRIED:])
        self.correlation = 0.5 * (self.correlation + model.correlation)
        worse = change.told and change.size > 0
        if worse and known_modes(self.levels, change.before, change.after, model.scale, policy):
            change = replace(change, told=False, known=True)
        self.levels = (*self.levels[1 - LEVELS :], change.before)
        self.segment, self.places = y[onset:], where[onset:]
        if change.told and change.size > 0:
            base = min(change.before, self.anchor) if self.anchor is not None else change.before
            kept = Opened(
                change.onset,
                change.last_good,
                base,
                change.after,
                change.drift,
                old[-SHELF:],
                where[max(0, onset - SHELF) : onset],
            )
            self.opened = (*self.opened[-7:], kept)
        elif change.size < 0 and self.opened:
            change = self._close(change, model.scale, policy)
        if change.told or change.known:
            self.anchor = None
        elif self.anchor is None:
            self.anchor = change.before
        self._refit()
        self._restart_watch()
        return change

    def _close(self, change: Change, noise: float, policy: Policy) -> Change:
        """End the open regressions whose level came back; their earlier runs become the baseline again."""
        gate = math.log1p(policy.min_change)
        fixed = tuple(o for o in self.opened if change.after - o.before < gate)
        if not fixed:
            return change
        self.opened = tuple(o for o in self.opened if o not in fixed)
        oldest = fixed[0]
        near = max(0.3 * gate, 2.5 * noise / math.sqrt(len(self.segment)))
        if abs(change.after - oldest.before) < near and not oldest.drift:
            self.segment = np.concatenate((oldest.runs, self.segment))
            self.places = np.concatenate((oldest.places, self.places))
        return replace(change, fixed=fixed, told=True)

    def accept_at(self, onset: int, policy: Policy) -> Change | None:
        """Accept a worsening because something else proved it (a confirming session), at this place."""
        at = int(np.searchsorted(self.places, onset))
        if not 0 < at < len(self.segment):
            return None
        before, after = middle(self.segment[:at]), middle(self.segment[at:])
        if after <= before:
            return None
        change = Change(
            onset=int(self.places[at]),
            first=int(self.places[at]),
            last=int(self.places[at]),
            last_good=int(self.places[at - 1]),
            detected=int(self.places[-1]),
            size=after - before,
            before=before,
            after=after,
            evidence=policy.evidence_regression,
        )
        return self._accept(self.segment, self.places, change, policy)

    def forget(self, onset: int) -> None:
        """An open regression is accepted, or was none: the present level is the baseline from now on."""
        self.opened = tuple(o for o in self.opened if o.onset != onset)
        if self.model is not None:
            self.anchor = None


FIELDS = tuple(Detector.__dataclass_fields__)


def _single(x: Floats) -> Floats:
    """Rounded to single precision, as the stored state keeps it."""
    return x.astype(np.float32).astype(np.float64)
