"""Judgements: stored with everything they were judged by, never overwritten, read back as the judge said them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection

from backend.records import record
from backend.regression.restatements import Restatement
from backend.regression.terms import Judgement, Reason, Verdict
from backend.store.base import wire
from backend.store.base.spans import period_of_runs

INT2_MAX = 32_767


@record(kw_only=True)
class JudgementRow:
    """One judgement and the point it is about."""

    measured_at: datetime
    series_id: int
    branch_id: int | None
    """None: the project's default branch."""
    commit_id: int
    run_id: str
    judgement: Judgement
    regression_id: int | None
    more: Mapping[str, Any]
    """The rest of `detail`: the `runs` pooled in the point, the `merge_base` it was judged against."""


# Numbers that almost every judgement has, by the names that the judge gives them: columns, which take a fraction of the
# space of JSON.
NUMBERS = ("min_change", "runs_of_level", "worker_offset", "sustained_runs")

_COLUMNS = """project_id, measured_at, series_id, branch_id, position, commit_id, run_id, value, verdict, reason, onset,
  since_position, red, change, change_low, change_high, baseline, band_low, band_high, smoothed, smoothed_low,
  smoothed_high, anchor, anchor_change, noise, minimum_detectable_effect, n_baseline, min_change, runs_of_level,
  worker_offset, sustained_runs, have, need, sees, regression_id, detail, policy_version, judged_at"""
_INSERT = f"""
INSERT INTO judgement ({_COLUMNS})
SELECT %(project)s, coalesce(u.measured_at, %(measured_at)s::timestamptz), u.series_id,
       coalesce(u.branch_id, %(branch)s::int4), coalesce(u.position, %(position)s::int4),
       coalesce(u.commit_id, %(commit)s::int8), coalesce(u.run_id, %(run)s::text), u.value, u.verdict,
       coalesce(u.reason, %(reason)s::text), coalesce(u.onset, %(onset)s::bool),
       coalesce(u.since_position, %(since)s::int4), coalesce(u.red, %(red)s::bool),
       u.change, u.change_low, u.change_high, u.baseline, u.band_low, u.band_high, u.smoothed, u.smoothed_low,
       u.smoothed_high, u.anchor, u.anchor_change, u.noise, u.minimum_detectable_effect, u.n_baseline,
       coalesce(u.min_change, %(min_change)s::float8), u.runs_of_level, u.worker_offset,
       coalesce(u.sustained_runs, %(sustained_runs)s::int2), coalesce(u.have, %(have)s::int2),
       coalesce(u.need, %(need)s::int2), coalesce(u.sees, %(sees)s::float4),
       coalesce(u.regression_id, %(regression)s::int4), u.detail,
       coalesce(u.policy_version, %(policy_version)s::text), %(judged_at)s
FROM ROWS FROM (
  unnest(%(series)s::int4[], %(value)s::float8[], %(verdict)s::text[], %(change)s::float8[], %(change_low)s::float8[],
         %(change_high)s::float8[], %(baseline)s::float8[], %(band_low)s::float8[], %(band_high)s::float8[],
         %(smoothed)s::float8[], %(smoothed_low)s::float8[], %(smoothed_high)s::float8[], %(anchor)s::float8[],
         %(anchor_change)s::float8[], %(noise)s::float8[], %(minimum_detectable_effect)s::float8[],
         %(n_baseline)s::int4[], %(runs_of_level)s::int4[], %(worker_offset)s::float8[],
         %(measured_ats)s::timestamptz[], %(branches)s::int4[], %(positions)s::int4[],
         %(commits)s::int8[], %(runs)s::text[], %(reasons)s::text[], %(onsets)s::bool[], %(sinces)s::int4[],
         %(reds)s::bool[], %(min_changes)s::float8[], %(all_sustained_runs)s::int2[], %(haves)s::int2[],
         %(needs)s::int2[], %(all_see)s::float4[], %(regressions)s::int4[], %(policy_versions)s::text[]),
  jsonb_array_elements(%(details)s::jsonb))
     AS u (series_id, value, verdict, change, change_low, change_high, baseline, band_low, band_high, smoothed,
           smoothed_low, smoothed_high, anchor, anchor_change, noise, minimum_detectable_effect, n_baseline,
           runs_of_level, worker_offset, measured_at, branch_id, position, commit_id, run_id, reason, onset,
           since_position, red, min_change, sustained_runs, have, need, sees, regression_id, policy_version, detail)
"""


# The old row is superseded and a copy takes its place: what was announced and what is known now can both be read.
# `old` are the rows that are superseded, each with what it says now.
_COPY = f"""
INSERT INTO judgement ({_COLUMNS})
SELECT o.project_id, o.measured_at, o.series_id, o.branch_id, o.position, o.commit_id, o.run_id, o.value,
       o.new_verdict, coalesce(o.new_reason, o.reason), o.position IS NOT DISTINCT FROM o.new_since, o.new_since,
       o.new_verdict = 'regression' AND s.role = 'gate', o.change, o.change_low, o.change_high, o.baseline, o.band_low,
       o.band_high, o.smoothed, o.smoothed_low, o.smoothed_high, o.anchor, o.anchor_change, o.noise,
       o.minimum_detectable_effect, o.n_baseline, o.min_change, o.runs_of_level, o.worker_offset, o.sustained_runs,
       o.have, o.need, o.sees, o.new_regression_id,
       o.detail || jsonb_build_object('first_said', coalesce(o.detail ->> 'first_said', o.verdict)),
       o.policy_version, %(now)s
FROM old o JOIN series s ON s.id = o.series_id
"""


def insert_statement(project_id: int, rows: Sequence[JudgementRow], judged_at: datetime) -> wire.Statement:
    """Stores judgements of a project. Those of one run have much in common, which is sent once."""
    said = [row.judgement for row in rows]
    young = [judgement.verdict is Verdict.INSUFFICIENT for judgement in said]
    common: dict[tuple[str, str], list[Any]] = {
        ("measured_at", "measured_ats"): [row.measured_at for row in rows],
        ("branch", "branches"): [row.branch_id for row in rows],
        ("position", "positions"): [judgement.position for judgement in said],
        ("commit", "commits"): [row.commit_id for row in rows],
        ("run", "runs"): [row.run_id for row in rows],
        ("reason", "reasons"): [judgement.reason.value for judgement in said],
        ("onset", "onsets"): [judgement.onset for judgement in said],
        ("since", "sinces"): [judgement.since_position for judgement in said],
        ("red", "reds"): [judgement.red for judgement in said],
        ("min_change", "min_changes"): [s.numbers.get("min_change") for s in said],
        ("sustained_runs", "all_sustained_runs"): [_whole(s.numbers.get("sustained_runs")) for s in said],
        ("have", "haves"): [min(s.n_baseline, INT2_MAX) if few else None for s, few in zip(said, young, strict=True)],
        ("need", "needs"): [min(s.needed_runs, INT2_MAX) if few else None for s, few in zip(said, young, strict=True)],
        ("sees", "all_see"): [s.numbers.get("sees") if s.verdict is Verdict.UNSTEADY else None for s in said],
        ("regression", "regressions"): [row.regression_id for row in rows],
        ("policy_version", "policy_versions"): [judgement.policy_version for judgement in said],
    }
    values: dict[str, Any] = {
        "project": project_id,
        "judged_at": judged_at,
        "series": wire.Ints([row.series_id for row in rows]),
        "value": wire.Doubles([judgement.value for judgement in said]),
        "verdict": [judgement.verdict.value for judgement in said],
        "change": wire.reals([judgement.change for judgement in said]),
        "change_low": wire.reals([judgement.change_low for judgement in said]),
        "change_high": wire.reals([judgement.change_high for judgement in said]),
        "baseline": wire.Doubles([judgement.baseline for judgement in said]),
        "band_low": wire.Doubles([judgement.band_low for judgement in said]),
        "band_high": wire.Doubles([judgement.band_high for judgement in said]),
        "smoothed": wire.Doubles([judgement.smoothed for judgement in said]),
        "smoothed_low": wire.Doubles([judgement.smoothed_low for judgement in said]),
        "smoothed_high": wire.Doubles([judgement.smoothed_high for judgement in said]),
        "anchor": wire.Doubles([judgement.anchor for judgement in said]),
        "anchor_change": wire.reals([judgement.anchor_change for judgement in said]),
        "noise": wire.Doubles([judgement.noise for judgement in said]),
        "minimum_detectable_effect": wire.Doubles([judgement.minimum_detectable_effect for judgement in said]),
        "n_baseline": wire.Ints([judgement.n_baseline or None for judgement in said]),
        "runs_of_level": wire.Ints([_whole(judgement.numbers.get("runs_of_level")) for judgement in said]),
        "worker_offset": wire.Doubles([judgement.numbers.get("worker_offset") for judgement in said]),
        "details": orjson.dumps([_detail(row.judgement, row.more) for row in rows]).decode(),
    }
    for (one, many), column in common.items():
        values[one], values[many] = wire.shared(column)
    return _INSERT, values


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _detail(said: Judgement, more: Mapping[str, Any]) -> dict[str, Any]:
    """Details of a judgement that have no column. Empty values are left out: there are hundreds of millions of rows."""
    detail: dict[str, Any] = {}
    if said.needed_runs:
        detail["needed_runs"] = said.needed_runs
    if numbers := {name: number for name, number in said.numbers.items() if name not in NUMBERS}:
        detail["numbers"] = numbers
    return {**detail, **more} if more else detail


def _numbers(row: Any) -> dict[str, float]:
    known = {name: float(number) for name in NUMBERS if (number := getattr(row, name)) is not None}
    return {**known, **row.detail.get("numbers", {})}


def said_by(row: Any, commit: str) -> Judgement:
    """The judgement that a stored row holds (any row with the columns of `judgement`), as the judge said it."""
    return Judgement(
        position=row.position,
        commit=commit,
        verdict=Verdict(row.verdict),
        reason=Reason(row.reason),
        policy_version=row.policy_version,
        value=row.value,
        change=row.change,
        change_low=row.change_low,
        change_high=row.change_high,
        baseline=row.baseline,
        band_low=row.band_low,
        band_high=row.band_high,
        anchor=row.anchor,
        anchor_change=row.anchor_change,
        smoothed=row.smoothed if row.smoothed is not None else row.value,
        smoothed_low=row.smoothed_low if row.smoothed_low is not None else row.value,
        smoothed_high=row.smoothed_high if row.smoothed_high is not None else row.value,
        noise=row.noise,
        minimum_detectable_effect=row.minimum_detectable_effect,
        n_baseline=row.n_baseline or 0,
        needed_runs=row.detail.get("needed_runs", 0),
        red=row.red,
        onset=row.onset,
        since_position=row.since_position,
        numbers=_numbers(row),
    )


_OF_RUNS = """
SELECT j.*, s.benchmark, s.variant_key, s.metric, s.unit, s.direction, s.role, s.exact, k.sha AS commit
FROM judgement j JOIN series s ON s.id = j.series_id JOIN commit k ON k.id = j.commit_id
WHERE j.run_id = ANY(%(runs)s::text[]) AND j.superseded_at IS NULL
  AND j.measured_at >= %(since)s AND j.measured_at < %(until)s
"""
_OF_RUN = f"{_OF_RUNS} ORDER BY j.series_id"
_OF_LATER_RUNS = f"{_OF_RUNS} AND j.branch_id IS NULL AND j.detail -> 'runs' ? %(run)s::text ORDER BY j.series_id"
_OTHERS_OF_COMMIT = """
SELECT o.id FROM run r JOIN run o ON o.commit_id = r.commit_id AND o.project_id = r.project_id AND o.id <> r.id
WHERE r.id = %(run)s AND o.received_at IS NOT NULL
"""


def of_run(c: Connection, run_id: str) -> wire.Rows:
    """The standing judgements of a run, each with its series' names."""
    (rows,) = wire.send(c, (_OF_RUN, {"runs": [run_id], **period_of_runs(c, [run_id])._asdict()}))
    return rows


def about_run(c: Connection, run_id: str) -> list[Any]:
    """The same, and where a later run of the commit became one point with this one, what is said of that point."""
    rows = of_run(c, run_id)
    (others,) = wire.send(c, (_OTHERS_OF_COMMIT, {"run": run_id}))
    if not others:
        return list(rows)
    runs = [row.id for row in others]
    later = (_OF_LATER_RUNS, {"run": run_id, "runs": runs, **period_of_runs(c, runs)._asdict()})
    by_series = {row.series_id: row for row in [*wire.send(c, later)[0], *rows]}
    return [by_series[series_id] for series_id in sorted(by_series)]


_SUPERSEDE = """
UPDATE judgement SET superseded_at = %(now)s
WHERE series_id = ANY(%(ids)s::int[]) AND superseded_at IS NULL AND branch_id IS NULL
  AND position BETWEEN %(first)s AND %(last)s
"""
INT4_MAX = 2**31 - 1


def supersede_from(
    c: Connection, series_ids: Sequence[int], position: int, now: datetime, *, last: int = INT4_MAX
) -> None:
    """The default branch's judgements of these series from a position on (until another) stand no longer."""
    wire.send(c, (_SUPERSEDE, {"ids": list(series_ids), "first": position, "last": last, "now": now}))


_RESTATE = f"""
WITH wanted AS (
  SELECT * FROM unnest(%(series)s::int[], %(first)s::int[], %(last)s::int[], %(verdict)s::text[], %(onset)s::int[],
                       %(regression)s::int[], %(instead_of)s::text[], %(reason)s::text[], %(since)s::int[])
    AS u (series_id, first, last, verdict, onset, regression_id, instead_of, reason, since)
), old AS (
  UPDATE judgement AS j SET superseded_at = %(now)s FROM wanted w
  WHERE j.series_id = w.series_id AND j.superseded_at IS NULL AND j.branch_id IS NULL
    AND j.position BETWEEN w.first AND w.last AND j.verdict = ANY (string_to_array(w.instead_of, ','))
    AND (w.since IS NULL OR j.since_position = w.since)
    AND (j.verdict, j.onset, j.regression_id)
        IS DISTINCT FROM (w.verdict, j.position IS NOT DISTINCT FROM w.onset, w.regression_id)
  RETURNING j.*, w.verdict AS new_verdict, w.onset AS new_since, w.regression_id AS new_regression_id,
            w.reason AS new_reason
)
{_COPY} RETURNING series_id, measured_at
"""
# Runs of one commit that bear each other out: what each of them only suspected is known now.
_RESTATE_AGREED = f"""
WITH old AS (
  UPDATE judgement AS j SET superseded_at = %(now)s
  WHERE j.run_id = ANY(%(runs)s) AND j.series_id = ANY(%(series)s::int[]) AND j.superseded_at IS NULL
    AND j.branch_id IS NOT NULL AND j.verdict = 'suspect'
  RETURNING j.*, 'regression' AS new_verdict, j.position AS new_since, j.regression_id AS new_regression_id,
            %(reason)s::text AS new_reason
)
{_COPY} RETURNING run_id
"""


def restate_agreed(c: Connection, run_ids: Sequence[str], series_ids: Sequence[int], now: datetime) -> list[str]:
    """The suspects of these runs of a branch are regressions: enough of them agree. Returns the runs restated."""
    values = {"now": now, "runs": list(run_ids), "series": list(series_ids), "reason": Reason.SUSTAINED_STEP.value}
    (rows,) = wire.send(c, (_RESTATE_AGREED, values))
    return sorted({row.run_id for row in rows})


def restate(c: Connection, changes: Sequence[Restatement], now: datetime) -> list[tuple[int, datetime]]:
    """Bring earlier judgements in line with what is known now. Returns the points restated: (series, when measured)."""
    if not changes:
        return []
    values = {
        "now": now,
        "series": [change.series_id for change in changes],
        "first": [change.first for change in changes],
        "last": [change.last for change in changes],
        "verdict": [change.verdict.value for change in changes],
        "onset": [change.onset_position for change in changes],
        "regression": [change.regression_id for change in changes],
        "reason": [None if change.reason is None else change.reason.value for change in changes],
        "since": [change.since for change in changes],
        "instead_of": [",".join(verdict.value for verdict in change.instead_of) for change in changes],
    }
    (rows,) = wire.send(c, (_RESTATE, values))
    return [(row.series_id, row.measured_at) for row in rows]
