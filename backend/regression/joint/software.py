"""Software below and around the code: upgrades of a testbed, and new ways of measuring."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from backend.regression.cause.attribution import CauseName
from backend.regression.joint.rows import RowsOfTestbed, Shift, middle
from backend.regression.joint.scan import PARTNER, OnsetRange
from backend.regression.joint.state import REPORTED_FROM, JointState, SuiteVersionChange, Upgrade
from backend.regression.joint.terms import Bools, Floats, IncidentKind, JointRun

UPGRADE_TELLS = 0.8
"""Share of the threshold: an upgrade that moves nothing by this much is not reported; most upgrades have no effect."""

MOVED_BY_SOFTWARE = 0.3
"""Share of the threshold: what moved less is not listed with an upgrade or a new way of measuring."""
FEW = 4
"""Runs since an upgrade below which every one of them must show what it moved, and not only every other."""
SHOWN = 0.35
"""Share of the mean that they must show."""


class Software:
    """Notices new environments and new versions of suites, and what they moved."""

    def __init__(self, state: JointState) -> None:
        self.state = state

    def level_of(self, run: JointRun) -> int:
        known = self.state.environments[run.testbed]
        fingerprint = tuple(sorted(run.environment.items()))
        if fingerprint not in known:
            known.append(fingerprint)
            if len(known) > 1:
                self.state.upgrades.append(Upgrade(run.testbed, len(known) - 1, run.position, key=self.state.new_key()))
        return known.index(fingerprint)

    def note_versions(self, run: JointRun) -> None:
        for suite, version in run.suite_version.items():
            if suite not in self.state.suites:
                continue
            usual = self.state.versions.setdefault(suite, version)
            if version == usual:
                continue
            number = self.state.suites.index(suite)
            bumps = [m for m in self.state.version_changes if m.suite == number]
            newest = bumps[-1] if bumps else None
            if self.newer(version, usual):
                self.state.versions[suite] = version
                self.state.version_changes.append(SuiteVersionChange(number, run.position, key=self.state.new_key()))
            elif newest is not None and newest.incident_id is None:
                newest.position = max(newest.position, run.position + 1)
        for version_change in self.state.version_changes:
            name = self.state.suites[version_change.suite]
            if run.suite_version.get(name) == self.state.versions[name] and run.position < version_change.position:
                version_change.position = run.position

    @staticmethod
    def newer(a: str, b: str) -> bool:
        def parts(v: str) -> list[tuple[int, str]]:
            return [(int(p), "") if p.isdigit() else (-1, p) for p in v.split(".")]

        return parts(a) > parts(b)

    def settle_version_changes(self) -> None:
        for version_change in self.state.version_changes:
            if version_change.settled:
                continue
            total, weight, count = np.zeros(self.state.size), np.zeros(self.state.size), 0
            for rows in self.state.rows.values():
                after = rows.judged(40, first=version_change.position)
                if len(after):
                    mean, error = rows.mean(after)
                    good = np.isfinite(error)
                    total[good] += mean[good] / error[good] ** 2
                    weight[good] += 1 / error[good] ** 2
                    count += len(after)
            if count < 2:
                continue
            change = total / np.maximum(weight, 1e-9)
            z = change * np.sqrt(weight)
            own = (self.state.suite == version_change.suite) & self.state.machine_bound
            listed = own & (np.abs(change) >= MOVED_BY_SOFTWARE * self.state.smallest) & (np.abs(z) >= 3.5)
            if (
                listed & self.state.shown & (np.abs(change) >= REPORTED_FROM * self.state.smallest) & (np.abs(z) >= 5)
            ).any():
                place = OnsetRange(version_change.position, version_change.position, version_change.position)
                if version_change.incident_id is None:
                    version_change.incident_id = self.state.open_incident(
                        IncidentKind.METHOD, CauseName.METHOD, listed, tuple(self.state.rows), place, change
                    )
            if version_change.incident_id is not None:
                self.state.change_incident(version_change.incident_id, series=tuple(np.flatnonzero(listed)))
                for rows in self.state.rows.values():
                    rows.put(
                        ("method", version_change.key),
                        Shift(np.where(listed, change, 0.0), from_position=version_change.position),
                    )
                version_change.settled = True
            elif count >= 12:
                version_change.settled = True

    def moved_by_upgrade(self, upgrade: Upgrade, rows: RowsOfTestbed) -> tuple[Bools, Floats] | None:
        """The series that an upgrade moved and by how much; None if that is not worth reporting."""
        post = rows.judged(level=upgrade.level)
        if len(post) < 2:
            return None
        newest = np.sort(post)[-20:]
        mean, error = rows.mean(newest)
        z = mean / error
        listed = (
            self.state.machine_bound & (np.abs(mean) >= MOVED_BY_SOFTWARE * self.state.smallest) & (np.abs(z) >= 3.5)
        )
        # One unlucky run moves the mean of a few: all of them must show it, or half where they are more.
        tail = rows.tail(newest)
        shown = np.where(tail.mask, tail.residual * np.sign(mean), np.nan)
        typical = middle(shown) if len(newest) >= FEW else np.nanmin(shown, axis=0, initial=np.inf)
        listed &= typical > SHOWN * np.abs(mean)
        before = rows.judged(80, below=upgrade.level)[-8:]
        if len(before) >= 3:
            # What was as bad before the upgrade is not its doing.
            earlier, error = rows.mean(before)
            as_bad = (earlier * np.sign(mean) > 0.45 * np.abs(mean)) & (np.abs(earlier) > 2 * error)
            listed &= ~self.state.with_moved(as_bad & self.state.shown)
        getting_worse = [b for b, until in self.state.drifting.items() if until >= self.state.newest]
        listed &= ~np.isin(self.state.benchmark, getting_worse)
        clear = self.state.with_moved(
            listed & (np.abs(mean) >= UPGRADE_TELLS * self.state.smallest) & (np.abs(z) >= 4.2)
        )
        if not (clear & self.state.shown & (np.abs(mean) >= PARTNER * self.state.smallest) & (np.abs(z) >= 2)).any():
            return None
        return listed, mean

    def report_upgrade(self, upgrade: Upgrade, rows: RowsOfTestbed, listed: Bools, mean: Floats) -> None:
        place = OnsetRange(upgrade.position, upgrade.position, upgrade.position)
        upgrade.incident_id = self.state.open_incident(
            IncidentKind.ENVIRONMENT, CauseName.ENVIRONMENT, listed, (rows.name,), place, mean
        )
        upgrade.settled = True
        upgrade.listed = listed
        rows.put(("environment", upgrade.key), Shift(np.where(listed, mean, 0.0), from_level=upgrade.level))

    def refit_upgrade(self, upgrade: Upgrade, rows: RowsOfTestbed) -> None:
        """Estimate again, from the runs since, by how much an upgrade moved each series."""
        post = np.sort(rows.judged(level=upgrade.level))
        if len(post) < (3, 4, 6, 8, 11, 15, 20, 26)[upgrade.refits]:
            return
        upgrade.refits += 1
        put = rows.shifts.get(("environment", upgrade.key))
        assert put is not None and upgrade.listed is not None and upgrade.incident_id is not None
        mean, error = rows.mean(post if len(post) < 6 else post[:-2])
        total = put.delta + mean
        z = total / error
        listed = (
            self.state.machine_bound & (np.abs(total) >= MOVED_BY_SOFTWARE * self.state.smallest) & (np.abs(z) >= 3.5)
        )
        listed |= (
            self.state.with_moved(listed & self.state.shown)
            & self.state.machine_bound
            & (np.abs(total) >= 0.02)
            & (np.abs(z) >= 2.5)
        )
        if upgrade.refits > 3:
            # By now a new change may be among the rows: only what was moved from the start is followed.
            listed &= upgrade.listed | (np.abs(rows.mean(post[:6])[0] + put.delta) >= 0.5 * np.abs(total))
        if not listed.any():
            return
        upgrade.listed = listed
        rows.put(("environment", upgrade.key), replace(put, delta=np.where(listed, total, 0.0)))
        self.state.change_incident(upgrade.incident_id, series=tuple(np.flatnonzero(listed)))

    def unsettled_near(self, rows: RowsOfTestbed) -> bool:
        return any(u.testbed == rows.name and self.state.newest - u.position < 30 for u in self.state.upgrades)
