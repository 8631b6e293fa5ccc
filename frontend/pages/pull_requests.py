"""Pull requests: their status, and the button by which a maintainer allows a fork's exact commit onto the workers."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Form
from fastapi.responses import RedirectResponse, Response

from backend.routing import Router
from backend.services.base.principal import Scope
from backend.services.github import outbox as github_outbox
from backend.services.github import pull_requests
from backend.services.github.pull_requests import PullRequestStatus
from backend.services.reports.commit_verdict import CommitVerdict
from backend.store.github.outbox import OutboxRow
from frontend.frame import Visit, Visiting
from frontend.links import link, pull_request_url

router = Router(include_in_schema=False)

MOST = 100
GAVE_UP = "gave_up"
WORDS = {
    CommitVerdict.REGRESSION: ("bad", "▼ slower"),
    CommitVerdict.SUSPECT: ("warn", "? suspect, measured again"),
    CommitVerdict.FAILED: ("warn", "✕ a run failed"),
    CommitVerdict.PENDING: ("mut", "measuring"),
    CommitVerdict.IMPROVEMENT: ("ok", "▲ faster"),
    CommitVerdict.UNCHANGED: ("ok", "unchanged"),
    CommitVerdict.UNSTEADY: ("mut", "too unsteady to judge"),
    CommitVerdict.INSUFFICIENT: ("mut", "no baseline yet"),
    CommitVerdict.NOT_BENCHMARKED: ("mut", "not benchmarked"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestLine:
    """One pull request as the page shows it."""

    it: PullRequestStatus
    css: str
    words: str
    compare: str
    diff: str | None


@router.get("/pull-requests")
def pull_requests_page(visit: Visiting) -> Response:
    slug = visit.project()
    shown = "all" if visit.here.get("state") == "all" else "open"
    found = pull_requests.pull_request_statuses(visit.c, slug, None if shown == "all" else "open", MOST) if slug else []
    refused = [row for row in github_outbox.outbox(visit.c, slug, MOST) if row.state == GAVE_UP] if slug else []
    return visit.page(
        "pull_requests.html",
        page="pull-requests",
        title="Pull requests",
        description="What each open pull request would make slower, and what is waiting for approval.",
        project=slug,
        path="/pull-requests",
        rows=[_row(visit, slug, it) for it in found] if slug else [],
        shown=shown,
        given_up=[(place_of(row), row.error) for row in refused],
        connected=bool(slug and github_outbox.is_connected(visit.c, slug)),
        tells=github_outbox.can_send(visit.config),
        may_approve=visit.may(Scope.APPROVE, slug),
    )


def _row(visit: Visit, slug: str, it: PullRequestStatus) -> PullRequestLine:
    css, words = ("warn", "waits for an approval") if it.waits_for_approval else WORDS[it.verdict]
    web = pull_request_url(visit.repository_url(slug), it.row.number)
    return PullRequestLine(
        it=it,
        css=css,
        words=words,
        compare=link("/compare", project=slug, base="last-good", head=it.row.head_sha),
        diff=None if web is None else f"{web}/files",
    )


def place_of(row: OutboxRow) -> str:
    """Where a report should have been sent."""
    return {
        "check": f"check of {row.key[:10]}",
        "comment": f"comment on #{row.key}",
        "issue": f"issue of R-{row.key}",
        "reply": "answer to a comment",
    }[row.kind]


@router.post("/pull-requests/{number}/approve")
def approve(
    visit: Visiting,
    number: int,
    project: Annotated[str, Form(max_length=200)],
    commit: Annotated[str, Form(pattern=r"^[0-9a-f]{40,64}$")],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Let exactly the commit that the page showed onto the workers."""
    visit.check_action(csrf_token, Scope.APPROVE, project=project)
    pull_requests.approve(visit.c, project, number, commit, visit.principal, visit.now)
    return RedirectResponse(link("/pull-requests", project=project), status_code=303)
