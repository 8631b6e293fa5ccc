"""What a repository has that the store does not: its branches, its new commits, and the manifests at them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sqlalchemy import Connection, Engine

from backend.services.base.config import ServiceConfig
from backend.services.repository import manifest
from backend.services.repository.commit_object import CommitObject
from backend.services.repository.manifest import FILE_NAME, Manifest, ManifestInvalid
from backend.services.repository.mirror import MAX_BRANCHES, Blob, GitFailure, Mirror, batches
from backend.store.base import commits as store
from backend.store.base.commits import PlacedCommit, StoredBranch
from backend.store.base.projects import ProjectRow

READ_AT_ONCE = 500
SHARED_CONTEXT = 20  # commits below the fork that another branch's board shows as well
MAX_BRANCH_LENGTH = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchLine:
    """A branch: its commits from position `first` on, oldest first; those before it have not changed."""

    name: str
    head: str
    first: int
    shas: tuple[str, ...]
    new: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryReading:
    """What is new in a repository and not in the store yet."""

    default: BranchLine
    others: tuple[BranchLine, ...]
    deleted: tuple[str, ...]
    commits: tuple[CommitObject, ...]
    manifests: Mapping[str, Manifest | ManifestInvalid | None]
    head_manifest: Manifest | None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """State of the store, read before git is asked."""

    branches: Mapping[str, StoredBranch]
    line: tuple[PlacedCommit, ...]


def mirror_of(config: ServiceConfig, project: ProjectRow, is_stopping: Callable[[], bool] = lambda: False) -> Mirror:
    """The copy of a project's repository on this machine."""
    assert project.repository_url is not None
    return Mirror(
        config.mirrors_dir / f"{project.id}.git",
        project.repository_url,
        trusted=project.trusted,
        timeout_s=config.git_timeout_s,
        is_stopping=is_stopping,
        private_hosts=config.private_hosts,
    )


class _Lines(NamedTuple):
    """The branches of a repository as they are now, and the names of those that are gone."""

    default: BranchLine
    others: tuple[BranchLine, ...]
    deleted: tuple[str, ...]


def read(
    engine: Engine, config: ServiceConfig, project: ProjectRow, is_stopping: Callable[[], bool]
) -> RepositoryReading:
    """Fetch, and compare with the store."""
    mirror = mirror_of(config, project, is_stopping)
    mirror.fetch()
    heads = mirror.heads()
    if project.default_branch not in heads:
        there = ", ".join(list(heads)[:10]) or "none: the repository is empty"
        raise GitFailure(f"branch {project.default_branch!r} does not exist in the repository; branches there: {there}")
    with engine.connect() as c:
        known = _known(c, project)
    trunk = mirror.first_parents(heads[project.default_branch])[::-1]
    default = _default_line(project.default_branch, trunk, known.line)
    others = _other_lines(mirror, heads, project.default_branch, trunk, known.branches)
    deleted = tuple(name for name, row in known.branches.items() if name not in heads and not row.deleted)
    reading = _with_commits(engine, config, project, mirror, _Lines(default, others, deleted))
    return replace(reading, tags=mirror.tags())


def _known(c: Connection, project: ProjectRow) -> _Known:
    branches = store.branches(c, project.id)
    trunk = branches.get(project.default_branch)
    line = [] if trunk is None else store.line_of(c, trunk.id)
    # Positions with a gap cannot have come from a sync: nothing from the gap on is relied on.
    whole = [commit for index, commit in enumerate(line) if index == commit.position]
    return _Known(branches=branches, line=tuple(whole))


def _default_line(name: str, trunk: Sequence[str], known: Sequence[PlacedCommit]) -> BranchLine:
    """The part of the default branch that is new. After a force push that is everything above the merge base."""
    same = 0
    for ours, theirs in zip(known, trunk, strict=False):
        if ours.sha != theirs or not ours.complete:
            break
        same += 1
    seen = {commit.sha for commit in known if commit.complete}
    tail = tuple(trunk[same:])
    new = frozenset(sha for sha in tail if sha not in seen)
    return BranchLine(name=name, head=trunk[-1], first=same, shas=tail, new=new)


def _other_lines(
    mirror: Mirror,
    heads: Mapping[str, str],
    default_branch: str,
    trunk: Sequence[str],
    known: Mapping[str, StoredBranch],
) -> tuple[BranchLine, ...]:
    """Branches whose head moved: their own commits, counted on from where they leave the default branch."""
    moved = [
        name
        for name in list(heads)[:MAX_BRANCHES]
        if name != default_branch and (name not in known or known[name].head_sha != heads[name] or known[name].deleted)
    ]
    if not moved:
        return ()
    position_of = {sha: position for position, sha in enumerate(trunk)}
    return tuple(_other_line(mirror, name, heads[name], trunk, position_of) for name in moved)


def _other_line(
    mirror: Mirror, name: str, head: str, trunk: Sequence[str], position_of: Mapping[str, int]
) -> BranchLine:
    own: list[str] = []
    fork = -1  # no common history: counted from its own root
    for sha in mirror.first_parents(head, MAX_BRANCH_LENGTH):
        if sha in position_of:
            fork = position_of[sha]
            break
        own.append(sha)
    first = max(0, fork + 1 - SHARED_CONTEXT)
    return BranchLine(
        name=name, head=head, first=first, shas=(*trunk[first : fork + 1], *reversed(own)), new=frozenset(own)
    )


def _with_commits(
    engine: Engine,
    config: ServiceConfig,
    project: ProjectRow,
    mirror: Mirror,
    lines: _Lines,
) -> RepositoryReading:
    default, others, deleted = lines
    wanted = list(dict.fromkeys([*default.shas, *(sha for line in others for sha in line.shas)]))
    infos: list[CommitObject] = []
    for part in batches(wanted, READ_AT_ONCE):
        with engine.connect() as c:
            complete = store.complete_shas(c, project.id, part)
        infos += mirror.commits([sha for sha in part if sha not in complete])
    to_request = [sha for sha in default.shas[-config.first_sync_commits :] if sha in default.new]
    for line in others:
        to_request += [sha for sha in line.shas[-config.first_sync_commits :] if sha in line.new]
    manifests = manifests_at(mirror, list(dict.fromkeys([*to_request, default.head])))
    head_manifest = manifests[default.head]
    return RepositoryReading(
        default=default,
        others=others,
        deleted=deleted,
        commits=tuple(infos),
        manifests=manifests,
        head_manifest=head_manifest if isinstance(head_manifest, Manifest) else None,
    )


def manifests_at(mirror: Mirror, shas: Sequence[str]) -> dict[str, Manifest | ManifestInvalid | None]:
    """The tidemark.toml of each commit; identical files are read and parsed once."""
    blobs = mirror.blobs_at(shas, FILE_NAME) if shas else {}
    small = {blob.id for blob in blobs.values() if blob is not None and blob.size <= manifest.MAX_BYTES}
    parsed = {blob_id: _parsed(content) for blob_id, content in mirror.read_blobs(sorted(small)).items()}
    return {sha: None if blob is None else parsed.get(blob.id, _too_large(blob)) for sha, blob in blobs.items()}


def _parsed(content: bytes) -> Manifest | ManifestInvalid:
    try:
        return manifest.parse(content)
    except ManifestInvalid as invalid:
        return invalid


def _too_large(blob: Blob) -> ManifestInvalid:
    return ManifestInvalid([f"{FILE_NAME}: has {blob.size} bytes; at most {manifest.MAX_BYTES} are accepted"])
