"""A page of the board with one row for each hour, day or week: the worst of each series in it, from the roll-ups."""

import math

import numpy as np
from sqlalchemy import Connection

from backend.services.base.scope import QueryScope
from backend.services.board import cells
from backend.services.board.cells import CellContext
from backend.services.board.commits import metric_names, wanted_series
from backend.services.board.model import BoardPage, BoardQuery, BoardRow, Span
from backend.services.reports.columns import columns_of
from backend.store.base.lookup import CommitRow
from backend.store.board import board as store
from backend.store.board import buckets as bucket_store
from backend.store.board.buckets import BucketRow


def bucket_page(c: Connection, scope: QueryScope, query: BoardQuery, span: Span) -> BoardPage:
    """Buckets of the default branch from `span.start` downwards. (Roll-ups are kept for the default branch only.)"""
    if scope.testbed is None or scope.default_branch is None:
        return BoardPage()
    gates = store.gate_series(c, scope.project.id, scope.testbed.id, None)
    series = wanted_series(gates, query)
    ids = [row.id for row in series]
    found = bucket_store.bucket_rows(
        c, scope.project.id, ids, query.granularity, span.first, span.start, span.limit + 1
    )
    buckets = found[: span.limit]
    if not buckets:
        return BoardPage(metrics=metric_names(gates))
    worst = bucket_store.bucket_cells(c, ids, query.granularity, [bucket for bucket, _ in buckets])
    seen = {row.series_id for row in worst}
    columns = columns_of(tuple(row for row in series if row.id in seen), (), (), among=tuple(gates))
    row_of_bucket = {bucket: row for row, (bucket, _) in enumerate(buckets)}
    column_of_series = {series_id: index for index, column in enumerate(columns) for series_id in column.series}
    records = np.array(
        [_record(row, row_of_bucket[row.bucket], column_of_series[row.series_id]) for row in worst], dtype=cells.RECORD
    )
    regressions = cells.regressions_in(records)
    if regressions:
        records = cells.with_owners(records, store.regressions_of_ids(c, regressions).values())
    context = CellContext(
        {row.id: (row.metric, row.unit) for row in series}, [column.suite for column in columns], [{} for _ in buckets]
    )
    table = cells.rolled_up(records, {}, rows=len(buckets), columns=len(columns), context=context)
    commits = _commits(c, scope, [position for _, position in buckets])
    rows = [
        BoardRow(
            sha=commits[position].sha,
            short=commits[position].sha[:7],
            position=position,
            message=commits[position].message.partition("\n")[0].strip(),
            author=commits[position].author_name,
            committed_at=commits[position].committed_at,
            pull_request=commits[position].pull_request,
            benchmarked=True,
            skipped_reason=None,
            cells=table.row(row),
            runs={},
            bucket=bucket,
        )
        for row, (bucket, position) in enumerate(buckets)
        if position in commits
    ]
    return BoardPage(columns, rows, str(buckets[-1][1]) if len(found) > span.limit else None, metric_names(gates))


def _record(row: BucketRow, index: int, column: int) -> tuple[int, int, int, int, int, int, float, float]:
    code = cells.code_of_verdict(row.worst_verdict, onset=row.onset)
    change = math.nan if row.worst_change is None else row.worst_change
    return index, column, row.series_id, row.last_position, code, row.regression_id or 0, row.last_value, change


def _commits(c: Connection, scope: QueryScope, positions: list[int]) -> dict[int, CommitRow]:
    assert scope.default_branch is not None  # asked for by the caller
    found = store.window(
        c,
        branch_id=scope.default_branch.id,
        default_branch_id=scope.default_branch.id,
        first=min(positions),
        last=max(positions),
        limit=len(positions),
        positions=positions,
    )
    return {commit.position: commit for commit in found if commit.position is not None}
