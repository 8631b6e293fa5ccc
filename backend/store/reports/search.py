"""Finding things by what a person remembers of them: words, the beginning of a sha, a number."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, text


class CommitHit(NamedTuple):
    project: str
    sha: str
    message: str
    author: str
    committed_at: datetime | None
    pull_request: int | None


class BenchmarkHit(NamedTuple):
    project: str
    suite: str
    benchmark: str
    variants: int


class SeriesHit(NamedTuple):
    project: str
    id: int
    testbed: str
    benchmark: str
    variant_key: str
    metric: str


class RegressionHit(NamedTuple):
    project: str
    id: int
    state: str
    change: float | None
    benchmark: str | None
    variant_key: str | None
    sha: str | None
    message: str | None


class RunHit(NamedTuple):
    project: str
    id: str
    suite: str
    testbed: str
    state: str
    sha: str


NEWEST_REGRESSIONS = 1_000
"""Of so many the words are looked for."""
_OF_PROJECT = "(CAST(:project AS integer) IS NULL OR p.id = :project)"
_COMMITS_BY_SHA = text(
    f"""SELECT p.slug, c.sha, split_part(c.message, E'\\n', 1), c.author_name, c.committed_at, c.pull_request
        FROM commit c JOIN project p ON p.id = c.project_id
        WHERE {_OF_PROJECT} AND c.sha >= :low AND c.sha < :high ORDER BY c.id DESC LIMIT :limit"""
)
_COMMITS_BY_WORDS = f"""
SELECT p.slug, c.sha, split_part(c.message, E'\\n', 1), c.author_name, c.committed_at, c.pull_request
FROM commit c JOIN project p ON p.id = c.project_id
WHERE {_OF_PROJECT} AND {{words}} ORDER BY c.id DESC LIMIT :limit"""
_COMMITS_BY_PULL_REQUEST = text(
    f"""SELECT p.slug, c.sha, split_part(c.message, E'\\n', 1), c.author_name, c.committed_at, c.pull_request
        FROM commit c JOIN project p ON p.id = c.project_id
        WHERE {_OF_PROJECT} AND c.pull_request = :number ORDER BY c.id DESC LIMIT :limit"""
)
_BENCHMARKS = text(
    f"""SELECT p.slug, s.suite, s.benchmark, count(DISTINCT s.variant_key)
        FROM series s JOIN project p ON p.id = s.project_id
        WHERE {_OF_PROJECT} AND (s.suite || ' ' || s.benchmark) ILIKE ALL (:patterns)
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT :limit"""
)
_SERIES = text(
    f"""SELECT p.slug, s.id, t.name, s.benchmark, s.variant_key, s.metric
        FROM series s JOIN project p ON p.id = s.project_id JOIN testbed t ON t.id = s.testbed_id
        WHERE {_OF_PROJECT}
          AND (s.suite || ' ' || s.benchmark || ' ' || s.variant_key || ' ' || s.metric || ' ' || t.name)
              ILIKE ALL (:patterns)
        ORDER BY s.role = 'gate' DESC, s.last_measured_at DESC NULLS LAST, s.id LIMIT :limit"""
)
_REGRESSIONS = text(
    f"""SELECT p.slug, g.id, g.state, g.lead_change, s.benchmark, s.variant_key, c.sha,
          split_part(c.message, E'\\n', 1)
        FROM (SELECT * FROM regression WHERE CAST(:project AS integer) IS NULL OR project_id = :project
              ORDER BY id DESC LIMIT CASE WHEN CAST(:number AS integer) IS NULL THEN {NEWEST_REGRESSIONS} END) AS g
        JOIN project p ON p.id = g.project_id
        LEFT JOIN series s ON s.id = g.lead_series_id
        LEFT JOIN LATERAL (SELECT * FROM commit WHERE id = g.first_bad_commit_id OFFSET 0) AS c ON true
        WHERE {_OF_PROJECT} AND (g.id = CAST(:number AS integer) OR (
          CAST(:number AS integer) IS NULL AND concat_ws(' ', s.suite, s.benchmark, s.variant_key, s.metric, c.message,
            c.author_name, c.sha, g.owner, g.state) ILIKE ALL (:patterns)))
        ORDER BY g.id DESC LIMIT :limit"""
)
_RUNS = text(
    f"""SELECT p.slug, r.id, r.suite, t.name, r.state, c.sha
        FROM run r JOIN project p ON p.id = r.project_id JOIN testbed t ON t.id = r.testbed_id
        JOIN commit c ON c.id = r.commit_id
        WHERE {_OF_PROJECT} AND r.id >= :word AND r.id < :after ORDER BY r.id LIMIT :limit"""
)
LAST_CHARACTER = "\uffff"


def commits_by_sha(c: Connection, project_id: int | None, prefix: str, limit: int) -> list[CommitHit]:
    parameters = {"project": project_id, "low": prefix, "high": prefix + "g", "limit": limit}
    return [CommitHit._make(row) for row in c.execute(_COMMITS_BY_SHA, parameters).all()]


def commits_by_words(c: Connection, project_id: int | None, patterns: Sequence[str], limit: int) -> list[CommitHit]:
    # One condition a word: an array of them could not be answered by the index of trigrams.
    names = [f"word{number}" for number in range(len(patterns))]
    words = " AND ".join(f"(c.message || ' ' || c.author_name) ILIKE :{name}" for name in names) or "true"
    parameters = {"project": project_id, "limit": limit, **dict(zip(names, patterns, strict=True))}
    return [CommitHit._make(row) for row in c.execute(text(_COMMITS_BY_WORDS.format(words=words)), parameters).all()]


def commits_by_pull_request(c: Connection, project_id: int | None, number: int, limit: int) -> list[CommitHit]:
    parameters = {"project": project_id, "number": number, "limit": limit}
    return [CommitHit._make(row) for row in c.execute(_COMMITS_BY_PULL_REQUEST, parameters).all()]


def benchmarks(c: Connection, project_id: int | None, patterns: Sequence[str], limit: int) -> list[BenchmarkHit]:
    parameters = {"project": project_id, "patterns": list(patterns), "limit": limit}
    return [BenchmarkHit._make(row) for row in c.execute(_BENCHMARKS, parameters).all()]


def series(c: Connection, project_id: int | None, patterns: Sequence[str], limit: int) -> list[SeriesHit]:
    parameters = {"project": project_id, "patterns": list(patterns), "limit": limit}
    return [SeriesHit._make(row) for row in c.execute(_SERIES, parameters).all()]


def regressions(
    c: Connection, project_id: int | None, patterns: Sequence[str], number: int | None, limit: int
) -> list[RegressionHit]:
    """By number; or, of the newest, by words in the names of what got slower, the commit that did it, or its owner."""
    parameters = {"project": project_id, "patterns": list(patterns), "number": number, "limit": limit}
    return [RegressionHit._make(row) for row in c.execute(_REGRESSIONS, parameters).all()]


def runs(c: Connection, project_id: int | None, prefix: str, limit: int) -> list[RunHit]:
    parameters = {"project": project_id, "word": prefix, "after": prefix + LAST_CHARACTER, "limit": limit}
    return [RunHit._make(row) for row in c.execute(_RUNS, parameters).all()]
