"""Drift: many small losses that no single commit shows.

The runs of all testbeds show whether a benchmark may be getting slower, but with some doubt, because everything that
was explained meanwhile was subtracted with an error of its own. A session of the current commit and a much older one
shows the whole loss at once, on one machine in one environment, and for every benchmark alike: it is requested on a
slight suspicion, and occasionally without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from backend.regression.cause.attribution import CauseName
from backend.regression.joint.code import LISTED, STEP_OF_DRIFT
from backend.regression.joint.rows import RowsOfTestbed, Shift
from backend.regression.joint.scan import OnsetRange
from backend.regression.joint.software import Software
from backend.regression.joint.state import MOVED, CodeChange, Inquiry, JointState, QuestionPurpose, Upgrade
from backend.regression.joint.terms import Ask, Bools, Floats, IncidentKind

BACK = 95
"""Commits that a session looks back: most drifts take less long."""
JUDGED = 4
"""Commits after which a sudden change has been found by the runs: what is younger is not looked back from."""
RECENT = 13
"""Commits that make today's level."""
PAST = (115, 55)
"""Commits ago, from and to: what makes the level of long ago."""
EVERY = 70
"""Commits after which a session looks back without any suspicion."""
LOOKED_BACK = 10
"""Commits after a session with long ago in which another one would show no more."""
AGAIN = 12
"""Commits after which a benchmark is looked at again that lost a little, or of which no session could be had."""
STEADY = 30
"""Commits for which a benchmark that was suspected and did not lose is left alone."""
REPORTED_FROM = 0.84
"""Share of its threshold that a series lost, from which a drift is reported."""
HINTS = 0.3
"""Share of the threshold in a session: below it there is no drift yet, above it another look follows soon."""
SEEN_STEADY = 20
"""Commits for which one is left alone that a session about another one clearly saw steady."""
CLEARED = 0.5
"""Share of what an upgrade seems to have cost, below which a session with long ago must be to clear the code of it."""
LOST_FOR = 110
"""Commits after its report in which a benchmark's small losses belong to that drift."""


class DriftVerdict(StrEnum):
    DRIFT = "drift"
    DOUBTFUL = "doubtful"
    NOT_YET = "not yet"
    NONE = "none"


class Drifts:
    """Compares with long ago: many small losses that no single commit shows."""

    def __init__(self, state: JointState, software: Software) -> None:
        self.state = state
        self.software = software

    # --- suspecting

    def drift_scan(self, rows: RowsOfTestbed, *, eager: bool = False) -> Ask | None:
        """A look back, where the runs suggest a slow loss or none was had for long. `eager`: a small one was seen."""
        if (
            self.state.pending is not None
            or self.just_looked_back()
            or (not eager and rows.n - self.state.drift_checked < 4)
        ):
            return None
        self.state.drift_checked = rows.n
        change, error = self.slow_loss()
        z = np.where(self.may_drift(), change / error, 0.0)
        suspected = (change >= (0.02 if eager else 0.028)) & (z >= (3.0 if eager else 4.5))
        overdue = (
            self.state.newest - self.state.looked_back >= EVERY
            and self.state.newest - self.state.oldest >= BACK + JUDGED
        )
        if not suspected.any() and not overdue:
            return None
        return self.look_back(rows, int(np.argmax(np.where(suspected, z, -1.0) if suspected.any() else z)))

    def just_looked_back(self) -> bool:
        """Whether another look back would see what the last one saw, which was of all benchmarks."""
        return self.state.newest - self.state.looked_back < LOOKED_BACK

    def may_drift(self) -> Bools:
        """Gates whose benchmark is not known to drift, nor was found steady a moment ago."""
        now = self.state.newest
        known = [
            b for seen in (self.state.drifting, self.state.steady_until) for b, until in seen.items() if until >= now
        ]
        free: Bools = self.state.gate & self.state.machine_bound & ~np.isin(self.state.benchmark, known)
        return free

    def slow_loss(self) -> tuple[Floats, Floats]:
        """How far the newest runs of all testbeds are above those of long ago, and its standard error."""
        total, weight = np.zeros(self.state.size), np.full(self.state.size, 1e-9)
        now = self.state.newest
        for bed in self.state.rows.values():
            recent = bed.judged(first=now - RECENT)
            past = bed.judged(first=now - PAST[0], before=now - PAST[1])
            if len(recent) < 4 or len(past) < 8:
                continue
            new, new_error = bed.mean(recent, whole=True, against_level=False)
            old, old_error = bed.mean(past, whole=True, against_level=False)
            variance = new_error**2 + old_error**2
            seen = np.isfinite(variance)
            total[seen] += (new - old)[seen] / variance[seen]
            weight[seen] += 1 / variance[seen]
        return total / weight, 1 / np.sqrt(weight)

    def window(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Mean residual of all testbeds between two positions, and its variance."""
        total, weight = np.zeros(self.state.size), np.zeros(self.state.size)
        for bed in self.state.rows.values():
            near = bed.judged(first=first, before=last + 1)
            if len(near):
                mean, error = bed.mean(near, whole=True)
                good = np.isfinite(error)
                total[good] += mean[good] / error[good] ** 2
                weight[good] += 1 / error[good] ** 2
        return total / np.maximum(weight, 1e-9), 1 / np.maximum(weight, 1e-9)

    def ramps(self, lead: int) -> bool:
        """Whether a series has been getting worse for long, rather than at one commit."""
        now = self.state.newest
        if now - self.state.oldest < 80 or self.just_looked_back() or not self.may_drift()[self.state.partner[lead]]:
            return False
        old, old_variance = self.window(now - 110, now - 50)
        middle, middle_variance = self.window(now - 36, now - 14)
        new, _ = self.window(now - 6, now)
        rise, part = new[lead] - old[lead], middle[lead] - old[lead]
        z = part / np.sqrt(old_variance[lead] + middle_variance[lead])
        return bool(rise >= LISTED * self.state.smallest[lead] and part >= 0.25 * rise and z >= 3.5)

    def may_be_drift(self, moved: Bools, change: Floats) -> bool:
        """One benchmark alone lost something, or one of two a little: as an upgrade may do, and a drift on its way."""
        lead = self.state.partner[self.state.lead_of(change, moved & self.state.machine_bound)]
        benchmarks = len(np.unique(self.state.benchmark[moved]))
        limit = {1: np.inf, 2: STEP_OF_DRIFT * self.state.smallest[lead]}.get(benchmarks, 0.0)
        return bool(0 < change[lead] < limit)

    # --- asking and deciding

    def blame_upgrade(self, upgrade: Upgrade, rows: RowsOfTestbed) -> Ask | None:
        """Tell what an upgrade moved, when no session finds it in the code: neither of late nor of long ago."""
        moved = self.software.moved_by_upgrade(upgrade, rows)
        if moved is None:
            return None
        lead = int(self.state.partner[self.state.lead_of(moved[1], moved[0])])
        number = int(self.state.benchmark[lead])
        if self.may_be_drift(*moved) and number not in upgrade.steady:
            if self.state.losing.get(number, -1) >= self.state.newest:
                return None
            return self.look_back(rows, lead, upgrade, np.where(*moved, 0.0))
        self.software.report_upgrade(upgrade, rows, *moved)
        return None

    def look_back(
        self, rows: RowsOfTestbed, lead: int, upgrade: Upgrade | None = None, seen: Floats | None = None
    ) -> Ask:
        """A session of a commit that the runs have judged by now, and one of long ago.

        `upgrade`: waits for the answer, since it is to blame for what the runs have `seen` unless the code is.
        """
        self.state.looked_back = self.state.newest
        head = max(self.state.oldest, self.state.newest - JUDGED)
        self.state.pending = Inquiry(
            QuestionPurpose.DRIFT,
            rows.name,
            max(self.state.oldest, head - BACK),
            head,
            np.zeros(self.state.size) if seen is None else seen,
            rows.by_position(6),
            None,
            upgrade=upgrade,
            lead=lead,
        )
        return self.state.ask(self.state.pending)

    def put_off(self, inquiry: Inquiry) -> None:
        """No session could be had."""
        number = int(self.state.benchmark[inquiry.lead])
        self.state.steady_until[number] = self.state.newest + AGAIN
        if inquiry.upgrade is not None:
            self.state.losing[number] = self.state.newest + AGAIN

    def decide_drift(self, inquiry: Inquiry, change: Floats, error: Floats) -> Ask | None:
        """Decide on drift from a look back at every benchmark; ask for one more where it is not clear."""
        error = np.hypot(error, self.error_of_known(inquiry))
        seen, seen_error = self.slow_loss()
        verdicts = {
            int(gate): self.judge_loss(
                change[gate] / error[gate], change[gate] / self.state.smallest[gate], seen[gate] / seen_error[gate]
            )
            for gate in np.flatnonzero(self.may_drift())
        }
        if DriftVerdict.DOUBTFUL in verdicts.values() and len(inquiry.results) < 2:
            self.state.pending = inquiry
            return self.state.ask(inquiry)
        drifting = [gate for gate, verdict in verdicts.items() if verdict is DriftVerdict.DRIFT]
        if len(drifting) > 1:
            # Several at once: what the runs know nothing of is a known change that was not taken off rightly.
            drifting = [gate for gate in drifting if seen[gate] / seen_error[gate] >= 1]
        if drifting:
            self.report_drift(inquiry, drifting, change, error)
        self.leave_alone(inquiry, verdicts, change, error)
        return (
            None if inquiry.upgrade is None else self.blame_upgrade(inquiry.upgrade, self.state.rows[inquiry.testbed])
        )

    def leave_alone(
        self, inquiry: Inquiry, verdicts: Mapping[int, DriftVerdict], change: Floats, error: Floats
    ) -> None:
        """Until when a benchmark is not looked at again: the session has seen them all."""
        at_most = change + 2 * error
        asked = int(self.state.benchmark[inquiry.lead])
        self.state.steady_until[asked] = self.state.newest + STEADY
        if inquiry.upgrade is not None:
            clearest = int(np.argmax(inquiry.pattern / error))
            if at_most[clearest] < CLEARED * inquiry.pattern[clearest]:
                inquiry.upgrade.steady.add(asked)
            else:
                self.state.losing[asked] = self.state.newest + STEADY
        for gate, verdict in verdicts.items():
            number = int(self.state.benchmark[gate])
            if verdict is DriftVerdict.NOT_YET:
                self.state.steady_until[number] = self.state.losing[number] = self.state.newest + AGAIN
            elif at_most[gate] < HINTS * self.state.smallest[gate] and number != asked:
                self.state.steady_until[number] = self.state.newest + SEEN_STEADY

    def judge_loss(self, z: float, loss: float, z_of_runs: float) -> DriftVerdict:
        """One benchmark: the session's loss as a share of the threshold, and whether all testbeds saw it."""
        if loss < REPORTED_FROM:
            return DriftVerdict.NOT_YET if loss >= HINTS and z >= 2 else DriftVerdict.NONE
        if z >= 4.5 or (z >= 3 and z_of_runs >= 2):
            return DriftVerdict.DRIFT
        return DriftVerdict.DOUBTFUL if z >= 2 and z_of_runs >= 2 else DriftVerdict.NONE

    def error_of_known(self, inquiry: Inquiry) -> Floats:
        """How badly the changes are known that were taken off a session."""
        variance = np.zeros(self.state.size)
        for code in self.state.code_changes:
            if inquiry.base < code.place.commit <= inquiry.head:
                variance += np.where(code.listed, code.error, 0.0) ** 2
        error: Floats = np.sqrt(variance)
        return error

    def report_drift(self, inquiry: Inquiry, gates: list[int], change: Floats, error: Floats) -> None:
        """One incident, however many benchmarks lost: or a step of it that was reported before."""
        now = self.state.newest
        benchmarks = np.unique(self.state.benchmark[gates])
        listed = (
            np.isin(self.state.benchmark, benchmarks)
            & (change >= MOVED * self.state.smallest)
            & (change >= 2.5 * error)
        )
        listed[gates] = True
        place = OnsetRange(self.blamable(max(1, now - 20)), max(1, inquiry.base - 10), now)
        self.state.drifting.update({int(b): now + LOST_FOR for b in benchmarks})
        earlier = self.step_of_drift(gates[0])
        if earlier is not None:
            incident, earlier.drift = earlier.incident, True
            self.state.change_incident(
                incident, testbeds=tuple(self.state.rows), drift=True, range_start=min(place.first, earlier.place.first)
            )
        else:
            incident = self.state.open_incident(
                IncidentKind.REGRESSION, CauseName.CODE, listed, tuple(self.state.rows), place, change, drift=True
            )
        code = CodeChange(incident, change, error, listed, place, drift=True)
        self.state.code_changes.append(code)
        for bed in self.state.rows.values():
            code.shown[bed.name] = bed.n
            near = bed.judged(first=now - 14)
            if len(near):
                mean, _ = bed.mean(near)
                bed.put(("drift", self.state.new_key()), Shift(np.where(listed, mean, 0.0), from_position=now - 14))

    def blamable(self, position: int) -> int:
        """The first commit from a position on that was run and is not known to have touched documentation only."""
        run = {int(p) for bed in self.state.rows.values() for p in bed.position[: bed.n] if p >= position}
        return min(run - self.state.docs, default=self.state.not_docs(position))

    def step_of_drift(self, gate: int) -> CodeChange | None:
        """A recently reported small loss of this benchmark alone: the drift's first visible step."""
        for code in reversed(self.state.code_changes):
            alone = bool((self.state.benchmark[code.listed] == self.state.benchmark[gate]).all())
            small = 0 < code.change[gate] < (0.3 if code.drift else STEP_OF_DRIFT * self.state.smallest[gate])
            if code.open and alone and small and code.listed[gate] and self.state.newest - code.place.commit < 100:
                return code
        return None
