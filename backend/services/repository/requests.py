"""Runs requested by a person: a commit's suites as its own tidemark.toml declares them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from backend.services.base.config import ServiceConfig
from backend.services.base.confine import require_of
from backend.services.base.errors import BadRequest, Conflict, NotFound, Unavailable
from backend.services.base.principal import Principal, Scope
from backend.services.base.projects import find_project
from backend.services.base.scope import find_commit, find_scope
from backend.services.queue import request as queue_request
from backend.services.queue.request import Requested, WantedRun
from backend.services.queue.scheduling import Kind
from backend.services.repository import manifest, reading
from backend.services.repository.manifest import FILE_NAME, Manifest, ManifestInvalid, Suite
from backend.services.repository.mirror import GitFailure
from backend.store.base import commits as commit_store
from backend.store.base.lookup import CommitRow
from backend.store.base.projects import ProjectRow
from backend.store.github import pull_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A request for a commit's runs. None: all that the tidemark.toml declares."""

    project: str
    commit: str
    suites: Sequence[str] | None = None
    testbeds: Sequence[str] | None = None
    kind: Kind = Kind.BACKFILL
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRequest:
    project: str
    commit: str
    runs: tuple[Requested, ...]


def request_commit(
    c: Connection, request: RunRequest, config: ServiceConfig, principal: Principal, now: datetime
) -> AcceptedRequest:
    """Queue the runs of a commit; those that stand already are named instead."""
    require_of(c, principal, Scope.SUBMIT, "project", request.project)
    project = find_project(c, request.project)
    commit = find_commit(c, find_scope(c, request.project), request.commit)
    check_may_run(c, config, project, commit)
    suites = _chosen(manifest_at(config, project, commit.sha), request.suites)
    wanted = [
        WantedRun(commit_id=commit.id, suite=suite.name, testbed=testbed, spec=suite.spec())
        for suite in suites
        for testbed in (request.testbeds or suite.testbeds)
    ]
    runs = queue_request.request_runs(
        c,
        project.id,
        wanted,
        kind=request.kind,
        requested_by=principal.name,
        now=now,
        branch=branch_of(c, project, commit),
        pull_request=commit.pull_request,
        again=request.again,
    )
    return AcceptedRequest(project=project.slug, commit=commit.sha, runs=tuple(runs))


def branch_of(c: Connection, project: ProjectRow, commit: CommitRow) -> str | None:
    """The branch for which a commit is run: the default one, or another that has it. None: it is run for its pull
    request, or no branch is known to have it."""
    if commit.default_position is not None:
        return project.default_branch
    return None if commit.pull_request is not None else commit_store.branch_with(c, commit.id)


def check_may_run(c: Connection, config: ServiceConfig, project: ProjectRow, commit: CommitRow) -> None:
    """Refuse commits that may not reach the workers: code of a fork before a maintainer approved exactly that commit.

    A delivered result may name any commit, and a worker would fetch it from wherever the host has it.
    """
    number = None if commit.default_position is not None else commit.pull_request
    found = None if number is None else pull_requests.find(c, project.id, number)
    is_unapproved_head = found is not None and found.head_sha == commit.sha != found.approved_sha
    try:
        mirror = None if project.repository_url is None else reading.mirror_of(config, project)
        is_own = mirror is None or not is_unapproved_head or mirror.is_on_branch(commit.sha)
        known = mirror is None or mirror.has_commit(commit.sha)
    except GitFailure as failure:
        raise Unavailable(f"the mirror of {project.slug} cannot be read: {failure}") from None
    was_let_in = found is not None and found.prepared_sha == commit.sha  # its branch may be gone by now
    if found is not None and is_unapproved_head and (found.is_fork or not (is_own or was_let_in)):
        raise Conflict(
            f"{commit.sha[:12]} is the head of #{number}, which comes from a fork: a maintainer approves exactly that "
            "commit before any of it runs"
        )
    if not known:
        raise Conflict(
            f"{commit.sha[:12]} is in no branch of {project.slug} and in no pull request that may run: "
            "it is known only from a result that was delivered"
        )


def manifest_at(config: ServiceConfig, project: ProjectRow, sha: str) -> Manifest:
    """The tidemark.toml of this commit, from the mirror."""
    if project.repository_url is None:
        raise BadRequest(f"project {project.slug} has no repository; its runs are measured elsewhere and delivered")
    mirror = reading.mirror_of(config, project)
    if not mirror.exists():
        raise Unavailable(f"the repository of {project.slug} has not been read yet; try again in a moment")
    try:
        blob = mirror.blobs_at([sha], FILE_NAME)[sha]
        if blob is None or blob.size > manifest.MAX_BYTES:
            raise NotFound(f"commit {sha[:12]} has no usable {FILE_NAME}, so it does not say what to run")
        return manifest.parse(mirror.read_blobs([blob.id])[blob.id])
    except GitFailure as failure:
        raise Unavailable(f"the mirror of {project.slug} cannot be read: {failure}") from None
    except ManifestInvalid as invalid:
        raise Conflict(str(invalid), errors=[{"message": problem} for problem in invalid.problems]) from None


def _chosen(found: Manifest, names: Sequence[str] | None) -> list[Suite]:
    if names is None:
        return list(found.suites)
    by_name = {suite.name: suite for suite in found.suites}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise NotFound.of("suite", unknown[0], list(by_name))
    return [by_name[name] for name in dict.fromkeys(names)]
