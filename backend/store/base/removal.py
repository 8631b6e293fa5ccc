"""A project goes with everything that belongs to it; what belongs to others stays."""

from dataclasses import dataclass

from sqlalchemy import Connection, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """How many of what a project has."""

    commits: int
    runs: int
    series: int
    measurements: int
    regressions: int
    artifacts: int
    tokens: int
    members: int


_CONTENTS = text(
    """SELECT
         (SELECT count(*) FROM commit WHERE project_id = :project) AS commits,
         (SELECT count(*) FROM run WHERE project_id = :project) AS runs,
         (SELECT count(*) FROM series WHERE project_id = :project) AS series,
         (SELECT count(*) FROM measurement WHERE run_id IN (SELECT id FROM run WHERE project_id = :project))
           AS measurements,
         (SELECT count(*) FROM regression WHERE project_id = :project) AS regressions,
         (SELECT count(*) FROM artifact WHERE project_id = :project) AS artifacts,
         (SELECT count(*) FROM api_token WHERE project_id = :project) AS tokens,
         (SELECT count(*) FROM member WHERE project_id = :project) AS members"""
)

# What names the project without a foreign key comes first; then, from the leaves up, what would be slow or out of order
# if it were left to the cascade of the last one.
_REMOVE = (
    "DELETE FROM live_event WHERE project_id = :project",
    "DELETE FROM judgement WHERE series_id IN (SELECT id FROM series WHERE project_id = :project)",
    "DELETE FROM measurement WHERE run_id IN (SELECT id FROM run WHERE project_id = :project)",
    "DELETE FROM rollup WHERE series_id IN (SELECT id FROM series WHERE project_id = :project)",
    "DELETE FROM joint_question WHERE project_id = :project",
    "DELETE FROM incident WHERE project_id = :project",
    "DELETE FROM bisection WHERE project_id = :project",
    "DELETE FROM session WHERE project_id = :project",
    "DELETE FROM backfill WHERE project_id = :project",
    "DELETE FROM change_point WHERE series_id IN (SELECT id FROM series WHERE project_id = :project)",
    "DELETE FROM regression WHERE project_id = :project",
    "DELETE FROM run WHERE project_id = :project",
    "DELETE FROM series WHERE project_id = :project",
    "DELETE FROM worker WHERE project_id = :project",
    "DELETE FROM project WHERE id = :project",
)


def contents(c: Connection, project_id: int) -> Contents:
    return Contents(**c.execute(_CONTENTS, {"project": project_id}).one()._mapping)


def run_ids(c: Connection, project_id: int) -> list[str]:
    """Of its runs that have artifacts."""
    statement = text("SELECT DISTINCT a.run_id FROM artifact a JOIN run r ON r.id = a.run_id WHERE r.project_id = :id")
    return list(c.execute(statement, {"id": project_id}).scalars())


def project_ids(c: Connection) -> list[int]:
    """Of every project there is."""
    return list(c.execute(text("SELECT id FROM project")).scalars())


def lock(c: Connection, project_id: int) -> bool:
    """Let nothing new begin to belong to it. False: it is gone."""
    statement = text("SELECT id FROM project WHERE id = :id FOR UPDATE")
    return c.execute(statement, {"id": project_id}).one_or_none() is not None


def at_work(c: Connection, project_id: int) -> int:
    """How many of its runs a worker holds."""
    statement = text("SELECT count(*) FROM run WHERE project_id = :id AND state IN ('leased', 'running')")
    return int(c.execute(statement, {"id": project_id}).scalar_one())


def remove(c: Connection, project_id: int) -> None:
    for statement in _REMOVE:
        c.execute(text(statement), {"project": project_id})
