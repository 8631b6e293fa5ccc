"""What is known when a run has arrived at its place: handed through judging, causes and alarms."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from backend.contract import Run
from backend.regression.policy import Policy, PolicyBook
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
    policies: PolicyBook
    """Those of tidemark.toml, of the suite of this very commit, and what a person chose."""

    def policy_of(self, series: SeriesRow) -> Policy:
        return self.policies.of(
            suite=series.suite, benchmark=series.benchmark, metric=series.metric, testbed=self.run.testbed
        )

    @property
    def worker(self) -> str:
        return self.run.worker or ""
