"""One regression, not forty alerts: change points of one onset, over series and testbeds, belong together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backend.regression.terms import ChangeKind, ChangePoint, Role

NEAR = 3
"""Onsets this many commits apart may be one where it is not known how well they are located, or where not well."""
LOCATED = 2.2
"""A step of so many times the noise is located to the run: one run in seven is nearer to the other level."""


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """A change point and the series it is in."""

    series_id: str
    testbed: str
    benchmark: str
    metric: str
    role: Role
    change: ChangePoint
    exact: bool = False
    """Whether its metric is a counter, which no machine moves."""
    noise: float | None = None
    """Relative spread between runs; None: not known."""

    @property
    def slack(self) -> int:
        """Commits by which its onset may lie outside of its range: runs that it takes to tell the two levels apart."""
        if self.exact:
            return 0
        if self.noise is None or self.change.kind is not ChangeKind.STEP:
            return NEAR
        return min(NEAR, int((LOCATED * self.noise / abs(self.change.magnitude)) ** 2))

    @property
    def is_sharp(self) -> bool:
        """Whether its onset is located to the run: it began after the last good one, and by the first bad one."""
        return self.slack == 0


@dataclass(frozen=True, slots=True)
class Group:
    """Change points of one onset: one regression (or improvement) with its suspect range."""

    lead: SeriesChange
    members: tuple[SeriesChange, ...]

    @property
    def onset_position(self) -> int:
        """The onset of the sharpest member: the one with the narrowest range."""
        return min(
            self.members, key=lambda m: (m.change.range_end - m.change.range_start, -abs(m.change.magnitude))
        ).change.onset_position

    @property
    def last_good_position(self) -> int | None:
        """The newest run before the onset, over the members with that onset."""
        good = [
            m.change.last_good_position
            for m in self.members
            if m.change.last_good_position is not None and m.change.last_good_position < self.onset_position
        ]
        return max(good, default=None)

    @property
    def magnitude(self) -> float:
        """The effect of the lead."""
        return self.lead.change.magnitude

    @property
    def counter(self) -> str | None:
        """The metric of a gating counter among the members: whatever else moved at that onset, no machine did it."""
        return next(
            (m.metric for m in self.members if m.exact and m.role is Role.GATE and m.change.past_threshold), None
        )

    @property
    def opens(self) -> bool:
        """True if a gate metric is among the members: others are only shown, not reported."""
        return any(m.role is Role.GATE and m.change.past_threshold for m in self.members)


_WEIGHT = {Role.GATE: 1.0, Role.WATCH: 0.5, Role.DERIVED: 0.4, Role.PHASE: 0.2}


def same_onset(a: SeriesChange, b: SeriesChange) -> bool:
    """True when two change points may be one event of the code: same direction, and ranges that meet, or that lie no
    further apart than the onset of either is uncertain."""
    return a.change.direction is b.change.direction and _gap(a, b) <= max(a.slack, b.slack)


def _gap(a: SeriesChange, b: SeriesChange) -> int:
    """Commits between two ranges; 0: they meet."""
    return max(0, a.change.range_start - b.change.range_end, b.change.range_start - a.change.range_end)


def _is_another(members: Iterable[SeriesChange], change: SeriesChange) -> bool:
    """Whether a member began at another commit than the change: both are located to the run."""
    return change.is_sharp and any(member.is_sharp and _gap(member, change) for member in members)


def lead_of(members: Iterable[SeriesChange]) -> SeriesChange:
    """The member that users feel most: gates before the rest, then size."""
    return max(
        members,
        key=lambda m: (
            _WEIGHT[m.role] * abs(m.change.magnitude),
            m.role is Role.GATE,
            m.series_id,
        ),
    )


def group(changes: Sequence[SeriesChange]) -> list[Group]:
    """Groups of one onset, oldest first. Sharp change points found groups; blurred ones join the nearest."""
    by_sharpness = sorted(
        changes,
        key=lambda c: (
            not c.is_sharp,
            c.change.range_end - c.change.range_start,
            -abs(c.change.magnitude),
            c.series_id,
        ),
    )
    founded: list[list[SeriesChange]] = []
    for change in by_sharpness:
        near = [g for g in founded if same_onset(g[0], change) and not _is_another(g, change)]
        if near:
            nearest = min(near, key=lambda g: abs(g[0].change.onset_position - change.change.onset_position))
            nearest.append(change)
        else:
            founded.append([change])
    groups = [Group(lead_of(members), tuple(members)) for members in founded]
    return sorted(groups, key=lambda g: (g.onset_position, g.lead.series_id))


def belongs(found: Group, change: SeriesChange) -> bool:
    """True when a later change point belongs to a group that is already known."""
    return any(same_onset(member, change) for member in found.members) and not _is_another(found.members, change)
