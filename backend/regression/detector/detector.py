"""The online change-point detector of one series: CUSUMs watch, and what they notice gets a close look.

Runs enter as log cost. The detector keeps the runs since the last accepted change (the segment), residuals carried
from earlier segments, a fitted noise model, and a bank of CUSUMs over the sizes a shift may have. Each run costs a
few table look-ups; only when a CUSUM passes a low limit is the history examined: the model is refitted strictly
before the suspect block, and the evidence for every onset and size is weighed.

`feed` takes any number of runs at once and gives exactly the same answers as one by one: the sums are of whole numbers.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from backend.regression.detector.close_look import look, may_be_over, over_at_once, over_by_now, over_unseen, returned
from backend.regression.detector.density import NAT, Floats, Ints, NoiseModel, fit, measure, middle
from backend.regression.detector.drift import drifted, worth_asking
from backend.regression.detector.evidence import SHIFTS, gains, known_modes, local_noise
from backend.regression.detector.memory import NOTICE, OPEN_ONES, Change, Memory, Opened, at_rest, empty, nowhere
from backend.regression.detector.plain_sight import in_plain_sight_of, plain_step, second_level, second_step
from backend.regression.policy import Policy

# Constants of the method: how it looks. What counts as a regression is policy.
BOTH_WAYS = np.concatenate((SHIFTS, -SHIFTS))
PATIENCE = 0.5
"""After a look that refused, a CUSUM must rise by this share of the evidence that was missing."""
BLOCK = 128
"""Runs that are watched at a time, at most."""
SUSPECT_RUNS = 12
"""The model is not refitted on the first runs of what looks like a change."""
DRIFT_EVERY = 5
MOST_BEYOND_MEMORY = 39
"""So many runs more than the policy remembers are kept until the oldest are dropped."""
MIXED = 2.5
OWN = 20
"""Runs that differ from their level so many times more than from their neighbours are of several levels; of those, only
so many newest ones tell the noise."""
CARRIED = 150
"""Residuals of earlier levels that are kept."""
LEVELS = 24
"""Levels of earlier segments that are remembered."""
SHELF = 40
"""Runs before a regression that are kept, to be the baseline again once it is fixed."""
_NONE = np.array(0)
_BANKS = np.arange(len(BOTH_WAYS))


class Detector(Memory):
    """The detector of one series, fed run by run."""

    __slots__ = ()

    def feed(self, x: Floats, places: Ints, policy: Policy, noises: Floats | None = None) -> list[Change]:
        """Take further runs; the changes accepted on the way, in order. `noises`: what was assumed at each run."""
        found: list[Change] = []
        assumed = np.full(len(x), self.assumed_noise) if noises is None else noises
        at = 0
        while at < len(x):
            if not self.settled(policy):
                self.assumed_noise = float(assumed[at])
                change = self._begin(float(x[at]), int(places[at]), policy)
                if change is not None:
                    found.append(change)
                at += 1
                continue
            most = min(BLOCK, max(1, self.next_fit - len(self.segment)))
            block = slice(at, at + most)
            used, change = self._watch(x[block], places[block], policy, assumed[block])
            at += used
            if change is not None:
                found.append(change)
        return found

    # ---- the first runs of a level

    def _begin(self, x: float, place: int, policy: Policy) -> Change | None:
        """A run before there is a baseline: a gain restarts the level, so that a ladder of them settles on its top.

        Of an open regression, which a session may have confirmed by its first run, it may be the end instead.
        """
        n = len(self.segment)
        if n and not self.opened:
            noise = self.model.scale if self.model else self.assumed_noise
            gain = middle(self.segment) - x
            if gain > max(math.log1p(policy.min_change), 5 * noise * math.sqrt(1 + 1 / n)):
                self.segment, self.places, self.model, self.anchor = empty(), nowhere(), None, None
        self.segment = np.concatenate((self.segment, (x,)))
        self.places = np.concatenate((self.places, (place,)))
        change, may_be_over = over_at_once(self, policy) if self.opened else (None, False)
        if change is not None:
            return self._accept(self.segment, self.places, change, policy)
        if may_be_over and len(self.segment) >= self.least(policy):
            self.model = None  # of two levels no baseline is made: the next runs tell which it is
        elif len(self.segment) >= self.least(policy):
            self._refit(policy)
            self._restart_watch()
        return None

    def _restart_watch(self) -> None:
        self.cusum = at_rest()
        self.started = np.full(2 * len(SHIFTS), len(self.segment), dtype=np.int64)
        self.next_look = 0
        self.notice = NOTICE

    def _refit(self, policy: Policy) -> None:
        n = self.fitted = len(self.segment)
        self.model = fit(self.segment, self.carried, self.correlation, self.assumed_noise)
        self.next_fit = n + (1 if self._may_be_two(policy) else max(2, n))

    def _may_be_two(self, policy: Policy) -> bool:
        """Whether the runs since the last change may be of two levels: then the next run may tell."""
        return bool(self.levels) and not self.borrowed and second_level(self.segment, policy) is not None

    # ---- watching

    def _watch(self, x: Floats, places: Ints, policy: Policy, assumed: Floats) -> tuple[int, Change | None]:
        """Feed a block under one model; stops early at an accepted change. Returns runs used and the change."""
        model = self.model
        assert model is not None
        sums = self._cumulate(model, x)
        peak = np.maximum.reduce(sums, axis=0)
        old = len(self.segment)
        history = np.concatenate((self.segment, x))
        where = np.concatenate((self.places, places))
        high = peak >= NOTICE
        plain = in_plain_sight_of(self.segment, x, policy)
        asked = np.arange(old + DRIFT_EVERY - old % DRIFT_EVERY, old + len(x) + 1, DRIFT_EVERY)
        drifting = worth_asking(history, asked, model.level, policy)
        looked_at = high | plain
        over = may_be_over(self, history, asked, policy)
        looked_at[np.array(drifting + over, dtype=np.int64) - old - 1] = True
        for t in looked_at.nonzero()[0].tolist():
            n = old + t + 1
            self.assumed_noise = float(assumed[t])
            change: Change | None = None
            if t and not high[t - 1]:
                self.notice = NOTICE
            if n >= self.next_look and peak[t] >= self.notice:
                change = self._notice(history[:n], where[:n], sums, t, policy)
            if change is None and plain[t]:
                change = plain_step(history[:n], where[:n], policy, opened=bool(self.opened))
            if change is None and n in drifting:
                change = drifted(self, history[:n], where[:n], policy)
            if change is None and n in over:
                change = over_by_now(self, history[:n], where[:n], policy)
            if change is not None:
                return t + 1, self._accept(history[:n], where[:n], change, policy)
        if not high[-1]:
            self.notice = NOTICE
        self.assumed_noise = float(assumed[-1])
        return len(x), self._keep(sums, history, where, policy)

    def _cumulate(self, model: NoiseModel, x: Floats) -> Ints:
        """CUSUMs of every bank after every run of the block."""
        total = gains(model, x, BOTH_WAYS).cumsum(axis=1)
        total += self.cusum[:, None]
        total -= np.minimum(np.minimum.accumulate(total, axis=1), _NONE)
        return total

    def _notice(self, y: Floats, where: Ints, sums: Ints, t: int, policy: Policy) -> Change | None:
        """A CUSUM is high after run t of the block: look closely, or put the next look off."""
        n = len(y)
        bank = int(sums[:, t].argmax())
        sign = 1 if bank < len(SHIFTS) else -1
        zero = (sums[bank, t::-1] == 0).argmax()  # the newest
        began = n - int(zero) if sums[bank, t - zero] == 0 else int(self.started[bank])
        length = n - began
        change: Change | None = None
        if sign < 0 and self.opened and length >= policy.fixed_runs:
            change = returned(self, y, where, policy)
        if change is None and length >= policy.sustained_runs:
            change, missing = look(self, y, where, began, sign, policy)
            self.next_look = n + max(1, length // 16)
            self.notice = int(sums[bank, t]) + int(PATIENCE * NAT * missing)
        return change

    def _keep(self, sums: Ints, history: Floats, where: Ints, policy: Policy) -> Change | None:
        """Move to the end of a block in which nothing was accepted; a refit may show that a regression is over."""
        n, old = sums.shape[1], len(self.segment)
        zero = sums == 0
        last = zero[:, ::-1].argmax(axis=1)
        self.started = np.where(zero[_BANKS, n - 1 - last], old + n - last, self.started)
        self.cusum = sums[:, -1].copy()
        drop = len(history) - policy.memory_runs
        if drop > MOST_BEYOND_MEMORY and self.model is not None:
            self.carried = _single(np.concatenate((self.carried, history[:drop] - self.model.level))[-CARRIED:])
            history, where = history[drop:], where[drop:]
            self.started = self.started - drop
            self.borrowed = max(0, self.borrowed - drop)
            self.next_look -= drop
            self.next_fit -= drop
            self.fitted -= drop
        self.segment, self.places = history, where
        if len(history) < self.next_fit:
            return None
        if self.levels and not self.borrowed:
            second = second_step(history, where, policy, opened=bool(self.opened))
            if second is not None:
                return self._accept(history, where, second, policy)
        return self._refit_unless_suspect(policy)

    def _refit_unless_suspect(self, policy: Policy) -> Change | None:
        """Refit, but leave the model alone while the newest few runs look like the start of something."""
        n = len(self.segment)
        high = self.cusum >= NOTICE
        over: Change | None = None
        if high.any() and n - int(self.started[high].max()) <= SUSPECT_RUNS:
            self.next_fit = n + (1 if self._may_be_two(policy) else 2 + n // 10)
        else:
            self._refit(policy)
            over = over_unseen(self, policy) if self.opened else None
        self.next_fit = min(self.next_fit, policy.memory_runs + MOST_BEYOND_MEMORY + 1)
        if over is not None:
            self.opened = tuple(o for o in self.opened if o not in over.fixed)
        return over

    # ---- acceptance

    def _accept(self, y: Floats, where: Ints, change: Change, policy: Policy) -> Change:
        """Start a new segment at the onset; what was learnt of the noise is carried over."""
        onset = int(np.searchsorted(where, change.onset))
        old = y[:onset]
        noise, _ = measure(old, self.carried, self.correlation, self.assumed_noise)
        if not change.drift:
            if len(old) > OWN and noise.scale > MIXED * local_noise(old):
                old = old[-OWN:]
                noise, _ = measure(old, self.carried, self.correlation, self.assumed_noise)
            self.carried = _single(np.concatenate((self.carried, old - noise.level))[-CARRIED:])
        self.correlation = 0.5 * (self.correlation + noise.correlation)
        worse = change.past_threshold and change.size > 0
        if worse and known_modes(self.levels, change.before, change.after, onset - self.borrowed, noise.scale, policy):
            change = replace(change, past_threshold=False, known=True)
        self.levels = (*self.levels[1 - LEVELS :], change.before)
        self.segment, self.places, self.borrowed = y[onset:], where[onset:], 0
        if change.past_threshold and change.size > 0:
            base = min(change.before, self.anchor) if self.anchor is not None else change.before
            kept = Opened(
                change.onset,
                change.last_good,
                base,
                change.after,
                change.drift,
                y[max(0, onset - SHELF) : onset],
                where[max(0, onset - SHELF) : onset],
            )
            self.opened = (*self.opened[1 - OPEN_ONES :], kept)
        elif change.size < 0 and self.opened:
            change = self._close(change, noise.scale, policy)
        if change.past_threshold or change.known:
            self.anchor = None
        elif self.anchor is None:
            self.anchor = change.before
        self._refit(policy)
        self._restart_watch()
        return change

    def _close(self, change: Change, noise: float, policy: Policy) -> Change:
        """End the open regressions whose level came back; their earlier runs become the baseline again."""
        threshold = math.log1p(policy.min_change)
        fixed = tuple(o for o in self.opened if change.after - o.before < threshold)
        if not fixed:
            return change
        self.opened = tuple(o for o in self.opened if o not in fixed)
        oldest = fixed[0]
        near = max(0.3 * threshold, 2.5 * noise / math.sqrt(len(self.segment)))
        if abs(change.after - oldest.before) < near and not oldest.drift:
            self.borrowed = len(oldest.runs)
            self.segment = np.concatenate((oldest.runs, self.segment))
            self.places = np.concatenate((oldest.places, self.places))
        return replace(change, fixed=fixed, past_threshold=True)

    def accept_at(self, onset: int, policy: Policy) -> Change | None:
        """Accept a worsening because something else proved it (a confirming session), at this place."""
        at = int(np.searchsorted(self.places, onset))
        if not 0 < at < len(self.segment):
            return None
        before, after = middle(self.segment[:at]), middle(self.segment[at:])
        if after <= before:
            return None
        change = Change.at(self.places, at, before, after, policy.evidence_regression)
        return self._accept(self.segment, self.places, change, policy)

    def forget(self, onset: int) -> None:
        """An open regression is accepted, or was none: the present level is the baseline from now on."""
        self.opened = tuple(o for o in self.opened if o.onset != onset)
        if self.model is not None:
            self.anchor = None


def _single(x: Floats) -> Floats:
    """Rounded to single precision, as the stored state keeps it."""
    return x.astype(np.float32).astype(np.float64)
