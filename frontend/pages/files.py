"""Lists as files: the address of a page with `.csv` or `.parquet` after its path is what it lists, all of it, under the
same filters."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from itertools import chain
from typing import Any, TypeVar

from fastapi.responses import Response, StreamingResponse
from sqlalchemy import Connection

from backend.routing import Router
from backend.services.base.errors import NotFound
from backend.services.base.tables import Table, TableFormat, written
from backend.services.comparison.rows import ComparisonRow
from backend.services.triage.views import CommitName, Regression
from backend.store.reports.series import ListedSeries
from frontend.frame import Visit, Visiting
from frontend.pages import compare, regressions, series
from frontend.render import HEADERS

router = Router(include_in_schema=False)

Row = TypeVar("Row")

REGRESSIONS: dict[str, type] = {
    "id": int,
    **dict.fromkeys(("project", "testbed", "state", "kind", "cause", "suite", "benchmark", "variant"), str),
    **dict.fromkeys(("metric", "unit", "direction"), str),
    "series_id": int,
    **dict.fromkeys(("change", "change_low", "change_high", "before", "after"), float),
    **dict.fromkeys(("first_bad", "last_good"), str),
    **dict.fromkeys(("suspect_commits", "series"), int),
    "still_bad": bool,
    **dict.fromkeys(("owner", "reason", "fixed_by"), str),
    **dict.fromkeys(("opened_at", "confirmed_at", "closed_at"), datetime),
}
SERIES: dict[str, type] = {
    "id": int,
    **dict.fromkeys(("testbed", "suite", "suite_version", "benchmark", "variant_key", "preset", "metric"), str),
    **dict.fromkeys(("unit", "direction", "role"), str),
    "last_measured_at": datetime,
    "value": float,
    "verdict": str,
    "red": bool,
    **dict.fromkeys(("change", "noise", "minimum_detectable_effect"), float),
}
COMPARED: dict[str, type] = {
    **dict.fromkeys(("suite", "benchmark", "variant_key", "preset", "metric", "unit", "direction", "role"), str),
    **dict.fromkeys(("base", "head", "change", "low", "high"), float),
    **dict.fromkeys(("verdict", "reason"), str),
    "series_id": int,
}
assert {each.name for each in fields(Regression)} >= set(REGRESSIONS)
assert set(SERIES) <= set(ListedSeries._fields) and set(COMPARED) <= {each.name for each in fields(ComparisonRow)}


@router.get("/regressions.{wanted}")
def regressions_file(visit: Visiting, wanted: TableFormat) -> Response:
    project = visit.project()
    found = _pages(visit, project, lambda c, cursor: regressions.page_of(c, visit, project, cursor))
    rows = ([_plain(getattr(each, name)) for name in REGRESSIONS] for each in found)
    return _download(visit, Table(name=_named("regressions", project), columns=REGRESSIONS, rows=rows), wanted)


@router.get("/series.{wanted}")
def series_file(visit: Visiting, wanted: TableFormat) -> Response:
    project = visit.project()
    found = _pages(visit, project, lambda c, cursor: series.page_of(c, visit, project, cursor))
    rows = ([each[name] for name in SERIES] for each in found)
    return _download(visit, Table(name=_named("series", project), columns=SERIES, rows=rows), wanted)


@router.get("/compare.{wanted}")
def compare_file(visit: Visiting, wanted: TableFormat) -> Response:
    found = compare.chosen(visit)
    if found.result is None:
        raise NotFound("there is nothing to compare yet")
    result = found.result
    sides = [result.base.sha, result.head.sha, result.testbed]
    rows = ([*sides, *(getattr(row, name) for name in COMPARED)] for row in compare.told(result, only=found.only))
    columns = {**dict.fromkeys(("base_commit", "head_commit", "testbed"), str), **COMPARED}
    name = f"compare-{result.base.sha[:12]}-{result.head.sha[:12]}"
    return _download(visit, Table(name=name, columns=columns, rows=rows), wanted)


def _pages(
    visit: Visit, project: str | None, ask: Callable[[Connection, str | None], tuple[Sequence[Row], str | None]]
) -> Iterator[Row]:
    """What a list of a project holds, page after page, each but the first in a transaction of its own.

    So who reads slowly keeps no connection; who may no longer read gets no more of it, and no file that looks whole.
    """
    first, cursor = ask(visit.c, None)  # at once, so that a wrong filter is refused

    def rest(cursor: str | None) -> Iterator[Row]:
        while cursor is not None:
            with visit.once_more(project) as c:
                page, cursor = ask(c, cursor)
            yield from page

    return chain(first, rest(cursor))


def _plain(value: Any) -> Any:
    return value.sha if isinstance(value, CommitName) else value


def _named(what: str, project: str | None) -> str:
    return f"{what}-{project.replace('/', '-')}" if project else what


def _download(visit: Visit, table: Table, wanted: TableFormat) -> Response:
    parts = visit.request.app.state.lanes.reading.in_turns(written(table, wanted))
    named = {"Content-Disposition": f'attachment; filename="{table.name}.{wanted}"'}
    return StreamingResponse(parts, media_type=wanted.media_type, headers={**HEADERS, **named})
