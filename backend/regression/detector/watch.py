"""Many series watched at once, in columns: a row for each series, a column for each of its next runs.

Nothing is decided here. A run is quiet if it needs no close look and no refit, and shows neither a drift nor a step
in plain sight. Nearly every run is quiet; those advance the detectors here, together. The first run of a series that
is not is left to `Detector.feed`, which does for a single quiet run exactly what is done here for all of them. A run
of many series is a rectangle of one column; the history of one series is a rectangle of one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.regression.detector.close_look import over_by_now
from backend.regression.detector.density import CELLS_PER_SD, REACH, Floats, Ints
from backend.regression.detector.detector import BOTH_WAYS, DRIFT_EVERY, MOST_BEYOND_MEMORY, Detector
from backend.regression.detector.drift import drifted, is_worth_asking, worth_asking
from backend.regression.detector.memory import NOTICE, Change
from backend.regression.detector.plain_sight import Bools, in_plain_sight, plain_step
from backend.regression.policy import Policy

Watched = tuple[Detector, Floats, Ints, Policy]
"""A detector, its next runs, their places, and the policy."""

CELLS = 6_000
"""The most runs watched at a time: beyond that the columns no longer fit into the processor's cache."""
_WIDTH = 2 * REACH + 1


def runs_until_refit(detector: Detector, policy: Policy) -> int:
    """How many more runs this detector may only watch: none before it has a baseline, or when a refit is due."""
    if not detector.settled(policy):
        return 0
    most = policy.memory_runs + MOST_BEYOND_MEMORY + 1
    return (detector.next_fit if detector.next_fit < most else most) - 1 - len(detector.segment)


def feed_quiet(watched: Sequence[Watched]) -> list[int]:
    """Feed each detector its next runs as long as they are quiet; returns how many these were."""
    fed = [0] * len(watched)
    most = max(1, CELLS // max(1, len(watched)))
    lengths = [min(len(x), runs_until_refit(detector, policy), most) for detector, x, _, policy in watched]
    rows = [number for number, runs in enumerate(lengths) if runs > 0]
    if rows:
        columns = _Columns.of([watched[number] for number in rows], [lengths[number] for number in rows])
        for number, quiet in zip(rows, columns.feed(), strict=True):
            fed[number] = quiet
    return fed


@dataclass(slots=True)
class _Columns:
    """S series, their next T runs, B CUSUMs of each."""

    watched: Sequence[Watched]
    known: Ints
    """Runs of each segment before these (S)."""
    runs_ST: Floats
    """Log costs; beyond the end of a row its level."""
    beyond_ST: Bools
    """Where there is no run, or one out of all proportion."""
    sums_STB: Ints
    """The CUSUMs after each run."""
    started_SB: Ints
    """Where they began to rise, before these runs."""
    notice: Ints
    next_look: Ints

    @classmethod
    def of(cls, watched: Sequence[Watched], lengths: Sequence[int]) -> _Columns:
        detectors = [detector for detector, *_ in watched]
        models = [detector.model for detector in detectors if detector.model is not None]
        level_S = np.array([model.level for model in models])
        cells_S: Floats = CELLS_PER_SD / np.array([model.scale for model in models])
        runs_ST = np.repeat(level_S[:, None], max(lengths), axis=1)
        for row, (_, x, _, _), runs in zip(runs_ST, watched, lengths, strict=True):
            row[:runs] = x[:runs]
        cell_ST = np.rint((runs_ST - level_S[:, None]) * cells_S[:, None]).astype(np.int64)
        beyond_ST = np.abs(cell_ST) > REACH
        beyond_ST |= np.arange(max(lengths)) >= np.array(lengths)[:, None]
        shift_SB = np.rint(BOTH_WAYS.T * cells_S[:, None]).astype(np.int64)
        density = np.concatenate([model.density for model in models])
        return cls(
            watched=watched,
            known=np.array([len(detector.segment) for detector in detectors]),
            runs_ST=runs_ST,
            beyond_ST=beyond_ST,
            sums_STB=_cumulated(_rows([d.cusum for d in detectors]), _gains(density, cell_ST, shift_SB)),
            started_SB=_rows([detector.started for detector in detectors]),
            notice=np.array([detector.notice for detector in detectors]),
            next_look=np.array([detector.next_look for detector in detectors]),
        )

    def feed(self) -> list[int]:
        """Move each detector on over its quiet runs; how many these are."""
        length_ST = self.known[:, None] + np.arange(1, self.runs_ST.shape[1] + 1)
        peak_ST = self.sums_STB.max(axis=2)
        high_ST = peak_ST >= NOTICE
        calmed_ST = np.logical_or.accumulate(~high_ST, axis=1)
        looked_at_ST = high_ST & (length_ST >= self.next_look[:, None]) & (peak_ST >= self._noticed(calmed_ST))
        plain_ST = in_plain_sight(
            [detector.segment for detector, *_ in self.watched], self.runs_ST, [policy for *_, policy in self.watched]
        )
        quiet_S = self._until(self.beyond_ST | looked_at_ST, plain_ST, length_ST % DRIFT_EVERY == 0)
        self._move(quiet_S, calmed_ST)
        found: list[int] = quiet_S.tolist()
        return found

    def _noticed(self, calmed_ST: Bools) -> Ints:
        """How high a CUSUM must be at each run to be looked at: what a refused look asked for ends with its rise."""
        noticed_ST = np.repeat(self.notice[:, None], calmed_ST.shape[1], axis=1)
        noticed_ST[:, 1:][calmed_ST[:, :-1]] = NOTICE
        return noticed_ST

    def _until(self, stops_ST: Bools, plain_ST: Bools, due_ST: Bools) -> Ints:
        """How many runs of each series are quiet: up to the first that stops it, or at which a question finds
        something."""
        runs = stops_ST.shape[1]
        quiet_S: Ints = np.where(stops_ST.any(axis=1), stops_ST.argmax(axis=1), runs)
        within_ST = np.arange(runs) < quiet_S[:, None]
        plain_ST &= within_ST
        due_ST &= within_ST
        drifting_ST = self._drifting(due_ST)
        opened_S = np.array([bool(detector.opened) for detector, *_ in self.watched])
        over_ST = due_ST & opened_S[:, None]
        for row, t in np.argwhere(plain_ST | drifting_ST | over_ST).tolist():
            asked = bool(plain_ST[row, t]), bool(drifting_ST[row, t]), bool(over_ST[row, t])
            if t < quiet_S[row] and self._found(row, t, *asked):
                quiet_S[row] = t
        return quiet_S

    def _drifting(self, due_ST: Bools) -> Bools:
        """At which of these runs a drift is worth asking for."""
        drifting_ST = np.zeros_like(due_ST)
        for row in np.flatnonzero(due_ST.any(axis=1)).tolist():
            detector, _, _, policy = self.watched[row]
            assert detector.model is not None
            if due_ST.shape[1] == 1:
                drifting_ST[row] = is_worth_asking(detector.segment, self.runs_ST[row], detector.model.level, policy)
                continue
            known, asked = len(detector.segment), np.flatnonzero(due_ST[row])
            y = np.concatenate((detector.segment, self.runs_ST[row, : asked[-1] + 1]))
            lengths = worth_asking(y, known + asked + 1, detector.model.level, policy)
            drifting_ST[row, np.array(lengths, dtype=np.int64) - known - 1] = True
        return drifting_ST

    def _found(self, row: int, t: int, plain: bool, drifting: bool, over: bool) -> bool:
        """Whether one of the questions that are asked at a run finds a change."""
        detector, _, places, policy = self.watched[row]
        y = np.concatenate((detector.segment, self.runs_ST[row, : t + 1]))
        where = np.concatenate((detector.places, places[: t + 1]))
        found: Change | None = plain_step(y, where, policy, opened=bool(detector.opened)) if plain else None
        if found is None and drifting:
            found = drifted(detector, y, where, policy)
        if found is None and over:
            found = over_by_now(detector, y, where, policy)
        return found is not None

    def _move(self, quiet_S: Ints, calmed_ST: Bools) -> None:
        rows = quiet_S.nonzero()[0]
        last = quiet_S[rows] - 1
        cusum, calmed = self.sums_STB[rows, last], calmed_ST[rows, last]
        runs = np.arange(1, self.runs_ST.shape[1] + 1)
        at_rest = (self.sums_STB[rows] == 0) & (runs <= quiet_S[rows, None])[:, :, None]
        newest = np.where(at_rest, runs[:, None], 0).max(axis=1)
        started = np.where(newest > 0, self.known[rows, None] + newest, self.started_SB[rows])
        for number, row in enumerate(rows.tolist()):
            detector, _, places, _ = self.watched[row]
            quiet = int(quiet_S[row])
            detector.segment = np.concatenate((detector.segment, self.runs_ST[row, :quiet]))
            detector.places = np.concatenate((detector.places, places[:quiet]))
            detector.cusum, detector.started = cusum[number], started[number]
            if calmed[number]:
                detector.notice = NOTICE


def _rows(of_series: Sequence[Ints]) -> Ints:
    """Rows of the same length as one array (faster than numpy's stack of many)."""
    rows: Ints = np.concatenate(of_series).reshape(len(of_series), -1)
    return rows


def _gains(density: Ints, cell_ST: Ints, shift_SB: Ints) -> Ints:
    """Log-likelihood ratios of every run for every shift."""
    row = (np.arange(len(cell_ST)) * _WIDTH + REACH)[:, None]
    moved_STB = np.maximum(np.minimum(cell_ST[:, :, None] - shift_SB[:, None, :], REACH), -REACH)
    moved_STB += row[:, :, None]
    gain_STB: Ints = density.take(moved_STB)
    gain_STB -= density.take(np.maximum(np.minimum(cell_ST, REACH), -REACH) + row)[:, :, None]
    return gain_STB


def _cumulated(cusum_SB: Ints, gain_STB: Ints) -> Ints:
    """The CUSUMs after each run."""
    total: Ints = gain_STB.cumsum(axis=1)
    total += cusum_SB[:, None, :]
    total -= np.minimum(np.minimum.accumulate(total, axis=1), 0)
    return total
