"""Changes of the code: proved by a session, found on further testbeds, placed and sized better with every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from backend.regression.cause.attribution import CauseName
from backend.regression.joint.rows import RowsOfTestbed, Shift
from backend.regression.joint.scan import SMALLEST, OnsetRange, ScanHit, channels, locate, pattern_of, share_of
from backend.regression.joint.software import Software
from backend.regression.joint.state import MOVED, CodeChange, Inquiry, JointState
from backend.regression.joint.terms import Bools, Floats, IncidentKind

GROWS_FOR = 45
"""Commits after its onset in which a change may be found on further testbeds and series."""
LEFT_OVER = 0.6
"""Share of a known change that may be left over after it was taken off; more is another change of the same series."""
LISTED = 0.6
"""Share of the threshold: what surely moved by less is not listed beside a proved change."""
NEAR = 10
"""Commits between two changes that one session may show as one."""
REPORTED_FROM = 0.88
"""Share of the threshold: a change that is certainly smaller is not reported."""
SHARP = 1
"""Commits between the first and the last at which a change below the threshold may have begun, to be a change apart."""
STEP_OF_DRIFT = 1.3
"""Share of the threshold: a larger loss at one commit is a separate regression, whatever comes after it."""
PART_OF_DRIFT = 1.1
"""Share of the threshold: a smaller loss of a benchmark that is known to drift is a part of that."""


class CodeChanges:
    """Knows what the code did: changes that a session proved, and where they show."""

    def __init__(self, state: JointState, software: Software) -> None:
        self.state = state
        self.software = software

    def report_code(self, inquiry: Inquiry, change: Floats, error: Floats) -> None:
        """A session proved that the code changed: once, or at several commits that it has between its ends."""
        rows = self.state.rows[inquiry.testbed]
        listed, sign = self.moved_by_code(inquiry, change, error)
        listed = self.without_rests(inquiry, change, listed)
        code = CodeChange(0, change, error, listed, OnsetRange(0, 0, 0))
        code.place = self.locate_code(code, [rows], inquiry)
        for part in self.by_onset(code, [rows], inquiry):
            self.report_change(part, rows, sign)

    def report_change(self, code: CodeChange, rows: RowsOfTestbed, sign: float) -> None:
        """A change at one commit: one that is known, a step of a drift, or a new one."""
        known = next(
            (c for c in reversed(self.state.code_changes) if not c.drift and self.same_change(c, code, rows)), None
        )
        if known is not None:
            self.grow(known, code, rows)
            return
        drifting = self.continues(code)
        if drifting is not None:
            self.lose_more(drifting, code)
            return
        kind = IncidentKind.REGRESSION if sign > 0 else IncidentKind.IMPROVEMENT
        code.incident = self.state.open_incident(
            kind, CauseName.CODE, code.listed, (rows.name,), code.place, code.change
        )
        code.reported_between = code.place.first, code.place.last
        self.state.code_changes.append(code)
        self.attach(code, rows)
        for other in self.state.rows.values():
            if other is not rows and self.shows(code, other):
                self.attach(code, other)
        if sign < 0:
            self.close_fixed(code)

    def by_onset(
        self, code: CodeChange, beds: Sequence[RowsOfTestbed], inquiry: Inquiry | None = None
    ) -> list[CodeChange]:
        """The changes that a session showed as one: benchmarks whose runs began to be slower at commits that cannot be
        the same. Those that moved little, and whose place is not known well, belong to the one whose place is."""
        placed, small = [], np.zeros(self.state.size, dtype=bool)
        for benchmark in np.unique(self.state.benchmark[code.listed]):
            own = code.listed & (self.state.benchmark == benchmark)
            place = self.locate_code(replace(code, listed=own), beds, inquiry)
            is_clear = (own & self.state.shown & (np.abs(code.change) >= self.state.smallest)).any()
            if is_clear or (place.last - place.first <= SHARP and self.is_reported(own, code.change, code.error)):
                placed.append((place, own))
            else:
                small |= own
        placed.sort(key=lambda part: (part[0].last - part[0].first, part[0].commit))
        parts: list[tuple[OnsetRange, Bools]] = []
        for place, own in placed:
            near = [number for number, (other, _) in enumerate(parts) if _meet(other, place)]
            if near:
                nearest = min(near, key=lambda number: abs(parts[number][0].commit - place.commit))
                parts[nearest] = parts[nearest][0], parts[nearest][1] | own
            else:
                parts.append((place, own))
        if len(parts) < 2:
            return [code]
        parts[0] = parts[0][0], parts[0][1] | small
        return [
            replace(code, listed=mine, change=np.where(code.listed & ~mine, 0.0, code.change), place=place, shown={})
            for place, mine in parts
        ]

    def is_reported(self, listed: Bools, change: Floats, error: Floats) -> bool:
        """Whether any of these series that people look at moved by what is reported, or may have."""
        pool = listed & self.state.shown
        return bool((pool & (np.abs(change) + 0.8 * error >= REPORTED_FROM * self.state.smallest)).any())

    def without_rests(self, inquiry: Inquiry, change: Floats, listed: Bools) -> Bools:
        """Without the benchmarks of which a session shows no more than what the size of a known change left over."""
        rests = np.zeros(self.state.size, dtype=bool)
        for known in self.state.code_changes:
            if not known.drift and inquiry.testbed in known.shown and inquiry.base < known.place.commit <= inquiry.head:
                rests |= known.listed & (np.abs(change) < LEFT_OVER * np.abs(known.change))
        rests &= np.abs(change) < self.state.smallest
        own = listed & ~np.isin(
            self.state.benchmark,
            np.setdiff1d(self.state.benchmark[listed & rests], self.state.benchmark[listed & ~rests]),
        )
        return own if (own & self.state.shown).any() else listed

    def moved_by_code(self, inquiry: Inquiry, change: Floats, error: Floats) -> tuple[Bools, float]:
        """The series that a proved change moved, and its direction."""
        rows, z = self.state.rows[inquiry.testbed], change / error
        clear = (np.abs(z) >= 4.0) & (np.abs(change) >= MOVED * self.state.smallest)
        clear |= ~self.state.machine_bound & (np.abs(z) >= 8) & (np.abs(change) >= 0.16 * self.state.smallest)
        expected = (inquiry.pattern != 0) & (np.abs(z) >= 1.5) & (np.abs(change) >= MOVED * self.state.smallest)
        lead = self.state.lead_of(change, clear if clear.any() else expected)
        sign = float(np.sign(change[lead]))
        related = self.state.with_moved(clear) & (np.abs(z) >= 2.5) & (np.abs(change) >= MOVED * self.state.smallest)
        alike = np.sign(change) == sign
        listed = (clear | expected | related) & alike
        getting_worse = [b for b, until in self.state.drifting.items() if until >= self.state.newest]
        listed &= ~np.isin(self.state.benchmark, getting_worse) | (
            self.state.benchmark == self.state.benchmark[inquiry.lead]
        )
        enough = np.abs(change) + 0.5 * error >= LISTED * self.state.smallest
        if abs(change[lead]) >= 2 * SMALLEST * self.state.smallest[lead]:
            # Beside a large change a tiny one is chance, or a part of a drift.
            enough &= np.abs(change) >= SMALLEST * self.state.smallest
        listed &= self.state.with_shown(listed & enough)
        listed &= self.stepped(inquiry, rows, change, listed)
        if listed.any():
            return listed, sign
        if (clear & alike).any():
            return clear & alike, sign
        # The session leans towards what the runs show; series by series it proves nothing.
        return inquiry.pattern != 0, float(np.sign(inquiry.pattern[inquiry.lead]))

    def grow(self, known: CodeChange, found: CodeChange, rows: RowsOfTestbed) -> None:
        """A known change has more series than were known, or another testbed."""
        known.change = np.where(found.listed & ~known.listed, found.change, known.change)
        known.listed = known.listed | found.listed
        if rows.name not in known.shown:
            self.attach(known, rows)
        else:
            self.refit(known, rows)
        self.state.change_incident(known.incident, series=tuple(np.flatnonzero(known.listed)))

    def lose_more(self, known: CodeChange, code: CodeChange) -> None:
        """A small loss after another one: both are steps of one drift."""
        code.incident, code.drift = known.incident, True
        self.state.code_changes.append(code)
        for bed in self.state.rows.values():
            code.shown[bed.name] = bed.n
            if self.shows(code, bed):
                delta = np.where(code.listed, code.change, 0.0)
                bed.put(("drift", self.state.new_key()), Shift(delta, from_position=code.place.commit))
        self.state.drifting.update(
            {int(b): self.state.newest + 60 for b in np.unique(self.state.benchmark[code.listed])}
        )
        range_end = max(self.state.incidents[code.incident].range_end, known.place.last)
        self.state.change_incident(code.incident, drift=True, range_end=range_end)

    def stepped(self, inquiry: Inquiry, rows: RowsOfTestbed, change: Floats, listed: Bools) -> Bools:
        """False for benchmarks whose runs just before the onset were nearly as bad: they drift."""
        positions = rows.position[inquiry.rows]
        first = int(positions.min())
        before = rows.judged(60, first=first - 10, before=first)
        if len(before) < 3:
            return np.ones(self.state.size, dtype=bool)
        new, new_error = rows.mean(inquiry.rows)
        old, old_error = rows.mean(before)
        step, error = new - old, np.hypot(new_error, old_error)
        flat = listed & (np.abs(change) > 0.01) & (step * np.sign(change) < 0.55 * np.abs(change))
        flat &= (np.abs(change) - step * np.sign(change)) > 2.0 * error
        drop = self.state.with_moved(flat & self.state.shown)
        if not (listed & self.state.shown & ~drop).any():
            drop &= self.state.benchmark != self.state.benchmark[inquiry.lead]
        kept: Bools = ~drop
        return kept

    def continues(self, code: CodeChange) -> CodeChange | None:
        """A small loss after another of the same series: they are getting worse step by step, which is one drift."""
        for known in reversed(self.state.code_changes):
            both, either = (known.listed & code.listed).sum(), (known.listed | code.listed).sum()
            lead, own = self.state.lead_of(known.change, known.listed), self.state.lead_of(code.change, code.listed)
            if (
                known.open
                and both >= 0.5 * either
                and 0 < known.change[lead] < STEP_OF_DRIFT * self.state.smallest[lead]
                and 0 < code.change[own] < STEP_OF_DRIFT * self.state.smallest[own]
                and 3 < code.place.commit - known.place.commit <= 60
                and self.state.machine_bound[lead]
            ):
                return known
        return None

    def same_change(self, a: CodeChange, b: CodeChange, rows: RowsOfTestbed) -> bool:
        """Whether what a session left over is a known change: found elsewhere, or not wholly taken off."""
        if a.change[self.state.lead_of(a.change, a.listed)] * b.change[self.state.lead_of(b.change, b.listed)] <= 0:
            return False
        both = a.listed & b.listed
        if both.any():
            left = float(b.change[both] @ a.change[both] / (a.change[both] @ a.change[both]))
            return _meet(a.place, b.place) and (rows.name not in a.shown or left < LEFT_OVER)
        # A session sees all series: what one adds to none of those listed must be at that very commit.
        sharp = max(a.place.last - a.place.first, b.place.last - b.place.first) <= 2
        return rows.name in a.shown and sharp and a.place.commit == b.place.commit

    def locate_code(
        self, code: CodeChange, beds: Sequence[RowsOfTestbed], inquiry: Inquiry | None = None
    ) -> OnsetRange:
        """Where a change began, from all rows of the testbeds that show it."""
        pattern = np.where(code.listed, code.change, 0.0)
        positions, evidence = [], []
        low, high = code.place.commit - 25, code.place.commit + 25
        if inquiry is not None:
            low, high = inquiry.base - 6, inquiry.head
        for rows in beds:
            near = rows.judged(80, first=low - 8, before=high + 13)
            if not len(near):
                continue
            tail = rows.tail(near)
            put = rows.shifts.get(("code", code.incident)) if code.incident else None
            residual = rows.clean[near] - rows.base[rows.worker[near]]
            mask = np.isfinite(residual)
            residual = np.where(mask, residual, 0.0)
            if put is not None and put.from_position is not None:
                residual = residual + (rows.position[near] >= put.from_position)[:, None] * put.delta
            upgrade = next((u for u in self.state.upgrades if u.testbed == rows.name and not u.settled), None)
            tail = replace(tail, residual=residual * mask, mask=mask)
            picked = channels(pattern, rows.sigma**2, self.state.benchmark)
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
        return locate(
            at,
            np.concatenate(evidence),
            frozenset(self.state.docs),
            max(1, low),
            max(low + 1, min(high, int(at.max()))),
        )

    def shows(self, code: CodeChange, rows: RowsOfTestbed, since: int | None = None) -> bool:
        """Whether the rows of a testbed since the onset show the change."""
        start = code.place.commit if since is None else min(since, code.place.commit)
        after = rows.judged(40, first=start)[-8:]
        if not len(after):
            return False
        pattern = np.where(code.listed, code.change, 0.0)
        picked = channels(pattern, rows.sigma**2, self.state.benchmark)
        share, information = share_of(rows.tail(after), pattern, picked)
        total = 0.6 * float(information.sum())
        if total < 16 or (len(after) < 2 and total < 60):
            return False
        mean = float((share * information).sum() / information.sum())
        return 0.55 < mean < 2.0 and mean * total**0.5 > 4

    def attach(self, code: CodeChange, rows: RowsOfTestbed) -> None:
        code.shown[rows.name] = rows.n
        rows.put(
            ("code", code.incident), Shift(np.where(code.listed, code.change, 0.0), from_position=code.place.commit)
        )
        self.relocate(code)
        self.refit(code, rows)

    def relocate(self, code: CodeChange) -> None:
        if code.drift:
            code.place = replace(code.place, commit=self.state.not_docs(code.place.commit))
            self.state.change_incident(code.incident, first_bad=code.place.commit)
            return
        place = self.locate_code(code, [self.state.rows[name] for name in code.shown])
        code.place = place
        for name in code.shown:
            put = self.state.rows[name].shifts.get(("code", code.incident))
            if put is not None and put.from_position != place.commit:
                self.state.rows[name].put(("code", code.incident), replace(put, from_position=place.commit))
        self.state.change_incident(
            code.incident,
            first_bad=place.commit,
            range_start=place.first,
            range_end=place.last,
            testbeds=tuple(sorted(code.shown)),
        )

    def refit(self, code: CodeChange, rows: RowsOfTestbed) -> None:
        """The size of the change on a testbed, from the session and the runs since, by their precision."""
        put = rows.shifts.get(("code", code.incident))
        after = rows.judged(first=code.place.commit)[:25]
        if put is None or not len(after):
            return
        mean, error = rows.mean(after)
        total = put.delta + mean
        weight = np.where(np.isfinite(error), 1 / np.maximum(error, 1e-4) ** 2, 0.0)
        own = 1 / code.error**2
        best = (code.change * own + np.where(weight > 0, total, 0.0) * weight) / (own + weight)
        sure = 1 / np.sqrt(own + weight)
        sign = np.sign(code.change[self.state.lead_of(code.change, code.listed)])
        sides = np.isin(self.state.benchmark, np.unique(self.state.benchmark[code.listed]))
        add = (best * sign >= 0.36 * self.state.smallest) & (best * sign >= np.where(sides, 3.0, 4.5) * sure)
        add &= (
            code.change * sign >= np.where(sides, 2.5 if self.software.unsettled_near(rows) else 1.5, 3.5) * code.error
        )
        # What the runs show and the session saw far less of was there before, or came later.
        add &= code.change * sign + code.error >= 0.6 * best * sign
        add &= self.state.with_shown(code.listed | (add & (best * sign >= LISTED * self.state.smallest)))
        add &= code.listed | ~self.began_apart(code, add & ~code.listed, total * sign >= 2.5 * error)
        drop = (best * sign < 0.2 * self.state.smallest) & (sure < 0.007)
        listed = (code.listed | add) & ~drop
        if not (listed & self.state.shown).any():
            listed = code.listed
        rows.put(("code", code.incident), replace(put, delta=np.where(listed, best, 0.0)))
        if (listed != code.listed).any():
            code.listed = listed
            self.state.change_incident(code.incident, series=tuple(np.flatnonzero(listed)))

    def began_apart(self, code: CodeChange, more: Bools, seen: Bools) -> Bools:
        """Of further series that a session showed with a change, those that another change nearby explains, and those
        of benchmarks that began to move at another commit, or of which the runs since the change show nothing.

        `seen`: series that moved in these runs."""
        near = [c for c in self.state.code_changes if c is not code and abs(c.place.commit - code.place.commit) <= NEAR]
        apart: Bools = np.logical_or.reduce([np.zeros(self.state.size, dtype=bool), *(c.listed for c in near)])
        beds = [self.state.rows[name] for name in code.shown]
        for benchmark in np.setdiff1d(self.state.benchmark[more], self.state.benchmark[code.listed]):
            own = more & (self.state.benchmark == benchmark)
            place = self.locate_code(replace(code, incident=0, listed=own), beds)
            if not (own & seen).any() or not _meet(place, code.place):
                apart |= own
        return apart

    def follow(self, rows: RowsOfTestbed) -> None:
        """Later results: the change may show on this testbed too, and is known better with every run."""
        for code in list(self.state.code_changes):
            if self.state.newest - code.place.commit > GROWS_FOR or code.drift:
                continue
            if rows.name not in code.shown:
                if self.shows(code, rows):
                    self.attach(code, rows)
            elif rows.n - code.shown[rows.name] in (3, 6, 10, 15, 22):
                self.relocate(code)
                self.refit(code, rows)
                self.part_what_began_apart(code)

    def part_what_began_apart(self, code: CodeChange) -> None:
        """Where it was open at which commit a change began, the runs since may show that it was two."""
        first, last = code.reported_between
        beds = [self.state.rows[name] for name in code.shown]
        parts = self.by_onset(code, beds) if first < last else []
        if len(parts) < 2 or not all(first <= part.place.commit <= last for part in parts):
            return
        lead = self.state.lead_of(code.change, code.listed)
        sign = float(np.sign(code.change[lead]))
        for part in [part for part in parts if not part.listed[lead]]:
            code.listed = code.listed & ~part.listed
            code.change = np.where(part.listed, 0.0, code.change)
            for bed in beds:
                put = bed.shifts.get(("code", code.incident))
                if put is not None:
                    bed.put(("code", code.incident), replace(put, delta=np.where(part.listed, 0.0, put.delta)))
            self.relocate(code)
            self.state.change_incident(code.incident, series=tuple(np.flatnonzero(code.listed)))
            self.report_change(part, beds[0], sign)

    def close_fixed(self, fix: CodeChange) -> None:
        for code in self.state.code_changes:
            if code is fix or not code.open or code.change[self.state.lead_of(code.change, code.listed)] < 0:
                continue
            both = code.listed & fix.listed
            if not both.any() or both.sum() < 0.5 * code.listed.sum():
                continue
            left = float((code.change + fix.change)[both] @ code.change[both] / (code.change[both] @ code.change[both]))
            if left < 0.4 and fix.place.commit > code.place.commit:
                code.open = False
                self.state.close_incident(code.incident, fix.place.commit)

    def absorb(self, rows: RowsOfTestbed, found: ScanHit) -> bool:
        """True when the change is one that is known: on a further testbed, or what its first estimate left over."""
        pattern = pattern_of(found, self.state.machine_bound)
        moved = pattern != 0
        first = int(rows.position[found.rows].min())
        for code in self.state.code_changes:
            if code.drift or not (code.listed & moved).any():
                continue
            if rows.name not in code.shown and abs(first - code.place.commit) <= 8 and self.shows(code, rows, first):
                self.attach(code, rows)
                return True
        for code in self.state.code_changes:
            if rows.name in code.shown and code.listed[found.lead]:
                near = abs(first - code.place.commit) <= 6
                small = abs(found.change[found.lead]) < 0.6 * abs(code.change[found.lead])
                if near and small:
                    self.refit(code, rows)
                    return True
        if (
            self.state.drifting.get(int(self.state.benchmark[found.lead]), -1) >= self.state.newest
            and abs(found.change[self.state.partner[found.lead]])
            < PART_OF_DRIFT * self.state.smallest[self.state.partner[found.lead]]
        ):
            listed = moved & (self.state.benchmark == self.state.benchmark[found.lead])
            rows.put(
                ("absorbed", self.state.new_key()), Shift(np.where(listed, found.change, 0.0), from_position=first)
            )
            return True
        return False


def _meet(a: OnsetRange, b: OnsetRange) -> bool:
    return a.first <= b.last and b.first <= a.last
