"""Sessions: requested, queued round by round, and what their arms measured."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, RowMapping, insert, select, text, update

from backend.store.base.projects import project_of
from backend.store.tables.sessions import session, session_series, session_turn

OPEN = ("waiting", "running")
DOCUMENT_LEVEL = 6  # of compression: an arm is written once and read by the curious

_SUSPECT = text(
    """SELECT g.id, g.project_id, g.testbed_id, g.lead_series_id, g.first_bad_commit_id, g.last_good_commit_id,
         p.slug AS project, t.name AS testbed, s.suite, s.benchmark, s.variant, s.metric, r.spec, r.worker_id
       FROM regression g
       JOIN testbed t ON t.id = g.testbed_id
       JOIN project p ON p.id = g.project_id AND p.repository_url IS NOT NULL
       JOIN series s ON s.id = g.lead_series_id AND NOT s.exact
       CROSS JOIN LATERAL (
         SELECT spec, worker_id FROM run
         WHERE commit_id = g.first_bad_commit_id AND testbed_id = g.testbed_id AND suite = s.suite
           AND session_id IS NULL AND kind <> 'submitted' AND spec <> '{}'::jsonb
         ORDER BY requested_at DESC LIMIT 1) AS r
       WHERE g.id = ANY(:regressions) AND g.state = 'suspect' AND g.kind = 'step' AND g.still_bad
         AND coalesce(g.cause, 'code') IN ('code', 'noise')
         AND g.first_bad_commit_id IS NOT NULL AND g.last_good_commit_id IS NOT NULL
         AND EXISTS (SELECT FROM worker w WHERE w.testbed_id = g.testbed_id AND w.last_seen_at >= :alive_since
                       AND w.wanted_state = 'ok' AND coalesce(w.project_id, g.project_id) = g.project_id)
         AND NOT EXISTS (SELECT FROM session x WHERE x.regression_id = g.id AND x.purpose = 'confirm'
                           AND (x.state IN ('waiting', 'running') OR x.lead_series_id = g.lead_series_id
                                  AND x.head_commit_id = g.first_bad_commit_id))
         AND (SELECT count(*) FROM session x WHERE x.regression_id = g.id AND x.purpose = 'confirm') < :at_most
         AND NOT EXISTS (SELECT FROM joint_question a JOIN session x ON x.id = a.session_id
                           AND x.state IN ('waiting', 'running') AND x.testbed_id = g.testbed_id
                         WHERE a.project_id = g.project_id AND a.suite = s.suite
                           AND g.first_bad_position > a.base_position AND g.first_bad_position <= a.head_position)"""
)
_OPEN_OF_REGRESSIONS = text(
    """SELECT x.id, g.state FROM session x JOIN regression g ON g.id = x.regression_id
       WHERE x.regression_id = ANY(:regressions) AND x.purpose = 'confirm' AND x.state IN ('waiting', 'running')
         AND (g.state <> 'suspect' OR NOT g.still_bad)"""
)


def suspects_without_session(
    c: Connection, regression_ids: Iterable[int], *, alive_since: datetime, at_most: int
) -> Sequence[RowMapping]:
    """Those of the regressions that a session could settle: a suspected step of code, with two commits to compare, a
    repository to check out from, a worker of the testbed that lives, and no session of the same question yet, nor one
    over all series that answers it as well."""
    values = {"regressions": list(regression_ids), "alive_since": alive_since, "at_most": at_most}
    return c.execute(_SUSPECT, values).mappings().all()


def settled_without_session(c: Connection, regression_ids: Iterable[int]) -> list[tuple[str, str]]:
    """Open sessions of these regressions whose question has been answered meanwhile: (session, state)."""
    rows = c.execute(_OPEN_OF_REGRESSIONS, {"regressions": list(regression_ids)})
    return [(row.id, row.state) for row in rows]


def insert_session(c: Connection, values: Mapping[str, Any]) -> None:
    c.execute(insert(session).values(**values))


def change_session(c: Connection, session_id: str, **values: Any) -> None:
    c.execute(update(session).where(session.c.id == session_id).values(**values))


_COLUMNS = """x.id, x.project_id, x.testbed_id, p.slug AS project, t.name AS testbed, x.suite, x.purpose,
       x.regression_id, x.bisection_id, x.schedule, x.lead_series_id, x.base_commit_id, x.head_commit_id,
       kb.sha AS base_sha, kh.sha AS head_sha, kb.parents AS base_parents, kh.parents AS head_parents,
       x.base_setup, x.head_setup, x.spec, x.avoid_worker_id, x.state, x.decision, x.reason, x.worker,
       x.rounds_done, x.rounds_spoiled, x.max_rounds, x.requested_by, x.requested_at, x.decided_at"""
_FROM = """FROM session x JOIN project p ON p.id = x.project_id JOIN testbed t ON t.id = x.testbed_id
       JOIN commit kb ON kb.id = x.base_commit_id JOIN commit kh ON kh.id = x.head_commit_id"""
_ONE = f"SELECT {_COLUMNS} {_FROM} WHERE x.id = :id"
_LOCKED = text(f"{_ONE} FOR UPDATE OF x")
_UNLOCKED = text(_ONE)
_LIST = text(
    f"""SELECT {_COLUMNS} {_FROM}
        WHERE (CAST(:project AS integer) IS NULL OR x.project_id = :project)
          AND (CAST(:purpose AS text) IS NULL OR x.purpose = :purpose)
          AND (CAST(:state AS text) IS NULL OR x.state = :state)
          AND (CAST(:schedule AS text) IS NULL OR x.schedule = :schedule)
        ORDER BY x.requested_at DESC, x.id DESC LIMIT :limit"""
)
_OF_REGRESSION = text(
    f"""SELECT {_COLUMNS} {_FROM} WHERE x.regression_id = :regression
        ORDER BY x.requested_at DESC, x.id DESC LIMIT :limit"""
)


def find_session(c: Connection, session_id: str, *, lock: bool = False) -> RowMapping | None:
    return c.execute(_LOCKED if lock else _UNLOCKED, {"id": session_id}).mappings().one_or_none()


def list_sessions(
    c: Connection,
    *,
    project_id: int | None = None,
    purpose: str | None = None,
    state: str | None = None,
    schedule: str | None = None,
    limit: int = 100,
) -> Sequence[RowMapping]:
    values = {"project": project_id, "purpose": purpose, "state": state, "schedule": schedule, "limit": limit}
    return c.execute(_LIST, values).mappings().all()


def sessions_of_regression(c: Connection, regression_id: int, *, limit: int = 100) -> Sequence[RowMapping]:
    return c.execute(_OF_REGRESSION, {"regression": regression_id, "limit": limit}).mappings().all()


# --- arms ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """One fresh process of one arm."""

    number: int
    arm: str
    run_id: str
    counted: bool
    status: str
    error: str | None
    worker: str | None
    document: Mapping[str, Any] | None


def insert_turns(c: Connection, session_id: str, turns: Sequence[StoredTurn]) -> None:
    c.execute(
        insert(session_turn).values(project_id=project_of(session, session_id)),
        [
            {
                "session_id": session_id,
                "number": turn.number,
                "arm": turn.arm,
                "run_id": turn.run_id,
                "counted": turn.counted,
                "status": turn.status,
                "error": turn.error,
                "worker": turn.worker,
                "document": None
                if turn.document is None
                else zlib.compress(orjson.dumps(turn.document), DOCUMENT_LEVEL),
            }
            for turn in turns
        ],
    )


_TURN_COLUMNS = [column for column in session_turn.c if column.name not in ("session_id", "document")]


def turns_of(c: Connection, session_id: str, *, with_documents: bool = False) -> list[StoredTurn]:
    """In the order in which they ran."""
    columns = [*_TURN_COLUMNS, session_turn.c.document] if with_documents else _TURN_COLUMNS
    rows = c.execute(select(*columns).where(session_turn.c.session_id == session_id).order_by(session_turn.c.number))
    return [
        StoredTurn(
            number=row.number,
            arm=row.arm,
            run_id=row.run_id,
            counted=row.counted,
            status=row.status,
            error=row.error,
            worker=row.worker,
            document=orjson.loads(zlib.decompress(row.document)) if with_documents and row.document else None,
        )
        for row in rows
    ]


def replace_series(c: Connection, session_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace the session's result for each metric; done after each round."""
    c.execute(session_series.delete().where(session_series.c.session_id == session_id))
    if rows:
        c.execute(
            insert(session_series).values(project_id=project_of(session, session_id)),
            [{"session_id": session_id, **row} for row in rows],
        )


_SERIES = text("SELECT * FROM session_series WHERE session_id = ANY(:sessions) ORDER BY id")


def series_of(c: Connection, session_ids: Iterable[str]) -> Sequence[RowMapping]:
    return c.execute(_SERIES, {"sessions": list(session_ids)}).mappings().all()


_ORDER = text(
    """SELECT session_id, string_agg(CASE arm WHEN 'base' THEN 'A' ELSE 'B' END, '' ORDER BY number) AS letters
       FROM session_turn WHERE session_id = ANY(:sessions) AND counted GROUP BY session_id"""
)


def orders_of(c: Connection, session_ids: Iterable[str]) -> dict[str, str]:
    """The order in which the arms that count ran, as letters."""
    return {row.session_id: row.letters for row in c.execute(_ORDER, {"sessions": list(session_ids)})}


_OUTCOME = text(
    """UPDATE session_series SET onset_position = :onset, judged_position = :position
       WHERE session_id = :session AND series_id = :series"""
)


def keep_outcome(c: Connection, session_id: str, series_id: int, *, onset: int, position: int) -> None:
    """The place of the outcome in the story of the series, for when the series is judged again."""
    c.execute(_OUTCOME, {"session": session_id, "series": series_id, "onset": onset, "position": position})


# --- the queue -------------------------------------------------------------------------------------------------------

_RUNS = text(
    """SELECT session_id, array_agg(id ORDER BY requested_at, id) AS ids FROM run
       WHERE session_id = ANY(:sessions) GROUP BY session_id"""
)
_LOST = text(
    """SELECT x.id, r.state, r.error FROM session x
       JOIN LATERAL (SELECT state, error, received_at FROM run WHERE session_id = x.id
                     ORDER BY requested_at DESC, id DESC LIMIT 1) AS r ON r.received_at IS NULL
       WHERE x.state IN ('waiting', 'running') AND r.state IN ('failed', 'cancelled', 'superseded')"""
)
_FORGOTTEN = text(
    """SELECT x.id FROM session x
       JOIN LATERAL (SELECT state, requested_at FROM run WHERE session_id = x.id
                     ORDER BY requested_at DESC, id DESC LIMIT 1) AS r
         ON r.state = 'queued' AND r.requested_at < :before
       WHERE x.state IN ('waiting', 'running') AND x.requested_at < :before"""
)
_AT_HAND = text(
    """SELECT id FROM run WHERE session_id = :session AND state IN ('queued', 'leased', 'running')
       FOR UPDATE SKIP LOCKED"""
)
_OVER = text(
    """SELECT r.id FROM run r JOIN session x ON x.id = r.session_id
       WHERE r.session_id IS NOT NULL AND r.state IN ('queued', 'leased', 'running') AND NOT r.cancel_requested
         AND x.state NOT IN ('waiting', 'running')
       FOR UPDATE OF r SKIP LOCKED"""
)
_ROUND = text(
    """SELECT r.id, r.state, r.session_id, r.project_id, r.testbed_id, r.commit_id, r.lease_hash, r.body_sha256,
         r.attempt, t.name AS testbed, p.slug AS project, h.name AS holder, o.id AS worker_token_id
       FROM run r JOIN testbed t ON t.id = r.testbed_id JOIN project p ON p.id = r.project_id
         LEFT JOIN worker h ON h.id = r.worker_id LEFT JOIN worker w ON w.name = :worker
         LEFT JOIN api_token o
           ON o.id = w.token_id AND o.revoked_at IS NULL AND (o.expires_at IS NULL OR o.expires_at > now())
       WHERE r.id = :run FOR UPDATE OF r"""
)
_END_ROUND = text(
    """UPDATE run SET state = 'done', status = NULL, error = :error, worker_id = coalesce(
           (SELECT id FROM worker WHERE name = :worker), worker_id),
         started_at = coalesce(:started, leased_at), finished_at = :now, received_at = :now, body_sha256 = :digest,
         lease_hash = NULL, lease_expires_at = NULL, progress = NULL
       WHERE id = :run"""
)


def runs_of(c: Connection, session_ids: Iterable[str]) -> dict[str, list[str]]:
    """The queue entries of the rounds of each session, in the order of their requests."""
    return {row.session_id: row.ids for row in c.execute(_RUNS, {"sessions": list(session_ids)})}


def rounds_at_hand(c: Connection, session_id: str) -> list[str]:
    """Open rounds of a session, locked, except those being leased or delivered at this moment: a delivery
    holds its round and waits for the series, which the caller that cancels a session may hold."""
    return list(c.execute(_AT_HAND, {"session": session_id}).scalars())


def rounds_without_session(c: Connection) -> list[str]:
    """Open rounds, locked, of sessions that are over."""
    return list(c.execute(_OVER).scalars())


def lock_round(c: Connection, run_id: str, worker: str) -> RowMapping | None:
    """The queue's entry of a round; `holder`: the worker that has it; `worker_token_id`: the token, still good, that
    the name of `worker` belongs to."""
    return c.execute(_ROUND, {"run": run_id, "worker": worker}).mappings().one_or_none()


def end_round(
    c: Connection,
    run_id: str,
    *,
    worker: str | None,
    error: str | None,
    started: datetime | None,
    digest: bytes,
    now: datetime,
) -> None:
    values = {"run": run_id, "worker": worker, "error": error, "started": started, "digest": digest, "now": now}
    c.execute(_END_ROUND, values)


def lost_rounds(c: Connection) -> list[tuple[str, str, str | None]]:
    """Open sessions whose last round ended without a delivery: (session, state of the round, why)."""
    return [(row.id, row.state, row.error) for row in c.execute(_LOST)]


def forgotten(c: Connection, before: datetime) -> list[str]:
    """Sessions whose next round no worker has taken since then."""
    return list(c.execute(_FORGOTTEN, {"before": before}).scalars())
