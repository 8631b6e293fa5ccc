"""The `/` box: one line of text over commits, benchmarks, series, regressions and runs."""

import re
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection

from backend.services.base.scope import find_project, storable
from backend.store.reports import search as store
from backend.store.reports.search import BenchmarkHit, CommitHit, RegressionHit, RunHit, SeriesHit
from backend.store.reports.series import escaped

SHA = re.compile(r"[0-9a-f]{4,64}\Z")
REGRESSION = re.compile(r"[rR]-?(\d{1,9})\Z")
PULL_REQUEST = re.compile(r"#(\d{1,9})\Z")
RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{5,63}\Z")
MAX_TEXT = 200
PER_KIND = 6


class HitKind(StrEnum):
    REGRESSION = "regression"
    COMMIT = "commit"
    BENCHMARK = "benchmark"
    SERIES = "series"
    RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One thing found. `key` is what its page needs: a sha, a series id, a regression's number, a run id."""

    kind: HitKind
    project: str
    key: str
    title: str
    detail: str
    suite: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHits:
    """Hits by kind, the surest first; `more` kinds have further hits than these."""

    text: str
    hits: tuple[Hit, ...]
    more: tuple[HitKind, ...]


def search(c: Connection, text: str, project: str | None = None, *, per_kind: int = PER_KIND) -> SearchHits:
    """Everything that the text may mean: `R-214`, `#123`, the beginning of a sha or a run id, or words."""
    text = storable(text).strip()[:MAX_TEXT]
    words = text.split()
    if not words:
        return SearchHits(text=text, hits=(), more=())
    project_id = None if project is None else find_project(c, project).id
    patterns = [f"%{escaped(word)}%" for word in words]
    limit = per_kind + 1
    number = int(match[1]) if (match := REGRESSION.match(text)) else None
    found = {
        HitKind.REGRESSION: [_regression(row) for row in store.regressions(c, project_id, patterns, number, limit)],
        HitKind.COMMIT: [_commit(row) for row in _commits(c, project_id, text, patterns, limit)],
    }
    if number is None:
        runs = store.runs(c, project_id, text, limit) if RUN_ID.match(text) else []
        found |= {
            HitKind.BENCHMARK: [_benchmark(row) for row in store.benchmarks(c, project_id, patterns, limit)],
            HitKind.SERIES: [_series(row) for row in store.series(c, project_id, patterns, limit)],
            HitKind.RUN: [_run(row) for row in runs],
        }
    return SearchHits(
        text=text,
        hits=tuple(hit for hits in found.values() for hit in hits[:per_kind]),
        more=tuple(kind for kind, hits in found.items() if len(hits) > per_kind),
    )


def _commits(c: Connection, project_id: int | None, text: str, patterns: list[str], limit: int) -> list[CommitHit]:
    if match := PULL_REQUEST.match(text):
        return store.commits_by_pull_request(c, project_id, int(match[1]), limit)
    by_sha = store.commits_by_sha(c, project_id, text.lower(), limit) if SHA.match(text.lower()) else []
    return by_sha or store.commits_by_words(c, project_id, patterns, limit)


def _regression(row: RegressionHit) -> Hit:
    return Hit(
        kind=HitKind.REGRESSION,
        project=row.project,
        key=str(row.id),
        title=f"R-{row.id} {row.benchmark or ''} {row.variant_key or ''}".strip(),
        detail=f"{row.state}, since {(row.sha or '')[:7]} {row.message or ''}".strip(),
    )


def _commit(row: CommitHit) -> Hit:
    number = "" if row.pull_request is None else f" #{row.pull_request}"
    return Hit(
        kind=HitKind.COMMIT,
        project=row.project,
        key=row.sha,
        title=f"{row.sha[:7]} {row.message}",
        detail=f"{row.author}{number}".strip(),
    )


def _benchmark(row: BenchmarkHit) -> Hit:
    return Hit(
        kind=HitKind.BENCHMARK,
        project=row.project,
        key=row.benchmark,
        title=row.benchmark,
        detail=f"{row.suite}, {row.variants} variant{'' if row.variants == 1 else 's'}",
        suite=row.suite,
    )


def _series(row: SeriesHit) -> Hit:
    return Hit(
        kind=HitKind.SERIES,
        project=row.project,
        key=str(row.id),
        title=f"{row.benchmark} {row.variant_key} {row.metric}",
        detail=row.testbed,
    )


def _run(row: RunHit) -> Hit:
    return Hit(
        kind=HitKind.RUN,
        project=row.project,
        key=row.id,
        title=f"Run {row.id}",
        detail=f"{row.suite} of {row.sha[:7]} on {row.testbed}, {row.state}",
    )
