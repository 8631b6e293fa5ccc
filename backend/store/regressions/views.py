"""Regressions as they are read: the list with its filters, one with all that belongs to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, RowMapping, TextClause, text

from backend.store.base.newest import NewestPoint, newest_points
from backend.store.base.spans import Period, Spans
from backend.store.regressions.suspects import touching

_COMMIT_COLUMNS = (
    "{0}.sha AS {1}_sha, {0}.message AS {1}_message, {0}.author_name AS {1}_author, {0}.committed_at AS {1}_at"
)
_COLUMNS = f"""
SELECT g.id, p.slug AS project, p.id AS project_id, t.name AS testbed, t.id AS testbed_id, g.state, g.kind, g.cause,
       g.evidence, g.first_bad_position, g.last_good_position, g.lead_series_id, g.lead_change, g.lead_change_low,
       g.lead_change_high, g.still_bad, g.owner, g.reason, g.opened_at, g.confirmed_at, g.closed_at, g.updated_at,
       s.suite, s.suite_version, s.benchmark, s.variant_key, s.preset, s.metric, s.unit, s.direction,
       {_COMMIT_COLUMNS.format("bad", "bad")}, {_COMMIT_COLUMNS.format("good", "good")},
       {_COMMIT_COLUMNS.format("fix", "fix")}, b.id AS branch_id,
       (SELECT position FROM branch_commit WHERE branch_id = b.id AND commit_id = g.fixed_commit_id) AS fix_position,
       lead.before, lead.after, members.series, g.held_back,
       coalesce(members.testbeds, ARRAY[t.name]) AS testbeds, nullif(touching.commits, 0) AS suspects"""
_JOINED = f"""
JOIN project p ON p.id = g.project_id
JOIN testbed t ON t.id = g.testbed_id
LEFT JOIN series s ON s.id = g.lead_series_id
LEFT JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch
LEFT JOIN commit bad ON bad.id = g.first_bad_commit_id
LEFT JOIN commit good ON good.id = g.last_good_commit_id
LEFT JOIN commit fix ON fix.id = g.fixed_commit_id
LEFT JOIN LATERAL (SELECT before, after FROM change_point WHERE regression_id = g.id AND series_id = g.lead_series_id
                   ORDER BY id DESC LIMIT 1) AS lead ON true
CROSS JOIN LATERAL ({touching("count(*) AS commits", of="g", first_bad="first_bad_position")}) AS touching
CROSS JOIN LATERAL (SELECT count(DISTINCT series_id) AS series,
                           (SELECT array_agg(DISTINCT bed.name ORDER BY bed.name)
                            FROM change_point x JOIN series y ON y.id = x.series_id
                            JOIN testbed bed ON bed.id = y.testbed_id WHERE x.regression_id = g.id) AS testbeds
                    FROM change_point WHERE regression_id = g.id) AS members"""
# Of any series that the regression is about, not of the leading one alone.
_OF_SERIES = """EXISTS (SELECT FROM change_point x JOIN series y ON y.id = x.series_id
                        WHERE x.regression_id = g.id AND y.{0} = :{0})"""
CONDITIONS: Mapping[str, str] = {
    "project": "g.project_id = (SELECT id FROM project WHERE slug = :project)",
    "testbed": """(t.name = :testbed OR EXISTS (
                   SELECT FROM change_point x JOIN series y ON y.id = x.series_id
                   JOIN testbed bed ON bed.id = y.testbed_id WHERE x.regression_id = g.id AND bed.name = :testbed))""",
    "states": "g.state = ANY(:states)",
    "cause": "g.cause = :cause",
    "suite": _OF_SERIES.format("suite"),
    "benchmark": _OF_SERIES.format("benchmark"),
    "metric": _OF_SERIES.format("metric"),
    "owner": "g.owner = :owner",
    "after_position": "g.first_bad_position > :after_position",
    "until_position": "g.first_bad_position <= :until_position",
    "since": "g.opened_at >= :since",
    "until": "g.opened_at < :until",
    "still_bad": "g.still_bad = :still_bad",
    "min_change": "g.lead_change >= :min_change",
    "before_id": "g.id < :before_id",
}


def listed(c: Connection, filters: Mapping[str, Any], limit: int) -> list[RowMapping]:
    """Regressions that pass every filter given (keys of `CONDITIONS`), the newest first."""
    return list(c.execute(text(listing(filters, limit)), dict(filters)).mappings())


def listing(filters: Iterable[str], limit: int) -> str:
    """The statement of `listed`. What to list is chosen first: joined with the rest before it is limited, it
    would be planned again for each request, which took longer than to answer it."""
    return _shown(_newest(" AND ".join(CONDITIONS[name] for name in filters) or "true", limit))


def listed_by_states(
    c: Connection, filters: Mapping[str, Any], groups: Sequence[tuple[Sequence[str], int]]
) -> list[RowMapping]:
    """The newest regressions of each group of states that pass the filters, at most so many of each, the newest first.

    In one statement: to plan it takes longer than to run it.
    """
    passing = [CONDITIONS[name] for name in filters]
    names = [f"states{number}" for number in range(len(groups))]
    chosen = [
        _newest(" AND ".join([*passing, f"g.state = ANY(:{name})"]), most)
        for name, (_, most) in zip(names, groups, strict=True)
    ]
    values = dict(zip(names, [list(states) for states, _ in groups], strict=True))
    return list(c.execute(text(_shown(" UNION ALL ".join(chosen))), {**filters, **values}).mappings())


def _newest(where: str, limit: int) -> str:
    return (
        f"(SELECT g.* FROM regression g JOIN testbed t ON t.id = g.testbed_id WHERE {where} "
        f"ORDER BY g.id DESC LIMIT {limit:d})"
    )


def _shown(chosen: str) -> str:
    return f"{_COLUMNS} FROM ({chosen}) AS g {_JOINED} ORDER BY g.id DESC"


def count_by_state(c: Connection, project_id: int) -> dict[str, int]:
    """How many regressions a project has in each state."""
    rows = c.execute(
        text("SELECT state, count(*) FROM regression WHERE project_id = :id GROUP BY 1"), {"id": project_id}
    )
    return {row[0]: row[1] for row in rows}


_ONE = text(_shown("SELECT * FROM regression WHERE id = :id"))


def one(c: Connection, regression_id: int) -> RowMapping | None:
    return c.execute(_ONE, {"id": regression_id}).mappings().one_or_none()


_MEMBERS = text(
    """SELECT DISTINCT ON (p.series_id) p.series_id, s.suite, s.benchmark, s.variant_key, s.preset, s.metric, s.unit,
              s.direction, s.role, s.exact, p.kind, p.state, p.onset_position, k.sha AS onset_sha, p.last_good_position,
              p.detected_position, p.fixed_position, p.change, p.before, p.after,
              CAST(s.profile ->> 'noise' AS float8) AS noise, s.project_id, s.state_position
       FROM change_point p JOIN series s ON s.id = p.series_id LEFT JOIN commit k ON k.id = p.onset_commit_id
       WHERE p.regression_id = :id ORDER BY p.series_id, p.id DESC"""
)
_IMPROVED = text(
    """SELECT DISTINCT ON (p.series_id) p.series_id, s.benchmark, s.variant_key AS variant, s.metric, s.unit,
              s.direction, p.change, p.before, p.after
       FROM change_point p JOIN series s ON s.id = p.series_id
       WHERE p.direction = 'improvement' AND p.state = 'confirmed' AND s.role = 'gate'
         AND p.onset_position BETWEEN :onset - :near AND :onset + :near
         AND (s.project_id, s.testbed_id, s.suite, s.benchmark, s.variant_key) IN (
           SELECT x.project_id, x.testbed_id, x.suite, x.benchmark, x.variant_key
           FROM change_point q JOIN series x ON x.id = q.series_id
           WHERE q.regression_id = :id AND q.state <> 'withdrawn')
         AND NOT EXISTS (SELECT FROM change_point own WHERE own.regression_id = :id AND own.series_id = p.series_id)
       ORDER BY p.series_id, p.id DESC"""
)
_SUSPECTS = text(
    """SELECT bc.position, k.sha, k.message, k.author_name, k.committed_at, k.pull_request, k.changed_paths,
              k.skipped_reason
       FROM branch_commit bc JOIN commit k ON k.id = bc.commit_id
       WHERE bc.branch_id = :branch AND bc.position > :after AND bc.position <= :until
         AND NOT coalesce(CAST(:suite AS text) = ANY (k.untouched_suites), false)
       ORDER BY bc.position DESC LIMIT :limit"""
)
_EVENTS = text("SELECT id, at, kind, actor, note, detail FROM regression_event WHERE regression_id = :id ORDER BY id")
_BESIDE = text(
    """SELECT s.id, s.metric, s.unit, s.role FROM series s JOIN series lead ON lead.id = :series
       WHERE (s.role = 'phase' OR s.unit = 'B') AND s.project_id = lead.project_id AND s.testbed_id = lead.testbed_id
         AND s.suite = lead.suite AND s.benchmark = lead.benchmark AND s.variant_key = lead.variant_key
         AND s.preset = lead.preset AND s.suite_version = lead.suite_version
       ORDER BY s.id"""
)
_MEDIANS = """SELECT u.id, percentile_cont(0.5) WITHIN GROUP (ORDER BY j.value) AS median, count(j.value) AS points
       FROM unnest(CAST(:series AS integer[])) AS u (id)
       LEFT JOIN LATERAL (
         SELECT value FROM judgement WHERE series_id = u.id AND superseded_at IS NULL AND branch_id IS NULL
           AND position BETWEEN :first AND :last AND measured_at >= :since AND measured_at < :until
         ORDER BY position {order} LIMIT :limit) AS j ON true
       GROUP BY u.id"""
_MEDIANS_BEFORE = text(_MEDIANS.format(order="DESC"))
_MEDIANS_AFTER = text(_MEDIANS.format(order=""))
PHASE_POINTS = 5
# The commit by itself: of a join PostgreSQL knows only how many runs a project has on average, and would read all those
# of one that has far more.
_SPEC = text(
    """SELECT r.spec, p.repository_url
       FROM run r JOIN project p ON p.id = r.project_id
       WHERE r.commit_id = (SELECT id FROM commit WHERE project_id = :project AND sha = :sha)
         AND r.project_id = :project AND r.suite = :suite AND r.testbed_id = :testbed AND r.session_id IS NULL
       ORDER BY r.requested_at DESC LIMIT 1"""
)


def members(c: Connection, regression_id: int) -> Sequence[Mapping[str, Any]]:
    """The series it is about, each with its newest change point here and its newest point."""
    rows = c.execute(_MEMBERS, {"id": regression_id}).mappings().all()
    if not rows:
        return []
    spans = Spans.of_project(c, rows[0]["project_id"])
    newest = newest_points(c, spans, {row["series_id"]: row["state_position"] for row in rows})
    return [_with_newest(row, newest.get(row["series_id"])) for row in rows]


def _with_newest(row: RowMapping, newest: NewestPoint | None) -> dict[str, Any]:
    latest = (None, None, None) if newest is None else (newest.value, newest.change, newest.verdict)
    known = {name: value for name, value in row.items() if name not in ("project_id", "state_position")}
    return known | dict(zip(("latest_value", "latest_change", "latest_verdict"), latest, strict=True))


def improved(c: Connection, regression_id: int, onset: int, near: int) -> Sequence[RowMapping]:
    """Gates of the benchmarks it is about that got better where it begins; its own series get better where it ends."""
    return c.execute(_IMPROVED, {"id": regression_id, "onset": onset, "near": near}).mappings().all()


def suspects(
    c: Connection, branch_id: int, after: int, until: int, limit: int, *, suite: str | None
) -> Sequence[RowMapping]:
    """Commits between two positions, the newest first; with a suite those that may have changed what it measures."""
    values = {"branch": branch_id, "after": after, "until": until, "limit": limit, "suite": suite}
    return c.execute(_SUSPECTS, values).mappings().all()


def events(c: Connection, regression_id: int) -> Sequence[RowMapping]:
    return c.execute(_EVENTS, {"id": regression_id}).mappings().all()


@dataclass(frozen=True, slots=True)
class BesideMedians:
    """Medians; None where there is no run on that side."""

    metric: str
    unit: str
    role: str
    before: float | None
    after: float | None


def beside(c: Connection, series_id: int, onset: int, until: int) -> list[BesideMedians]:
    """The phases and the memory of a series' benchmark: medians of up to five runs before the onset, and from it on."""
    rows = c.execute(_BESIDE, {"series": series_id}).all()
    if not rows:
        return []
    spans = Spans.of_series(c, series_id)
    ids = [row.id for row in rows]
    before = spans.nearest_before(onset - 1, PHASE_POINTS, partial(_medians, c, _MEDIANS_BEFORE, ids))
    after = spans.nearest_after(onset, PHASE_POINTS, partial(_medians, c, _MEDIANS_AFTER, ids), last=until - 1)
    return [BesideMedians(row.metric, row.unit, row.role, before.of.get(row.id), after.of.get(row.id)) for row in rows]


@dataclass(frozen=True, slots=True)
class _Medians:
    of: Mapping[int, float | None]
    points: int
    """Of the series that has fewest."""

    def __len__(self) -> int:
        return self.points


def _medians(c: Connection, statement: TextClause, ids: list[int], first: int, last: int, period: Period) -> _Medians:
    values = {"series": ids, "first": first, "last": last, "limit": PHASE_POINTS, **period._asdict()}
    rows = c.execute(statement, values).all()
    return _Medians({row.id: row.median for row in rows}, min(row.points for row in rows))


def spec_of(c: Connection, project_id: int, testbed_id: int, suite: str, sha: str) -> RowMapping | None:
    """How the suite of a commit was run."""
    values = {"project": project_id, "testbed": testbed_id, "suite": suite, "sha": sha}
    return c.execute(_SPEC, values).mappings().first()
