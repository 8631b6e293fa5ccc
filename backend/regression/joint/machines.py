"""Workers that fall ill and recover: told once, their runs set aside, or judged from a level of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from backend.regression.cause.attribution import CauseName
from backend.regression.joint.health import ENOUGH, Health, Ill, Proof, Symptoms, prove
from backend.regression.joint.rows import RowsOfTestbed, Shift
from backend.regression.joint.scan import Place, channels, share_of
from backend.regression.joint.state import MOVED, FleetState, Illness, Inquiry, Purpose
from backend.regression.joint.terms import Ask, Bools, FleetRun, IncidentKind

HARDLY_SLOWER = 0.1
"""Share of the series: below it a run with a lone symptom is judged like any other."""
STILL_SLOW = 0.7
"""Share of an illness that a run shows, from which its worker has not recovered."""
CLEAR = 30.0
"""Information from which one run can tell."""
REBASED_AFTER = 8
"""Runs of an ill worker, when they are steady: it is judged from its own level then, until it recovers."""


class Machines(FleetState):
    """The layer that watches the workers."""

    def examine(self, run: FleetRun, rows: RowsOfTestbed, row: int, w: int) -> Ask | None:
        """Look at the health of the worker that made a run; a run of an ill worker is set aside.

        Where its symptoms do not tell the machine from the code, a session is asked for.
        """
        key = (run.testbed, w)
        health = self.health.setdefault(key, Health(self.canary_noise))
        level = int(rows.level[row])
        if level > self.worker_level.get(key, 0):
            if key not in self.ill or not self.ill[key].canary:
                health.new_environment(run)
            self.worker_level[key] = level
        slower = self.share_slower(rows, row, w)
        symptoms = health.examine(run, slower)
        illness = self.ill.get(key)
        if illness is not None:
            if run.timestamp >= illness.since:
                self.while_ill(run, rows, row, w, illness, symptoms)
        elif key in self.was_ill and run.timestamp < self.was_ill[key][2]:
            # A result that arrives late, from the time in which the worker was ill or before.
            rows.usable[row] = run.timestamp < self.was_ill[key][0].since
        else:
            return self.while_well(run, rows, row, w, symptoms, slower)
        return None

    def share_slower(self, rows: RowsOfTestbed, row: int, w: int) -> float:
        """Share of the series a machine can move that are slower in this run, where nothing else may explain it."""
        upgrade = self.unsettled(rows)
        if not rows.ready[w] or (upgrade is not None and rows.level[row] >= upgrade.level):
            return 0.0
        residual = rows.clean[row] - rows.base[w]
        bound = self.machine_bound & np.isfinite(residual)
        for method in self.methods:
            if not method.settled:
                bound &= self.suite != method.suite
        slow = bound & (residual > np.maximum(MOVED * self.smallest, 1.5 * rows.sigma))
        return float(slow.sum() / max(1, bound.sum()))

    def while_well(
        self, run: FleetRun, rows: RowsOfTestbed, row: int, w: int, symptoms: Symptoms, slower: float
    ) -> Ask | None:
        """A worker that was well: what its symptoms prove, and the session that they make necessary."""
        key = (rows.name, w)
        held = self.held.pop(key, [])
        if symptoms.points < 1:
            rows.usable[[earlier for _, earlier in held]] = True
            self.health[key].learn(run, slower)
            return None
        self.held[key] = held = [*held, (symptoms, row)]
        proof = prove([seen for seen, _ in held])
        if proof is Proof.MACHINE:
            self.fall_ill_as_held(rows, w)
            return None
        rows.usable[row] = slower < HARDLY_SLOWER
        return self.ask_whether_code(rows, w) if proof is Proof.MACHINE_OR_CODE and self.pending is None else None

    def fall_ill_as_held(self, rows: RowsOfTestbed, w: int) -> None:
        """The runs held back were those of an ill worker."""
        held = self.held.pop((rows.name, w))
        newest, row = held[-1]
        # A passing dip of a canary just before is no part of it: the series did not notice.
        part = [earlier for seen, earlier in held[:-1] if seen.slowed or newest.points < ENOUGH]
        self.fall_ill(rows, w, [*part, row], newest.kind, canary=True, moved=newest.moved)

    def ask_whether_code(self, rows: RowsOfTestbed, w: int) -> Ask | None:
        """A session about the series that were slower while a worker had mild symptoms."""
        held = self.held[rows.name, w]
        sick = np.array([row for _, row in held], dtype=np.int64)
        mean, _ = rows.mean(sick)
        pattern = np.where(self.slowed(rows, sick.tolist(), held[-1][0].kind), np.maximum(mean, 0.0), 0.0)
        if not pattern.any():
            return None
        first, head = int(rows.position[sick].min()), int(rows.position[sick].max())
        lead = self.lead_of(pattern, pattern > 0)
        base = max(self.oldest, first - 8)
        self.pending = Inquiry(Purpose.MACHINE, rows.name, base, head, pattern, sick, w, lead=lead)
        return self.ask(self.pending)

    def fall_ill(
        self, rows: RowsOfTestbed, w: int, sick: list[int], kind: Ill, *, canary: bool, moved: float = 0.0
    ) -> None:
        key = (rows.name, w)
        self.held.pop(key, None)  # what comes after the illness is in a row with nothing before it
        rows.usable[sick] = False
        since = float(rows.stamp[sick].min())
        recent = self.was_ill.get(key)
        if recent is not None and recent[0].canary == canary:
            since_recovery = int((rows.worker[recent[1] : rows.n] == w).sum())
            if since_recovery <= 3 + len(sick):
                illness = recent[0]
                illness.rows += sick
                illness.well = 0
                self.ill[key] = illness
                return
        first = int(rows.position[sick].min())
        change = rows.mean(np.array(sick, dtype=np.int64))[0] if rows.ready[w] else np.zeros(self.size)
        incident = self.open_incident(
            IncidentKind.INFRA,
            CauseName.HARDWARE,
            self.slowed(rows, sick, kind),
            (rows.name,),
            Place(first, first, first),
            change,
            worker=rows.workers[w],
        )
        self.ill[key] = Illness(incident, kind, since, list(sick), canary, change, moved=moved)

    def slowed(self, rows: RowsOfTestbed, sick: list[int], kind: Ill) -> Bools:
        """The series that the illness moved."""
        if not rows.ready[int(rows.worker[sick[0]])]:
            return self.machine_bound
        mean, error = rows.mean(np.array(sick, dtype=np.int64))
        if kind is Ill.BUSY:
            listed = self.machine_bound & (mean > 0.004)
        else:
            listed = self.machine_bound & (mean >= 0.012) & (mean >= 2.5 * error)
        return listed if listed.any() else self.machine_bound

    def while_ill(
        self, run: FleetRun, rows: RowsOfTestbed, row: int, w: int, illness: Illness, symptoms: Symptoms
    ) -> None:
        key = (rows.name, w)
        if illness.canary:
            well = symptoms.points < 1 and symptoms.moved < 0.4 * illness.moved
            if well and self.still_slow(rows, row, illness):
                # The canary has recovered, if it was ill at all: from now on the series themselves say.
                illness.canary = well = False
            if well and illness.kind is Ill.SLOW and illness.moved < 0.06 and illness.well == 0:
                illness.well = 1
                rows.usable[row] = False
                return
        else:
            tail = rows.tail(np.array([row], dtype=np.int64))
            if illness.rebased:
                tail = replace(tail, residual=tail.residual + illness.change)
            picked = channels(np.where(self.machine_bound, illness.change, 0.0), rows.sigma**2, self.benchmark)
            share, information = share_of(tail, illness.change, picked)
            well = bool(share[0] < 0.4)
            if well and information[0] < CLEAR and illness.well == 0:
                illness.well = 1
                rows.usable[row] = False
                return
        if well:
            self.ill.pop(key)
            self.was_ill[key] = (illness, row, run.timestamp)
            if illness.rebased:
                old = rows.shifts[("machine", illness.incident)]
                rows.put(("machine", illness.incident), replace(old, until_stamp=float(rows.stamp[row]) - 1))
            rows.usable[row] = True
            self.close_incident(illness.incident, run.position)
            self.health[key].learn(run)
            return
        illness.well = 0
        illness.rows.append(row)
        if illness.rebased:
            return
        rows.usable[row] = False
        if not rows.ready[w]:
            return
        sick = illness.rows[-10:]
        illness.change = rows.mean(np.array(sick, dtype=np.int64))[0]
        if len(illness.rows) <= REBASED_AFTER:
            listed = self.slowed(rows, illness.rows, illness.kind)
            self.change_incident(illness.incident, series=tuple(np.flatnonzero(listed)))
        if len(illness.rows) >= REBASED_AFTER and illness.kind is Ill.SLOW and self.steady(rows, illness):
            illness.rebased = True
            illness.change = np.where(self.machine_bound, illness.change, 0.0)
            rows.put(
                ("machine", illness.incident),
                Shift(illness.change, worker=w, from_stamp=illness.since),
            )
            rows.usable[illness.rows] = True

    def still_slow(self, rows: RowsOfTestbed, row: int, illness: Illness) -> bool:
        """Whether a run is as slow as those of the illness, although no symptom is left."""
        if illness.kind is not Ill.SLOW or not illness.change.any():
            return False
        pattern = np.where(self.machine_bound, illness.change, 0.0)
        picked = channels(pattern, rows.sigma**2, self.benchmark)
        share, information = share_of(rows.tail(np.array([row], dtype=np.int64)), pattern, picked)
        return bool(share[0] > STILL_SLOW and information[0] >= CLEAR)

    def steady(self, rows: RowsOfTestbed, illness: Illness) -> bool:
        """Whether the newest runs of an ill worker are alike."""
        sick = np.array(illness.rows[-5:], dtype=np.int64)
        picked = channels(np.where(self.machine_bound, illness.change, 0.0), rows.sigma**2, self.benchmark)
        if not len(picked):
            return False
        share, _ = share_of(rows.tail(sick), illness.change, picked)
        return bool(np.abs(share - 1).max() < 0.35)
