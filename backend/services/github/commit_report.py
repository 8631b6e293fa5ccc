"""The report on a commit for GitHub: gathered here, put into words by `text`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from statistics import NormalDist, median
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import Connection

from backend.contract import variant_key
from backend.regression.compare import CONFIDENCE
from backend.services.github.agreement import runs_needed
from backend.services.policy.resolve import policy_book
from backend.services.queue import view as queue_view
from backend.services.reports.commit_verdict import OPEN_STATES, CommitVerdict, commit_verdict
from backend.services.runs.steadiness import Steadiness, steadiness
from backend.store.base import commits as commit_store
from backend.store.base.projects import ProjectRow
from backend.store.github import pull_requests as pull_request_store
from backend.store.ingest import record as ingest_store
from backend.store.ingest.record import MergeBase
from backend.store.judging import judgements
from backend.store.regressions import regressions as regression_store
from backend.store.reports import commit_verdicts as store
from backend.store.reports.commit_verdicts import CommitRun

JUDGED_ROLES = ("gate", "watch")
WORSE = ("suspect", "regression")
BASE_RUNS, BASE_REACH = 8, 30
# Half the width of an interval in standard deviations.
WIDTH = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricLine:
    """One judged metric, of all runs of the commit together. Changes are of cost, as fractions."""

    suite: str
    testbed: str
    benchmark: str
    variant: str
    metric: str
    unit: str
    direction: str
    role: str
    exact: bool
    verdict: str
    red: bool
    """A gate got worse, and the code may be the cause."""
    change: float | None
    low: float | None
    high: float | None
    base: float | None
    head: float
    runs: int
    worse: int
    """Of `runs`, so many are worse each by itself."""
    detectable: float | None
    """The smallest change that this series' noise lets through, as the policy asks to see it."""
    needed: int
    """So many runs must agree before it is a regression."""
    still_needed: int
    """Runs of the branch that its baseline lacks."""
    regression_id: int | None
    source: str | None
    """The file that holds the benchmark, where the benchmark names it: `path` or `path:line`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrownPhase:
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
class Waiting:
    """A run that is not over; `eta_s` as the queue estimates it."""

    suite: str
    testbed: str
    eta_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """Everything that a check or a comment is made of. `base`: the commit it is compared with, where it is known."""

    project: str
    sha: str
    base: str | None
    pull_request: int | None
    verdict: CommitVerdict
    complete: bool
    started: bool
    lines: tuple[MetricLine, ...]
    phases: tuple[GrownPhase, ...]
    failed: tuple[FailedRun, ...]
    waiting: tuple[Waiting, ...]
    suites: tuple[str, ...]
    reason: str | None
    """This many runs must agree before anything is reported as certain."""
    steadiness: Steadiness | None
    """Of the machine, where something looks slower."""
    url: str

    def of(self, verdict: str) -> tuple[MetricLine, ...]:
        return tuple(line for line in self.lines if line.verdict == verdict)

    @property
    def worse(self) -> tuple[MetricLine, ...]:
        """Lines that are or may be worse, gates before watched metrics."""
        found = [line for line in self.lines if line.verdict in WORSE]
        return tuple(sorted(found, key=lambda line: line.role != "gate"))

    @property
    def gates(self) -> tuple[MetricLine, ...]:
        return tuple(line for line in self.lines if line.role == "gate")

    @property
    def counts(self) -> Mapping[str, int]:
        return Counter(line.verdict for line in self.lines)

    @property
    def detectable(self) -> float | None:
        """The smallest change that would have been seen, in the middle of the gates."""
        known = [line.detectable for line in self.gates if line.detectable is not None]
        return median(known) if known else None


def load_report(c: Connection, project: ProjectRow, sha: str, public_url: str) -> CommitReport:
    """Load the report on a commit. Runs of a suite on a testbed count together."""
    verdict = commit_verdict(c, project.slug, sha)
    newest = {_place(run): run for run in verdict.runs if run.state not in ("superseded", "cancelled")}
    book = policy_book(c, project.slug)
    documents = store.documents_of(c, [run.run_id for run in newest.values()])
    lines: list[MetricLine] = []
    phases: list[GrownPhase] = []
    for place, run in newest.items():
        said = {other.run_id: judgements.of_run(c, other.run_id) for other in verdict.runs if _place(other) == place}
        sources = _sources(documents.get(run.run_id, {}))
        for row in said[run.run_id]:
            same = [other for rows in said.values() for other in rows if other.series_id == row.series_id]
            if row.role in JUDGED_ROLES:
                lines.append(_line(run, row, same, runs_needed(book, place, [row]), sources))
            elif row.role == "phase" and row.baseline is not None:
                phases.append(_phase(row, same))
    worse = {(line.benchmark, line.variant) for line in lines if line.verdict in WORSE}
    grown = [phase for phase in phases if (phase.benchmark, phase.variant) in worse and phase.growth > 0]
    base, base_sha = _base(c, project, verdict.commit)
    red = any(line.red for line in lines)
    ordered = tuple(sorted(lines, key=_worst_first))
    return CommitReport(
        project=project.slug,
        sha=verdict.commit,
        base=base_sha,
        pull_request=pull_request_store.pull_request_of(c, project.id, verdict.commit),
        verdict=CommitVerdict.REGRESSION if red else verdict.verdict,
        complete=verdict.complete,
        started=any(run.state not in ("queued", "superseded") for run in verdict.runs),
        lines=ordered,
        phases=tuple(sorted(grown, key=lambda phase: -phase.growth)),
        failed=tuple(_failed(newest.values())),
        waiting=_waiting(c, project, newest.values()),
        suites=tuple(dict.fromkeys(suite for suite, _ in newest)),
        reason=verdict.reason,
        steadiness=_steadiness(c, project, ordered, newest.values(), documents, base),
        url=_url(public_url, project.slug, verdict.commit, base_sha),
    )


def _place(run: CommitRun) -> tuple[str, str]:
    return run.suite, run.testbed


def _line(
    run: CommitRun, row: Any, same: Sequence[Any], needed: int, sources: Mapping[tuple[str, str], str]
) -> MetricLine:
    """A series of the commit; `same` are its judgements in all runs of the commit, `row` the newest."""
    change = median(known) if (known := [it.change for it in same if it.change is not None]) else None
    noise, known_runs = row.noise, row.n_baseline or 0
    low = high = None
    if change is not None and noise and not row.exact:
        half = WIDTH * noise * sqrt(1 / len(same) + 1 / max(1, known_runs))
        low, high = (1 + change) * exp(-half) - 1, (1 + change) * exp(half) - 1
    return MetricLine(
        suite=run.suite,
        testbed=run.testbed,
        benchmark=row.benchmark,
        variant=row.variant_key,
        metric=row.metric,
        unit=row.unit,
        direction=row.direction,
        role=row.role,
        exact=row.exact,
        verdict=row.verdict,
        red=row.red,
        change=change,
        low=low,
        high=high,
        base=row.baseline,
        head=median(it.value for it in same),
        runs=len(same),
        worse=sum(it.verdict in WORSE for it in same),
        detectable=row.minimum_detectable_effect or None,
        needed=needed,
        still_needed=max(0, (row.need or 0)) if row.verdict == "insufficient" else 0,
        regression_id=row.regression_id,
        source=sources.get((row.benchmark, row.variant_key)) or _file_in(row.benchmark),
    )


def _sources(document: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """The files that results name as the place of their benchmark."""
    return {
        (result["benchmark"], variant_key(result.get("variant") or {})): result["source"]
        for result in document.get("results") or ()
        if isinstance(result.get("source"), str)
    }


def _file_in(benchmark: str) -> str | None:
    """pytest calls a benchmark by its file: `tests/test_router.py::test_route`."""
    file, colons, _ = benchmark.partition("::")
    return file if colons and file.endswith(".py") else None


def _phase(row: Any, same: Sequence[Any]) -> GrownPhase:
    return GrownPhase(
        benchmark=row.benchmark,
        variant=row.variant_key,
        name=row.metric.removesuffix("_ms"),
        unit=row.unit,
        growth=median(it.value for it in same) - row.baseline,
    )


def _waiting(c: Connection, project: ProjectRow, runs: Iterable[CommitRun]) -> tuple[Waiting, ...]:
    open_runs = [run for run in runs if run.state in OPEN_STATES]
    if not open_runs:
        return ()
    known = {item.run_id: item.done_in_s for item in queue_view.queue(c, project=project.slug, limit=500).items}
    return tuple(Waiting(suite=run.suite, testbed=run.testbed, eta_s=known.get(run.run_id)) for run in open_runs)


def _steadiness(
    c: Connection,
    project: ProjectRow,
    lines: Sequence[MetricLine],
    runs: Iterable[CommitRun],
    documents: Mapping[str, Mapping[str, Any]],
    base: MergeBase | None,
) -> Steadiness | None:
    """Of the machines that measured what looks worst; nothing where nothing looks worse."""
    lead = next((line for line in lines if line.verdict in WORSE), None)
    if lead is None:
        return None
    place = (lead.suite, lead.testbed)
    head = [documents[run.run_id] for run in runs if _place(run) == place and run.run_id in documents]
    trunk = commit_store.branches(c, project.id).get(project.default_branch)
    before: list[Mapping[str, Any]] = []
    if base is not None and trunk is not None:
        before = store.documents_before(c, trunk.id, *place, base.position, reach=BASE_REACH, most=BASE_RUNS)
    there = [line for line in lines if (line.suite, line.testbed) == place]
    return steadiness(
        before,
        head,
        unmoved=sum(line.verdict == "unchanged" for line in there),
        moved=sum(line.verdict in WORSE for line in there),
    )


def _failed(runs: Iterable[CommitRun]) -> Iterable[FailedRun]:
    for run in runs:
        if run.state == "failed":
            yield FailedRun(suite=run.suite, testbed=run.testbed, error=run.error or "it ended without a result")


def _worst_first(line: MetricLine) -> tuple[int, bool, bool, float]:
    order: Sequence[str] = ("regression", "suspect", "improvement")
    rank = order.index(line.verdict) if line.verdict in order else len(order)
    # What is judged before what is watched, what is measured before what is counted: "slower" is what people ask about.
    return rank, line.role != "gate", line.exact, -abs(line.change or 0.0)


def _base(c: Connection, project: ProjectRow, sha: str) -> tuple[MergeBase | None, str | None]:
    """Where the commit leaves the default branch; of a commit on it, the commit before."""
    branches = commit_store.branches(c, project.id)
    trunk = branches.get(project.default_branch)
    commit_id = commit_store.ids_of(c, project.id, [sha]).get(sha)
    if trunk is None or commit_id is None:
        return None, None
    base = ingest_store.merge_base(c, project.id, trunk.id, commit_id)
    if base is None:
        return None, None
    return base, regression_store.shas_at(c, trunk.id, [base.position]).get(base.position)


def _url(public_url: str, project: str, sha: str, base: str | None) -> str:
    address = public_url.rstrip("/")
    if base is None:
        return f"{address}/?{urlencode({'project': project})}"
    return f"{address}/compare?{urlencode({'project': project, 'base': base, 'head': sha})}"
