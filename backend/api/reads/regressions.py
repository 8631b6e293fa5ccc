"""Regressions: listed for scripts, read whole, acted upon; and two commits compared."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from backend.api.bodies import MergeBody, RowId, Slug, SplitBody, TriageBody
from backend.api.dependencies import Config, Now, Reader, Transaction, Writer
from backend.api.described import answer
from backend.api.responses import Json
from backend.api.shapes import PLAIN, ZonedMoment
from backend.routing import Router
from backend.services.comparison import commits as comparison
from backend.services.comparison.commits import CommitComparison
from backend.services.github import upstream_report
from backend.services.people.members import name_of_assignee
from backend.services.triage import detail as regression_detail
from backend.services.triage import regroup, triage
from backend.services.triage import views as regressions
from backend.services.triage.detail import RegressionDetail
from backend.services.triage.views import Page, Regression, RegressionFilter

router = Router(tags=["regressions"])

Word = Annotated[str | None, Query(max_length=255, pattern=PLAIN)]
CommitName = Annotated[
    str, Query(min_length=1, max_length=255, pattern=PLAIN, description="a sha, a branch, a tag, #123, last-good")
]


@router.get("/regressions", response_model=None, responses=answer(Page[Regression], "The newest first"))
def list_regressions(
    c: Transaction,
    _: Reader,
    project: Annotated[Slug | None, Query()] = None,
    state: Annotated[
        str | None, Query(max_length=200, pattern=PLAIN, description="states, or open, closed; separated by commas")
    ] = None,
    cause: Word = None,
    suite: Word = None,
    benchmark: Word = None,
    metric: Word = None,
    testbed: Word = None,
    owner: Word = None,
    commits: Annotated[
        str | None, Query(max_length=255, pattern=PLAIN, description="base..head: onsets after base, up to head")
    ] = None,
    since: ZonedMoment | None = None,
    until: ZonedMoment | None = None,
    still_bad: bool | None = None,
    min_change: Annotated[float | None, Query(ge=0, le=1000, description="of cost, as a fraction")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Word = None,
) -> Any:
    """Regressions that match every filter; `next` is the cursor of the next page."""
    wanted = RegressionFilter(
        project=project,
        state=state,
        cause=cause,
        suite=suite,
        benchmark=benchmark,
        metric=metric,
        testbed=testbed,
        owner=owner,
        commits=commits,
        since=since,
        until=until,
        still_bad=still_bad,
        min_change=min_change,
        limit=limit,
        cursor=cursor,
    )
    return Json(regressions.list_regressions(c, wanted))


@router.get("/regressions/{regression_id}", response_model=None, responses=answer(RegressionDetail, "The regression"))
def get(regression_id: RowId, c: Transaction, _: Reader) -> Any:
    """One regression with its evidence, series, suspects, phases, and a command that reproduces it."""
    return Json(regression_detail.get_regression(c, regression_id))


@router.get(
    "/regressions/{regression_id}/upstream-report",
    response_model=None,
    responses={
        200: {"description": "The draft, as Markdown", "content": {"text/markdown": {"schema": {"type": "string"}}}}
    },
)
def upstream(regression_id: RowId, c: Transaction, config: Config, _: Reader) -> Response:
    """A report for the project whose newer version caused this. 409: the cause is not the environment."""
    found = upstream_report.draft(c, config, regression_id)
    return Response(found.text, media_type="text/markdown; charset=utf-8")


@router.patch(
    "/regressions/{regression_id}", response_model=None, responses=answer(RegressionDetail, "As it is afterwards")
)
def act(regression_id: RowId, body: TriageBody, c: Transaction, now: Now, caller: Writer) -> Any:
    """Acknowledge (for yourself or for someone else), release, accept as expected, mark as invalid, reopen, add a
    note, or undo. Each is an event; events are never edited.
    """
    owner = None if body.assignee is None else name_of_assignee(c, body.assignee)
    decision = triage.TriageDecision(body.action, reason=body.reason, note=body.note, owner=owner)
    return Json(triage.act(c, caller, regression_id, decision, now=now))


@router.post(
    "/regressions/{regression_id}/split",
    response_model=None,
    status_code=201,
    responses=answer(RegressionDetail, "The new one", status=201),
)
def split(regression_id: RowId, body: SplitBody, c: Transaction, now: Now, caller: Writer) -> Any:
    """Turn the part that began at another position into its own regression; `undo` on this one joins them again."""
    child = regroup.act_split(c, caller, regression_id, body.onset, now)
    return Json(regression_detail.get_regression(c, child), status_code=201)


@router.post(
    "/regressions/{regression_id}/merge", response_model=None, responses=answer(RegressionDetail, "The other, with it")
)
def merge(regression_id: RowId, body: MergeBody, c: Transaction, now: Now, caller: Writer) -> Any:
    """Make it part of another regression of its project; `undo` on that one separates them again."""
    regroup.act_merge(c, caller, regression_id, body.into, now)
    return Json(regression_detail.get_regression(c, body.into))


@router.get("/compare", response_model=None, responses=answer(CommitComparison, "The comparison"))
def compare(
    c: Transaction,
    _: Reader,
    project: Annotated[Slug, Query()],
    base: CommitName,
    head: CommitName,
    suite: Annotated[list[str], Query(default_factory=list, max_length=50)],
    testbed: Word = None,
    only_changed: bool = False,
) -> Any:
    """Two commits, metric by metric, with uncertainty."""
    return Json(
        comparison.compare_commits(c, project, base, head, testbed, suites=tuple(suite), only_changed=only_changed)
    )
