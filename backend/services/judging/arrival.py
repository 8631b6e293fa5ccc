"""A run that has arrived at its place: stored, not judged yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from backend.contract import Run
from backend.services.regressions.ledger import AlarmContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    run: Run
    context: AlarmContext
    commit_id: int
    branch_id: int | None
    """None: the default branch. Else the position is on this one."""
    base_position: int | None
    """Of another branch: where it leaves the default branch; None: not known."""
    measured_at: datetime
    environment_hash: str

    @property
    def position(self) -> int:
        return self.context.position

    @property
    def now(self) -> datetime:
        return self.context.now

    @property
    def worker(self) -> str:
        return self.run.worker or ""
