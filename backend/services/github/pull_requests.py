"""Pull requests: recorded when GitHub reports them, run when allowed, dropped when superseded or closed.

The code of a fork never reaches a worker before a maintainer approved that exact commit: until then its commits are
not fetched, are not in the store, and no run can name them. A new push needs a new approval. Whatever a delivery says,
a head that is on no branch of the repository is treated as a fork's.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from backend.services.base.config import ServiceConfig
from backend.services.base.confine import require_of
from backend.services.base.errors import BadRequest, Conflict, NotFound
from backend.services.base.principal import Principal, Scope
from backend.services.base.projects import find_project
from backend.services.github.agreement import judged_in, restate_agreed, runs_needed
from backend.services.people import audit
from backend.services.people.audit import Did
from backend.services.policy.resolve import policy_book
from backend.services.queue import request as queue_request
from backend.services.queue.request import WantedRun
from backend.services.queue.scheduling import Kind
from backend.services.reports.commit_verdict import CommitVerdict, commit_verdict
from backend.services.repository import reading, sync
from backend.services.repository.manifest import Manifest, ManifestInvalid
from backend.services.repository.mirror import GitFailure, Mirror
from backend.services.repository.sync import to_run
from backend.store.base import commits as commit_store
from backend.store.base import live as live_store
from backend.store.base import projects as project_store
from backend.store.base.projects import ProjectRow
from backend.store.github import outbox as github_outbox
from backend.store.github import pull_requests as store
from backend.store.github.pull_requests import Doubtful, PullRequestRow
from backend.store.queue import queue

log = logging.getLogger("tidemark.pull_requests")

APPROVAL_LABEL = "tidemark"  # a project's settings may name another: {"github": {"approval_label": "..."}}
RETRY_AFTER = timedelta(seconds=30)
MAX_AT_ONCE = 20
ACTIONS = frozenset(
    {"opened", "reopened", "synchronize", "labeled", "closed", "edited", "ready_for_review", "converted_to_draft"}
)


def note(c: Connection, project: ProjectRow, payload: Mapping[str, Any], now: datetime) -> str:
    """Record what a `pull_request` event says; returns the outcome as a sentence."""
    action, pull_request = payload.get("action"), payload.get("pull_request")
    if not isinstance(pull_request, dict) or not isinstance(pull_request.get("number"), int):
        raise BadRequest.field("pull_request", type(pull_request).__name__, "an object with number, head and base")
    if action not in ACTIONS:
        return f"nothing to do for pull_request {_text(action)}"
    row = _row(project, pull_request, now)
    store.save(c, row)
    current = store.find(c, project.id, row["number"])
    assert current is not None
    name = f"#{current.number}"
    if current.state != "open":
        dropped = _drop(c, current, None, f"pull request {name} was {current.state}", now)
        return f"{name} {current.state}, {dropped} runs dropped"
    dropped = _drop(c, current, current.head_sha, f"superseded by {current.head_sha[:10]} of {name}", now)
    if action == "labeled" and current.is_fork and _label(payload) == _approval_label(project):
        # A delivery only says so. GitHub is asked whether the label is there, and who may do what.
        asked = {"number": current.number, "words": ["approve", row["head_sha"]], "author": _sender(payload)}
        label = {"label": _approval_label(project)}
        github_outbox.want_reply(c, project.id, f"label {current.number} {row['head_sha']}", {**asked, **label})
    live_store.notify_work(c)
    if current.is_fork and current.approved_sha != current.head_sha:
        return f"{name} comes from a fork; {current.head_sha[:10]} waits for a maintainer's approval"
    return f"{name} at {current.head_sha[:10]}, {dropped} superseded runs dropped"


def approve(
    c: Connection, project_name: str, number: int, sha: str, principal: Principal, now: datetime
) -> PullRequestRow:
    """A maintainer allows exactly this commit of a fork onto the workers."""
    principal.require(Scope.APPROVE)
    require_of(c, principal, Scope.APPROVE, "project", project_name)
    project = find_project(c, project_name)
    found = store.find(c, project.id, number)
    if found is None:
        raise NotFound.of("pull request", number)
    if not store.approve(c, project.id, number, sha, principal.name):
        raise Conflict(
            f"#{number} is at {found.head_sha[:12]} now, not at {sha[:12]}; look at what changed, then approve that",
            head=found.head_sha,
        )
    audit.record(c, principal, Did.APPROVED_FORK, f"#{number}", now=now, project=project.slug, commit=sha)
    live_store.notify_work(c)
    return store.find(c, project.id, number) or found


def list_pull_requests(c: Connection, project_name: str, state: str | None, limit: int) -> list[PullRequestRow]:
    return store.listed(c, find_project(c, project_name).id, state=state, limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestStatus:
    """A pull request, and what is known of its head."""

    row: PullRequestRow
    verdict: CommitVerdict
    waits_for_approval: bool


def pull_request_statuses(c: Connection, project_name: str, state: str | None, limit: int) -> list[PullRequestStatus]:
    """The status of each pull request, the newest first."""
    return [
        PullRequestStatus(
            row=row,
            verdict=_verdict(c, project_name, row.head_sha),
            waits_for_approval=row.state == "open" and row.is_fork and row.approved_sha != row.head_sha,
        )
        for row in list_pull_requests(c, project_name, state, limit)
    ]


def _verdict(c: Connection, project_name: str, sha: str) -> CommitVerdict:
    try:
        return commit_verdict(c, project_name, sha).verdict
    except NotFound:
        return CommitVerdict.NOT_BENCHMARKED  # its head was not fetched (yet)


# --- what GitHub says ------------------------------------------------------------------------------------------------


def _row(project: ProjectRow, pull_request: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    head, base = pull_request.get("head"), pull_request.get("base")
    sha = head.get("sha") if isinstance(head, dict) else None
    base_ref = base.get("ref") if isinstance(base, dict) else None
    if not isinstance(head, dict) or not isinstance(sha, str) or not sha or not isinstance(base_ref, str):
        raise BadRequest.field("pull_request.head", sha, "an object with sha, and base with ref")
    merged = bool(pull_request.get("merged"))
    user = pull_request.get("user")
    return {
        "project_id": project.id,
        "number": int(pull_request["number"]),
        "title": _text(pull_request.get("title")),
        "author": _text(user.get("login") if isinstance(user, dict) else None),
        "state": "merged" if merged else "closed" if pull_request.get("state") == "closed" else "open",
        "is_fork": _is_fork(head, base if isinstance(base, dict) else {}),
        "head_sha": _text(sha),
        "base_ref": _text(base_ref),
        "updated_at": _moment(pull_request.get("updated_at")) or now,
    }


def _is_fork(head: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Whether the head is in another repository than the base. One that is gone, or not named, counts as a fork."""
    ids = [repo.get("id") if isinstance(repo := side.get("repo"), dict) else None for side in (head, base)]
    return ids[0] is None or ids[0] != ids[1]


def _label(payload: Mapping[str, Any]) -> str | None:
    label = payload.get("label")
    return label.get("name") if isinstance(label, dict) and isinstance(label.get("name"), str) else None


def _approval_label(project: ProjectRow) -> str:
    stated = project.settings.get("github")
    return str(stated.get("approval_label") or APPROVAL_LABEL) if isinstance(stated, dict) else APPROVAL_LABEL


def _sender(payload: Mapping[str, Any]) -> str:
    sender = payload.get("sender")
    return _text(sender.get("login") if isinstance(sender, dict) else None) or "GitHub"


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:300]


def _moment(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def _drop(c: Connection, row: PullRequestRow, except_sha: str | None, reason: str, now: datetime) -> int:
    """End the runs of commits that nobody waits for any more."""
    runs = store.open_runs(c, row.project_id, row.number, except_sha=except_sha)
    queue.cancel_queued(c, runs, "superseded", now, reason)
    for run_id in runs:
        queue.request_cancel(c, run_id)  # those a worker holds already
    return len(runs)


# --- requesting the runs ---------------------------------------------------------------------------------------------


def prepare_all(
    engine: Engine, config: ServiceConfig, now: Callable[[], datetime], is_stopping: Callable[[], bool]
) -> None:
    """Fetch the heads of pull requests that may run, and request their runs."""
    with engine.begin() as c:
        waiting = store.to_prepare(c, now(), MAX_AT_ONCE)
        projects = {row.project_id: project_store.by_id(c, row.project_id) for row in waiting}
    for row in waiting:
        project = projects[row.project_id]
        if is_stopping() or project is None:
            return
        try:
            _prepare(engine, reading.mirror_of(config, project, is_stopping), project, row, now())
        except (psycopg.OperationalError, OperationalError):
            raise  # the database is away: it concerns everybody
        except Exception as failure:
            # Whatever one pull request brings, the others go on.
            is_known = isinstance(failure, GitFailure)
            log.warning("pull request #%d of %s: %s", row.number, project.slug, failure, exc_info=not is_known)
            said = str(failure) if is_known else f"{type(failure).__name__} while its head was read"
            with engine.begin() as c:
                store.set_error(c, project.id, row.number, said, now() + RETRY_AFTER)


def confirm_all(engine: Engine, now: Callable[[], datetime]) -> int:
    """Measure suspects again at once, until as many runs as the policy requires agree, or one disagrees."""
    requested = 0
    with engine.begin() as c:
        for found in store.doubtful(c):
            project = project_store.by_id(c, found.project_id)
            if project is None:
                continue
            if _settle(c, project, found, now()):
                continue
            wanted = WantedRun(commit_id=found.commit_id, suite=found.suite, testbed=found.testbed, spec=found.spec)
            requested += len(
                queue_request.request_runs(
                    c,
                    project.id,
                    [wanted],
                    kind=Kind.CONFIRM,
                    requested_by=f"suspect in #{found.number}",
                    now=now(),
                    branch=f"pull/{found.number}",
                    pull_request=found.number,
                    again=True,
                )
            )
    return requested


def _settle(c: Connection, project: ProjectRow, found: Doubtful, now: datetime) -> bool:
    """Confirm regressions that enough runs agree on, so that board, API and check say the same.

    Whether there are enough runs; nothing is settled before.
    """
    judged = judged_in(c, found.runs)
    book, place = policy_book(c, project.slug), (found.suite, found.testbed)
    suspects = [rows[0] for rows in judged if any(row.verdict == "suspect" for row in rows)]
    if len(found.runs) < runs_needed(book, place, suspects):
        return False
    restated = restate_agreed(c, book, place, found.runs, judged, now)
    if restated:
        github_outbox.want(c, restated)
    return True


def _prepare(engine: Engine, mirror: Mirror, project: ProjectRow, row: PullRequestRow, now: datetime) -> None:
    if not mirror.exists():
        raise GitFailure("the repository has not been read yet")
    if not row.is_fork and not _is_own(mirror, row.head_sha):
        if row.error is None:  # the event may be faster than the branch
            raise GitFailure(f"no branch has {row.head_sha[:12]} yet")
        log.warning("#%d of %s: no branch has %s; it counts as a fork's", row.number, project.slug, row.head_sha[:12])
        with engine.begin() as c:
            store.set_fork(c, project.id, row.number, row.head_sha)
        return
    mirror.fetch_pull_request(row.number)
    own = mirror.commits(mirror.commits_off(row.head_sha, row.base_ref))
    found = reading.manifests_at(mirror, [row.head_sha])[row.head_sha]
    paths = sorted({path for commit in own for path in commit.changed_paths})
    with engine.begin() as c:
        commit_store.save_commits(c, project.id, (sync.row_of(info) for info in own))
        store.tag_commit(c, project.id, row.head_sha, row.number)
        commit_id = commit_store.ids_of(c, project.id, [row.head_sha]).get(row.head_sha)
        if commit_id is not None:
            _request(c, project, row, commit_id, found, paths, now)
        # Also where nothing is to be run: a check that branch protection waits for must come.
        github_outbox.want_check(c, project.id, row.head_sha)
        store.set_prepared(c, project.id, row.number, row.head_sha)


def _is_own(mirror: Mirror, sha: str) -> bool:
    """Whether the repository's own branches have this head. A delivery only says so, and may be forged."""
    if not mirror.is_on_branch(sha):
        mirror.fetch()  # the branch may be newer than what was read last
    return mirror.is_on_branch(sha)


def _request(
    c: Connection,
    project: ProjectRow,
    row: PullRequestRow,
    commit_id: int,
    found: Manifest | ManifestInvalid | None,
    paths: list[str],
    now: datetime,
) -> None:
    try:
        if isinstance(found, ManifestInvalid):
            raise found
        reason, suites = to_run(found, row.base_ref, paths, is_default=True)
    except ManifestInvalid as invalid:
        commit_store.set_note(c, [commit_id], skipped_reason=None, manifest_error=str(invalid)[:4000])
        return
    commit_store.set_note(c, [commit_id], skipped_reason=reason)
    queue_request.request_runs(
        c,
        project.id,
        [
            WantedRun(commit_id=commit_id, suite=suite.name, testbed=testbed, spec=suite.spec())
            for suite in suites
            for testbed in suite.testbeds
        ],
        kind=Kind.PULL_REQUEST,
        requested_by=f"#{row.number}" + (f", approved by {row.approved_by}" if row.is_fork else ""),
        now=now,
        # Never the head's own name: a fork's branch may be called like our default branch.
        branch=f"pull/{row.number}",
        pull_request=row.number,
    )
