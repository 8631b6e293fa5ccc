"""The board, and one word for one commit."""

from typing import Annotated, Any

from fastapi import Path, Query

from backend.api import shapes
from backend.api.bodies import Slug
from backend.api.dependencies import Now, Reader, Transaction
from backend.api.described import answer
from backend.api.responses import Json
from backend.api.shapes import PLAIN, ZonedMoment
from backend.routing import Router
from backend.services.board.board import Board, BoardQuery, CellState, load_board
from backend.services.reports.commit_verdict import CommitAnswer, commit_verdict

router = Router(tags=["board"])

Word = Annotated[str | None, Query(max_length=255, pattern=PLAIN)]


@router.get("/board", response_model=None, responses=answer(Board, "The board"))
def board(
    c: Transaction,
    now: Now,
    _: Reader,
    project: Annotated[Slug, Query()],
    suite: Annotated[list[str], Query(default_factory=list, max_length=50)],
    state: Annotated[list[CellState], Query(default_factory=list, max_length=20)],
    branch: Word = None,
    testbed: Word = None,
    text: Annotated[str, Query(max_length=200, pattern=PLAIN, description="words: which columns")] = "",
    commit_text: Annotated[str, Query(max_length=200, pattern=PLAIN, description="words: which commits")] = "",
    metric: Word = None,
    only_changed: bool = False,
    range: Annotated[str | None, Query(max_length=20, pattern=PLAIN, description="24h, 7d, 30d, 90d, 1y, all")] = None,
    since: ZonedMoment | None = None,
    until: ZonedMoment | None = None,
    last: Annotated[int | None, Query(ge=1, le=10_000)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Word = None,
    granularity: Annotated[str, Query(max_length=20, pattern=PLAIN)] = "commit",
) -> Any:
    """Commits down, benchmark variants across, one verdict per cell."""
    query = BoardQuery(
        project=project,
        branch=branch,
        testbed=testbed,
        suites=tuple(suite),
        text=text,
        commit_text=commit_text,
        metric=metric,
        states=tuple(state),
        only_changed=only_changed,
        range=range,
        since=since,
        until=until,
        last=last,
        limit=limit,
        cursor=cursor,
        granularity=granularity,
    )
    return Json(load_board(c, query, now=now))


@router.get(
    "/commits/{sha}/verdict", response_model=None, responses=answer(CommitAnswer, "What is known of the commit")
)
def verdict(
    c: Transaction,
    _: Reader,
    sha: Annotated[str, Path(pattern=shapes.SHORT_SHA)],
    project: Annotated[Slug, Query()],
    testbed: Word = None,
) -> Any:
    """One verdict for a commit: the worst that is known, or `pending` while runs are open. For pipelines that wait."""
    return Json(commit_verdict(c, project, sha, testbed))
