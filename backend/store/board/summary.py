"""What the head of a board counts: open regressions, suspects, alarms, and what is queued."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, slots=True)
class Summary:
    """The strip above the grid. Alarms are scored over 90 days, failed runs counted over 7."""

    open_regressions: int = 0
    unowned: int = 0
    suspects: int = 0
    infra_alarms: int = 0
    alarms_reported: int = 0
    alarms_right: int = 0
    queued: int = 0
    running: int = 0
    failed: int = 0
    last_result_at: datetime | None = None


_SUMMARY = text(
    """WITH seen AS (
         SELECT state, owner, cause, confirmed_at FROM regression g
         WHERE project_id = :project
           AND (testbed_id = :testbed
                OR EXISTS (SELECT FROM change_point p JOIN series s ON s.id = p.series_id AND s.testbed_id = :testbed
                           WHERE p.regression_id = g.id))
           AND (state IN ('suspect', 'confirmed', 'acknowledged') OR confirmed_at >= :alarms_since)),
       alarm AS (
         SELECT count(*) FILTER (WHERE state IN ('confirmed', 'acknowledged')) AS open_regressions,
           count(*) FILTER (WHERE state = 'confirmed' AND owner IS NULL) AS unowned,
           count(*) FILTER (WHERE state = 'suspect') AS suspects,
           count(*) FILTER (WHERE state IN ('confirmed', 'acknowledged') AND cause IN ('hardware', 'environment'))
             AS infra_alarms,
           count(*) FILTER (WHERE confirmed_at >= :alarms_since) AS reported,
           count(*) FILTER (WHERE confirmed_at >= :alarms_since AND state NOT IN ('withdrawn', 'invalid')) AS borne_out
         FROM seen),
       busy AS (
         SELECT count(*) FILTER (WHERE state = 'queued') AS queued, count(*) FILTER (WHERE state <> 'queued') AS running
         FROM run WHERE testbed_id = :testbed AND project_id = :project AND state IN ('queued', 'leased', 'running'))
       SELECT (SELECT coalesce(array_agg(suite ORDER BY suite), '{}') FROM (
           SELECT suite FROM series WHERE project_id = :project AND testbed_id = :testbed
           UNION SELECT suite FROM run WHERE project_id = :project AND testbed_id = :testbed
             AND state IN ('queued', 'leased', 'running')) AS named),
         alarm.open_regressions, alarm.unowned, alarm.suspects, alarm.infra_alarms, alarm.reported, alarm.borne_out,
         busy.queued, busy.running,
         (SELECT count(*) FROM run WHERE project_id = :project AND testbed_id = :testbed
            AND received_at >= :failed_since AND status IN ('failed', 'incomplete')),
         (SELECT max(received_at) FROM run WHERE project_id = :project AND testbed_id = :testbed)
       FROM alarm, busy"""
)


def summary(
    connection: Connection, project_id: int, testbed_id: int, *, alarms_since: datetime, failed_since: datetime
) -> tuple[list[str], Summary]:
    """The suites of a project on a testbed, and the strip."""
    parameters = {
        "project": project_id,
        "testbed": testbed_id,
        "alarms_since": alarms_since,
        "failed_since": failed_since,
    }
    suites, *counts = connection.execute(_SUMMARY, parameters).one()
    return suites, Summary(*counts)
