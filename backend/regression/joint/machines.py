"""Workers that fall ill and recover: reported once, their runs set aside, or judged from a level of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from backend.regression.cause.attribution import CauseName
from backend.regression.joint.health import ENOUGH, Degraded, Diagnosis, Health, HealthSignals, diagnose
from backend.regression.joint.rows import RowsOfTestbed, Shift
from backend.regression.joint.scan import OnsetRange, channels, share_of
from backend.regression.joint.state import MOVED, Degradation, Inquiry, JointState, QuestionPurpose
from backend.regression.joint.terms import Ask, Bools, IncidentKind, JointRun

HARDLY_SLOWER = 0.1
"""Share of the series: below it a run with a lone symptom is judged like any other."""
STILL_SLOW = 0.7
"""Share of an illness that a run shows, from which its worker has not recovered."""
CLEAR = 30.0
"""Information from which one run can tell."""
REBASED_AFTER = 8
"""Runs of an ill worker, when they are steady: it is judged from its own level then, until it recovers."""


class Machines:
    """Watches the workers: their canaries, telemetry and how many of their series moved together."""

    def __init__(self, state: JointState) -> None:
        self.state = state

    def examine(self, run: JointRun, rows: RowsOfTestbed, row: int, w: int) -> Ask | None:
        """Look at the health of the worker that made a run; a run of an ill worker is set aside.

        If its signals do not distinguish the machine from code, a session is requested.
        """
        key = (run.testbed, w)
        health = self.state.health.setdefault(key, Health(self.state.canary_noise))
        level = int(rows.level[row])
        if level > self.state.worker_level.get(key, 0):
            if key not in self.state.degraded or not self.state.degraded[key].canary:
                health.new_environment(run)
            self.state.worker_level[key] = level
        slower = self.share_slower(rows, row, w)
        signals = health.examine(run, slower)
        illness = self.state.degraded.get(key)
        if illness is not None:
            if run.timestamp >= illness.since:
                self.while_ill(run, rows, row, w, illness, signals)
        elif key in self.state.was_degraded and run.timestamp < self.state.was_degraded[key][2]:
            # A result that arrives late, from the time in which the worker was ill or before.
            rows.usable[row] = run.timestamp < self.state.was_degraded[key][0].since
        else:
            return self.while_well(run, rows, row, w, signals, slower)
        return None

    def share_slower(self, rows: RowsOfTestbed, row: int, w: int) -> float:
        """Share of the series a machine can move that are slower in this run, where nothing else may explain it."""
        upgrade = self.state.unsettled(rows)
        if not rows.ready[w] or (upgrade is not None and rows.level[row] >= upgrade.level):
            return 0.0
        residual = rows.clean[row] - rows.base[w]
        bound = self.state.machine_bound & np.isfinite(residual)
        for version_change in self.state.version_changes:
            if not version_change.settled:
                bound &= self.state.suite != version_change.suite
        slow = bound & (residual > np.maximum(MOVED * self.state.smallest, 1.5 * rows.sigma))
        return float(slow.sum() / max(1, bound.sum()))

    def while_well(
        self, run: JointRun, rows: RowsOfTestbed, row: int, w: int, signals: HealthSignals, slower: float
    ) -> Ask | None:
        """A worker that was well: what its signals diagnose, and the session that they make necessary."""
        key = (rows.name, w)
        held = self.state.held.pop(key, [])
        if signals.points < 1:
            rows.usable[[earlier for _, earlier in held]] = True
            self.state.health[key].learn(run, slower)
            return None
        self.state.held[key] = held = [*held, (signals, row)]
        proof = diagnose([seen for seen, _ in held])
        if proof is Diagnosis.MACHINE:
            self.mark_degraded_from_held(rows, w)
            return None
        rows.usable[row] = slower < HARDLY_SLOWER
        return (
            self.ask_whether_code(rows, w)
            if proof is Diagnosis.MACHINE_OR_CODE and self.state.pending is None
            else None
        )

    def mark_degraded_from_held(self, rows: RowsOfTestbed, w: int) -> None:
        """The runs held back were those of an ill worker."""
        held = self.state.held.pop((rows.name, w))
        newest, row = held[-1]
        # A passing dip of a canary just before is no part of it: the series did not notice.
        part = [earlier for seen, earlier in held[:-1] if seen.slowed or newest.points < ENOUGH]
        self.mark_degraded(rows, w, [*part, row], newest.kind, canary=True, moved=newest.moved)

    def ask_whether_code(self, rows: RowsOfTestbed, w: int) -> Ask | None:
        """A session about the series that were slower while a worker had mild signals."""
        held = self.state.held[rows.name, w]
        affected = np.array([row for _, row in held], dtype=np.int64)
        mean, _ = rows.mean(affected)
        pattern = np.where(self.slowed(rows, affected.tolist(), held[-1][0].kind), np.maximum(mean, 0.0), 0.0)
        if not pattern.any():
            return None
        first, head = int(rows.position[affected].min()), int(rows.position[affected].max())
        lead = self.state.lead_of(pattern, pattern > 0)
        base = max(self.state.oldest, first - 8)
        self.state.pending = Inquiry(QuestionPurpose.MACHINE, rows.name, base, head, pattern, affected, w, lead=lead)
        return self.state.ask(self.state.pending)

    def mark_degraded(
        self, rows: RowsOfTestbed, w: int, affected: list[int], kind: Degraded, *, canary: bool, moved: float = 0.0
    ) -> None:
        key = (rows.name, w)
        self.state.held.pop(key, None)  # what comes after the illness is in a row with nothing before it
        rows.usable[affected] = False
        since = float(rows.stamp[affected].min())
        recent = self.state.was_degraded.get(key)
        if recent is not None and recent[0].canary == canary:
            since_recovery = int((rows.worker[recent[1] : rows.n] == w).sum())
            if since_recovery <= 3 + len(affected):
                illness = recent[0]
                illness.rows += affected
                illness.well = 0
                self.state.degraded[key] = illness
                self.state.change_incident(illness.incident, closed_by=None)
                return
        first = int(rows.position[affected].min())
        change = rows.mean(np.array(affected, dtype=np.int64))[0] if rows.ready[w] else np.zeros(self.state.size)
        incident = self.state.open_incident(
            IncidentKind.INFRA,
            CauseName.HARDWARE,
            self.slowed(rows, affected, kind),
            (rows.name,),
            OnsetRange(first, first, first),
            change,
            worker=rows.workers[w],
        )
        self.state.degraded[key] = Degradation(incident, kind, since, list(affected), canary, change, moved=moved)

    def slowed(self, rows: RowsOfTestbed, affected: list[int], kind: Degraded) -> Bools:
        """The series that the illness moved."""
        if not rows.ready[int(rows.worker[affected[0]])]:
            return self.state.machine_bound
        mean, error = rows.mean(np.array(affected, dtype=np.int64))
        if kind is Degraded.BUSY:
            listed = self.state.machine_bound & (mean > 0.004)
        else:
            listed = self.state.machine_bound & (mean >= 0.012) & (mean >= 2.5 * error)
        return listed if listed.any() else self.state.machine_bound

    def while_ill(
        self, run: JointRun, rows: RowsOfTestbed, row: int, w: int, illness: Degradation, signals: HealthSignals
    ) -> None:
        well, sure = self.looks_well(rows, row, illness, signals)
        if well and not sure and illness.well == 0:
            illness.well = 1
            rows.usable[row] = False
        elif well:
            self.recover(run, rows, row, w, illness)
        else:
            self.goes_on(rows, row, w, illness)

    def looks_well(
        self, rows: RowsOfTestbed, row: int, illness: Degradation, signals: HealthSignals
    ) -> tuple[bool, bool]:
        """Whether a run of an ill worker is that of a well one, and whether one such run is enough to say so."""
        if illness.canary:
            well = signals.points < 1 and signals.moved < 0.4 * illness.moved
            if well and self.still_slow(rows, row, illness):
                # The canary has recovered, if it was ill at all: from now on the series themselves say.
                illness.canary = well = False
            return well, illness.kind is not Degraded.SLOW or illness.moved >= 0.06
        tail = rows.tail(np.array([row], dtype=np.int64))
        if illness.rebased:
            tail = replace(tail, residual=tail.residual + illness.change)
        picked = channels(np.where(self.state.machine_bound, illness.change, 0.0), rows.sigma**2, self.state.benchmark)
        share, information = share_of(tail, illness.change, picked)
        return bool(share[0] < 0.4), bool(information[0] >= CLEAR)

    def recover(self, run: JointRun, rows: RowsOfTestbed, row: int, w: int, illness: Degradation) -> None:
        """The worker is well again, from this run on."""
        key = (rows.name, w)
        self.state.degraded.pop(key)
        self.state.was_degraded[key] = (illness, row, run.timestamp)
        if illness.rebased:
            old = rows.shifts[("machine", illness.incident)]
            rows.put(("machine", illness.incident), replace(old, until_stamp=float(rows.stamp[row]) - 1))
        rows.usable[row] = True
        self.state.close_incident(illness.incident, run.position)
        self.state.health[key].learn(run)

    def goes_on(self, rows: RowsOfTestbed, row: int, w: int, illness: Degradation) -> None:
        """One more run of the illness; a worker that is steadily slow is judged from its own level from now on."""
        illness.well = 0
        illness.rows.append(row)
        if illness.rebased:
            return
        rows.usable[row] = False
        if not rows.ready[w]:
            return
        affected = illness.rows[-10:]
        illness.change = rows.mean(np.array(affected, dtype=np.int64))[0]
        if len(illness.rows) <= REBASED_AFTER:
            listed = self.slowed(rows, illness.rows, illness.kind)
            self.state.change_incident(illness.incident, series=tuple(np.flatnonzero(listed)))
        if len(illness.rows) >= REBASED_AFTER and illness.kind is Degraded.SLOW and self.steady(rows, illness):
            illness.rebased = True
            illness.change = np.where(self.state.machine_bound, illness.change, 0.0)
            rows.put(
                ("machine", illness.incident),
                Shift(illness.change, worker=w, from_stamp=illness.since),
            )
            rows.usable[illness.rows] = True

    def still_slow(self, rows: RowsOfTestbed, row: int, illness: Degradation) -> bool:
        """Whether a run is as slow as those of the illness, although no symptom is left."""
        if illness.kind is not Degraded.SLOW or not illness.change.any():
            return False
        pattern = np.where(self.state.machine_bound, illness.change, 0.0)
        picked = channels(pattern, rows.sigma**2, self.state.benchmark)
        share, information = share_of(rows.tail(np.array([row], dtype=np.int64)), pattern, picked)
        return bool(share[0] > STILL_SLOW and information[0] >= CLEAR)

    def steady(self, rows: RowsOfTestbed, illness: Degradation) -> bool:
        """Whether the newest runs of an ill worker are alike."""
        affected = np.array(illness.rows[-5:], dtype=np.int64)
        picked = channels(np.where(self.state.machine_bound, illness.change, 0.0), rows.sigma**2, self.state.benchmark)
        if not len(picked):
            return False
        share, _ = share_of(rows.tail(affected), illness.change, picked)
        return bool(np.abs(share - 1).max() < 0.35)
