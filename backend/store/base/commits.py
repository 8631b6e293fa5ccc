"""Commits and branches as rows; the first-parent order of a branch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.store.tables.core import branch, branch_commit, commit, project

BATCH = 1000

# Ends the name of the branch on which results of the default branch wait whose commit the repository does not have; git
# allows no such name.
UNREAD = " (not read yet)"
# Of project p and its default branch b: the branch was read from the repository, so results do not decide which commits
# are on it.
IS_MIRRORED = """p.repository_url IS NOT NULL AND EXISTS (
  SELECT FROM branch_commit x JOIN commit y ON y.id = x.commit_id
  WHERE x.branch_id = b.id AND x.position = 0 AND y.changed_paths IS NOT NULL)"""
# Of run r as well: it was delivered for the default branch, and the repository, as last read, does not have its commit
# there.
WAITS_FOR_COMMIT = f"""r.received_at IS NOT NULL AND r.session_id IS NULL AND r.pull_request IS NULL
  AND coalesce(r.branch_name, p.default_branch) = p.default_branch AND {IS_MIRRORED}
  AND NOT EXISTS (SELECT FROM branch_commit z WHERE z.branch_id = b.id AND z.commit_id = r.commit_id)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBranch:
    id: int
    name: str
    head_sha: str | None
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCommit:
    """A commit on a branch. `complete`: its repository was read, not only a run that names it."""

    position: int
    sha: str
    complete: bool


def branches(c: Connection, project_id: int) -> dict[str, StoredBranch]:
    statement = select(branch.c.id, branch.c.name, branch.c.head_sha, branch.c.deleted_at.is_not(None).label("deleted"))
    rows = c.execute(statement.where(branch.c.project_id == project_id))
    return {row.name: StoredBranch(**row._mapping) for row in rows}


def save_branch(c: Connection, project_id: int, name: str, head_sha: str, now: datetime) -> int:
    values = {"head_sha": head_sha, "updated_at": now, "deleted_at": None}
    statement = upsert(branch).values(project_id=project_id, name=name, **values)
    statement = statement.on_conflict_do_update(index_elements=["project_id", "name"], set_=values)
    return int(c.execute(statement.returning(branch.c.id)).scalar_one())


# The branch of a pull request (`pull/7`) is made by its results: no head of it was ever read.
_MARK_DELETED = text(
    r"""UPDATE branch AS b SET deleted_at = :now
        WHERE b.project_id = :project AND b.name = ANY(:names)
          AND NOT (b.name ~ '^pull/[0-9]{1,9}$' AND b.head_sha IS NULL AND coalesce(
            (SELECT q.state = 'open' FROM pull_request q
             WHERE q.project_id = b.project_id
               AND q.number = CAST(substring(b.name FROM '^pull/([0-9]{1,9})$') AS int)),
            b.updated_at > :lately))"""
)
UNKNOWN_PULL_REQUEST = timedelta(days=30)


def mark_deleted(c: Connection, project_id: int, names: Sequence[str], now: datetime) -> None:
    """Branches that the repository does not have any more. That of a pull request stays while it is open; where nobody
    tells whether it is, until it has had no result for a month."""
    lately = now - UNKNOWN_PULL_REQUEST
    c.execute(_MARK_DELETED, {"project": project_id, "names": list(names), "now": now, "lately": lately})


_BRANCH_WITH = text(
    """SELECT b.name FROM branch_commit x JOIN branch b ON b.id = x.branch_id
       WHERE x.commit_id = :commit AND b.deleted_at IS NULL AND b.head_sha IS NOT NULL
       ORDER BY b.updated_at DESC, b.id LIMIT 1"""
)


def branch_with(c: Connection, commit_id: int) -> str | None:
    """A branch of the repository, other than the default one, that has this commit."""
    name: str | None = c.scalar(_BRANCH_WITH, {"commit": commit_id})
    return name


_SAVE_TAGS = text(
    """WITH named AS (
           SELECT t.name, k.id FROM unnest(CAST(:names AS text[]), CAST(:shas AS text[])) AS t (name, sha)
           JOIN commit k ON k.project_id = :project AND k.sha = t.sha
           ORDER BY coalesce(k.committed_at, k.recorded_at) DESC, t.name DESC LIMIT :most
       ), gone AS (
           DELETE FROM tag WHERE project_id = :project AND name NOT IN (SELECT name FROM named)
       )
       INSERT INTO tag (project_id, name, commit_id) SELECT :project, name, id FROM named
       ON CONFLICT (project_id, name) DO UPDATE SET commit_id = excluded.commit_id
       WHERE tag.commit_id <> excluded.commit_id"""
)
MOST_TAGS = 500
"""Of a project: those of its newest commits. Some repositories tag every pull request."""


def save_tags(c: Connection, project_id: int, tags: Mapping[str, str]) -> None:
    """Keep the tags (name -> sha) whose commit is recorded, and forget those that are gone."""
    names = {"names": list(tags), "shas": list(tags.values())}
    c.execute(_SAVE_TAGS, {"project": project_id, "most": MOST_TAGS, **names})


def save_commits(c: Connection, project_id: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Store commits; one that a run mentioned before is completed."""
    listed = [{"project_id": project_id, **row} for row in rows]
    for at in range(0, len(listed), BATCH):
        statement = upsert(commit)
        names = ("parents", "message", "author_name", "author_email", "authored_at", "committed_at", "changed_paths")
        changed = {name: statement.excluded[name] for name in names}
        statement = statement.on_conflict_do_update(index_elements=["project_id", "sha"], set_=changed)
        c.execute(statement, listed[at : at + BATCH])


def complete_shas(c: Connection, project_id: int, shas: Sequence[str]) -> set[str]:
    """Those of the commits that are stored with all that their repository says."""
    statement = select(commit.c.sha).where(
        commit.c.project_id == project_id, commit.c.sha.in_(shas), commit.c.changed_paths.is_not(None)
    )
    return set(c.execute(statement).scalars())


def ids_of(c: Connection, project_id: int, shas: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for at in range(0, len(shas), BATCH):
        statement = select(commit.c.sha, commit.c.id)
        part = shas[at : at + BATCH]
        rows = c.execute(statement.where(commit.c.project_id == project_id, commit.c.sha.in_(part)))
        found |= {sha: commit_id for sha, commit_id in rows}
    return found


def changed_paths(c: Connection, commit_ids: Sequence[int]) -> dict[int, list[str] | None]:
    statement = select(commit.c.id, commit.c.changed_paths).where(commit.c.id.in_(commit_ids))
    return {commit_id: paths for commit_id, paths in c.execute(statement)}


def set_note(
    c: Connection, commit_ids: Sequence[int], *, skipped_reason: str | None, manifest_error: str | None = None
) -> None:
    """Why these commits are not benchmarked, or None for both: they are."""
    for at in range(0, len(commit_ids), BATCH):
        statement = update(commit).where(commit.c.id.in_(commit_ids[at : at + BATCH]))
        c.execute(statement.values(skipped_reason=skipped_reason, manifest_error=manifest_error))


def set_untouched(c: Connection, commit_id: int, suites: Sequence[str]) -> None:
    """The suites whose `paths` name nothing that a commit changed: it cannot have changed what they measure."""
    c.execute(update(commit).where(commit.c.id == commit_id).values(untouched_suites=list(suites)))


# --- first-parent order ----------------------------------------------------------------------------------------------


def line_of(c: Connection, branch_id: int) -> list[PlacedCommit]:
    """The commits of a branch, oldest first."""
    statement = (
        select(branch_commit.c.position, commit.c.sha, commit.c.changed_paths.is_not(None).label("complete"))
        .join(commit, commit.c.id == branch_commit.c.commit_id)
        .where(branch_commit.c.branch_id == branch_id)
        .order_by(branch_commit.c.position)
    )
    return [PlacedCommit(**row._mapping) for row in c.execute(statement)]


def last_of_line(c: Connection, branch_id: int) -> tuple[int, str] | None:
    statement = (
        select(branch_commit.c.position, commit.c.sha)
        .join(commit, commit.c.id == branch_commit.c.commit_id)
        .where(branch_commit.c.branch_id == branch_id)
        .order_by(branch_commit.c.position.desc())
        .limit(1)
    )
    row = c.execute(statement).one_or_none()
    return None if row is None else (row.position, row.sha)


_EXTEND = text(
    """INSERT INTO branch_commit (branch_id, project_id, position, commit_id)
       SELECT :branch, (SELECT project_id FROM branch WHERE id = :branch), :first + n - 1, id
       FROM unnest(CAST(:ids AS bigint[])) WITH ORDINALITY AS line (id, n)"""
)


# A commit that stood elsewhere on the branch (a run named it before the repository was read) moves to its place.
_CLEAR = text(
    """DELETE FROM branch_commit
       WHERE branch_id = :branch AND (position >= :first OR commit_id = ANY (CAST(:ids AS bigint[])))"""
)


def replace_line(c: Connection, branch_id: int, first: int, commit_ids: Sequence[int]) -> None:
    """From position `first` on, the branch consists of these commits."""
    values = {"branch": branch_id, "first": first, "ids": list(commit_ids)}
    c.execute(_CLEAR, values)
    c.execute(_EXTEND, values)


def clear_line(c: Connection, branch_id: int) -> None:
    c.execute(delete(branch_commit).where(branch_commit.c.branch_id == branch_id))


_SUPERSEDE_LOST = text(
    """UPDATE judgement j SET superseded_at = :now FROM series s
       WHERE s.project_id = :project AND j.series_id = s.id AND j.superseded_at IS NULL AND j.branch_id IS NULL
         AND j.position >= :first
         AND NOT EXISTS (SELECT FROM branch_commit bc WHERE bc.branch_id = :branch AND bc.commit_id = j.commit_id)
       RETURNING j.series_id"""
)
_MOVE = text(
    """UPDATE judgement j SET position = bc.position, branch_id = NULL
       FROM branch_commit bc JOIN run r ON r.commit_id = bc.commit_id
       WHERE bc.branch_id = :branch AND bc.position >= :first AND j.run_id = r.id AND j.superseded_at IS NULL
         AND (j.branch_id IS NOT NULL OR j.position <> bc.position)
       RETURNING j.series_id"""
)
_FORGET = text(
    """UPDATE series s SET state = NULL, state_tail = NULL, state_position = NULL
       WHERE s.id = ANY (CAST(:ids AS integer[])) AND NOT EXISTS (
         SELECT FROM judgement j
         WHERE j.series_id = s.id AND j.superseded_at IS NULL AND j.branch_id IS NULL)"""
)


def settle_points(c: Connection, project_id: int, branch_id: int, first: int, now: datetime) -> list[int]:
    """Bring the points of the default branch to where their commits are now, from position `first` on.

    Those of commits that are gone stand no longer; those judged on another branch that was merged come over. Returns
    the series that must be judged again.
    """
    values = {"project": project_id, "branch": branch_id, "first": first, "now": now}
    touched = {*c.execute(_SUPERSEDE_LOST, values).scalars(), *c.execute(_MOVE, values).scalars()}
    c.execute(_FORGET, {"ids": sorted(touched)})
    return sorted(touched)


def set_policy(c: Connection, project_id: int, policy: Mapping[str, Any]) -> bool:
    """The policy that the head of the default branch declares. Returns whether it is another one."""
    changed = update(project).where(project.c.id == project_id, project.c.policy != dict(policy))
    return bool(c.execute(changed.values(policy=dict(policy))).rowcount)
