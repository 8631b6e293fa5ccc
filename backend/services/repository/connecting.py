"""A repository that is being connected: what was found in the tidemark.toml of its newest commit, the secret of its
webhook, and its first run."""

import secrets
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from sqlalchemy import Connection

from backend.services.base.config import ServiceConfig
from backend.services.base.confine import require_of
from backend.services.base.errors import Conflict, NotFound
from backend.services.base.principal import Principal, Scope
from backend.services.base.projects import find_project
from backend.services.base.scope import find_commit, find_scope
from backend.services.people import saved_projects
from backend.services.repository import reading
from backend.services.repository.manifest import FILE_NAME, MAX_BYTES, Manifest, ManifestInvalid, parse
from backend.services.repository.manifest_lines import line_of
from backend.services.repository.mirror import GitFailure, Mirror
from backend.services.repository.requests import AcceptedRequest, RunRequest, request_commit
from backend.store.base.projects import ProjectRow

SECRET_BYTES = 32
PATIENCE_S = 5  # a page that waits for git keeps a place of the service


@dataclass(frozen=True, slots=True)
class ManifestProblem:
    """An error of a tidemark.toml, and its line where that is known."""

    text: str
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundManifest:
    """The tidemark.toml at the newest commit of the default branch: followed, wrong, or not there."""

    sha: str
    message: str
    manifest: Manifest | None = None
    problems: tuple[ManifestProblem, ...] = ()

    @property
    def is_missing(self) -> bool:
        return self.manifest is None and not self.problems


def found_at_head(c: Connection, config: ServiceConfig, project: ProjectRow) -> FoundManifest | None:
    """The declarations of the newest commit; None while the repository was not read yet, or cannot be."""
    if project.repository_url is None or project.synced_at is None:
        return None
    try:
        head = find_commit(c, find_scope(c, project.slug), project.default_branch)
        written = _written(reading.mirror_of(config, project).path, head.sha)
    except (NotFound, GitFailure):
        return None  # an empty branch; or the project says why
    except ManifestInvalid as invalid:
        return FoundManifest(sha=head.sha, message=head.message, problems=_placed(invalid, ""))
    if written is None:
        return FoundManifest(sha=head.sha, message=head.message)
    try:
        return FoundManifest(sha=head.sha, message=head.message, manifest=parse(written))
    except ManifestInvalid as invalid:
        placed = _placed(invalid, written.decode("utf-8", "replace"))
        return FoundManifest(sha=head.sha, message=head.message, problems=placed)


@lru_cache(maxsize=64)
def _written(mirror_at: Path, sha: str) -> bytes | None:
    """What a commit says does not change: git is asked once, however often the page is looked at."""
    mirror = Mirror(mirror_at, "", trusted=False, timeout_s=PATIENCE_S)
    blob = mirror.blobs_at([sha], FILE_NAME)[sha]
    if blob is None:
        return None
    if blob.size > MAX_BYTES:
        raise ManifestInvalid([f"{FILE_NAME}: has {blob.size} bytes; at most {MAX_BYTES} are accepted"])
    return mirror.read_blobs([blob.id])[blob.id]


def _placed(invalid: ManifestInvalid, text: str) -> tuple[ManifestProblem, ...]:
    return tuple(ManifestProblem(each, line_of(text, each)) for each in invalid.problems)


def make_webhook_secret(c: Connection, by: Principal, slug: str, *, now: datetime) -> str:
    """A new webhook secret for the project, replacing the previous one. It is shown only this once."""
    require_of(c, by, Scope.ADMIN, "project", slug)
    project = find_project(c, slug)
    secret = secrets.token_hex(SECRET_BYTES)
    saved_projects.save(c, by, project.slug, github={"webhook_secret": secret}, now=now)
    return secret


def measure_newest(c: Connection, config: ServiceConfig, by: Principal, slug: str, *, now: datetime) -> AcceptedRequest:
    """Queue what the newest commit declares, whichever files it touches."""
    require_of(c, by, Scope.SUBMIT, "project", slug)
    project = find_project(c, slug)
    try:
        head = find_commit(c, find_scope(c, slug), project.default_branch)
    except NotFound:
        raise Conflict(f"no commit of {project.default_branch} is known yet") from None
    return request_commit(c, RunRequest(project=slug, commit=head.sha), config, by, now)
