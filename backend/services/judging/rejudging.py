"""Judging again: from a position on, because a point came late, a decision was undone, or a policy changed."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from backend.regression.terms import ChangeState, Judgement
from backend.services.base import live
from backend.services.judging.outcome import Outcome, apply_changes, events_of, state_statements, write_down
from backend.services.judging.replay import Replay, difference, points_to_replay, replay
from backend.services.judging.stored_runs import StoredRuns
from backend.services.regressions import apply
from backend.services.regressions.ledger import RegressionContext
from backend.store.base import wire
from backend.store.judging import judgements as judgement_store
from backend.store.judging import points as series_points
from backend.store.judging import series as series_store
from backend.store.judging.judgements import JudgementRow
from backend.store.judging.points import StoredPoint
from backend.store.judging.series import SeriesRow
from backend.store.regressions import points as point_store
from backend.store.regressions import regressions as regression_store

log = logging.getLogger("tidemark.judging")


def judge_again(
    c: Connection,
    context: RegressionContext,
    wanted: Sequence[SeriesRow],
    stored: Mapping[int, Sequence[StoredPoint]],
    start: int,
    found: Outcome,
) -> None:
    """Judge series from a position on; `stored` are their points, from far enough before it. The judgements at the
    position of the context are the verdicts of its run."""
    ids = [series.id for series in wanted]
    decisions = regression_store.decisions(c, ids)
    recorded = point_store.of_series(c, ids)
    replays = [Replay.of(series, stored[series.id], context.policy_of(series), decisions) for series in wanted]
    replay(replays)
    for replayed in replays:
        series, judged = replayed.series, replayed.judged
        for point, judgement in judged:
            if point.position < start:
                continue
            row = row_of(series, point, judgement)
            found.rows.append(row)
            found.rejudged.append((series.id, point.measured_at))
            if point.position == context.position:
                found.said.append((series, judgement))
        found.after.append((series, replayed.state, judged[-1][1]))
        first = stored[series.id][0].position
        known = [p for p in recorded if p.series_id == series.id and p.onset_position > first]
        events = difference(series.id, known, [judgement for _, judgement in judged])
        found.events += events
        # All rows from here on are new ones, so that everything later runs made clear must be said again.
        found.history += [e for point, said in judged if point.position >= start for e in events_of(series.id, said)]
        found.history += [e for e in events if e.change.state in (ChangeState.WITHDRAWN, ChangeState.RELOCATED)]
    judgement_store.supersede_from(c, ids, start, context.now)


def row_of(series: SeriesRow, point: StoredPoint, judgement: Judgement) -> JudgementRow:
    return JudgementRow(
        measured_at=point.measured_at,
        series_id=series.id,
        branch_id=None,
        commit_id=point.commit_id,
        run_id=point.run_id,
        judgement=judgement,
        regression_id=None,
        more={"runs": list(point.runs)} if len(point.runs) > 1 else {},
    )


def rejudge_next_late(c: Connection, now: datetime) -> int | None:
    """Judge again the next series with a point that arrived too late for its run to wait. Returns its id."""
    wanted = series_store.take_again(c)
    if wanted is None:
        return None
    try:
        with c.begin_nested():
            rejudge_series(c, wanted.series_id, wanted.position, now=now)
    except (psycopg.Error, SQLAlchemyError):  # it is tried again
        raise
    except Exception:  # it keeps its verdicts, and does not keep the others waiting
        log.exception("series %d could not be judged again", wanted.series_id)
    publish_waiting(c, wanted.project_id)
    return wanted.series_id


def publish_waiting(c: Connection, project_id: int) -> None:
    """Notify live pages how many series of a project are still to be judged again."""
    live.publish(c, "project", project_id, {"rejudging_late": series_store.waiting_again(c, project_id)})


# --- on request ------------------------------------------------------------------------------------------------------


def rejudge_series(c: Connection, series_id: int, from_position: int, *, now: datetime) -> None:
    """Judge a series again from a position on: a decision was undone, its policy changed, or commits moved. `runs`:
    shared by series that are judged again one after another, each in its own transaction."""
    rejudge_side_by_side(c, [series_id], from_position, runs=StoredRuns(now), now=now)


def rejudge_side_by_side(
    c: Connection, series_ids: Sequence[int], from_position: int, *, runs: StoredRuns, now: datetime
) -> None:
    """Judge several series of a project again from a position on; those with the same newest run are done together."""
    # Locked before their points are read: a result that is just arriving would be missing among them, and be lost.
    locked = series_store.lock_by_id(c, series_ids)
    stored = points_to_replay(c, series_ids, from_position)
    last: dict[tuple[str, int], list[SeriesRow]] = defaultdict(list)
    for series in locked:
        if points := stored[series.id]:
            last[points[-1].run_id, points[-1].position].append(series)
        else:
            _withdraw_all(c, series, now)
    for together in last.values():
        newest = stored[together[0].id][-1]
        found = Outcome()
        context = runs.of(c, newest)
        judge_again(c, context, together, stored, from_position, found)
        found.said = []  # of the run's series these are only some: how many of them moved says nothing
        known = apply_changes(c, context, found)
        write_down(c, context, found, known)
        wire.send(c, *found.statements, *state_statements(newest.measured_at, found))


def _withdraw_all(c: Connection, series: SeriesRow, now: datetime) -> None:
    """Nothing stands in the series any more (its history was replaced), hence none of its change points."""
    gone = difference(series.id, point_store.of_series(c, [series.id]), [])
    last = series_points.last_point(c, series.id)
    if gone and last is not None:
        apply.apply_changes(c, StoredRuns(now).of(c, last), gone, [series.id], watched=0)
