"""One word for a commit, for a pipeline that waits for it, and what the word is based on."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection

from backend.services.base.scope import find_commit, find_scope
from backend.store.reports import commit_verdicts as store
from backend.store.reports.commit_verdicts import CommitRun


class CommitVerdict(StrEnum):
    """The worst that is known; `pending` while runs are open, unless something bad is known already."""

    REGRESSION = "regression"
    SUSPECT = "suspect"
    FAILED = "failed"
    PENDING = "pending"
    IMPROVEMENT = "improvement"
    UNCHANGED = "unchanged"
    UNSTEADY = "unsteady"
    INSUFFICIENT = "insufficient"
    NOT_BENCHMARKED = "not_benchmarked"


OPEN_STATES = frozenset({"queued", "leased", "running"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAnswer:
    """`complete`: no run of this commit is waiting or running any more."""

    project: str
    commit: str
    verdict: CommitVerdict
    complete: bool
    counts: Mapping[str, int]
    regressions: tuple[int, ...]
    runs: tuple[CommitRun, ...]
    reason: str | None


def commit_verdict(c: Connection, project: str, commit: str, testbed: str | None = None) -> CommitAnswer:
    """Load the verdict on a commit."""
    found = find_commit(c, find_scope(c, project, None, testbed), commit)
    runs = store.runs_of_commit(c, found.id, testbed)
    ids = [run.run_id for run in runs]
    counts = store.verdicts_of_runs(c, ids)
    return CommitAnswer(
        project=project,
        commit=found.sha,
        verdict=word(counts, runs),
        complete=not any(run.state in OPEN_STATES for run in runs),
        counts=counts,
        regressions=tuple(store.regressions_of_runs(c, ids)),
        runs=tuple(runs),
        reason=found.skipped_reason,
    )


def word(counts: Mapping[str, int], runs: list[CommitRun]) -> CommitVerdict:
    """The worst first; a failed run is no regression, but nothing to be called unchanged either."""
    if counts.get("regression"):
        return CommitVerdict.REGRESSION
    if counts.get("suspect"):
        return CommitVerdict.SUSPECT
    if any(run.state in OPEN_STATES for run in runs):
        return CommitVerdict.PENDING
    newest = {(run.suite, run.testbed): run for run in runs}
    if any(run.state == "failed" for run in newest.values()):
        return CommitVerdict.FAILED
    quiet = (CommitVerdict.IMPROVEMENT, CommitVerdict.UNCHANGED, CommitVerdict.UNSTEADY, CommitVerdict.INSUFFICIENT)
    for verdict in quiet:
        if counts.get(verdict):
            return verdict
    return CommitVerdict.INSUFFICIENT if any(run.state == "done" for run in runs) else CommitVerdict.NOT_BENCHMARKED
