"""The fleet judge: takes the runs of a project one at a time and tells incidents, each with its cause.

What the newest rows leave unexplained is asked for in the order of the evidence: machine (canary, telemetry), way of
measuring (suite version), then a session of two commits, in which only the code can differ. What the session shows is
code; what it does not show belongs to whoever changed: an upgrade, or the one worker that shows it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from backend.regression.attribution import CauseName
from backend.regression.fleet_health import ENOUGH, CanaryNoise, Health, Ill, Symptoms
from backend.regression.fleet_rows import Shift, TestbedRows
from backend.regression.fleet_scan import Found, Place, channels, locate, newest_change, pattern_of, share_of
from backend.regression.fleet_terms import (
    Action,
    Ask,
    Bools,
    FleetRun,
    FleetSeries,
    Floats,
    Incident,
    IncidentKind,
    Ints,
    SessionResult,
    Told,
)
from backend.regression.terms import Role

TAIL = 10
WORKER_TAIL = 6
GROWS_FOR = 45
"""Commits after its onset in which a change may be found on further testbeds and series."""
SESSION_NOISE = 0.0015
MOVED = 0.02
TELLS = 0.033


class Purpose(enum.StrEnum):
    CHANGE = "change"
    UPGRADE = "upgrade"
    DRIFT = "drift"
    HIDDEN = "hidden"


@dataclass(slots=True)
class Code:
    """A change of the code that was proved, and where it shows."""

    incident: int
    change: Floats
    error: Floats
    listed: Bools
    place: Place
    shown: dict[str, int] = field(default_factory=dict)
    """Testbed to the number of its rows when the change was found there."""
    drift: bool = False
    open: bool = True


@dataclass(slots=True)
class Illness:
    """A worker that is slower than it was, or busy with something else."""

    incident: int
    kind: Ill
    since: float
    rows: list[int]
    canary: bool
    change: Floats
    rebased: bool = False
    well: int = 0
    moved: float = 0.0
    """How far its canary moved at first."""


@dataclass(slots=True)
class Upgrade:
    testbed: str
    level: int
    position: int
    told: int | None = None
    settled: bool = False
    tries: int = 0
    listed: Bools | None = None
    cleared: int = -1
    """The newest commit of a session that found no change of the code."""
    refits: int = 0
    key: int = 0


@dataclass(slots=True)
class Method:
    suite: int
    position: int
    settled: bool = False
    told: int | None = None
    key: int = 0


@dataclass(slots=True)
class Inquiry:
    """An open question to a session."""

    purpose: Purpose
    testbed: str
    base: int
    head: int
    pattern: Floats
    rows: Ints
    worker: int | None
    others_disagree: bool = False
    upgrade: Upgrade | None = None
    results: list[Floats] = field(default_factory=list)
    processes: int = 5
    lead: int = 0
    far: bool = False
    unrest: float = 1.0
    """Variance between the session's processes over the usual one."""


class FleetJudge:
    """State of one project's fleet. Feed runs, accepted changes and session results; read what is told."""

    def __init__(self, series: Sequence[FleetSeries], testbeds: Sequence[str]) -> None:
        self.series = list(series)
        self.size = len(self.series)
        names = list(dict.fromkeys(s.benchmark for s in series))
        suites = list(dict.fromkeys(s.suite for s in series))
        self.suites = suites
        self.benchmark: Ints = np.array([names.index(s.benchmark) for s in series], dtype=np.int64)
        self.suite: Ints = np.array([suites.index(s.suite) for s in series], dtype=np.int64)
        self.machine_bound: Bools = np.array([s.machine_bound and not s.exact for s in series])
        self.shown: Bools = np.array([s.role in (Role.GATE, Role.DERIVED) for s in series])
        self.gate: Bools = np.array([s.role is Role.GATE for s in series])
        self.rows = {name: TestbedRows(name, series) for name in testbeds}
        self.health: dict[tuple[str, int], Health] = {}
        self.before: dict[tuple[str, int], tuple[Symptoms, int]] = {}
        self.ill: dict[tuple[str, int], Illness] = {}
        self.was_ill: dict[tuple[str, int], tuple[Illness, int, float]] = {}
        self.canary_noise = CanaryNoise()
        self.suspicion: dict[tuple[str, int], int] = {}
        self.environments: dict[str, list[tuple[tuple[str, str], ...]]] = {name: [] for name in testbeds}
        self.worker_level: dict[tuple[str, int], int] = {}
        self.upgrades: list[Upgrade] = []
        self.versions: dict[str, str] = {}
        self.methods: list[Method] = []
        self.codes: list[Code] = []
        self.incidents: dict[int, Incident] = {}
        self.docs: set[int] = set()
        self.newest = 0
        self.pending: Inquiry | None = None
        self.told: list[Told] = []
        self.keys = 0
        self.drifting: dict[int, int] = {}
        self.drift_checked = 0
        self.muted: dict[int, int] = {}
        self.refuted: dict[int, int] = {}
        self.cleared: dict[int, int] = {}
        self.partner = self._partners()

    def _partners(self) -> Ints:
        """Per series the one that people look at in its benchmark, itself where it is one."""
        first = {int(b): i for i, b in reversed(list(enumerate(self.benchmark))) if self.gate[i] and self.machine_bound[i]}
        return np.array(
            [i if self.shown[i] or not self.machine_bound[i] else first.get(int(self.benchmark[i]), i) for i in range(self.size)],
            dtype=np.int64,
        )

    # --- what comes in

    def run(self, run: FleetRun) -> tuple[list[Told], Ask | None]:
        self.told = []
        rows = self.rows[run.testbed]
        if run.docs_only and run.position not in self.docs:
            self.docs.add(run.position)
            for code in self.codes:
                if code.place.commit == run.position:
                    self._relocate(code)
        self.newest = max(self.newest, run.position)
        level = self._level(run)
        row = rows.add(run, level)
        w = int(rows.worker[row])
        self._versions(run)
        self._examine(run, rows, row, w)
        if rows.n % 5 == 0:
            rows.learn()
        else:
            rows.learn_level(w)
        if rows.n % 8 == 0:
            rows.learn_noise()
        self._follow(rows)
        self._methods()
        for upgrade in self.upgrades:
            if upgrade.told is not None and upgrade.testbed == rows.name and upgrade.refits < 8:
                self._refit_upgrade(upgrade, rows)
        ask = self._scan(rows, w) if self.pending is None else None
        return self.told, ask

    def accept(self, position: int, testbeds: Sequence[str], series: Sequence[int]) -> list[Told]:
        """A person accepted a change: its level is the baseline. One that was not found is explained now."""
        self.told = []
        listed = np.zeros(self.size, dtype=bool)
        listed[list(series)] = True
        known = [c for c in self.codes if abs(c.place.commit - position) <= 6 and (c.listed & listed).any()]
        for code in known:
            code.open = False
        for name in testbeds:
            rows = self.rows[name]
            if any(name in c.shown for c in known):
                continue
            after = np.array([r for p, r in rows.order if p >= position and rows.usable[r]], dtype=np.int64)
            if len(after):
                mean, _ = rows.mean(after[-20:])
                rows.put(("accepted", self._key()), Shift(np.where(listed, mean, 0.0), from_position=position))
        return self.told

    def session(self, result: SessionResult | None) -> tuple[list[Told], Ask | None]:
        """The answer to what was asked; None when no session can be had."""
        self.told = []
        inquiry, self.pending = self.pending, None
        if inquiry is None:
            return self.told, None
        if result is None:
            self._refute(inquiry)
            return self.told, None
        known = np.zeros(self.size)
        for code in self.codes:
            if result.base < code.place.commit <= result.head and inquiry.testbed in code.shown:
                known += np.where(code.listed, code.change, 0.0)
        inquiry.results.append(result.change - known)
        rows = self.rows[inquiry.testbed]
        judged = self.machine_bound & (rows.process_variance > 0) & np.isfinite(result.spread)
        if judged.any():
            unrest = float(np.median(result.spread[judged] / rows.process_variance[judged]))
            inquiry.unrest = max(inquiry.unrest, unrest / 0.75)
        inquiry.processes = result.processes
        ask = self._decide(inquiry)
        return self.told, ask

    # --- environment and versions

    def _level(self, run: FleetRun) -> int:
        known = self.environments[run.testbed]
        fingerprint = tuple(sorted(run.environment.items()))
        if fingerprint not in known:
            known.append(fingerprint)
            if len(known) > 1:
                self.upgrades.append(Upgrade(run.testbed, len(known) - 1, run.position, key=self._key()))
        return known.index(fingerprint)

    def _versions(self, run: FleetRun) -> None:
        for suite, version in run.suite_version.items():
            if suite not in self.suites:
                continue
            usual = self.versions.setdefault(suite, version)
            if version == usual:
                continue
            number = self.suites.index(suite)
            bumps = [m for m in self.methods if m.suite == number]
            newest = bumps[-1] if bumps else None
            if self._newer(version, usual):
                self.versions[suite] = version
                self.methods.append(Method(number, run.position, key=self._key()))
            elif newest is not None and newest.told is None:
                newest.position = max(newest.position, run.position + 1)
        for method in self.methods:
            name = self.suites[method.suite]
            if run.suite_version.get(name) == self.versions[name] and run.position < method.position:
                method.position = run.position

    @staticmethod
    def _newer(a: str, b: str) -> bool:
        def parts(v: str) -> list[tuple[int, str]]:
            return [(int(p), "") if p.isdigit() else (-1, p) for p in v.split(".")]

        return parts(a) > parts(b)

    def _key(self) -> int:
        self.keys += 1
        return self.keys

    # --- machines

    def _examine(self, run: FleetRun, rows: TestbedRows, row: int, w: int) -> None:
        key = (run.testbed, w)
        health = self.health.setdefault(key, Health(self.canary_noise))
        level = int(rows.level[row])
        if level > self.worker_level.get(key, 0):
            if key not in self.ill:
                health.new_environment(run)
            self.worker_level[key] = level
        slower = 0.0
        if rows.ready[w]:
            residual = rows.clean[row] - rows.base[w]
            bound = self.machine_bound & np.isfinite(residual)
            for method in self.methods:
                if not method.settled:
                    bound &= self.suite != method.suite
            if bound.any():
                slow = residual > np.maximum(MOVED, 1.5 * rows.sigma)
                slower = float((slow & bound).sum() / bound.sum())
        if self._unsettled(rows) is not None and level >= self._unsettled(rows).level:
            slower = 0.0
        symptoms = health.examine(run, slower)
        illness = self.ill.get(key)
        if illness is None and key in self.was_ill and run.timestamp < self.was_ill[key][2]:
            # A result that arrives late, from the time in which the worker was ill or before.
            rows.usable[row] = run.timestamp < self.was_ill[key][0].since
            return
        if illness is not None and run.timestamp < illness.since:
            return
        if illness is not None:
            self._while_ill(run, rows, row, w, illness, symptoms)
            return
        previous, previous_row = self.before.get(key, (None, -1))
        earlier = previous.points if previous is not None else 0.0
        if symptoms.points >= ENOUGH or (symptoms.points >= 1 and earlier >= 1):
            # A passing dip of a canary just before is no part of it: the series did not notice.
            start = [previous_row] if previous is not None and (previous.slowed or symptoms.points < ENOUGH) else []
            self.before.pop(key, None)
            self._fall_ill(rows, w, [*start, row], symptoms.kind, canary=True, moved=symptoms.moved)
        elif symptoms.points >= 1:
            self.before[key] = (symptoms, row)
            rows.usable[row] = slower < 0.1
        else:
            if previous is not None:
                rows.usable[previous_row] = True
                self.before.pop(key)
            health.learn(run)

    def _fall_ill(
        self, rows: TestbedRows, w: int, sick: list[int], kind: Ill, *, canary: bool, moved: float = 0.0
    ) -> None:
        key = (rows.name, w)
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
        incident = self._open(
            IncidentKind.INFRA,
            CauseName.HARDWARE,
            self._slowed(rows, sick, kind),
            (rows.name,),
            Place(first, first, first),
            change,
            worker=rows.workers[w],
        )
        self.ill[key] = Illness(incident, kind, since, list(sick), canary, change, moved=moved)

    def _slowed(self, rows: TestbedRows, sick: list[int], kind: Ill) -> Bools:
        if not rows.ready[int(rows.worker[sick[0]])]:
            return self.machine_bound
        mean, error = rows.mean(np.array(sick, dtype=np.int64))
        if kind is Ill.BUSY:
            listed = self.machine_bound & (mean > 0.004)
        else:
            listed = self.machine_bound & (mean >= 0.012) & (mean >= 2.5 * error)
        return listed if listed.any() else self.machine_bound

    def _while_ill(
        self, run: FleetRun, rows: TestbedRows, row: int, w: int, illness: Illness, symptoms: Symptoms
    ) -> None:
        key = (rows.name, w)
        if illness.canary:
            well = symptoms.points < 1 and symptoms.moved < 0.4 * illness.moved
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
            if well and information[0] < 30 and illness.well == 0:
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
            self._close(illness.incident, run.position)
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
        if len(illness.rows) <= 8:
            listed = self._slowed(rows, illness.rows, illness.kind)
            self._change(illness.incident, series=tuple(np.flatnonzero(listed)))
        if len(illness.rows) >= 8 and illness.kind is Ill.SLOW and self._steady(rows, illness):
            illness.rebased = True
            illness.change = np.where(self.machine_bound, illness.change, 0.0)
            rows.put(
                ("machine", illness.incident),
                Shift(illness.change, worker=w, from_stamp=illness.since),
            )
            rows.usable[illness.rows] = True

    def _steady(self, rows: TestbedRows, illness: Illness) -> bool:
        sick = np.array(illness.rows[-5:], dtype=np.int64)
        picked = channels(np.where(self.machine_bound, illness.change, 0.0), rows.sigma**2, self.benchmark)
        if not len(picked):
            return False
        share, _ = share_of(rows.tail(sick), illness.change, picked)
        return bool(np.abs(share - 1).max() < 0.35)

    # --- the way of measuring

    def _methods(self) -> None:
        for method in self.methods:
            if method.settled:
                continue
            total, weight, count = np.zeros(self.size), np.zeros(self.size), 0
            for rows in self.rows.values():
                after = [r for p, r in rows.order[-40:] if p >= method.position and rows.usable[r]]
                after = [r for r in after if rows.ready[rows.worker[r]]]
                if after:
                    mean, error = rows.mean(np.array(after, dtype=np.int64))
                    good = np.isfinite(error)
                    total[good] += mean[good] / error[good] ** 2
                    weight[good] += 1 / error[good] ** 2
                    count += len(after)
            if count < 2:
                continue
            change = total / np.maximum(weight, 1e-9)
            z = change * np.sqrt(weight)
            own = (self.suite == method.suite) & self.machine_bound
            listed = own & (np.abs(change) >= 0.015) & (np.abs(z) >= 3.5)
            if (listed & self.shown & (np.abs(change) >= TELLS) & (np.abs(z) >= 5)).any():
                place = Place(method.position, method.position, method.position)
                if method.told is None:
                    method.told = self._open(
                        IncidentKind.METHOD, CauseName.METHOD, listed, tuple(self.rows), place, change
                    )
            if method.told is not None:
                self._change(method.told, series=tuple(np.flatnonzero(listed)))
                for rows in self.rows.values():
                    rows.put(
                        ("method", method.key),
                        Shift(np.where(listed, change, 0.0), from_position=method.position),
                    )
                method.settled = True
            elif count >= 12:
                method.settled = True

    # --- scanning

    def _scan(self, rows: TestbedRows, w: int) -> Ask | None:
        if rows.n < 20:
            return None
        watched = np.ones(self.size, dtype=bool)
        for method in self.methods:
            if not method.settled:
                watched &= self.suite != method.suite
        muted = [b for b, until in self.muted.items() if until >= self.newest]
        watched &= ~np.isin(self.benchmark, muted)
        upgrade = self._unsettled(rows)
        if upgrade is not None:
            post = np.array([r for _, r in rows.order[-30:] if rows.level[r] >= upgrade.level and rows.usable[r]
                             and rows.ready[rows.worker[r]]], dtype=np.int64)
            if len(post) >= 25:
                upgrade.settled = True
            elif len(post) >= 2:
                found = newest_change(rows.tail(np.sort(post)[-8:]), self.machine_bound, watched, self.partner)
                if found is not None and len(found.rows) >= min(len(post), 8) - 1:
                    if not self._absorb(rows, found):
                        if upgrade.cleared >= int(rows.position[found.rows].max()) - 10:
                            self._tell_upgrade(upgrade, rows)
                            return None
                        return self._ask_about(rows, found, Purpose.UPGRADE, upgrade=upgrade)
        found = newest_change(rows.tail(rows.by_position(TAIL)), self.machine_bound, watched, self.partner)
        own = newest_change(rows.tail(rows.of_worker(w, WORKER_TAIL)), self.machine_bound, watched, self.partner) if rows.ready[w] else None
        if own is not None and (found is None or own.strength > 1.3 * found.strength):
            found = own
        if found is None:
            return self._drift_scan(rows)
        if self._absorb(rows, found):
            return None
        late = upgrade if upgrade is not None and (rows.level[found.rows] >= upgrade.level).all() else None
        return self._ask_about(rows, found, Purpose.UPGRADE if late else Purpose.CHANGE, upgrade=late)

    def _unsettled(self, rows: TestbedRows) -> Upgrade | None:
        open_ones = [u for u in self.upgrades if u.testbed == rows.name and not u.settled]
        return open_ones[-1] if open_ones else None

    def _ask_about(
        self, rows: TestbedRows, found: Found, purpose: Purpose, upgrade: Upgrade | None = None
    ) -> Ask | None:
        pattern = pattern_of(found, self.machine_bound)
        if self._ramps(found.lead) and purpose is Purpose.CHANGE:
            return self._ask_drift(rows, found.lead, pattern)
        positions = rows.position[found.rows]
        first, head = int(positions.min()), int(positions.max())
        if upgrade is not None:
            first = min(first, upgrade.position)
        cleared = self.cleared.get(int(self.benchmark[found.lead]), -1)
        workers = set(rows.worker[found.rows].tolist())
        if upgrade is None and cleared >= first and len(workers) > 1:
            rows.excused[np.ix_(found.rows, np.flatnonzero(pattern))] = True
            return None
        only = workers.pop() if len(workers) == 1 else None
        disagree = False
        if only is not None and len(rows.workers) > 1:
            others = np.array([r for p, r in rows.order[-25:] if p >= first and rows.worker[r] != only
                               and rows.usable[r] and rows.ready[rows.worker[r]]], dtype=np.int64)
            if len(others):
                picked = channels(pattern, rows.sigma**2, self.benchmark)
                share, information = share_of(rows.tail(others), pattern, picked)
                total = information.sum()
                disagree = bool(total > 8 and (share * information).sum() / total < 0.4)
        self.pending = Inquiry(
            purpose, rows.name, max(0, first - 8), max(head, 0), pattern, found.rows, only, disagree, upgrade,
            lead=found.lead,
        )
        return self._ask(self.pending)

    def _ask(self, inquiry: Inquiry) -> Ask:
        rows = self.rows[inquiry.testbed]
        avoid = None if inquiry.worker is None else rows.workers[inquiry.worker]
        if avoid is None:
            avoid = next((rows.workers[w] for name, w in self.ill if name == rows.name), None)
        return Ask(
            testbed=inquiry.testbed, base=inquiry.base, head=inquiry.head, series=tuple(range(self.size)), avoid=avoid
        )

    def _absorb(self, rows: TestbedRows, found: Found) -> bool:
        """True when the change is one that is known: on a further testbed, or what its first estimate left over."""
        pattern = pattern_of(found, self.machine_bound)
        moved = pattern != 0
        first = int(rows.position[found.rows].min())
        for code in self.codes:
            if code.drift or not (code.listed & moved).any():
                continue
            if rows.name not in code.shown and abs(first - code.place.commit) <= 8 and self._shows(code, rows, first):
                self._attach(code, rows)
                return True
        for code in self.codes:
            if rows.name in code.shown and code.listed[found.lead]:
                near = abs(first - code.place.commit) <= 6
                small = abs(found.change[found.lead]) < 0.6 * abs(code.change[found.lead])
                if near and small:
                    self._refit(code, rows)
                    return True
        if self.drifting.get(int(self.benchmark[found.lead]), -1) >= self.newest and abs(found.change[found.lead]) < 0.09:
            listed = moved & (self.benchmark == self.benchmark[found.lead])
            rows.put(("absorbed", self._key()), Shift(np.where(listed, found.change, 0.0), from_position=first))
            return True
        return False

    # --- deciding

    def _session_error(self, inquiry: Inquiry) -> Floats:
        rows = self.rows[inquiry.testbed]
        variance = rows.process_variance * 2.3 * inquiry.unrest / inquiry.processes / len(inquiry.results)
        floor = np.where(self.machine_bound, SESSION_NOISE, 0.0005)
        error: Floats = np.maximum(np.sqrt(variance), floor)
        return error

    def _decide(self, inquiry: Inquiry) -> Ask | None:
        rows = self.rows[inquiry.testbed]
        results = np.array(inquiry.results)
        change = np.nan_to_num(results.mean(axis=0))
        error = self._session_error(inquiry)
        z = change / error
        if inquiry.purpose is Purpose.DRIFT:
            self._decide_drift(inquiry, change, z)
            return None
        moved = (np.abs(z) >= 4.5) & (np.abs(change) >= 0.03)
        moved |= ~self.machine_bound & (np.abs(z) >= 8) & (np.abs(change) >= 0.015)
        remaining = np.where(moved, 0.0, inquiry.pattern)
        told = False
        if (moved & self.shown).any():
            if self._small(moved, change, error):
                self._refute(inquiry)
                return self._drift_scan(rows, eager=True)
            self._tell_code(inquiry, change, error)
            told = True
        else:
            picked = channels(inquiry.pattern, error**2, self.benchmark)
            weight = inquiry.pattern[picked] / error[picked] ** 2
            information = float(weight @ inquiry.pattern[picked])
            share = float(weight @ change[picked]) / information
            verdict = _lean(share, information)
            if -1.5 < verdict < 2.5 and len(inquiry.results) < 2:
                self.pending = inquiry
                return self._ask(inquiry)
            if verdict > 1.0:
                if self._small(inquiry.pattern != 0, change, error):
                    self._refute(inquiry)
                    return self._drift_scan(rows, eager=True)
                self._tell_code(inquiry, change, error)
                told = True
        if told:
            self._after_code(inquiry, rows)
            return None
        return self._not_code(inquiry, rows)

    def _small(self, listed: Bools, change: Floats, error: Floats) -> bool:
        """True when the code changed, but by less than anyone is told of: perhaps a part of a drift."""
        pool = listed & self.shown
        return not (pool & (np.abs(change) + 0.8 * error >= 0.044)).any()

    def _after_code(self, inquiry: Inquiry, rows: TestbedRows) -> None:
        if inquiry.upgrade is not None:
            self._tell_upgrade(inquiry.upgrade, rows)

    def _not_code(self, inquiry: Inquiry, rows: TestbedRows) -> Ask | None:
        if inquiry.upgrade is not None:
            inquiry.upgrade.cleared = inquiry.head
            if self._tell_upgrade(inquiry.upgrade, rows):
                return None
        if inquiry.worker is not None and len(rows.workers) > 1 and inquiry.others_disagree:
            key = (rows.name, inquiry.worker)
            self.suspicion[key] = self.suspicion.get(key, 0) + 1
            information = self._information(rows, inquiry)
            sick = self._sick_rows(rows, inquiry)
            upgrade = self._unsettled(rows)
            upgraded = upgrade is not None and bool((rows.level[sick] >= upgrade.level).all())
            several = len(np.unique(self.benchmark[inquiry.pattern != 0])) > 1
            if (inquiry.pattern[inquiry.lead] > 0 and (information > 60 or self.suspicion[key] >= 2)
                    and key not in self.ill and len(sick) > 1 and several and not upgraded):
                self.suspicion.pop(key)
                self._fall_ill(rows, inquiry.worker, sick, Ill.SLOW, canary=False)
                return None
        self._refute(inquiry)
        return self._drift_scan(rows, eager=True)

    def _sick_rows(self, rows: TestbedRows, inquiry: Inquiry) -> list[int]:
        """The worker's newest rows in a row that show the pattern."""
        assert inquiry.worker is not None
        own = rows.of_worker(inquiry.worker, 12)
        picked = channels(inquiry.pattern, rows.sigma**2, self.benchmark)
        share, information = share_of(rows.tail(own), inquiry.pattern, picked)
        evidence = np.clip(0.6 * information * (np.clip(share, -1, 2) - 0.5), -6, 6)
        total = np.cumsum(evidence[::-1])
        sick = [int(r) for r in own[len(own) - 1 - int(np.argmax(total)) :]]
        while sick and rows.docs[sick[0]]:
            # A bad run of a commit that changed no code was bad luck, or the beginning: the next one tells.
            sick.pop(0)
        return sick

    def _information(self, rows: TestbedRows, inquiry: Inquiry) -> float:
        picked = channels(inquiry.pattern, rows.sigma**2, self.benchmark)
        share, information = share_of(rows.tail(inquiry.rows), inquiry.pattern, picked)
        return float((information * np.clip(share, 0, 1.5)).sum())

    def _refute(self, inquiry: Inquiry) -> None:
        rows = self.rows[inquiry.testbed]
        moved = inquiry.pattern != 0
        upgrade = self._unsettled(rows)
        excused = inquiry.rows if upgrade is None else inquiry.rows[rows.level[inquiry.rows] < upgrade.level]
        rows.excused[np.ix_(excused, np.flatnonzero(moved))] = True
        if inquiry.results:
            for number in set(self.benchmark[moved].tolist()):
                self.cleared[number] = inquiry.head
            lead = int(self.benchmark[inquiry.lead])
            again = self.newest - self.refuted.get(lead, -100) < 30
            self.refuted[lead] = self.newest
            if inquiry.worker is None or again:
                self.muted[lead] = self.newest + (9 if again else 4)
        if inquiry.upgrade is not None:
            inquiry.upgrade.tries += 1
            inquiry.upgrade.settled = inquiry.upgrade.tries >= 3

    def _tell_upgrade(self, upgrade: Upgrade, rows: TestbedRows) -> bool:
        post = np.array([r for _, r in rows.order if rows.level[r] >= upgrade.level and rows.usable[r]
                         and rows.ready[rows.worker[r]]], dtype=np.int64)
        if len(post) < 2:
            return False
        mean, error = rows.mean(np.sort(post)[-20:])
        z = mean / error
        listed = self.machine_bound & (np.abs(mean) >= 0.015) & (np.abs(z) >= 3.5)
        before = np.array([r for _, r in rows.order[-80:] if rows.level[r] < upgrade.level and rows.usable[r]
                           and rows.ready[rows.worker[r]]], dtype=np.int64)[-8:]
        if len(before) >= 3:
            # What was as bad before the upgrade is not its doing.
            earlier, error = rows.mean(before)
            as_bad = (earlier * np.sign(mean) > 0.45 * np.abs(mean)) & (np.abs(earlier) > 2 * error)
            listed &= ~self._with_moved(as_bad & self.shown)
        clear = self._with_moved(listed & (np.abs(mean) >= TELLS) & (np.abs(z) >= 4.2))
        if not (clear & self.shown & (np.abs(mean) >= 0.022) & (np.abs(z) >= 2)).any():
            return False
        place = Place(upgrade.position, upgrade.position, upgrade.position)
        upgrade.told = self._open(IncidentKind.ENVIRONMENT, CauseName.ENVIRONMENT, listed, (rows.name,), place, mean)
        upgrade.settled = True
        upgrade.listed = listed
        rows.put(("environment", upgrade.key), Shift(np.where(listed, mean, 0.0), from_level=upgrade.level))
        return True

    def _refit_upgrade(self, upgrade: Upgrade, rows: TestbedRows) -> None:
        """What the upgrade moved, known better with every run since."""
        post = np.sort(np.array([r for _, r in rows.order if rows.level[r] >= upgrade.level and rows.usable[r]
                                 and rows.ready[rows.worker[r]]], dtype=np.int64))
        if len(post) < (3, 4, 6, 8, 11, 15, 20, 26)[upgrade.refits]:
            return
        upgrade.refits += 1
        put = rows.shifts.get(("environment", upgrade.key))
        assert put is not None and upgrade.listed is not None and upgrade.told is not None
        mean, error = rows.mean(post if len(post) < 6 else post[:-2])
        total = put.delta + mean
        z = total / error
        listed = self.machine_bound & (np.abs(total) >= 0.015) & (np.abs(z) >= 3.5)
        listed |= self._with_moved(listed & self.shown) & self.machine_bound & (np.abs(total) >= 0.02) & (np.abs(z) >= 2.5)
        if upgrade.refits > 3:
            # By now a new change may be among the rows: only what was moved from the start is followed.
            listed &= upgrade.listed | (np.abs(rows.mean(post[:6])[0] + put.delta) >= 0.5 * np.abs(total))
        if not listed.any():
            return
        upgrade.listed = listed
        rows.put(("environment", upgrade.key), replace(put, delta=np.where(listed, total, 0.0)))
        self._change(upgrade.told, series=tuple(np.flatnonzero(listed)))

    # --- code

    def _tell_code(self, inquiry: Inquiry, change: Floats, error: Floats) -> None:
        rows = self.rows[inquiry.testbed]
        z = change / error
        clear = (np.abs(z) >= 4.0) & (np.abs(change) >= MOVED)
        clear |= ~self.machine_bound & (np.abs(z) >= 8) & (np.abs(change) >= 0.008)
        expected = (inquiry.pattern != 0) & (np.abs(z) >= 1.5) & (np.abs(change) >= MOVED)
        lead = self._lead(change, clear if clear.any() else expected)
        sign = np.sign(change[lead])
        benches = set(self.benchmark[clear].tolist())
        related = np.isin(self.benchmark, list(benches)) & (np.abs(z) >= 2.5) & (np.abs(change) >= MOVED)
        listed = (clear | expected | related) & (np.sign(change) == sign)
        getting_worse = [b for b, until in self.drifting.items() if until >= self.newest]
        listed &= ~np.isin(self.benchmark, getting_worse) | (self.benchmark == self.benchmark[inquiry.lead])
        listed &= self._with_shown(listed & (np.abs(change) + 0.5 * error >= 0.03))
        listed &= self._stepped(inquiry, rows, change, listed)
        if not listed.any():
            listed = inquiry.pattern != 0
        code = Code(0, change, error, listed, Place(0, 0, 0))
        code.place = self._place(code, [rows], inquiry)
        same = [c for c in self.codes if not c.drift and self._same(c, code)]
        if same:
            known = same[-1]
            grown = known.listed | listed
            known.change = np.where(listed & ~known.listed, change, known.change)
            known.listed = grown
            if rows.name not in known.shown:
                self._attach(known, rows)
            else:
                self._refit(known, rows)
            self._change(known.incident, series=tuple(np.flatnonzero(known.listed)))
            return
        drifting = self._continues(code)
        if drifting is not None:
            code.incident, code.drift = drifting.incident, True
            self.codes.append(code)
            for bed in self.rows.values():
                code.shown[bed.name] = bed.n
                if self._shows(code, bed):
                    bed.put(("drift", self._key()), Shift(np.where(listed, change, 0.0), from_position=code.place.commit))
            for number in np.unique(self.benchmark[listed]):
                self.drifting[int(number)] = self.newest + 60
            self._change(code.incident, drift=True, range_end=max(self.incidents[code.incident].range_end, drifting.place.last))
            return
        kind = IncidentKind.REGRESSION if sign > 0 else IncidentKind.IMPROVEMENT
        code.incident = self._open(kind, CauseName.CODE, listed, (rows.name,), code.place, change)
        self.codes.append(code)
        self._attach(code, rows)
        for other in self.rows.values():
            if other is not rows and self._shows(code, other):
                self._attach(code, other)
        if sign < 0:
            self._close_fixed(code)

    def _stepped(self, inquiry: Inquiry, rows: TestbedRows, change: Floats, listed: Bools) -> Bools:
        """False for benchmarks beside the one asked about whose runs before the onset were as bad: they drift."""
        positions = rows.position[inquiry.rows]
        first = int(positions.min())
        before = np.array([r for p, r in rows.order[-60:] if first - 10 <= p < first and rows.usable[r]
                           and rows.ready[rows.worker[r]]], dtype=np.int64)
        if len(before) < 3:
            return np.ones(self.size, dtype=bool)
        new, new_error = rows.mean(inquiry.rows)
        old, old_error = rows.mean(before)
        step, error = new - old, np.hypot(new_error, old_error)
        flat = listed & (np.abs(change) > 0.01) & (step * np.sign(change) < 0.55 * np.abs(change))
        flat &= (np.abs(change) - step * np.sign(change)) > 2.0 * error
        drop = self._with_moved(flat & self.shown) & (self.benchmark != self.benchmark[inquiry.lead])
        return ~drop

    def _with_moved(self, moved: Bools) -> Bools:
        """All series of the benchmarks in which something moved."""
        hit: Bools = np.isin(self.benchmark, np.unique(self.benchmark[moved]))
        return hit

    def _with_shown(self, moved: Bools) -> Bools:
        """Series of benchmarks in which something that people look at moved: phases alone are nobody's news."""
        benchmarks = np.unique(self.benchmark[moved & self.shown])
        hit: Bools = np.isin(self.benchmark, benchmarks)
        return hit

    def _lead(self, change: Floats, listed: Bools) -> int:
        pool = listed & self.gate if (listed & self.gate).any() else listed if listed.any() else self.gate
        return int(np.argmax(np.where(pool, np.abs(change), -1.0)))

    def _continues(self, code: Code) -> Code | None:
        """A small loss after another of the same series: they are getting worse step by step, which is one drift."""
        for known in reversed(self.codes):
            both, either = (known.listed & code.listed).sum(), (known.listed | code.listed).sum()
            lead, own = self._lead(known.change, known.listed), self._lead(code.change, code.listed)
            if (known.open and both >= 0.5 * either and 0 < known.change[lead] < 0.09 and 0 < code.change[own] < 0.09
                    and 3 < code.place.commit - known.place.commit <= 60 and self.machine_bound[lead]):
                return known
        return None

    def _same(self, a: Code, b: Code) -> bool:
        if not np.sign(a.change[self._lead(a.change, a.listed)] * b.change[self._lead(b.change, b.listed)]) > 0:
            return False
        both = a.listed & b.listed
        if both.any():
            return abs(a.place.commit - b.place.commit) <= 5
        overlap = a.place.first <= b.place.last and b.place.first <= a.place.last
        return overlap and abs(a.place.commit - b.place.commit) <= 2

    def _place(self, code: Code, beds: Sequence[TestbedRows], inquiry: Inquiry | None = None) -> Place:
        """Where a change began, from all rows of the testbeds that show it."""
        pattern = np.where(code.listed, code.change, 0.0)
        positions, evidence = [], []
        low, high = code.place.commit - 25, code.place.commit + 25
        if inquiry is not None:
            low, high = inquiry.base - 6, inquiry.head
        for rows in beds:
            near = np.array([r for p, r in rows.order[-80:] if low - 8 <= p <= high + 12 and rows.usable[r]
                             and rows.ready[rows.worker[r]]], dtype=np.int64)
            if not len(near):
                continue
            tail = rows.tail(near)
            put = rows.shifts.get(("code", code.incident)) if code.incident else None
            residual = rows.clean[near] - rows.base[rows.worker[near]]
            mask = np.isfinite(residual)
            residual = np.where(mask, residual, 0.0)
            if put is not None and put.from_position is not None:
                residual = residual + (rows.position[near] >= put.from_position)[:, None] * put.delta
            upgrade = next((u for u in self.upgrades if u.testbed == rows.name and not u.settled), None)
            tail = replace(tail, residual=residual * mask, mask=mask)
            picked = channels(pattern, rows.sigma**2, self.benchmark)
            share, information = share_of(tail, pattern, picked)
            if upgrade is not None and inquiry is not None:
                post = rows.level[near] >= upgrade.level
                if post.any() and share[post].mean() > 1.5:
                    share = np.where(post, share - (share[post].mean() - 1), share)
            positions.append(rows.position[near])
            evidence.append(0.6 * information * (np.clip(share, -1.0, 2.0) - 0.5))
        if not positions:
            return code.place
        at = np.concatenate(positions)
        return locate(at, np.concatenate(evidence), frozenset(self.docs), max(1, low), max(low + 1, min(high, int(at.max()))))

    def _shows(self, code: Code, rows: TestbedRows, since: int | None = None) -> bool:
        """Whether the rows of a testbed since the onset show the change."""
        start = code.place.commit if since is None else min(since, code.place.commit)
        after = np.array([r for p, r in rows.order[-40:] if p >= start and rows.usable[r]
                          and rows.ready[rows.worker[r]]], dtype=np.int64)[-8:]
        if not len(after):
            return False
        pattern = np.where(code.listed, code.change, 0.0)
        picked = channels(pattern, rows.sigma**2, self.benchmark)
        share, information = share_of(rows.tail(after), pattern, picked)
        total = 0.6 * float(information.sum())
        if total < 16 or (len(after) < 2 and total < 60):
            return False
        mean = float((share * information).sum() / information.sum())
        return 0.55 < mean < 2.0 and mean * total**0.5 > 4

    def _attach(self, code: Code, rows: TestbedRows) -> None:
        code.shown[rows.name] = rows.n
        rows.put(("code", code.incident), Shift(np.where(code.listed, code.change, 0.0), from_position=code.place.commit))
        self._relocate(code)
        self._refit(code, rows)

    def _not_docs(self, position: int) -> int:
        return next((p for p in (*range(position, position + 6), *range(position, 0, -1)) if p not in self.docs), position)

    def _relocate(self, code: Code) -> None:
        if code.drift:
            code.place = replace(code.place, commit=self._not_docs(code.place.commit))
            self._change(code.incident, first_bad=code.place.commit)
            return
        place = self._place(code, [self.rows[name] for name in code.shown])
        code.place = place
        for name in code.shown:
            put = self.rows[name].shifts.get(("code", code.incident))
            if put is not None and put.from_position != place.commit:
                self.rows[name].put(("code", code.incident), replace(put, from_position=place.commit))
        self._change(
            code.incident,
            first_bad=place.commit,
            range_start=place.first,
            range_end=place.last,
            testbeds=tuple(sorted(code.shown)),
        )

    def _refit(self, code: Code, rows: TestbedRows) -> None:
        """The size of the change on a testbed, from the session and the runs since, by their precision."""
        put = rows.shifts.get(("code", code.incident))
        after = np.array([r for p, r in rows.order if p >= code.place.commit and rows.usable[r]
                          and rows.ready[rows.worker[r]]], dtype=np.int64)[:25]
        if put is None or not len(after):
            return
        mean, error = rows.mean(after)
        total = put.delta + mean
        weight = np.where(np.isfinite(error), 1 / np.maximum(error, 1e-4) ** 2, 0.0)
        own = 1 / code.error**2
        best = (code.change * own + np.where(weight > 0, total, 0.0) * weight) / (own + weight)
        sure = 1 / np.sqrt(own + weight)
        sign = np.sign(code.change[self._lead(code.change, code.listed)])
        sides = np.isin(self.benchmark, np.unique(self.benchmark[code.listed]))
        add = (best * sign >= 0.018) & (best * sign >= np.where(sides, 3.0, 4.5) * sure) 
        add &= code.change * sign >= np.where(sides & (not self._unsettled_near(rows)), 1.5, 2.5) * code.error
        add &= self._with_shown(code.listed | (add & (best * sign >= 0.03)))
        drop = (best * sign < 0.010) & (sure < 0.007)
        listed = (code.listed | add) & ~drop
        if not (listed & self.shown).any():
            listed = code.listed
        rows.put(("code", code.incident), replace(put, delta=np.where(listed, best, 0.0)))
        if (listed != code.listed).any():
            code.listed = listed
            self._change(code.incident, series=tuple(np.flatnonzero(listed)))

    def _unsettled_near(self, rows: TestbedRows) -> bool:
        return any(u.testbed == rows.name and self.newest - u.position < 30 for u in self.upgrades)

    def _follow(self, rows: TestbedRows) -> None:
        """Later results: the change may show on this testbed too, and is known better with every run."""
        for code in self.codes:
            if self.newest - code.place.commit > GROWS_FOR or code.drift:
                continue
            if rows.name not in code.shown:
                if self._shows(code, rows):
                    self._attach(code, rows)
            elif rows.n - code.shown[rows.name] in (3, 6, 10, 15, 22):
                self._relocate(code)
                self._refit(code, rows)

    def _close_fixed(self, fix: Code) -> None:
        for code in self.codes:
            if code is fix or not code.open or code.change[self._lead(code.change, code.listed)] < 0:
                continue
            both = code.listed & fix.listed
            if not both.any() or both.sum() < 0.5 * code.listed.sum():
                continue
            left = float((code.change + fix.change)[both] @ code.change[both] / (code.change[both] @ code.change[both]))
            if left < 0.4 and fix.place.commit > code.place.commit:
                code.open = False
                self._close(code.incident, fix.place.commit)

    # --- drift

    def _drift_scan(self, rows: TestbedRows, *, eager: bool = False) -> Ask | None:
        if self.pending is not None or (not eager and rows.n - self.drift_checked < 4):
            return None
        self.drift_checked = rows.n
        total, weight = np.zeros(self.size), np.zeros(self.size)
        now = self.newest
        for bed in self.rows.values():
            near = np.array([(p, r) for p, r in bed.order if bed.usable[r] and bed.ready[bed.worker[r]]], dtype=np.int64)
            if len(near) < 30:
                continue
            recent, past = near[near[:, 0] > now - 14, 1], near[(near[:, 0] < now - 55) & (near[:, 0] > now - 120), 1]
            if len(recent) < 4 or len(past) < 8:
                continue
            new, new_error = bed.mean(recent)
            old, old_error = bed.mean(past)
            variance = new_error**2 + old_error**2
            good = np.isfinite(variance)
            total[good] += (new - old)[good] / variance[good]
            weight[good] += 1 / variance[good]
        change = total / np.maximum(weight, 1e-9)
        z = change * np.sqrt(weight)
        free = np.array([self.drifting.get(int(b), -1) < now for b in self.benchmark])
        hit = self.gate & self.machine_bound & (change >= (0.03 if eager else 0.042)) & (z >= (4 if eager else 6)) & free
        if not hit.any():
            return None
        lead = int(np.argmax(np.where(hit, z, 0)))
        pattern = np.where((self.benchmark == self.benchmark[lead]) & (change > 0.02) & (z > 3), change, 0.0)
        return self._ask_drift(rows, lead, pattern)

    def _ask_drift(self, rows: TestbedRows, lead: int, pattern: Floats) -> Ask:
        now = self.newest
        self.pending = Inquiry(
            Purpose.DRIFT, rows.name, max(0, now - 85), now, pattern, rows.by_position(6), None, lead=lead, far=True
        )
        return self._ask(self.pending)

    def _window(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Mean residual of all testbeds between two positions, and its variance."""
        total, weight = np.zeros(self.size), np.zeros(self.size)
        for bed in self.rows.values():
            near = [r for p, r in bed.order if first <= p <= last and bed.usable[r] and bed.ready[bed.worker[r]]]
            if near:
                mean, error = bed.mean(np.array(near, dtype=np.int64))
                good = np.isfinite(error)
                total[good] += mean[good] / error[good] ** 2
                weight[good] += 1 / error[good] ** 2
        return total / np.maximum(weight, 1e-9), 1 / np.maximum(weight, 1e-9)

    def _ramps(self, lead: int) -> bool:
        """Whether a series has been getting worse for long, rather than at one commit."""
        now = self.newest
        if now < 80 or self.drifting.get(int(self.benchmark[lead]), -1) >= now:
            return False
        old, old_variance = self._window(now - 110, now - 50)
        middle, middle_variance = self._window(now - 36, now - 14)
        new, _ = self._window(now - 6, now)
        rise, part = new[lead] - old[lead], middle[lead] - old[lead]
        z = part / np.sqrt(old_variance[lead] + middle_variance[lead])
        return bool(rise >= 0.03 and part >= 0.25 * rise and z >= 3.5)

    def _decide_drift(self, inquiry: Inquiry, change: Floats, z: Floats) -> None:
        lead = inquiry.lead
        if change[lead] < 0.042 or z[lead] < 3:
            if change[lead] > 0.015:
                self.muted[int(self.benchmark[lead])] = self.newest + 8
            self.drifting[int(self.benchmark[lead])] = self.newest + 8
            return
        listed = (self.benchmark == self.benchmark[lead]) & (change >= MOVED) & (z >= 2.5)
        listed[lead] = True
        now = self.newest
        place = Place(self._not_docs(max(1, now - 20)), max(1, inquiry.base - 10), now)
        self.drifting[int(self.benchmark[lead])] = now + 110
        earlier = [
            c for c in self.codes
            if c.open and c.listed[lead] and 0 < c.change[lead] < (0.3 if c.drift else 0.075) and now - c.place.commit < 100
        ]
        if earlier:
            incident = earlier[-1].incident
            self._change(incident, testbeds=tuple(self.rows), drift=True, range_start=min(place.first, earlier[-1].place.first))
        else:
            incident = self._open(
                IncidentKind.REGRESSION, CauseName.CODE, listed, tuple(self.rows), place, change, drift=True
            )
        code = Code(incident, change, np.maximum(change / np.maximum(z, 1e-9), 1e-3), listed, place, drift=True)
        self.codes.append(code)
        for bed in self.rows.values():
            code.shown[bed.name] = bed.n
            near = np.array([r for p, r in bed.order if p >= now - 14 and bed.usable[r] and bed.ready[bed.worker[r]]], dtype=np.int64)
            if len(near):
                mean, _ = bed.mean(near)
                bed.put(("drift", self._key()), Shift(np.where(listed, mean, 0.0), from_position=now - 14))

    # --- telling

    def _open(
        self, kind: IncidentKind, cause: CauseName, listed: Bools, testbeds: tuple[str, ...], place: Place,
        change: Floats, *, worker: str | None = None, drift: bool = False,
    ) -> int:
        number = self._key()
        lead = self._lead(change, listed)
        self.incidents[number] = Incident(
            id=number, kind=kind, cause=cause, series=tuple(np.flatnonzero(listed).tolist()), testbeds=testbeds,
            worker=worker, first_bad=place.commit, range_start=place.first, range_end=place.last,
            magnitude=float(change[lead]), drift=drift,
        )
        self.told.append(Told(action=Action.OPEN, incident=self.incidents[number]))
        return number

    def _change(self, number: int, **what: object) -> None:
        if "series" in what:
            what["series"] = tuple(int(s) for s in what["series"])  # type: ignore[attr-defined]
        changed = replace(self.incidents[number], **what)  # type: ignore[arg-type]
        if changed != self.incidents[number]:
            self.incidents[number] = changed
            self.told.append(Told(action=Action.UPDATE, incident=changed))

    def _close(self, number: int, position: int) -> None:
        self.incidents[number] = replace(self.incidents[number], closed_by=position)
        self.told.append(Told(action=Action.CLOSE, incident=self.incidents[number]))


def _lean(share: float, information: float) -> float:
    """Log likelihood of the code having the change (about 0.85 of what was seen) against its having none of it."""
    variance = 1 / max(information, 1e-9)
    yes, no = 0.3**2 + variance, 0.08**2 + variance
    return float(
        -0.5 * ((share - 0.85) ** 2 / yes + np.log(yes)) + 0.5 * (share**2 / no + np.log(no))
    )
