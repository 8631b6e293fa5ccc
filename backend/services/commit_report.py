"""What is said of a commit outside of our own pages: gathered here, put into words by `github_text`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import Connection

from backend.regression.policy import Policy
from backend.services.commit_verdict import OPEN_STATES, CommitVerdict, commit_verdict
from backend.store import commits as commit_store
from backend.store import ingest as ingest_store
from backend.store import judgements
from backend.store import regressions as regression_store
from backend.store.commit_verdicts import CommitRun
from backend.store.projects import ProjectRow

JUDGED_ROLES = ("gate", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One judged metric. Changes are of cost, as fractions."""

    suite: str
    testbed: str
    benchmark: str
    variant: str
    metric: str
    unit: str
    verdict: str
    change: float | None
    low: float | None
    high: float | None
    base: float | None
    head: float
    regression_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a step beside what it was; `growth` in its own unit."""

    benchmark: str
    variant: str
    name: str
    unit: str
    growth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    suite: str
    testbed: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """Everything that a check or a comment is made of. `base`: the commit it is compared with, where it is known."""

    project: str
    sha: str
    base: str | None
    verdict: CommitVerdict
    complete: bool
    started: bool
    lines: tuple[Line, ...]
    phases: tuple[Phase, ...]
    failed: tuple[FailedRun, ...]
    waiting: tuple[str, ...]
    suites: tuple[str, ...]
    reason: str | None
    url: str

    def of(self, verdict: str) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if line.verdict == verdict)

    @property
    def counts(self) -> Mapping[str, int]:
        return Counter(line.verdict for line in self.lines)


def load_report(c: Connection, project: ProjectRow, sha: str, public_url: str) -> CommitReport:
    """What is known of this commit now. Of several runs of a suite on a testbed, the newest counts."""
    verdict = commit_verdict(c, project.slug, sha)
    newest = {_place(run): run for run in verdict.runs if run.state not in ("superseded", "cancelled")}
    needed = runs_needed(project)
    lines: list[Line] = []
    phases: list[Phase] = []
    for place, run in newest.items():
        said = {other.run_id: judgements.of_run(c, other.run_id) for other in verdict.runs if _place(other) == place}
        for row in said[run.run_id]:
            if row.role in JUDGED_ROLES:
                same = [other for rows in said.values() for other in rows if other.series_id == row.series_id]
                lines.append(_line(run, row, "regression" if is_sustained(same, needed) else row.verdict))
            elif row.role == "phase" and row.baseline is not None:
                phases.append(_phase(row))
    worse = {(line.benchmark, line.variant) for line in lines if line.verdict in ("regression", "suspect")}
    grown = [phase for phase in phases if (phase.benchmark, phase.variant) in worse and phase.growth > 0]
    base = _base(c, project, verdict.commit)
    return CommitReport(
        project=project.slug,
        sha=verdict.commit,
        base=base,
        verdict=CommitVerdict.REGRESSION if any(line.verdict == "regression" for line in lines) else verdict.verdict,
        complete=verdict.complete,
        started=any(run.state not in ("queued", "superseded") for run in verdict.runs),
        lines=tuple(sorted(lines, key=_worst_first)),
        phases=tuple(sorted(grown, key=lambda phase: -phase.growth)),
        failed=tuple(_failed(newest.values())),
        waiting=tuple(f"{run.suite} on {run.testbed}" for run in newest.values() if run.state in OPEN_STATES),
        suites=tuple(dict.fromkeys(suite for suite, _ in newest)),
        reason=verdict.reason,
        url=_url(public_url, project.slug, verdict.commit, base),
    )


def runs_needed(project: ProjectRow) -> int:
    """So many runs must say the same before anybody is told for sure."""
    return int(project.policy.get("sustained_runs", Policy().sustained_runs))


def _place(run: CommitRun) -> tuple[str, str]:
    return run.suite, run.testbed


def is_sustained(judged: Sequence[Any], needed: int) -> bool:
    """Whether runs of one commit confirm each other: as many as the policy asks for, each worse by itself.

    On the default branch the following commits confirm a change; a pull request's head has none, so its own runs do.
    """
    worse = [row for row in judged if row.verdict in ("suspect", "regression")]
    return len(worse) >= needed and len(worse) == len(judged)


def _line(run: CommitRun, row: Any, verdict: str) -> Line:
    return Line(
        suite=run.suite,
        testbed=run.testbed,
        benchmark=row.benchmark,
        variant=row.variant_key,
        metric=row.metric,
        unit=row.unit,
        verdict=verdict,
        change=row.change,
        low=row.change_low,
        high=row.change_high,
        base=row.baseline,
        head=row.value,
        regression_id=row.regression_id,
    )


def _phase(row: Any) -> Phase:
    return Phase(
        benchmark=row.benchmark,
        variant=row.variant_key,
        name=row.metric.removesuffix("_ms"),
        unit=row.unit,
        growth=row.value - row.baseline,
    )


def _failed(runs: Iterable[CommitRun]) -> Iterable[FailedRun]:
    for run in runs:
        if run.state == "failed":
            yield FailedRun(suite=run.suite, testbed=run.testbed, error=run.error or "it ended without a result")


def _worst_first(line: Line) -> tuple[int, float]:
    order: Sequence[str] = ("regression", "suspect", "improvement")
    rank = order.index(line.verdict) if line.verdict in order else len(order)
    return rank, -abs(line.change or 0.0)


def _base(c: Connection, project: ProjectRow, sha: str) -> str | None:
    """Where the commit leaves the default branch; of a commit on it, the commit before."""
    branches = commit_store.branches(c, project.id)
    trunk = branches.get(project.default_branch)
    commit_id = commit_store.ids_of(c, project.id, [sha]).get(sha)
    if trunk is None or commit_id is None:
        return None
    base = ingest_store.merge_base(c, project.id, trunk.id, commit_id)
    return None if base is None else regression_store.shas_at(c, trunk.id, [base.position]).get(base.position)


def _url(public_url: str, project: str, sha: str, base: str | None) -> str:
    address = public_url.rstrip("/")
    if base is None:
        return f"{address}/?{urlencode({'project': project})}"
    return f"{address}/compare?{urlencode({'project': project, 'base': base, 'head': sha})}"
