"""What is known when a run has arrived at its place: handed through judging, causes and alarms."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from backend.contract import Run
from backend.regression.policy import Override, Policy
from backend.store.judging.series import SeriesRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A run at its place: stored, not judged yet."""

    run: Run
    project_id: int
    testbed_id: int
    commit_id: int
    default_branch_id: int
    position: int
    """On the default branch, or on the branch `branch_id`."""
    branch_id: int | None
    """None: the default branch."""
    base_position: int | None
    """Of another branch: where it leaves the default branch; None: not known."""
    measured_at: datetime
    now: datetime
    environment_hash: str
    overrides: tuple[Override, ...]
    points_per_week: float = 0.0
    """What the project judges in a week: its false-alarm budget is spread over them."""

    policies: dict[tuple[str, str], Policy] = field(default_factory=dict, compare=False, repr=False)
    """Found so far, by benchmark and metric."""

    def policy_of(self, series: SeriesRow) -> Policy:
        key = series.benchmark, series.metric
        policy = self.policies.get(key)
        if policy is None:
            policy = self.policies[key] = self._resolve(series)
        return policy

    def _resolve(self, series: SeriesRow) -> Policy:
        return Policy.resolve(
            self.overrides,
            project=self.run.project,
            suite=series.suite,
            benchmark=series.benchmark,
            metric=series.metric,
            testbed=self.run.testbed,
        ).for_load(self.points_per_week)

    @property
    def worker(self) -> str:
        return self.run.worker or ""
