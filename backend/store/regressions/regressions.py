"""Regressions as they change: their rows, the events that are their history, and what was decided of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, text

from backend.regression.regression_events import Applied
from backend.regression.regression_state import RegressionState, TrackedRegression, UndoableAction
from backend.store.base import wire

LOCK = "tidemark regressions"


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Where a regression is, by numbers and names."""

    project_id: int
    project: str
    testbed_id: int
    testbed: str
    branch_id: int
    """The default branch; 0: the project has none."""


def lock(c: Connection, project_id: int) -> None:
    """Changes to regressions of a project take turns, so that two runs cannot open the same one twice."""
    c.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name), :project)"), {"name": LOCK, "project": project_id})


# --- regressions -----------------------------------------------------------------------------------------------------

_COMMIT_AT = "(SELECT commit_id FROM branch_commit WHERE branch_id = :branch AND position = {})"
_TRACKED = """
SELECT g.id, g.testbed_id, g.state, g.kind, g.cause, g.evidence, g.first_bad_position, g.last_good_position,
       g.lead_series_id, g.lead_change, g.lead_change_low, g.lead_change_high, g.still_bad, g.held_back,
       g.owner, g.reason,
       coalesce((SELECT e.kind = 'confirmed' FROM regression_event e WHERE e.regression_id = g.id
                 AND (e.kind = 'confirmed' OR e.detail ? 'taken_back') ORDER BY e.id DESC LIMIT 1), false) AS is_proved,
       EXISTS (SELECT FROM regression_event e WHERE e.regression_id = g.id AND e.kind = 'infra_alarm')
         AS is_infra_alarm,
       (SELECT jsonb_build_object('event_id', e.id, 'was', e.detail -> 'was', 'became', e.detail -> 'became',
                                  'moved', nullif(e.detail -> 'moved', 'null'))
        FROM regression_event e WHERE e.regression_id = g.id AND e.detail ? 'was'
          AND NOT EXISTS (SELECT FROM regression_event u WHERE u.regression_id = g.id AND u.kind = 'undone'
                          AND CAST(u.detail ->> 'event' AS bigint) = e.id)
        ORDER BY e.id DESC LIMIT 1) AS undoable
FROM regression g WHERE g.id = ANY(:ids) ORDER BY g.id
"""
_LOCK = text(f"{_TRACKED} FOR UPDATE OF g")
_LOAD = text(_TRACKED)
_INSERT = text(
    f"""INSERT INTO regression (project_id, testbed_id, state, kind, cause, evidence, first_bad_position,
          last_good_position, first_bad_commit_id, last_good_commit_id, lead_series_id, lead_change, lead_change_low,
          lead_change_high, opened_at, updated_at)
        VALUES (:project, :testbed, :state, :kind, :cause, CAST(:evidence AS jsonb), :first_bad, :last_good,
          {_COMMIT_AT.format(":first_bad")}, {_COMMIT_AT.format(":last_good")}, :lead_series, :change, :change_low,
          :change_high, :now, :now)
        RETURNING id"""
)
_SAVE_EVIDENCE = text(
    f"""UPDATE regression SET kind = :kind, cause = :cause, evidence = CAST(:evidence AS jsonb),
          first_bad_position = :first_bad, last_good_position = :last_good,
          first_bad_commit_id = {_COMMIT_AT.format(":first_bad")},
          last_good_commit_id = {_COMMIT_AT.format(":last_good")},
          lead_series_id = :lead_series, lead_change = :change,
          testbed_id = (SELECT testbed_id FROM series WHERE id = :lead_series),
          lead_change_low = :change_low, lead_change_high = :change_high
        WHERE id = :id"""
)
# On the right hand stands what was stored before.
_SAVE_STATE = text(
    f"""UPDATE regression SET state = :state, still_bad = :still_bad, held_back = :held_back,
          owner = :owner, reason = :reason, updated_at = :now,
          confirmed_at = CASE WHEN :state = 'confirmed' THEN coalesce(confirmed_at, :now) ELSE confirmed_at END,
          closed_at = CASE WHEN :is_open THEN NULL WHEN still_bad AND NOT :still_bad THEN CAST(:now AS timestamptz)
                           ELSE coalesce(closed_at, :now) END,
          fixed_commit_id = CASE WHEN still_bad = :still_bad THEN fixed_commit_id WHEN :still_bad THEN NULL
                                 ELSE {_COMMIT_AT.format("CAST(:fixed AS integer)")} END
        WHERE id = :id"""
)


def lock_rows(c: Connection, regression_ids: Iterable[int]) -> dict[int, TrackedRegression]:
    """Regressions by id, locked in the order of their ids."""
    return _tracked(c.execute(_LOCK, {"ids": list(regression_ids)}))


def load(c: Connection, regression_ids: Iterable[int]) -> dict[int, TrackedRegression]:
    """Regressions by id as they are, not locked."""
    return _tracked(c.execute(_LOAD, {"ids": list(regression_ids)}))


def _tracked(rows: Iterable[Any]) -> dict[int, TrackedRegression]:
    return {
        row.id: TrackedRegression(
            **{
                **row._mapping,
                "state": RegressionState(row.state),
                "evidence": tuple(row.evidence),
                "undoable": None if row.undoable is None else UndoableAction(**row.undoable),
            }
        )
        for row in rows
    }


def insert(c: Connection, project_id: int, branch_id: int, new: TrackedRegression, now: datetime) -> int:
    """Store a new regression; its id."""
    values = {**_evidence(branch_id, new), "project": project_id, "testbed": new.testbed_id}
    return int(c.execute(_INSERT, {**values, "state": new.state.value, "now": now}).scalar_one())


def save(c: Connection, branch_id: int, applied: Applied, now: datetime) -> None:
    """Store a regression as an event has left it. `branch_id`: the default branch, which names its commits."""
    after = applied.regression
    if applied.is_located:
        c.execute(_SAVE_EVIDENCE, {**_evidence(branch_id, after), "id": after.id})
    values = {
        "id": after.id,
        "branch": branch_id,
        "now": now,
        "state": after.state.value,
        "is_open": after.is_open,
        "still_bad": after.still_bad,
        "held_back": after.held_back,
        "owner": after.owner,
        "reason": after.reason,
        "fixed": applied.fixed_position,
    }
    c.execute(_SAVE_STATE, values)


def _evidence(branch_id: int, known: TrackedRegression) -> dict[str, Any]:
    return {
        "branch": branch_id,
        "kind": known.kind,
        "cause": known.cause,
        "evidence": orjson.dumps(known.evidence).decode(),
        "first_bad": known.first_bad_position,
        "last_good": known.last_good_position,
        "lead_series": known.lead_series_id,
        "change": wire.real(known.lead_change),
        "change_low": wire.real(known.lead_change_low),
        "change_high": wire.real(known.lead_change_high),
    }


def noise_of(c: Connection, series_id: int) -> float | None:
    """Relative standard deviation between runs of a series, as its newest judgement knew it."""
    noise = c.scalar(text("SELECT profile->>'noise' FROM series WHERE id = :id"), {"id": series_id})
    return None if noise is None else float(noise)


_REPORTED_SINCE = text(
    """SELECT id, confirmed_at IS NOT NULL AND NOT held_back AS is_reported FROM regression
       WHERE project_id = :project AND state <> 'withdrawn' AND opened_at >= :since
         AND (confirmed_at IS NOT NULL OR held_back)"""
)


def reported_since(c: Connection, project_id: int, since: datetime) -> dict[int, bool]:
    """The regressions that were opened since then, were confirmed or turned out to be caused by a machine, and were not
    withdrawn; for each, whether people were notified of slower code."""
    return {row.id: row.is_reported for row in c.execute(_REPORTED_SINCE, {"project": project_id, "since": since})}


_SURROUNDINGS = text(
    """SELECT g.project_id, p.slug AS project, g.testbed_id, t.name AS testbed, coalesce(b.id, 0) AS branch_id
       FROM regression g JOIN project p ON p.id = g.project_id JOIN testbed t ON t.id = g.testbed_id
       LEFT JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch
       WHERE g.id = :id"""
)


def surroundings(c: Connection, regression_id: int) -> Surroundings | None:
    row = c.execute(_SURROUNDINGS, {"id": regression_id}).one_or_none()
    return None if row is None else Surroundings(**row._mapping)


_MACHINE_ALARM = text(
    """SELECT g.id FROM regression g WHERE g.project_id = :project AND g.testbed_id = :testbed
         AND g.cause = 'hardware' AND g.state IN ('suspect', 'withdrawn')
         AND (SELECT max(p.onset_position) FROM change_point p WHERE p.regression_id = g.id) BETWEEN :first AND :last
       ORDER BY g.id DESC LIMIT 1"""
)

_FIXED_LATELY = text(
    """SELECT g.id, g.lead_change FROM regression g JOIN change_point p ON p.regression_id = g.id
       WHERE g.project_id = :project AND g.state = 'fixed' AND g.kind = 'step'
         AND p.state = 'fixed' AND p.fixed_position >= :since AND p.direction = 'regression'
         AND NOT EXISTS (SELECT FROM change_point q WHERE q.series_id = p.series_id AND q.direction = 'regression'
                           AND q.onset_position > p.onset_position AND q.regression_id <> g.id)
       GROUP BY g.id, g.project_id
       HAVING 2 * count(*) FILTER (WHERE p.series_id = ANY(:series)) >= greatest(count(*), :many)
       ORDER BY g.id DESC"""
)


def fixed_lately(c: Connection, project_id: int, series_ids: Sequence[int], since: int) -> list[Any]:
    """Regressions of mostly these series that were fixed at or after a position, the newest first."""
    values = {"project": project_id, "series": list(series_ids), "many": len(series_ids)}
    return list(c.execute(_FIXED_LATELY, {**values, "since": since}))


def machine_alarm(c: Connection, project_id: int, testbed_id: int, first: int, last: int) -> int | None:
    """The newest alarm about a machine of a testbed that began, or went on, between two positions."""
    values = {"project": project_id, "testbed": testbed_id, "first": first, "last": last}
    found = c.scalar(_MACHINE_ALARM, values)
    return None if found is None else int(found)


_STANDING_ALARMS = text(
    """SELECT g.id, g.cause, g.evidence, s.state_position AS newest_position,
         (SELECT max(p.onset_position) FROM change_point p WHERE p.regression_id = g.id) AS newest_onset,
         EXISTS (SELECT FROM change_point p WHERE p.regression_id = g.id AND p.state = 'confirmed') AS lasts,
         (SELECT count(DISTINCT j.position) FROM judgement j
          WHERE j.series_id = g.lead_series_id AND j.superseded_at IS NULL AND j.branch_id IS NULL
            AND j.position >= g.first_bad_position) AS runs,
         EXISTS (SELECT FROM regression_event v WHERE v.regression_id = g.id AND v.kind IN ('undone', 'reopened')
                   AND v.actor <> 'tidemark') AS is_kept
       FROM regression g JOIN series s ON s.id = g.lead_series_id
       WHERE g.state = 'suspect' AND g.cause IN ('hardware', 'environment', 'method')
         AND EXISTS (SELECT FROM regression_event v WHERE v.regression_id = g.id AND v.kind = 'infra_alarm'
                       OR v.regression_id = g.id AND g.cause = 'hardware')
       ORDER BY g.id"""
)


def standing_alarms(c: Connection) -> list[Any]:
    """Alarms about machines, environments and methods that are not settled yet."""
    return list(c.execute(_STANDING_ALARMS))


_EVENT = text(
    """WITH event AS (
         INSERT INTO regression_event (regression_id, project_id, at, kind, actor, note, detail)
         VALUES (:regression, (SELECT project_id FROM regression WHERE id = :regression), :now, :kind, :actor, :note,
                 CAST(:detail AS jsonb)) RETURNING id, project_id)
       INSERT INTO unseen_event (event_id, project_id) SELECT id, project_id FROM event RETURNING event_id"""
)


def insert_event(
    c: Connection,
    regression_id: int,
    kind: str,
    *,
    now: datetime,
    actor: str = "tidemark",
    note: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> int:
    values = {
        "regression": regression_id,
        "now": now,
        "kind": kind,
        "actor": actor,
        "note": note,
        "detail": orjson.dumps(detail or {}).decode(),
    }
    return int(c.execute(_EVENT, values).scalar_one())


_CHANGED_BY = text(
    """SELECT DISTINCT regression_id FROM regression_event
       WHERE regression_id = ANY(:regressions) AND detail ->> 'run_id' = :run"""
)
_CHANGED_AT = text(
    """SELECT DISTINCT v.regression_id FROM regression_event v
       JOIN regression g ON g.id = v.regression_id JOIN project p ON p.id = g.project_id
       WHERE p.slug = :project AND v.at = :at"""
)


def changed_by(c: Connection, run_id: str, regression_ids: Sequence[int]) -> set[int]:
    """Those of the regressions of which a run brought news."""
    return set(c.execute(_CHANGED_BY, {"run": run_id, "regressions": list(regression_ids)}).scalars())


def changed_at(c: Connection, project: str, at: datetime | None) -> list[int]:
    """The regressions of a project with an event of that very moment."""
    return list(c.execute(_CHANGED_AT, {"project": project, "at": at}).scalars())


_COMMITS = text(
    """SELECT bc.position, k.sha FROM branch_commit bc JOIN commit k ON k.id = bc.commit_id
       WHERE bc.branch_id = :branch AND bc.position = ANY(:positions)"""
)


def shas_at(c: Connection, branch_id: int, positions: Iterable[int]) -> dict[int, str]:
    wanted = sorted(set(positions))
    if not wanted:
        return {}
    return {row.position: row.sha for row in c.execute(_COMMITS, {"branch": branch_id, "positions": wanted})}


# --- what was decided ------------------------------------------------------------------------------------------------

_DECISIONS = text(
    """SELECT p.series_id, p.onset_position, g.state,
              CAST(v.detail -> 'positions' ->> CAST(p.series_id AS text) AS integer) AS position,
              g.state = 'invalid' AND g.confirmed_at IS NOT NULL AS false_alarm
       FROM change_point p JOIN regression g ON g.id = p.regression_id
       CROSS JOIN LATERAL (SELECT detail FROM regression_event WHERE regression_id = g.id AND kind = g.state
                           ORDER BY id DESC LIMIT 1) AS v
       WHERE p.series_id = ANY(:series) AND g.state IN ('expected', 'invalid')
       UNION ALL
       SELECT x.series_id, x.onset_position, x.decision, x.judged_position, false
       FROM session_series x WHERE x.series_id = ANY(:series) AND x.judged_position IS NOT NULL
       ORDER BY 4"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """The word of a person or of a confirming session on a change point, and the newest position the series had then.

    `state` is `expected` or `invalid`, or what the session said: `confirmed` or `withdrawn`.
    """

    series_id: int
    onset_position: int
    state: str
    position: int
    false_alarm: bool
    """A person found that what had been confirmed was none."""


def decisions(c: Connection, series_ids: Iterable[int]) -> list[DecisionRow]:
    rows = c.execute(_DECISIONS, {"series": list(series_ids)})
    return [DecisionRow(**row._mapping) for row in rows if row.position is not None]
