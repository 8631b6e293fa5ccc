"""The joint detector: reads the runs of a project one at a time and reports incidents, each with its cause.

What the newest rows leave unexplained is examined in this order: machine (canary, telemetry), method
(suite version), then a session of two commits, in which only the code can differ. What the session shows is
code; what it does not show is attributed to what else changed: an upgrade, or the one worker that shows it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backend.regression.joint.code import LISTED, CodeChanges
from backend.regression.joint.drift import Drifts
from backend.regression.joint.health import Degraded
from backend.regression.joint.machines import Machines
from backend.regression.joint.rows import MEDIAN_OF_VARIANCES, RowsOfTestbed, Shift
from backend.regression.joint.scan import ScanHit, channels, newest_change, pattern_of, share_of
from backend.regression.joint.software import Software
from backend.regression.joint.state import CodeChange, Inquiry, JointState, QuestionPurpose, Upgrade
from backend.regression.joint.terms import Ask, Bools, Floats, IncidentUpdate, JointRun, JointSeries, SessionResult

SHOWN = 0.3
"""Share of the threshold by which a size or count must have moved in a session."""
TAIL = 10
"""Newest rows of a testbed that are searched for a change."""
WORKER_TAIL = 6
SESSION_NOISE = 0.0015
UNSURE_BY = 3
"""Commits by which the place of a change may be wrong."""
MOST_SESSIONS = 2
"""Of one question."""
UNDECIDED = (-1.5, 2.5)
"""Log likelihoods between which another session is requested."""
DISAGREE = 5.0
"""Variance of a series between a session's processes, relative to the usual one, that indicates two states."""
LIKELIER = 1.0
"""Log likelihood from which code is the cause if no further session is possible."""
UPGRADE_SETTLES = 25
"""Runs after an upgrade from which it is known to have had no effect."""
REFUTED_AGAIN = 30
"""Commits within which another refutation of the same benchmark counts as one more in a row."""
TOO_OFTEN = 3
"""Refutations in a row after which a benchmark is left alone on a testbed, twice as long with every further one."""
LEFT_ALONE = 9
LEFT_ALONE_AT_MOST = 36
FIRST_ROWS = 20
"""First runs of a testbed, from which the detector only learns."""


class JointDetector:
    """Judges all series of a project jointly.

    Feed it runs, changes that a person accepted, and results of sessions; each call returns the incidents that it
    opened, changed or closed, and the next session it needs, if any.
    """

    def __init__(self, series: Sequence[JointSeries], testbeds: Sequence[str]) -> None:
        self.state = JointState(series, testbeds)
        self.machines = Machines(self.state)
        self.software = Software(self.state)
        self.changes = CodeChanges(self.state, self.software)
        self.drifts = Drifts(self.state, self.software)

    # --- what comes in

    def run(self, run: JointRun) -> tuple[list[IncidentUpdate], Ask | None]:
        """Add one run; returns what it reveals, and the session it makes necessary, if any."""
        self.state.updates = []
        rows = self.state.rows[run.testbed]
        if run.docs_only and run.position not in self.state.docs:
            self.state.docs.add(run.position)
            for code in self.state.code_changes:
                if code.place.commit == run.position:
                    self.changes.relocate(code)
        self.state.oldest, self.state.newest = (
            min(self.state.oldest, run.position),
            max(self.state.newest, run.position),
        )
        level = self.software.level_of(run)
        row = rows.add(run, level)
        w = int(rows.worker[row])
        self.software.note_versions(run)
        ask = self.machines.examine(run, rows, row, w)
        if rows.n % 5 == 0:
            rows.learn()
        else:
            rows.learn_level(w)
        if rows.n % 8 == 0:
            rows.learn_noise()
        self.changes.follow(rows)
        self.software.settle_version_changes()
        for upgrade in self.state.upgrades:
            if upgrade.incident_id is not None and upgrade.testbed == rows.name and upgrade.refits < 8:
                self.software.refit_upgrade(upgrade, rows)
        if self.state.pending is None:
            ask = self.scan(rows, w)
        return self.state.updates, ask

    def accept(self, position: int, testbeds: Sequence[str], series: Sequence[int]) -> list[IncidentUpdate]:
        """A person accepted a change: its level is the baseline. A change that had not been found is now explained."""
        self.state.updates = []
        listed = np.zeros(self.state.size, dtype=bool)
        listed[list(series)] = True
        known = [
            c for c in self.state.code_changes if abs(c.place.commit - position) <= 6 and (c.listed & listed).any()
        ]
        for code in known:
            code.open = False
        for name in testbeds:
            rows = self.state.rows[name]
            if any(name in c.shown for c in known):
                continue
            after = rows.judged(first=position)
            if len(after):
                mean, _ = rows.mean(after[-20:])
                rows.put(("accepted", self.state.new_key()), Shift(np.where(listed, mean, 0.0), from_position=position))
        return self.state.updates

    def session(self, result: SessionResult | None) -> tuple[list[IncidentUpdate], Ask | None]:
        """The answer to a question; None if no session is possible."""
        self.state.updates = []
        inquiry, self.state.pending = self.state.pending, None
        if inquiry is None:
            return self.state.updates, None
        if result is None:
            self.without_session(inquiry)
            return self.state.updates, None
        rows = self.state.rows[inquiry.testbed]
        left = result.change.copy()
        for code in self.state.code_changes:
            if inquiry.testbed in code.shown and self.is_inside(code, result, left, rows):
                left -= np.where(code.listed, code.change, 0.0)
        inquiry.results.append(left)
        judged = self.state.machine_bound & (rows.process_variance > 0) & np.isfinite(result.spread)
        if judged.any():
            own = np.where(judged, result.spread / np.where(judged, rows.process_variance, 1.0), 1.0)
            unrest = max(1.0, float(np.median(own[judged])) / MEDIAN_OF_VARIANCES)
            inquiry.unrest = np.maximum(inquiry.unrest, np.where(own >= DISAGREE, own, unrest))
        inquiry.processes = result.processes
        ask = self.decide(inquiry)
        return self.state.updates, ask

    def is_inside(self, code: CodeChange, result: SessionResult, left: Floats, rows: RowsOfTestbed) -> bool:
        """Whether a known change lies between the commits of a session; near its ends, the session itself decides."""
        if min(abs(code.place.commit - result.base), abs(code.place.commit - result.head)) > UNSURE_BY:
            return result.base < code.place.commit <= result.head
        pattern = np.where(code.listed & np.isfinite(left), code.change, 0.0)
        picked = channels(pattern, np.maximum(rows.process_variance, SESSION_NOISE**2), self.state.benchmark)
        weight = pattern[picked] / np.maximum(rows.process_variance[picked], SESSION_NOISE**2)
        return bool(weight @ left[picked] > 0.5 * (weight @ pattern[picked])) if len(picked) else False

    # --- looking for what is not explained

    def scan(self, rows: RowsOfTestbed, w: int) -> Ask | None:
        """Search the newest rows for an unexplained change; request a session about it."""
        if rows.n < FIRST_ROWS:
            return None
        watched = self.watched(rows)
        upgrade = self.state.unsettled(rows)
        if upgrade is not None:
            found = self.since_upgrade(rows, upgrade, watched)
            if found is not None:
                if upgrade.cleared >= int(rows.position[found.rows].max()) - 10:
                    return self.drifts.blame_upgrade(upgrade, rows)
                return self.ask_about(rows, found, QuestionPurpose.UPGRADE, upgrade=upgrade)
        found = newest_change(
            rows.tail(rows.by_position(TAIL)),
            self.state.machine_bound,
            watched,
            self.state.partner,
            self.state.smallest,
        )
        if rows.ready[w]:
            tail = rows.tail(rows.of_worker(w, WORKER_TAIL))
            own = newest_change(tail, self.state.machine_bound, watched, self.state.partner, self.state.smallest)
            if own is not None and (found is None or own.strength > 1.3 * found.strength):
                found = own
        if found is None:
            return self.drifts.drift_scan(rows)
        if self.changes.absorb(rows, found):
            return None
        late = upgrade if upgrade is not None and (rows.level[found.rows] >= upgrade.level).all() else None
        return self.ask_about(rows, found, QuestionPurpose.UPGRADE if late else QuestionPurpose.CHANGE, upgrade=late)

    def watched(self, rows: RowsOfTestbed) -> Bools:
        """Series that are not just starting over, and about which no question was asked a moment ago."""
        watched: Bools = np.ones(self.state.size, dtype=bool)
        for version_change in self.state.version_changes:
            if not version_change.settled:
                watched &= self.state.suite != version_change.suite
        muted = [b for b, until in self.state.muted.items() if until >= self.state.newest]
        muted += [
            b for (bed, b), until in self.state.muted_on.items() if bed == rows.name and until >= self.state.newest
        ]
        watched &= ~np.isin(self.state.benchmark, muted)
        return watched

    def since_upgrade(self, rows: RowsOfTestbed, upgrade: Upgrade, watched: Bools) -> ScanHit | None:
        """An unexplained change shown by all runs since an upgrade."""
        post = rows.judged(30, level=upgrade.level)
        if len(post) >= UPGRADE_SETTLES:
            upgrade.settled = True
        elif len(post) >= 2:
            found = newest_change(
                rows.tail(np.sort(post)[-8:]),
                self.state.machine_bound,
                watched,
                self.state.partner,
                self.state.smallest,
            )
            if found is not None and len(found.rows) >= min(len(post), 8) - 1 and not self.changes.absorb(rows, found):
                return found
        return None

    def ask_about(
        self, rows: RowsOfTestbed, found: ScanHit, purpose: QuestionPurpose, upgrade: Upgrade | None = None
    ) -> Ask | None:
        pattern = pattern_of(found, self.state.machine_bound)
        if self.drifts.ramps(found.lead) and purpose is QuestionPurpose.CHANGE:
            return self.drifts.look_back(rows, int(self.state.partner[found.lead]))
        positions = rows.position[found.rows]
        first, head = int(positions.min()), int(positions.max())
        if upgrade is not None:
            first = min(first, upgrade.position)
        cleared = self.state.cleared.get(int(self.state.benchmark[found.lead]), -1)
        workers = set(rows.worker[found.rows].tolist())
        if upgrade is None and cleared >= first and len(workers) > 1:
            rows.excused[np.ix_(found.rows, np.flatnonzero(pattern))] = True
            return None
        only = workers.pop() if len(workers) == 1 else None
        disagree = False
        if only is not None and len(rows.workers) > 1:
            others = rows.judged(25, first=first)
            others = others[rows.worker[others] != only]
            if len(others):
                picked = channels(pattern, rows.sigma**2, self.state.benchmark)
                share, information = share_of(rows.tail(others), pattern, picked)
                total = information.sum()
                disagree = bool(total > 8 and (share * information).sum() / total < 0.4)
        self.state.pending = Inquiry(
            purpose,
            rows.name,
            max(self.state.oldest, first - 8),
            head,
            pattern,
            found.rows,
            only,
            disagree,
            upgrade,
            lead=found.lead,
        )
        return self.state.ask(self.state.pending)

    # --- deciding

    def session_error(self, inquiry: Inquiry) -> Floats:
        """Standard error of a session's difference; a busy machine's is larger than usual."""
        rows = self.state.rows[inquiry.testbed]
        variance = rows.process_variance * 2.3 * inquiry.unrest / inquiry.processes / len(inquiry.results)
        floor = np.where(self.state.machine_bound, SESSION_NOISE, 0.0005)
        error: Floats = np.maximum(np.sqrt(variance), floor)
        return error

    def decide(self, inquiry: Inquiry) -> Ask | None:
        """Decide from the sessions so far: the code, not the code, or one more session."""
        rows = self.state.rows[inquiry.testbed]
        change = np.nan_to_num(np.array(inquiry.results).mean(axis=0))
        error = self.session_error(inquiry)
        z = change / error
        if inquiry.purpose is QuestionPurpose.DRIFT:
            return self.drifts.decide_drift(inquiry, change, error)
        moved = (np.abs(z) >= 4.5) & (np.abs(change) >= LISTED * self.state.smallest)
        moved |= ~self.state.machine_bound & (np.abs(z) >= 8) & (np.abs(change) >= SHOWN * self.state.smallest)
        if not (moved & self.state.shown).any():
            lean = self.lean_of(inquiry, change, error)
            if UNDECIDED[0] < lean < UNDECIDED[1] and len(inquiry.results) < MOST_SESSIONS:
                self.state.pending = inquiry
                return self.state.ask(inquiry)
            if lean <= LIKELIER:
                return self.not_code(inquiry, rows, cleared=lean <= UNDECIDED[0])
            moved = inquiry.pattern != 0
        if inquiry.purpose is QuestionPurpose.MACHINE:
            self.acquit(rows, inquiry)
        if not self.changes.is_reported(moved, change, error):  # perhaps a part of a drift
            self.refute(inquiry)
            return self.drifts.drift_scan(rows, eager=True)
        self.changes.report_code(inquiry, change, error)
        return self.drifts.blame_upgrade(inquiry.upgrade, rows) if inquiry.upgrade is not None else None

    def lean_of(self, inquiry: Inquiry, change: Floats, error: Floats) -> float:
        """How far the sessions support that code caused what the rows show."""
        picked = channels(inquiry.pattern, error**2, self.state.benchmark)
        weight = inquiry.pattern[picked] / error[picked] ** 2
        information = float(weight @ inquiry.pattern[picked])
        return _lean(float(weight @ change[picked]) / information, information)

    def not_code(self, inquiry: Inquiry, rows: RowsOfTestbed, *, cleared: bool) -> Ask | None:
        """Code is not the cause: an upgrade, a worker, a drift that a near base does not show, or nothing.

        `cleared`: the sessions speak against code; if they merely do not support it, nothing else is blamed.
        """
        if inquiry.purpose is QuestionPurpose.MACHINE:
            assert inquiry.worker is not None
            if cleared and self.still_holds(rows, inquiry):
                self.machines.mark_degraded_from_held(rows, inquiry.worker)
            return None
        if inquiry.upgrade is not None and cleared:
            inquiry.upgrade.cleared = inquiry.head
            ask = self.drifts.blame_upgrade(inquiry.upgrade, rows)
            if ask is not None or inquiry.upgrade.incident_id is not None:
                return ask
        if cleared and inquiry.worker is not None and len(rows.workers) > 1 and inquiry.others_disagree:
            key = (rows.name, inquiry.worker)
            self.state.suspicion[key] = self.state.suspicion.get(key, 0) + 1
            information = self.information(rows, inquiry)
            affected = self.degraded_rows(rows, inquiry)
            upgrade = self.state.unsettled(rows)
            upgraded = upgrade is not None and bool((rows.level[affected] >= upgrade.level).all())
            several = len(np.unique(self.state.benchmark[inquiry.pattern != 0])) > 1
            if (
                inquiry.pattern[inquiry.lead] > 0
                and (information > 60 or self.state.suspicion[key] >= 2)
                and key not in self.state.degraded
                and len(affected) > 1
                and several
                and not upgraded
            ):
                self.state.suspicion.pop(key)
                self.machines.mark_degraded(rows, inquiry.worker, affected, Degraded.SLOW, canary=False)
                return None
        self.refute(inquiry)
        return self.drifts.drift_scan(rows, eager=True)

    def degraded_rows(self, rows: RowsOfTestbed, inquiry: Inquiry) -> list[int]:
        """The worker's newest consecutive rows that show the pattern."""
        assert inquiry.worker is not None
        own = rows.of_worker(inquiry.worker, 12)
        picked = channels(inquiry.pattern, rows.sigma**2, self.state.benchmark)
        share, information = share_of(rows.tail(own, whole=True), inquiry.pattern, picked)
        evidence = np.clip(0.6 * information * (np.clip(share, -1, 2) - 0.5), -6, 6)
        total = np.cumsum(evidence[::-1])
        affected = [int(r) for r in own[len(own) - 1 - int(np.argmax(total)) :]]
        while affected and rows.docs[affected[0]]:
            # A bad run of a commit that changed no code was bad luck, or the beginning: the next one tells.
            affected.pop(0)
        return affected

    def information(self, rows: RowsOfTestbed, inquiry: Inquiry) -> float:
        """How clearly the rows in question show the pattern."""
        picked = channels(inquiry.pattern, rows.sigma**2, self.state.benchmark)
        share, information = share_of(rows.tail(inquiry.rows), inquiry.pattern, picked)
        return float((information * np.clip(share, 0, 1.5)).sum())

    def acquit(self, rows: RowsOfTestbed, inquiry: Inquiry) -> None:
        """Code made the series slower: the worker's mild signals were chance."""
        assert inquiry.worker is not None
        if self.still_holds(rows, inquiry):
            held = self.state.held.pop((rows.name, inquiry.worker))
            rows.usable[[row for _, row in held]] = True

    def still_holds(self, rows: RowsOfTestbed, inquiry: Inquiry) -> bool:
        """Whether the runs in question are still held back; a later run without signals has released them."""
        assert inquiry.worker is not None
        held = {row for _, row in self.state.held.get((rows.name, inquiry.worker), [])}
        return held.issuperset(inquiry.rows.tolist())

    def without_session(self, inquiry: Inquiry) -> None:
        """No session was possible: a drift is looked for later; the machine's next run decides about its signals."""
        if inquiry.purpose is QuestionPurpose.DRIFT:
            self.drifts.put_off(inquiry)
        elif inquiry.purpose is not QuestionPurpose.MACHINE:
            self.refute(inquiry)

    def refute(self, inquiry: Inquiry) -> None:
        """Nothing was proved: these rows are not asked about again, and their benchmark not at once."""
        rows = self.state.rows[inquiry.testbed]
        moved = inquiry.pattern != 0
        upgrade = self.state.unsettled(rows)
        excused = inquiry.rows if upgrade is None else inquiry.rows[rows.level[inquiry.rows] < upgrade.level]
        rows.excused[np.ix_(excused, np.flatnonzero(moved))] = True
        if inquiry.results:
            lead, often = int(self.state.benchmark[inquiry.lead]), 1
            for number in set(self.state.benchmark[moved].tolist()) | {lead}:
                self.state.cleared[number] = inquiry.head
                times = self.refute_once_more(rows.name, number)
                often = times if number == lead else often
            if inquiry.worker is None or often > 1:
                self.state.muted[lead] = self.state.newest + (9 if often > 1 else 4)
        if inquiry.upgrade is not None:
            inquiry.upgrade.tries += 1
            inquiry.upgrade.settled = inquiry.upgrade.tries >= 3

    def refute_once_more(self, testbed: str, number: int) -> int:
        """How often in a row a benchmark was refuted; too often, and it is left alone on that testbed, ever longer."""
        when, times = self.state.refuted.get((testbed, number), (0, 0))
        times = times + 1 if self.state.newest - when < REFUTED_AGAIN else 1
        self.state.refuted[testbed, number] = (self.state.newest, times)
        if times >= TOO_OFTEN:
            self.state.muted_on[testbed, number] = self.state.newest + min(
                LEFT_ALONE * 2 ** (times - TOO_OFTEN), LEFT_ALONE_AT_MOST
            )
        return times


def _lean(share: float, information: float) -> float:
    """Log likelihood of the code having the change (about 0.85 of what was seen) against its having none of it."""
    variance = 1 / max(information, 1e-9)
    yes, no = 0.3**2 + variance, 0.08**2 + variance
    return float(-0.5 * ((share - 0.85) ** 2 / yes + np.log(yes)) + 0.5 * (share**2 / no + np.log(no)))
