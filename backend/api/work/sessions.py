"""Sessions: a round delivered by its worker; listed, read, requested and cancelled."""

from typing import Annotated, Any, Literal

from fastapi import Header, Path, Query
from pydantic import Field, StringConstraints
from sqlalchemy import Connection

from backend.api import shapes
from backend.api.bodies import Name, RequestBody, RunId, Slug
from backend.api.dependencies import Config, Deliver, Now, RawBody, Reader, Submitter, Transaction, UnconfinedSubmitter
from backend.api.described import answer
from backend.api.responses import Json
from backend.api.shapes import PLAIN
from backend.api.turns import Turn
from backend.routing import Router
from backend.services.base.principal import Principal
from backend.services.base.scope import find_project
from backend.services.ingest import session_round as rounds
from backend.services.ingest.session_round import Delivered
from backend.services.plans import compare_setups
from backend.services.plans.compare_setups import Wish
from backend.services.sessions import request as confirm
from backend.services.sessions import views as session_views
from backend.services.sessions.request import Purpose
from backend.services.sessions.views import SessionView
from backend.services.triage.views import Page

router = Router(tags=["sessions"])

Ulid = Annotated[str, Path(pattern=shapes.ULID, description="a ULID")]
CommitName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=PLAIN)]
Command = Annotated[str, StringConstraints(min_length=1, max_length=10_000, pattern=shapes.NO_NUL)]


class SetupBody(RequestBody):
    """Packages and variables of one arm, beyond those of its suite."""

    pip: Annotated[str, StringConstraints(max_length=2000, pattern=PLAIN)] | None = Field(
        default=None, description="requirements and options of pip install, like torch==2.14.0"
    )
    setup: Command | None = Field(default=None, description="a command, run after the suite's own setup")
    env: dict[str, str] = Field(default_factory=dict, max_length=100)


class SessionBody(RequestBody):
    project: Slug
    suite: Name
    testbed: Name | None = Field(default=None, description="default: the first of the suite's")
    base: CommitName = Field(description="a sha, a branch, a tag, #123, last-good")
    head: CommitName | None = Field(default=None, description="default: the base, to compare two environments")
    base_setup: SetupBody = Field(default_factory=SetupBody)
    head_setup: SetupBody = Field(default_factory=SetupBody)
    rounds: int | None = Field(default=None, ge=1, le=20, description="of ABBA, at most; by default as the policy says")

    def wish(self) -> Wish:
        return Wish(
            project=self.project,
            suite=self.suite,
            testbed=self.testbed,
            base=self.base,
            head=self.head or self.base,
            base_setup=self.base_setup.model_dump(exclude_defaults=True),
            head_setup=self.head_setup.model_dump(exclude_defaults=True),
            max_rounds=self.rounds,
        )


@router.put(
    "/runs/{run_id}/session",
    response_model=None,
    responses={
        **answer(Delivered, "The same round was delivered before"),
        **answer(Delivered, "Stored; the session continues or is decided", status=201),
    },
)
async def deliver_round(
    run_id: RunId,
    body: RawBody,
    deliver: Deliver,
    now: Now,
    tidemark_lease: Annotated[str | None, Header(max_length=200)] = None,
) -> Any:
    """Deliver a round of a session (`tidemark.session/1`): both sides, each turn a run. 409: different content is
    stored.
    """

    def record(c: Connection, caller: Principal, _: Turn) -> Json:
        taken = rounds.deliver_round(c, run_id, body, lease=tidemark_lease, principal=caller, now=now)
        return Json(taken, status_code=201 if taken.created else 200)

    return await deliver(len(body), record)


@router.get("/sessions", response_model=None, responses=answer(Page[SessionView], "The newest first"))
def list_sessions(
    c: Transaction,
    _: Reader,
    project: Annotated[Slug | None, Query()] = None,
    purpose: Purpose | None = None,
    state: Literal["waiting", "running", "decided", "cancelled", "quarantined", "failed"] | None = None,
    schedule: Annotated[str | None, Query(max_length=100, pattern=PLAIN)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Any:
    """Interleaved runs of base and head: their purpose, progress, and result for each metric."""
    found = session_views.list_sessions(
        c,
        project_id=None if project is None else find_project(c, project).id,
        purpose=None if purpose is None else purpose.value,
        state=state,
        schedule=schedule,
        limit=limit,
    )
    return Json({"items": found, "next": None})


@router.get("/sessions/{session_id}", response_model=None, responses=answer(SessionView, "The session"))
def get_session(session_id: Ulid, c: Transaction, _: Reader) -> Any:
    """A session: its two commits, the order of its turns, and its result for each metric so far."""
    return Json(session_views.session_view(c, session_id))


@router.post("/sessions", response_model=None, status_code=202, responses=answer(SessionView, "Requested", status=202))
def request_session(body: SessionBody, c: Transaction, config: Config, now: Now, caller: UnconfinedSubmitter) -> Any:
    """Compare two environments of a commit, or two commits, interleaved on one worker."""
    session_id = compare_setups.request_comparison(c, body.wish(), config, caller, now)
    return Json(session_views.session_view(c, session_id), status_code=202)


@router.post("/sessions/{session_id}/cancel", response_model=None, responses=answer(SessionView, "Cancelled"))
def cancel_session(session_id: Ulid, c: Transaction, now: Now, caller: Submitter) -> Any:
    """Cancel a session: a queued round is cancelled, a round in progress is stopped."""
    confirm.cancel(c, session_id, f"cancelled by {caller.name}", now)
    return Json(session_views.session_view(c, session_id))
