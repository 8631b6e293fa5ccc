"""A store as it looks after months: runs, results, measurements and judgements, written by the server itself.

The rows are what ingest would have stored (same tables, same indexes, every judged column filled): noisy values around
a level per series, steps that stay for a while with an onset and a regression behind them, suspects, improvements.
Reads cannot tell the difference; nothing here is judged again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Table, text

from backend.store.base.schema import ensure_partitions
from backend.store.tables.core import judgement, measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How much: `suites` × `variants` columns over `commits` commits, each with `metrics` gate series, and `watched`
    ones of single values, which are judged and never red."""

    project: str = "bench/large"
    testbed: str = "bench-sxm"
    suites: int = 5
    variants: int = 40
    metrics: int = 1
    watched: int = 0
    commits: int = 5_000
    minutes_between_commits: int = 60
    last_at: datetime | None = None  # of the newest commit; now, when left out

    @property
    def columns(self) -> int:
        return self.suites * self.variants

    @property
    def series(self) -> int:
        """Those of gate metrics."""
        return self.columns * self.metrics

    @property
    def measurements_of_a_commit(self) -> int:
        return self.columns * (self.metrics + self.watched)

    @property
    def measurements(self) -> int:
        return self.measurements_of_a_commit * self.commits


ALONE = Shape()
BUSY = Shape(watched=3, minutes_between_commits=7)
"""As a team has it that makes 200 commits a day: of four metrics of a result, one is a gate."""


def shapes_of(base: Shape, measurements: int, projects: int) -> list[Shape]:
    """So many measurements, in so many projects like this one; the first is the one to look at."""
    commits = measurements // projects // base.measurements_of_a_commit
    others = [
        replace(base, project=f"{base.project}-{number}", testbed=f"{base.testbed}-{number}")
        for number in range(2, projects + 1)
    ]
    return [replace(shape, commits=commits) for shape in (base, *others)]


@dataclass(frozen=True, slots=True)
class Filled:
    """What was written: ids that a reader needs."""

    shape: Shape
    project_id: int
    testbed_id: int
    branch_id: int
    first_series_id: int
    head: str


# Each statement writes one table in one go; all take the same parameters. Of a series that is bad every point costs 8 %
# more; elsewhere there is noise of about 1 %.
_COMMITS = """
INSERT INTO commit (project_id, sha, parents, message, author_name, author_email, authored_at, committed_at,
                    changed_paths, pull_request)
SELECT :project, md5(:slug || n) || substr(md5('x' || n), 1, 8),
       CASE WHEN n = 0 THEN '{}' ELSE ARRAY[md5(:slug || (n - 1)) || substr(md5('x' || (n - 1)), 1, 8)] END,
       'layer ' || n || ': change number ' || n || E'\n\nBody of the message.', 'Author ' || n % 17,
       'author' || n % 17 || '@example.org', at, at, ARRAY['src/layer.py'], n
FROM (SELECT n, CAST(:started AS timestamptz) + n * CAST(:spacing AS interval) AS at
      FROM generate_series(0, :commits - 1) AS n) AS c
"""
_BRANCH_COMMITS = """
INSERT INTO branch_commit (branch_id, project_id, position, commit_id)
SELECT :branch, :project, row_number() OVER (ORDER BY id) - 1, id FROM commit WHERE project_id = :project
"""
_RUNS = """
INSERT INTO run (id, project_id, commit_id, testbed_id, suite, suite_version, branch_name, state, status,
                 applicable, passed, requested_at, worker_id, environment_id, started_at, finished_at, received_at)
SELECT 'B' || lpad(CAST(:project AS text), 4, '0') || lpad(CAST(b.position AS text), 8, '0') || 'S' || s,
       :project, b.commit_id, :testbed, 'suite' || s, '1.0.0', 'main', 'done', 'ok', :variants, :variants,
       c.committed_at, :worker, :environment, c.committed_at + interval '5 minutes',
       c.committed_at + interval '12 minutes', c.committed_at + interval '12 minutes'
FROM branch_commit b JOIN commit c ON c.id = b.commit_id, generate_series(1, :suites) AS s
WHERE b.branch_id = :branch ORDER BY b.position
"""
_RESULTS = """
INSERT INTO result (run_id, project_id, index, benchmark, variant, variant_key, preset, status, correctness_state)
SELECT r.id, r.project_id, v - 1, r.suite || '.layer', jsonb_build_object('rung', v), 'rung=' || v, 'full', 'ok', 'pass'
FROM run r, generate_series(1, :variants) AS v WHERE r.project_id = :project ORDER BY r.commit_id
"""
_SERIES = """
INSERT INTO series (project_id, testbed_id, suite, suite_version, benchmark, variant, variant_key, preset, metric,
                    unit, direction, role, state_position, last_measured_at)
SELECT :project, :testbed, 'suite' || s, '1.0.0', 'suite' || s || '.layer', jsonb_build_object('rung', v),
       'rung=' || v, 'full', (ARRAY['step_ms', 'peak_reserved_bytes', 'forward_ms', 'host_syncs'])[m],
       (ARRAY['ms', 'B', 'ms', '1'])[m], 'lower', CASE WHEN m <= :metrics THEN 'gate' ELSE 'watch' END,
       :commits - 1, CAST(:last AS timestamptz)
FROM generate_series(1, :suites) AS s, generate_series(1, :variants) AS v,
     generate_series(1, :metrics + :watched) AS m
ORDER BY m, s, v
"""
# Every tenth commit some series get slower for a while: those of one group, which is :groups commits long bad. So a
# tenth of the series is bad at any time, and a page of regressions is as full after a month as after years.
_REGRESSIONS = """
INSERT INTO regression (project_id, testbed_id, state, cause, first_bad_position, last_good_position,
                        first_bad_commit_id, last_good_commit_id, lead_series_id, lead_change, still_bad, owner,
                        opened_at, confirmed_at, fixed_commit_id, closed_at)
SELECT :project, :testbed,
       CASE WHEN fix.position IS NOT NULL THEN 'fixed'
            WHEN bad.position % 3 = 0 THEN 'acknowledged' ELSE 'confirmed' END,
       'code', bad.position, bad.position - 1, bad.commit_id, good.commit_id,
       :first_series + (bad.position - 5) / 10 % :groups, 0.08, fix.position IS NULL,
       CASE WHEN bad.position % 3 = 0 THEN 'Author 1' END,
       CAST(:started AS timestamptz) + bad.position * CAST(:spacing AS interval),
       CAST(:started AS timestamptz) + bad.position * CAST(:spacing AS interval),
       fix.commit_id, CAST(:started AS timestamptz) + fix.position * CAST(:spacing AS interval)
FROM branch_commit bad JOIN branch_commit good ON good.branch_id = :branch AND good.position = bad.position - 1
LEFT JOIN branch_commit fix ON fix.branch_id = :branch AND fix.position = bad.position + :groups
WHERE bad.branch_id = :branch AND bad.position % 10 = 5 ORDER BY bad.position
"""
# Regressions were numbered in order of their onset.
_JUDGED = """
INSERT INTO judgement (project_id, measured_at, series_id, position, commit_id, run_id, value, verdict, onset, red,
                       change, change_low, change_high, baseline, band_low, band_high, smoothed, smoothed_low,
                       smoothed_high, anchor, anchor_change, have, need, regression_id, reason, noise,
                       minimum_detectable_effect, n_baseline, min_change, runs_of_level, worker_offset, sustained_runs,
                       policy_version)
SELECT :project, started_at, series_id, position, commit_id, run_id, level * (1 + step + noise),
       CASE WHEN position < 5 THEN 'insufficient' WHEN bad THEN 'regression'
            WHEN noise > 0.0195 THEN 'suspect' WHEN noise < -0.0198 THEN 'improvement' ELSE 'unchanged' END,
       bad AND since % (10 * :groups) = 0, bad, step + noise, step + noise - 0.01, step + noise + 0.01,
       level, level * 0.97, level * 1.03, level * (1 + step), level * (1 + step) * 0.99, level * (1 + step) * 1.01,
       level, step, CASE WHEN position < 5 THEN position END, CASE WHEN position < 5 THEN 5 - position END,
       CASE WHEN bad THEN :first_regression + (position - since % (10 * :groups) - 5) / 10 END,
       'within_band', 0.0025, 0.0105, 400, 0.05, 423, 0, 3, 'bb1f648ee475'
FROM (
  SELECT r.started_at, s.id AS series_id, b.position, r.commit_id, r.id AS run_id, 10 + s.id % 50 AS level,
         since, bad, CASE WHEN bad THEN 0.08 ELSE 0 END AS step, (random() + random() - 1) * 0.02 AS noise
  FROM branch_commit b JOIN run r ON r.commit_id = b.commit_id
  JOIN series s ON s.project_id = :project AND s.suite = r.suite
  CROSS JOIN LATERAL (SELECT b.position - 5 - 10 * ((s.id - :first_series) % :groups) AS since) AS first_onset
  CROSS JOIN LATERAL (SELECT s.role = 'gate' AND since >= 0 AND since % (10 * :groups) < :groups AS bad) AS now
  WHERE b.branch_id = :branch AND r.project_id = :project ORDER BY b.position
) AS point
"""
_MEASURED = """
INSERT INTO measurement (series_id, project_id, run_id, measured_at, commit_id, result_index, measurement_index, value,
                         processes)
SELECT series_id, project_id, run_id, measured_at, commit_id, (series_id - :first_series) % :variants,
       (series_id - :first_series) / :columns, value,
       CASE WHEN series_id < :first_series + :gates
            THEN ARRAY[value * 0.999, value, value, value, value * 1.001] END
FROM judgement WHERE series_id >= :first_series AND series_id < :first_series + :series ORDER BY measured_at
"""
_CHANGE_POINTS = """
INSERT INTO change_point (series_id, project_id, regression_id, kind, direction, state, onset_position, onset_commit_id,
                          last_good_position, detected_position, fixed_position, change, before, after)
SELECT s.id, s.project_id, g.id, 'step', 'regression', CASE WHEN g.state = 'fixed' THEN 'fixed' ELSE 'confirmed' END,
       g.first_bad_position, g.first_bad_commit_id, g.last_good_position, g.first_bad_position + 2,
       CASE WHEN g.state = 'fixed' THEN g.first_bad_position + :groups END, 0.08, 10, 10.8
FROM regression g JOIN series s ON s.project_id = g.project_id
  AND s.role = 'gate' AND (s.id - :first_series) % :groups = (g.first_bad_position - 5) / 10 % :groups
WHERE g.project_id = :project ORDER BY g.id, s.id
"""
_HOURS = """
INSERT INTO rollup (series_id, project_id, granularity, bucket, runs, value_sum, value_min, value_max, last_value,
                    last_position, worst_verdict, worst_change)
SELECT series_id, :project, 'hour', date_trunc('hour', measured_at, 'UTC'), count(*), sum(value), min(value),
       max(value), (array_agg(value ORDER BY position DESC))[1], max(position),
       CASE WHEN bool_or(verdict = 'regression') THEN 'regression' ELSE 'unchanged' END, max(change)
FROM judgement WHERE series_id >= :first_series AND series_id < :first_series + :series GROUP BY 1, 4
"""
_DAYS_AND_WEEKS = """
INSERT INTO rollup (series_id, project_id, granularity, bucket, runs, value_sum, value_min, value_max, last_value,
                    last_position, worst_verdict, worst_change)
SELECT series_id, :project, name, date_trunc(name, bucket, 'UTC'), sum(runs), sum(value_sum), min(value_min),
       max(value_max), (array_agg(last_value ORDER BY last_position DESC))[1], max(last_position),
       CASE WHEN bool_or(worst_verdict = 'regression') THEN 'regression' ELSE 'unchanged' END, max(worst_change)
FROM rollup, unnest(ARRAY['day', 'week']) AS name
WHERE granularity = 'hour' AND series_id >= :first_series AND series_id < :first_series + :series GROUP BY 1, 3, 4
"""
_SPANS = """
INSERT INTO position_span (project_id, month, first_position, last_position)
SELECT :project, date_trunc('month', measured_at, 'UTC'), min(position) & ~15, max(position) | 15
FROM judgement WHERE series_id >= :first_series AND series_id < :first_series + :series GROUP BY 2
"""
MOST_GROUPS = 50
CHANGED_ROWS = 1_000
"""A table of which so many have changed is vacuumed before something else is measured."""


def fill(connection: Connection, shape: Shape) -> Filled:
    """Write a project of this shape. The caller commits, and analyses the tables afterwards (`settle`)."""
    (filled,) = fill_all(connection, [shape])
    return filled


def fill_all(connection: Connection, shapes: Sequence[Shape]) -> list[Filled]:
    """Write projects of these shapes, as `fill` does."""
    # What is written refers to what was written just before: no need to look each reference up a million times.
    connection.execute(text("SET LOCAL session_replication_role = replica"))
    with _without_indexes(connection, judgement), _without_indexes(connection, measurement):
        written = [_write_points(connection, shape) for shape in shapes]
    connection.execute(text("ANALYZE"))
    return [_write_what_follows(connection, *each) for each in written]


def _write_points(connection: Connection, shape: Shape) -> tuple[Shape, dict[str, Any]]:
    """A project with its measurements and judgements; returns what later statements refer to."""
    last = shape.last_at or datetime.now(UTC)
    spacing = timedelta(minutes=shape.minutes_between_commits)
    started = last - spacing * (shape.commits - 1)
    ensure_partitions(connection, *(started + timedelta(days=28 * n) for n in range((last - started).days // 28 + 2)))
    scalar = connection.scalar
    names = {"slug": shape.project, "testbed_name": shape.testbed, "worker_name": f"{shape.testbed}-01"}
    project = scalar(
        text("INSERT INTO project (slug, default_branch, trusted) VALUES (:slug, 'main', true) RETURNING id"), names
    )
    testbed = scalar(text("INSERT INTO testbed (name) VALUES (:testbed_name) RETURNING id"), names)
    values = {
        **names,
        "project": project,
        "testbed": testbed,
        "branch": scalar(text(f"INSERT INTO branch (project_id, name) VALUES ({project}, 'main') RETURNING id")),
        "worker": scalar(
            text(f"INSERT INTO worker (name, testbed_id) VALUES (:worker_name, {testbed}) RETURNING id"), names
        ),
        "environment": scalar(
            text('INSERT INTO environment (hash, fingerprint) VALUES (:slug, \'{"torch": "2.13.0"}\') RETURNING id'),
            names,
        ),
        "started": started,
        "last": last,
        "spacing": spacing,
        "commits": shape.commits,
        "suites": shape.suites,
        "variants": shape.variants,
        "metrics": shape.metrics,
        "watched": shape.watched,
        "columns": shape.columns,
        "gates": shape.series,
        "series": shape.measurements_of_a_commit,
        "groups": min(MOST_GROUPS, shape.series),
    }
    for statement in (_COMMITS, _BRANCH_COMMITS, _RUNS, _RESULTS, _SERIES):
        connection.execute(text(statement), values)
    values["first_series"] = scalar(text(f"SELECT min(id) FROM series WHERE project_id = {project}"))
    connection.execute(text(_REGRESSIONS), values)
    values["first_regression"] = scalar(text(f"SELECT min(id) FROM regression WHERE project_id = {project}"))
    for statement in (_JUDGED, _MEASURED):
        connection.execute(text(statement), values)
    return shape, values


def _write_what_follows(connection: Connection, shape: Shape, values: dict[str, Any]) -> Filled:
    """What is made of measurements and judgements."""
    for statement in (_CHANGE_POINTS, _HOURS, _DAYS_AND_WEEKS, _SPANS):
        connection.execute(text(statement), values)
    project = values["project"]
    head = connection.scalar(text(f"SELECT sha FROM commit WHERE project_id = {project} ORDER BY id DESC LIMIT 1"))
    connection.execute(text("UPDATE branch SET head_sha = :head WHERE id = :branch"), {**values, "head": head})
    return Filled(shape, project, values["testbed"], values["branch"], values["first_series"], str(head))


def found(connection: Connection, shape: Shape) -> Filled | None:
    """What an earlier `fill` of this shape wrote; None where there is none."""
    row = connection.execute(
        text(
            """SELECT p.id, t.id, b.id, min(s.id), b.head_sha, count(s.id), (
                 SELECT max(position) + 1 FROM branch_commit WHERE branch_id = b.id)
               FROM project p JOIN branch b ON b.project_id = p.id
               JOIN series s ON s.project_id = p.id AND s.role = 'gate' JOIN testbed t ON t.id = s.testbed_id
               WHERE p.slug = :slug AND t.name = :testbed GROUP BY p.id, t.id, b.id, b.project_id"""
        ),
        {"slug": shape.project, "testbed": shape.testbed},
    ).one_or_none()
    if row is None or (row[5], row[6]) != (shape.series, shape.commits):
        return None
    return Filled(shape, *row[:5])


@contextmanager
def _without_indexes(connection: Connection, table: Table) -> Iterator[None]:
    """Write first, then build the indexes in one go: half the time. (Keys stay as they are.)"""
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    for index in indexes:
        index.drop(connection)
    yield
    for index in indexes:
        index.create(connection)


def settle(connection: Connection) -> None:
    """What autovacuum does after a while: statistics and the visibility map. Needs autocommit."""
    connection.execute(text("VACUUM (ANALYZE)"))


def settle_changes(connection: Connection) -> None:
    """The same, of what has changed since: autovacuum would do it in the middle of what is measured next. Needs
    autocommit."""
    changed = connection.scalars(
        text(
            f"""SELECT relid::regclass::text FROM pg_stat_user_tables
                WHERE greatest(n_ins_since_vacuum, n_mod_since_analyze, n_dead_tup) >= {CHANGED_ROWS}"""
        )
    )
    for table in changed.all():
        connection.execute(text(f"VACUUM (ANALYZE) {table}"))
