"""Finding what a caller names: a project by its slug, a branch, a testbed, a commit by sha, branch or pull request."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from backend.store.base import wire
from backend.store.base.commits import UNREAD


class NamedProject(NamedTuple):
    id: int
    slug: str
    default_branch: str
    repository_url: str | None
    trusted: bool


class BranchRow(NamedTuple):
    id: int
    name: str
    head_sha: str | None


class TestbedRow(NamedTuple):
    id: int
    name: str


class CommitRow(NamedTuple):
    """A commit and its position on the requested branch; no position: it is not on that branch."""

    id: int
    sha: str
    parents: list[str]
    message: str
    author_name: str
    committed_at: datetime | None
    pull_request: int | None
    skipped_reason: str | None
    position: int | None
    default_position: int | None


COMMIT_COLUMNS = """c.id, c.sha, c.parents, c.message, c.author_name, c.committed_at, c.pull_request,
       coalesce(c.manifest_error, c.skipped_reason)"""

_PROJECT = "SELECT id, slug, default_branch, repository_url, trusted FROM project WHERE slug = %(slug)s"
_SLUGS = text("SELECT slug FROM project WHERE NOT private ORDER BY slug LIMIT 20")
# The default branch first, then the one that was asked for, then those of the repository before those that results
# made, the most recently updated first; testbeds on which anything has run or is to run. Runs are
# ordered so that PostgreSQL goes by the index: it takes a project to have run everywhere, and would read all of one
# that has not.
SURROUNDINGS = """
SELECT p.id, p.slug, p.default_branch, p.repository_url, p.trusted,
  (SELECT json_agg(json_build_array(b.id, b.name, b.head_sha))
   FROM (SELECT id, name, head_sha FROM branch
         WHERE project_id = p.id AND deleted_at IS NULL AND name <> p.default_branch || %(unread)s
         ORDER BY name = p.default_branch DESC, name = %(branch)s::text DESC NULLS LAST, head_sha IS NULL,
           updated_at DESC
         LIMIT 200) AS b),
  (SELECT json_agg(json_build_array(t.id, t.name) ORDER BY t.name) FROM testbed t
   WHERE EXISTS (SELECT FROM series s WHERE s.project_id = p.id AND s.testbed_id = t.id)
      OR (SELECT r.id FROM run r WHERE r.project_id = p.id AND r.testbed_id = t.id
          ORDER BY r.received_at LIMIT 1) IS NOT NULL)
FROM project p WHERE p.slug = %(slug)s
"""
_COMMIT = f"""
SELECT {COMMIT_COLUMNS}, b.position, d.position
FROM commit c
LEFT JOIN branch_commit b ON b.commit_id = c.id AND b.branch_id = %(branch)s
LEFT JOIN branch_commit d ON d.commit_id = c.id AND d.branch_id = %(default_branch)s
WHERE c.project_id = %(project)s AND c.sha >= %(low)s AND c.sha < %(high)s ORDER BY c.sha LIMIT 3
"""
_COMMIT_OF_PULL_REQUEST = text(
    """SELECT sha FROM commit WHERE project_id = :project AND pull_request = :number
       ORDER BY recorded_at DESC, id DESC LIMIT 1"""
)
_LAST_GOOD = text(
    """WITH worse AS (
         SELECT coalesce(p.last_good_position + 1, p.onset_position) AS first,
           CASE WHEN g.state = 'expected' THEN p.onset_position + 1 ELSE p.fixed_position END AS over
         FROM change_point p JOIN series s ON s.id = p.series_id AND s.role = 'gate' AND s.testbed_id = :testbed
         JOIN branch m ON m.id = :branch AND m.project_id = s.project_id
         JOIN regression g ON g.id = p.regression_id AND g.state NOT IN ('invalid', 'withdrawn')
         WHERE p.direction = 'regression' AND p.state <> 'withdrawn')
       SELECT c.sha FROM branch_commit b
       JOIN commit c ON c.id = b.commit_id
       JOIN run r ON r.commit_id = c.id AND r.testbed_id = :testbed AND r.state = 'done' AND r.status = 'ok'
       WHERE b.branch_id = :branch AND (CAST(:before AS integer) IS NULL OR b.position < :before)
         AND NOT EXISTS (SELECT FROM judgement j JOIN series s ON s.id = j.series_id AND s.role = 'gate'
                         WHERE j.run_id = r.id AND j.measured_at = coalesce(r.started_at, r.received_at)
                           AND j.superseded_at IS NULL AND j.branch_id IS NULL
                           AND j.verdict IN ('regression', 'suspect'))
         AND NOT EXISTS (SELECT FROM worse
                         WHERE b.position >= worse.first AND (worse.over IS NULL OR b.position < worse.over))
       ORDER BY b.position DESC LIMIT 1"""
)


def find_project(connection: Connection, slug: str) -> NamedProject | None:
    (rows,) = wire.send(connection, (_PROJECT, {"slug": slug}))
    return NamedProject._make(rows[0]) if rows else None


def project_slugs(connection: Connection) -> list[str]:
    """The first twenty, for an error that says what there is."""
    return list(connection.scalars(_SLUGS))


def surroundings(
    connection: Connection, slug: str, branch: str | None = None
) -> tuple[NamedProject, list[BranchRow], list[TestbedRow]] | None:
    """A project with its branches (of many, some; `branch` is among them if it exists) and testbeds, in one round trip:
    every page begins with it."""
    (rows,) = wire.send(connection, (SURROUNDINGS, {"slug": slug, "branch": branch, "unread": UNREAD}))
    if not rows:
        return None
    (row,) = rows
    branches, testbeds = row[5] or (), row[6] or ()
    return (
        NamedProject._make(row[:5]),
        [BranchRow(*each) for each in branches],
        [TestbedRow(*each) for each in testbeds],
    )


def find_commits(
    connection: Connection, project_id: int, prefix: str, *, branch_id: int | None = None, default_branch_id: int | None
) -> list[CommitRow]:
    """Commits whose sha begins with `prefix`, at most three: more than one means that the prefix is ambiguous."""
    parameters: dict[str, Any] = {
        "project": project_id,
        "branch": default_branch_id if branch_id is None else branch_id,
        "default_branch": default_branch_id,
        "low": prefix,
        "high": prefix + "g",
    }
    (rows,) = wire.send(connection, (_COMMIT, parameters))
    return [CommitRow._make(row) for row in rows]


def commit_of_pull_request(connection: Connection, project_id: int, number: int) -> str | None:
    """The newest commit recorded for a pull request."""
    sha: str | None = connection.scalar(_COMMIT_OF_PULL_REQUEST, {"project": project_id, "number": number})
    return sha


_COMMIT_OF_TAG = text(
    """SELECT k.sha FROM tag t JOIN commit k ON k.id = t.commit_id WHERE t.project_id = :project AND t.name = :name"""
)


def commit_of_tag(connection: Connection, project_id: int, name: str) -> str | None:
    """The commit that a tag of the repository points at."""
    sha: str | None = connection.scalar(_COMMIT_OF_TAG, {"project": project_id, "name": name})
    return sha


def last_good_commit(connection: Connection, branch_id: int, testbed_id: int, before: int | None) -> str | None:
    """The newest benchmarked commit of the branch before a position at which nothing was worse.

    No gate of the testbed was red or suspect in its run, and no change for the worse began or was open there, not even
    in a suite that did not run; a change that was accepted is over after its onset.
    """
    sha: str | None = connection.scalar(_LAST_GOOD, {"branch": branch_id, "testbed": testbed_id, "before": before})
    return sha


_SERIES_BY_KEYS = text(
    """SELECT s.id, s.suite, s.benchmark, s.variant_key, s.preset, s.metric, s.suite_version
       FROM unnest(CAST(:suites AS text[]), CAST(:benchmarks AS text[]), CAST(:variants AS text[]),
                   CAST(:presets AS text[]), CAST(:metrics AS text[]), CAST(:versions AS text[]))
            AS k (suite, benchmark, variant_key, preset, metric, suite_version)
       JOIN series s ON s.project_id = :project AND s.testbed_id = :testbed AND s.suite = k.suite
         AND s.benchmark = k.benchmark
         AND s.variant_key = k.variant_key AND s.preset = k.preset AND s.metric = k.metric
         AND s.suite_version = k.suite_version"""
)


def series_by_keys(
    connection: Connection, project_id: int, testbed_id: int, keys: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], int]:
    """The series of these keys: (suite, benchmark, variant, preset, metric, suite version)."""
    columns = list(zip(*keys, strict=True)) if keys else [()] * 6
    names = ("suites", "benchmarks", "variants", "presets", "metrics", "versions")
    values = {name: list(column) for name, column in zip(names, columns, strict=True)}
    rows = connection.execute(_SERIES_BY_KEYS, {**values, "project": project_id, "testbed": testbed_id})
    return {(r.suite, r.benchmark, r.variant_key, r.preset, r.metric, r.suite_version): r.id for r in rows}


_SERIES_NAME = text("SELECT benchmark, variant_key, metric FROM series WHERE id = :id")


def series_name(connection: Connection, series_id: int | None) -> tuple[str, ...] | None:
    """Benchmark, variant and metric."""
    row = connection.execute(_SERIES_NAME, {"id": series_id}).one_or_none()
    return None if row is None else tuple(row)
