"""Regressions as they change: their change points, their rows, and the events that tell their story."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, text

from backend.regression.terms import ChangeDirection, ChangeKind, ChangePoint, ChangeState
from backend.store.base import wire

LOCK = "tidemark regressions"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePointRow:
    """A stored change point, with the names of its series and the state of its regression."""

    id: int
    series_id: int
    testbed_id: int
    regression_id: int | None
    regression_state: str | None
    kind: str
    direction: str
    state: str
    onset_position: int
    last_good_position: int | None
    detected_position: int
    fixed_position: int | None
    change: float
    before: float | None
    after: float | None
    benchmark: str
    metric: str
    role: str
    exact: bool

    @property
    def held_back(self) -> bool:
        """The change is real, but its cause is not the code: nobody is told that the code got slower."""
        return self.state == "confirmed" and self.regression_state == "suspect"

    def as_change_point(self) -> ChangePoint:
        return ChangePoint(
            kind=ChangeKind(self.kind),
            direction=ChangeDirection(self.direction),
            state=ChangeState(self.state),
            onset_position=self.onset_position,
            last_good_position=self.last_good_position,
            range_start=self.onset_position if self.last_good_position is None else self.last_good_position + 1,
            range_end=self.onset_position,
            magnitude=self.change,
            past_gate=True,
            detected_position=self.detected_position,
            baseline=self.before or 0.0,
            level=self.after or 0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionRow:
    """A regression as the rules that change it need it."""

    id: int
    testbed_id: int
    """Of the series that leads."""
    state: str
    cause: str | None
    evidence: list[str]
    first_bad_position: int
    last_good_position: int | None
    lead_series_id: int | None
    lead_change: float | None
    still_bad: bool


_POINT_COLUMNS = """p.id, p.series_id, s.testbed_id, p.regression_id, g.state AS regression_state, p.kind, p.direction,
       p.state, p.onset_position, p.last_good_position, p.detected_position, p.fixed_position, p.change, p.before,
       p.after, s.benchmark, s.metric, s.role, s.exact"""
_POINTS = f"""
SELECT {_POINT_COLUMNS} FROM change_point p JOIN series s ON s.id = p.series_id
LEFT JOIN regression g ON g.id = p.regression_id
"""
_OPEN_OF_SERIES = f"""{_POINTS} WHERE p.series_id = ANY(%(series)s::int[]) AND p.direction = 'regression'
  AND p.state IN ('suspect', 'confirmed') ORDER BY p.id"""
_OF_SERIES = f"""{_POINTS} WHERE p.series_id = ANY(%(series)s::int[]) AND p.direction = 'regression' ORDER BY p.id"""
_OPEN_OF_TESTBED = f"""{_POINTS} WHERE g.project_id = %(project)s AND s.testbed_id = %(testbed)s
  AND g.state IN ('suspect', 'confirmed', 'acknowledged') ORDER BY p.id"""
_OF_REGRESSIONS = f"{_POINTS} WHERE p.regression_id = ANY(%(regressions)s::int[]) ORDER BY p.id"


def lock(c: Connection, project_id: int) -> None:
    """Whoever changes regressions of a project takes turns, so that two runs cannot open the same one twice."""
    c.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name), :project)"), {"name": LOCK, "project": project_id})


def open_points(c: Connection, series_ids: Iterable[int]) -> list[ChangePointRow]:
    """Change points for the worse that have not ended, in these series."""
    (rows,) = wire.send(c, (_OPEN_OF_SERIES, {"series": list(series_ids)}))
    return [ChangePointRow(**row._asdict()) for row in rows]


def points_of_series(c: Connection, series_ids: Iterable[int]) -> list[ChangePointRow]:
    """Every change point for the worse in these series, ended or not, oldest first."""
    (rows,) = wire.send(c, (_OF_SERIES, {"series": list(series_ids)}))
    return [ChangePointRow(**row._asdict()) for row in rows]


def points_of_open_regressions(c: Connection, project_id: int, testbed_id: int) -> list[ChangePointRow]:
    """Those in series of this testbed; a regression may have others elsewhere."""
    (rows,) = wire.send(c, (_OPEN_OF_TESTBED, {"project": project_id, "testbed": testbed_id}))
    return [ChangePointRow(**row._asdict()) for row in rows]


def points_of(c: Connection, regression_ids: Iterable[int]) -> list[ChangePointRow]:
    (rows,) = wire.send(c, (_OF_REGRESSIONS, {"regressions": list(regression_ids)}))
    return [ChangePointRow(**row._asdict()) for row in rows]


_INSERT_POINTS = """
INSERT INTO change_point (series_id, kind, direction, state, onset_position, onset_commit_id, last_good_position,
                          detected_position, change, before, after, created_at, updated_at)
SELECT u.series, u.kind, u.direction, u.state, u.onset,
       (SELECT commit_id FROM branch_commit WHERE branch_id = %(branch)s AND position = u.onset),
       u.last_good, u.detected, u.change, u.before, u.after, %(now)s, %(now)s
FROM unnest(%(series)s::int[], %(kind)s::text[], %(direction)s::text[], %(state)s::text[], %(onset)s::int[],
            %(last_good)s::int[], %(detected)s::int[], %(change)s::float4[], %(before)s::float8[], %(after)s::float8[])
     WITH ORDINALITY AS u (series, kind, direction, state, onset, last_good, detected, change, before, after, n)
ORDER BY u.n RETURNING id
"""


def insert_points(
    c: Connection, branch_id: int, found: Sequence[tuple[int, ChangePoint]], now: datetime
) -> list[ChangePointRow]:
    """Store change points of series, in their order."""
    if not found:
        return []
    values = {
        "branch": branch_id,
        "now": now,
        "series": [series_id for series_id, _ in found],
        "kind": [point.kind.value for _, point in found],
        "direction": [point.direction.value for _, point in found],
        "state": [point.state.value for _, point in found],
        "onset": [point.onset_position for _, point in found],
        "last_good": [point.last_good_position for _, point in found],
        "detected": [point.detected_position for _, point in found],
        "change": [wire.real(point.magnitude) for _, point in found],
        "before": [point.baseline for _, point in found],
        "after": [point.level for _, point in found],
    }
    (ids,) = wire.send(c, (_INSERT_POINTS, values))
    (rows,) = wire.send(
        c, (f"{_POINTS} WHERE p.id = ANY(%(ids)s::int[]) ORDER BY p.id", {"ids": [row.id for row in ids]})
    )
    return [ChangePointRow(**row._asdict()) for row in rows]


_UPDATE_POINT = text(
    """UPDATE change_point SET state = :state, onset_position = :onset, last_good_position = :last_good,
         onset_commit_id = (SELECT commit_id FROM branch_commit WHERE branch_id = :branch AND position = :onset),
         detected_position = :detected, fixed_position = :fixed, change = :change, before = :before, after = :after,
         kind = :kind, updated_at = :now WHERE id = :id"""
)


def update_point(
    c: Connection,
    branch_id: int,
    point_id: int,
    event: ChangePoint,
    state: ChangeState,
    fixed: int | None,
    now: datetime,
) -> None:
    """The newest event of a change point's story is what its row shows."""
    c.execute(
        _UPDATE_POINT,
        {
            "id": point_id,
            "branch": branch_id,
            "state": state.value,
            "kind": event.kind.value,
            "onset": event.onset_position,
            "last_good": event.last_good_position,
            "detected": event.detected_position,
            "fixed": fixed,
            "change": wire.real(event.magnitude),
            "before": event.baseline,
            "after": event.level,
            "now": now,
        },
    )


_END_POINT = text("UPDATE change_point SET state = :state, fixed_position = :fixed, updated_at = :now WHERE id = :id")
_ATTACH = text("UPDATE change_point SET regression_id = :regression, updated_at = :now WHERE id = ANY(:points)")
_COUNT_ALARMS = text(
    """UPDATE series SET alarms_confirmed = alarms_confirmed + :confirmed,
         alarms_withdrawn = alarms_withdrawn + :withdrawn
       WHERE id = ANY(:series)"""
)


def end_point(c: Connection, point_id: int, state: ChangeState, fixed: int | None, now: datetime) -> None:
    c.execute(_END_POINT, {"id": point_id, "state": state.value, "fixed": fixed, "now": now})


def attach(c: Connection, regression_id: int, point_ids: Iterable[int], now: datetime) -> None:
    c.execute(_ATTACH, {"regression": regression_id, "points": list(point_ids), "now": now})


def count_alarms(c: Connection, series_ids: Iterable[int], *, confirmed: int = 0, withdrawn: int = 0) -> None:
    """The detector keeps score of itself, by series."""
    c.execute(_COUNT_ALARMS, {"series": list(series_ids), "confirmed": confirmed, "withdrawn": withdrawn})


# --- regressions -----------------------------------------------------------------------------------------------------

_COMMIT_AT = "(SELECT commit_id FROM branch_commit WHERE branch_id = :branch AND position = {})"
_INSERT_REGRESSION = text(
    f"""INSERT INTO regression (project_id, testbed_id, state, kind, cause, evidence, first_bad_position,
          last_good_position, first_bad_commit_id, last_good_commit_id, lead_series_id, lead_change, lead_change_low,
          lead_change_high, opened_at, updated_at, confirmed_at)
        VALUES (:project, :testbed, :state, :kind, :cause, CAST(:evidence AS jsonb), :first_bad, :last_good,
          {_COMMIT_AT.format(":first_bad")}, {_COMMIT_AT.format(":last_good")}, :lead_series, :change, :change_low,
          :change_high, :now, :now, CASE WHEN :state = 'confirmed' THEN CAST(:now AS timestamptz) END)
        RETURNING id"""
)
_UPDATE_REGRESSION = text(
    f"""UPDATE regression SET state = :state, kind = :kind, cause = :cause, evidence = CAST(:evidence AS jsonb),
          first_bad_position = :first_bad, last_good_position = :last_good,
          first_bad_commit_id = {_COMMIT_AT.format(":first_bad")},
          last_good_commit_id = {_COMMIT_AT.format(":last_good")},
          lead_series_id = :lead_series, lead_change = :change,
          testbed_id = (SELECT testbed_id FROM series WHERE id = :lead_series),
          lead_change_low = :change_low, lead_change_high = :change_high, updated_at = :now,
          confirmed_at = CASE WHEN :state = 'confirmed' THEN coalesce(confirmed_at, :now) ELSE confirmed_at END
        WHERE id = :id"""
)
_CLOSE = text(
    f"""UPDATE regression SET state = :state, still_bad = false, closed_at = :now, updated_at = :now,
          fixed_commit_id = {_COMMIT_AT.format("CAST(:fixed AS integer)")}
        WHERE id = :id"""
)
_ROWS = text(
    """SELECT id, testbed_id, state, cause, evidence, first_bad_position, last_good_position, lead_series_id,
              lead_change, still_bad
       FROM regression WHERE id = ANY(:ids) ORDER BY id FOR UPDATE"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionValues:
    """What is known of a regression now."""

    state: str
    kind: str
    cause: str
    evidence: tuple[str, ...]
    first_bad: int
    last_good: int | None
    lead_series: int
    change: float
    change_low: float | None
    change_high: float | None


def _parameters(branch_id: int, known: RegressionValues, now: datetime) -> dict[str, Any]:
    return {
        "branch": branch_id,
        "now": now,
        "state": known.state,
        "kind": known.kind,
        "cause": known.cause,
        "evidence": orjson.dumps(known.evidence).decode(),
        "first_bad": known.first_bad,
        "last_good": known.last_good,
        "lead_series": known.lead_series,
        "change": wire.real(known.change),
        "change_low": wire.real(known.change_low),
        "change_high": wire.real(known.change_high),
    }


def noise_of(c: Connection, series_id: int) -> float | None:
    """Relative standard deviation between runs of a series, as its newest judgement knew it."""
    noise = c.scalar(text("SELECT profile->>'noise' FROM series WHERE id = :id"), {"id": series_id})
    return None if noise is None else float(noise)


def insert_regression(
    c: Connection, project_id: int, testbed_id: int, branch_id: int, known: RegressionValues, now: datetime
) -> int:
    values = {**_parameters(branch_id, known, now), "project": project_id, "testbed": testbed_id}
    return int(c.execute(_INSERT_REGRESSION, values).scalar_one())


def update_regression(
    c: Connection, regression_id: int, branch_id: int, known: RegressionValues, now: datetime
) -> None:
    c.execute(_UPDATE_REGRESSION, {**_parameters(branch_id, known, now), "id": regression_id})


def close_regression(
    c: Connection, regression_id: int, branch_id: int, *, state: str, fixed_position: int | None, now: datetime
) -> None:
    c.execute(_CLOSE, {"id": regression_id, "branch": branch_id, "state": state, "fixed": fixed_position, "now": now})


def lock_rows(c: Connection, regression_ids: Iterable[int]) -> dict[int, RegressionRow]:
    rows = c.execute(_ROWS, {"ids": list(regression_ids)})
    return {row.id: RegressionRow(**row._mapping) for row in rows}


_MACHINE_ALARM = text(
    """SELECT g.id FROM regression g WHERE g.project_id = :project AND g.testbed_id = :testbed
         AND g.cause = 'hardware' AND g.state IN ('suspect', 'withdrawn')
         AND (SELECT max(p.onset_position) FROM change_point p WHERE p.regression_id = g.id) BETWEEN :first AND :last
       ORDER BY g.id DESC LIMIT 1"""
)
_REOPEN = text(
    """UPDATE regression SET state = 'suspect', still_bad = true, closed_at = NULL, fixed_commit_id = NULL,
         updated_at = :now
       WHERE id = :id AND state IN ('withdrawn', 'fixed')"""
)


_FIXED_LATELY = text(
    """SELECT g.id, g.lead_change FROM regression g JOIN change_point p ON p.regression_id = g.id
       WHERE g.project_id = :project AND g.state = 'fixed' AND g.kind = 'step'
         AND p.state = 'fixed' AND p.fixed_position >= :since AND p.direction = 'regression'
         AND NOT EXISTS (SELECT FROM change_point q WHERE q.series_id = p.series_id AND q.direction = 'regression'
                           AND q.onset_position > p.onset_position AND q.regression_id <> g.id)
       GROUP BY g.id
       HAVING 2 * count(*) FILTER (WHERE p.series_id = ANY(:series)) >= greatest(count(*), :many)
       ORDER BY g.id DESC"""
)


_SAME_ELSEWHERE = text(
    """SELECT min(g.id) FROM series mine
       JOIN series s ON (s.project_id, s.suite, s.benchmark, s.variant_key, s.preset, s.metric)
                      = (mine.project_id, mine.suite, mine.benchmark, mine.variant_key, mine.preset, mine.metric)
         AND s.testbed_id <> :testbed
       JOIN change_point p ON p.series_id = s.id AND p.direction = 'regression' AND p.state IN ('suspect', 'confirmed')
         AND p.onset_position BETWEEN :onset - :near AND :onset + :near
       JOIN regression g ON g.id = p.regression_id AND g.state IN ('suspect', 'confirmed', 'acknowledged')
         AND g.cause = 'code' AND g.kind = 'step'
       WHERE mine.id = ANY(:series) AND mine.project_id = :project"""
)


def same_elsewhere(
    c: Connection, project_id: int, testbed_id: int, series_ids: Sequence[int], onset: int, near: int
) -> int | None:
    """The open regression of the code that one of these series has on another testbed, from about the same commit."""
    values = {"project": project_id, "testbed": testbed_id, "series": list(series_ids)}
    found = c.scalar(_SAME_ELSEWHERE, {**values, "onset": onset, "near": near})
    return None if found is None else int(found)


def fixed_lately(c: Connection, project_id: int, series_ids: Sequence[int], since: int) -> list[Any]:
    """Regressions of mostly these series that were fixed at or after a position, the newest first."""
    values = {"project": project_id, "series": list(series_ids), "many": len(series_ids)}
    return list(c.execute(_FIXED_LATELY, {**values, "since": since}))


def machine_alarm(c: Connection, project_id: int, testbed_id: int, first: int, last: int) -> int | None:
    """The newest alarm about a machine of a testbed that began, or went on, between two positions."""
    values = {"project": project_id, "testbed": testbed_id, "first": first, "last": last}
    found = c.scalar(_MACHINE_ALARM, values)
    return None if found is None else int(found)


_HAS_EVENT = text("SELECT EXISTS (SELECT FROM regression_event WHERE regression_id = :id AND kind = :kind)")
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


def has_event(c: Connection, regression_id: int, kind: str) -> bool:
    return bool(c.scalar(_HAS_EVENT, {"id": regression_id, "kind": kind}))


def standing_alarms(c: Connection) -> list[Any]:
    """Alarms about machines, environments and ways of measuring that nobody has settled yet."""
    return list(c.execute(_STANDING_ALARMS))


_WITHDRAW = text(
    """UPDATE regression SET state = 'withdrawn', still_bad = false, closed_at = :now, updated_at = :now
       WHERE id = :id AND state = 'suspect'"""
)


def withdraw(c: Connection, regression_id: int, now: datetime) -> bool:
    """What was never told is over; False: it is no suspect any more."""
    return c.execute(_WITHDRAW, {"id": regression_id, "now": now}).rowcount == 1


def reopen(c: Connection, regression_id: int, now: datetime) -> bool:
    """Open again what was withdrawn or fixed; False when it was open."""
    return c.execute(_REOPEN, {"id": regression_id, "now": now}).rowcount == 1


_EVENT = text(
    """INSERT INTO regression_event (regression_id, at, kind, actor, note, detail)
       VALUES (:regression, :now, :kind, :actor, :note, CAST(:detail AS jsonb)) RETURNING id"""
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
class Decision:
    """The word of a person or of a confirming session on a change point, and the newest position the series had then.

    `state` is `expected` or `invalid`, or what the session said: `confirmed` or `withdrawn`.
    """

    series_id: int
    onset_position: int
    state: str
    position: int
    false_alarm: bool
    """A person found that what had been confirmed was none."""


def decisions(c: Connection, series_ids: Iterable[int]) -> list[Decision]:
    rows = c.execute(_DECISIONS, {"series": list(series_ids)})
    return [Decision(**row._mapping) for row in rows if row.position is not None]
