"""Judging again: from a position on, because a point came late, a decision was taken back, or a policy changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from backend.contract import Run, parse_run
from backend.regression.policy import Override, PolicyBook, PolicyError, parse_overrides
from backend.regression.terms import ChangeState, Judgement
from backend.services.alarms import alarms
from backend.services.base import live
from backend.services.base.arrival import Arrival
from backend.services.judging.outcome import Outcome, news_of, statements_of, store, tell
from backend.services.judging.replay import difference, points_to_replay, replay
from backend.store.base import wire
from backend.store.ingest import record as ingest_store
from backend.store.ingest.record import Place
from backend.store.judging import judgements as judgement_store
from backend.store.judging import series as series_store
from backend.store.judging.judgements import JudgementRow
from backend.store.judging.series import SeriesRow, StoredPoint
from backend.store.regressions import regressions as regression_store

log = logging.getLogger("tidemark.judging")


def judge_again(
    c: Connection,
    arrival: Arrival,
    wanted: Sequence[SeriesRow],
    stored: Mapping[int, Sequence[StoredPoint]],
    start: int,
    found: Outcome,
) -> None:
    """Judge series from a position on; `stored` are their points, from far enough before it."""
    ids = [series.id for series in wanted]
    decisions = regression_store.decisions(c, ids)
    told = regression_store.points_of_series(c, ids)
    for series in wanted:
        judged, state = replay(series, stored[series.id], arrival.policy_of(series), decisions)
        for point, judgement in judged:
            if point.position < start:
                continue
            row = row_of(series, point, judgement)
            found.rows.append(row)
            found.rejudged.append((series.id, point.measured_at))
            if point.position == arrival.position:
                found.said.append((series, judgement))
        found.after.append((series, state, judged[-1][1]))
        first = stored[series.id][0].position
        known = [p for p in told if p.series_id == series.id and p.onset_position > first]
        news = difference(series, known, [judgement for _, judgement in judged])
        found.news += news
        # All rows from here on are new ones, so that everything later runs made clear must be said again.
        found.stories += [s for point, said in judged if point.position >= start for s in news_of(series, said)]
        found.stories += [item for item in news if item.event.state in (ChangeState.WITHDRAWN, ChangeState.RELOCATED)]
    judgement_store.supersede_from(c, ids, start, arrival.now)


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
    """Judge again the next series in which a point arrived so late that its run could not wait for it. Its id."""
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
    """Tell live pages how many series of a project are still to be judged again."""
    live.publish(c, "project", project_id, {"rejudging_late": series_store.waiting_again(c, project_id)})


# --- on request ------------------------------------------------------------------------------------------------------


def rejudge_series(
    c: Connection, series_id: int, from_position: int, *, now: datetime, arrivals: Arrivals | None = None
) -> None:
    """Judge a series again from a position on: a decision was taken back, or its policy changed. `arrivals`: of series
    that are judged again one after the other, each its own transaction."""
    # Locked before its points are read: a result that is just arriving would be missing among them, and be lost.
    (series,) = series_store.lock_by_id(c, [series_id])
    points = points_to_replay(c, [series_id], from_position)[series_id]
    if not points:
        _withdraw_all(c, series, now)
        return
    arrival = (arrivals or Arrivals(now)).of(c, points[-1])
    found = Outcome()
    judge_again(c, arrival, [series], {series_id: points}, from_position, found)
    told = tell(c, arrival, found)
    store(c, arrival, found, told)
    wire.send(c, *statements_of(arrival, found))


def _withdraw_all(c: Connection, series: SeriesRow, now: datetime) -> None:
    """Nothing stands in the series any more (its history was replaced), hence nothing of what it told."""
    gone = difference(series, regression_store.points_of_series(c, [series.id]), [])
    last = series_store.last_point(c, series.id)
    if gone and last is not None:
        alarms.tell(c, arrival_of(c, last, now), gone, [series.id], watched=0)


def arrival_of(c: Connection, point: StoredPoint, now: datetime) -> Arrival:
    """The run of a stored point, as it was when it arrived."""
    document = ingest_store.read_document(c, point.run_id)
    assert document is not None  # what was judged was delivered
    run = parse_run(document)
    known = ingest_store.find_place(c, run, environment_hash=point.environment_hash, measured_at=point.measured_at)
    assert known.project_id is not None and known.testbed_id is not None and known.default_branch_id is not None
    return Arrival(
        run=run,
        project_id=known.project_id,
        testbed_id=known.testbed_id,
        commit_id=point.commit_id,
        default_branch_id=known.default_branch_id,
        position=point.position,
        branch_id=None,
        base_position=None,
        measured_at=point.measured_at,
        now=now,
        environment_hash=point.environment_hash,
        policies=policies_of(run, known),
    )


class Arrivals:
    """Runs of stored points, each read and parsed once: the metrics of one run are points of many series."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._known: dict[tuple[str, int], Arrival] = {}

    def of(self, c: Connection, point: StoredPoint) -> Arrival:
        """The run of a stored point, as it was when it arrived."""
        key = point.run_id, point.position  # a force push may move its commit meanwhile
        if key not in self._known:
            self._known[key] = arrival_of(c, point, self._now)
        return self._known[key]


def policies_of(run: Run, place: Place) -> PolicyBook:
    """The project's policy, over it what the suite of this very commit declares, and over all what a person chose."""
    tables = {
        "project": place.policy,
        "suite": (place.run_spec or {}).get("policy"),
        "chosen": place.chosen_policy,
    }
    found: list[Override] = []
    for where, table in tables.items():
        try:
            found += parse_overrides(table or {}, f"{where}.policy")
        except PolicyError as error:
            # A result is never lost to a bad threshold: it is judged without it.
            log.warning("run %s of %s is judged without its %s's policy: %s", run.id, run.project, where, error)
    return PolicyBook(run.project, tuple(found), place.points_per_week or 0.0)
