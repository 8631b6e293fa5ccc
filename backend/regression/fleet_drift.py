"""Drift: many small losses that no single commit shows, judged against the level of long ago."""

from __future__ import annotations

import numpy as np

from backend.regression.attribution import CauseName
from backend.regression.fleet_code import Codes
from backend.regression.fleet_rows import RowsOfTestbed, Shift
from backend.regression.fleet_scan import Place
from backend.regression.fleet_state import MOVED, Code, Inquiry, Purpose
from backend.regression.fleet_terms import Ask, Floats, IncidentKind


class Drifts(Codes):
    """The layer that compares with long ago."""

    def drift_scan(self, rows: RowsOfTestbed, *, eager: bool = False) -> Ask | None:
        if self.pending is not None or (not eager and rows.n - self.drift_checked < 4):
            return None
        self.drift_checked = rows.n
        total, weight = np.zeros(self.size), np.zeros(self.size)
        now = self.newest
        for bed in self.rows.values():
            recent, past = bed.judged(first=now - 13), bed.judged(first=now - 119, before=now - 55)
            if len(recent) < 4 or len(past) < 8:
                continue
            new, new_error = bed.mean(recent, whole=True)
            old, old_error = bed.mean(past, whole=True)
            variance = new_error**2 + old_error**2
            good = np.isfinite(variance)
            total[good] += (new - old)[good] / variance[good]
            weight[good] += 1 / variance[good]
        change = total / np.maximum(weight, 1e-9)
        z = change * np.sqrt(weight)
        free = np.array([self.drifting.get(int(b), -1) < now for b in self.benchmark])
        hit = (
            self.gate & self.machine_bound & (change >= (0.03 if eager else 0.042)) & (z >= (4 if eager else 6)) & free
        )
        if not hit.any():
            return None
        lead = int(np.argmax(np.where(hit, z, 0)))
        pattern = np.where((self.benchmark == self.benchmark[lead]) & (change > 0.02) & (z > 3), change, 0.0)
        return self.ask_drift(rows, lead, pattern)

    def ask_drift(self, rows: RowsOfTestbed, lead: int, pattern: Floats) -> Ask:
        now = self.newest
        self.pending = Inquiry(
            Purpose.DRIFT, rows.name, max(0, now - 85), now, pattern, rows.by_position(6), None, lead=lead
        )
        return self.ask(self.pending)

    def window(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Mean residual of all testbeds between two positions, and its variance."""
        total, weight = np.zeros(self.size), np.zeros(self.size)
        for bed in self.rows.values():
            near = bed.judged(first=first, before=last + 1)
            if len(near):
                mean, error = bed.mean(near, whole=True)
                good = np.isfinite(error)
                total[good] += mean[good] / error[good] ** 2
                weight[good] += 1 / error[good] ** 2
        return total / np.maximum(weight, 1e-9), 1 / np.maximum(weight, 1e-9)

    def ramps(self, lead: int) -> bool:
        """Whether a series has been getting worse for long, rather than at one commit."""
        now = self.newest
        if now < 80 or self.drifting.get(int(self.benchmark[lead]), -1) >= now:
            return False
        old, old_variance = self.window(now - 110, now - 50)
        middle, middle_variance = self.window(now - 36, now - 14)
        new, _ = self.window(now - 6, now)
        rise, part = new[lead] - old[lead], middle[lead] - old[lead]
        z = part / np.sqrt(old_variance[lead] + middle_variance[lead])
        return bool(rise >= 0.03 and part >= 0.25 * rise and z >= 3.5)

    def decide_drift(self, inquiry: Inquiry, change: Floats, z: Floats) -> None:
        lead = inquiry.lead
        if change[lead] < 0.042 or z[lead] < 3:
            if change[lead] > 0.015:
                self.muted[int(self.benchmark[lead])] = self.newest + 8
            self.drifting[int(self.benchmark[lead])] = self.newest + 8
            return
        listed = (self.benchmark == self.benchmark[lead]) & (change >= MOVED) & (z >= 2.5)
        listed[lead] = True
        now = self.newest
        place = Place(self.not_docs(max(1, now - 20)), max(1, inquiry.base - 10), now)
        self.drifting[int(self.benchmark[lead])] = now + 110
        earlier = [
            c
            for c in self.codes
            if c.open
            and c.listed[lead]
            and 0 < c.change[lead] < (0.3 if c.drift else 0.075)
            and now - c.place.commit < 100
        ]
        if earlier:
            incident = earlier[-1].incident
            self.change_incident(
                incident, testbeds=tuple(self.rows), drift=True, range_start=min(place.first, earlier[-1].place.first)
            )
        else:
            incident = self.open_incident(
                IncidentKind.REGRESSION, CauseName.CODE, listed, tuple(self.rows), place, change, drift=True
            )
        code = Code(incident, change, np.maximum(change / np.maximum(z, 1e-9), 1e-3), listed, place, drift=True)
        self.codes.append(code)
        for bed in self.rows.values():
            code.shown[bed.name] = bed.n
            near = bed.judged(first=now - 14)
            if len(near):
                mean, _ = bed.mean(near)
                bed.put(("drift", self.new_key()), Shift(np.where(listed, mean, 0.0), from_position=now - 14))
