"""Series: found, drawn, explained."""

from typing import Annotated, Any

from fastapi import Query, Request

from backend.api.bodies import RowId, Slug
from backend.api.dependencies import Now, Reader, Transaction
from backend.api.described import answer
from backend.api.responses import Json
from backend.api.results.downloads import FormatName, attachment, exported
from backend.api.shapes import PLAIN, ZonedMoment
from backend.routing import Router
from backend.services.base.scope import time_range
from backend.services.base.tables import table_format
from backend.services.reports import explanations, exports, history
from backend.services.reports.explanations import Explanation
from backend.services.reports.history import NamedSeries, SeriesPage, SeriesPoints, SeriesQuery
from backend.store.reports.points import Sampled

router = Router(tags=["series"])

Word = Annotated[str | None, Query(max_length=200, pattern=PLAIN)]
CommitName = Annotated[
    str, Query(min_length=1, max_length=255, pattern=PLAIN, description="a sha (7 digits or more), a branch, #123")
]


@router.get("/series", response_model=None, responses=answer(SeriesPage, "Series, with their current level"))
def list_series(
    c: Transaction,
    _: Reader,
    project: Annotated[Slug, Query()],
    testbed: Word = None,
    suite: Word = None,
    benchmark: Word = None,
    metric: Word = None,
    role: Word = None,
    text: Annotated[str, Query(max_length=200, pattern=PLAIN, description="words that must occur")] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Word = None,
) -> Any:
    """Series of a project."""
    query = SeriesQuery(
        project=project,
        testbed=testbed,
        suite=suite,
        benchmark=benchmark,
        metric=metric,
        role=role,
        text=text,
        limit=limit,
        cursor=cursor,
    )
    return Json(history.list_series(c, query))


@router.get("/series/{series_id}", response_model=None, responses=answer(NamedSeries, "The series"))
def get(series_id: RowId, c: Transaction, _: Reader) -> Any:
    """A series, with its noise profile and the other metrics of its variant."""
    return Json(history.load_series(c, series_id))


@router.get(
    "/series/{series_id}/points", response_model=None, responses=exported(SeriesPoints, "Points, a list per column")
)
def points(
    request: Request,
    series_id: RowId,
    c: Transaction,
    now: Now,
    _: Reader,
    granularity: Annotated[
        str, Query(max_length=20, pattern=PLAIN, description="commit, hour, day or week")
    ] = "commit",
    since: ZonedMoment | None = None,
    until: ZonedMoment | None = None,
    range: Annotated[str | None, Query(max_length=20, pattern=PLAIN, description="24h, 7d, 30d, 90d, 1y, all")] = None,
    last: Annotated[int | None, Query(ge=1, le=20_000, description="only the newest points")] = None,
    format: FormatName = None,
) -> Any:
    """The history of a series, oldest first, with its change points; as csv or parquet, the points as a table."""
    wanted = None if format in (None, "json") else table_format(format)
    found = history.load_points(c, series_id, granularity, time_range(range, since, until, now=now), last=last)
    if wanted is None:
        return Json(found)
    return attachment(request, exports.export_table(exports.points_table(found), wanted))


@router.get("/series/{series_id}/explain", response_model=None, responses=answer(Explanation, "Why it was judged so"))
def explain(series_id: RowId, c: Transaction, _: Reader, commit: CommitName) -> Any:
    """Why the point at a commit is red, or is not, and how small a change the noise of its series allows to see."""
    return Json(explanations.explain_point(c, series_id, commit))


@router.get(
    "/series/{series_id}/samples",
    response_model=None,
    responses=answer(tuple[Sampled, ...], "What each run measured there"),
)
def samples(series_id: RowId, c: Transaction, _: Reader, commit: CommitName) -> Any:
    """Process values and samples of the point at a commit."""
    return Json(explanations.load_samples(c, series_id, commit))
