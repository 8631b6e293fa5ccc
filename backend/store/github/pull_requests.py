"""Pull requests as rows, and the runs that are theirs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, case, func, literal, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.store.tables.core import commit, project, run
from backend.store.tables.github import pull_request


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestRow:
    project_id: int
    number: int
    title: str
    author: str
    state: str
    is_fork: bool
    head_sha: str
    base_ref: str
    approved_sha: str | None
    approved_by: str | None
    prepared_sha: str | None
    error: str | None
    updated_at: datetime


FIELDS = tuple(PullRequestRow.__dataclass_fields__)
ROWS = select(*(pull_request.c[name] for name in FIELDS))


def save(c: Connection, values: Mapping[str, Any]) -> None:
    """Make or change a pull request as GitHub describes it; what we decided about it stays."""
    statement = upsert(pull_request).values(dict(values))
    kept = {name: value for name, value in values.items() if name not in ("project_id", "number")}
    statement = statement.on_conflict_do_update(
        index_elements=["project_id", "number"],
        set_={**kept, "error": None, "try_after": None},
        # Deliveries come in any order: an older one must not bring an older head back.
        where=pull_request.c.updated_at <= values["updated_at"],
    )
    c.execute(statement)


def find(c: Connection, project_id: int, number: int) -> PullRequestRow | None:
    row = c.execute(ROWS.where(pull_request.c.project_id == project_id, pull_request.c.number == number)).one_or_none()
    return None if row is None else PullRequestRow(**row._mapping)


def listed(c: Connection, project_id: int, *, state: str | None, limit: int) -> list[PullRequestRow]:
    statement = ROWS.where(pull_request.c.project_id == project_id).order_by(pull_request.c.number.desc()).limit(limit)
    if state is not None:
        statement = statement.where(pull_request.c.state == state)
    return [PullRequestRow(**row._mapping) for row in c.execute(statement)]


def approve(c: Connection, project_id: int, number: int, sha: str, actor: str) -> bool:
    """Let exactly this commit onto the workers, if it is the head."""
    statement = update(pull_request).where(
        pull_request.c.project_id == project_id, pull_request.c.number == number, pull_request.c.head_sha == sha
    )
    return c.execute(statement.values(approved_sha=sha, approved_by=actor, try_after=None, error=None)).rowcount == 1


def set_fork(c: Connection, project_id: int, number: int, sha: str) -> None:
    """This head is a fork's, whatever was reported about it."""
    statement = update(pull_request).where(
        pull_request.c.project_id == project_id, pull_request.c.number == number, pull_request.c.head_sha == sha
    )
    c.execute(statement.values(is_fork=True, error=None, try_after=None))


def to_prepare(c: Connection, now: datetime, limit: int) -> list[PullRequestRow]:
    """Open ones whose head may run and has not been looked at: of a fork, only the approved commit."""
    may_run = case(
        (pull_request.c.is_fork, pull_request.c.approved_sha == pull_request.c.head_sha), else_=literal(True)
    )
    statement = (
        ROWS.join(project, project.c.id == pull_request.c.project_id)
        .where(
            pull_request.c.state == "open",
            may_run,
            pull_request.c.prepared_sha.is_distinct_from(pull_request.c.head_sha),
            or_(pull_request.c.try_after.is_(None), pull_request.c.try_after <= now),
            project.c.repository_url.is_not(None),
        )
        .order_by(pull_request.c.updated_at)
        .limit(limit)
    )
    return [PullRequestRow(**row._mapping) for row in c.execute(statement)]


def set_prepared(c: Connection, project_id: int, number: int, sha: str) -> None:
    statement = update(pull_request).where(pull_request.c.project_id == project_id, pull_request.c.number == number)
    c.execute(statement.values(prepared_sha=sha, error=None))


def set_error(c: Connection, project_id: int, number: int, error: str, try_after: datetime) -> None:
    statement = update(pull_request).where(pull_request.c.project_id == project_id, pull_request.c.number == number)
    c.execute(statement.values(error=error, try_after=try_after))


def tag_commit(c: Connection, project_id: int, sha: str, number: int) -> None:
    """The commit is that pull request's."""
    c.execute(update(commit).where(commit.c.project_id == project_id, commit.c.sha == sha).values(pull_request=number))


def open_runs(c: Connection, project_id: int, number: int, *, except_sha: str | None) -> list[str]:
    """Runs of the pull request that wait or run, but not those of the commit `except_sha`."""
    statement = (
        select(run.c.id)
        .join(commit, commit.c.id == run.c.commit_id)
        .where(
            run.c.project_id == project_id,
            run.c.pull_request == number,
            run.c.state.in_(("queued", "leased", "running")),
        )
    )
    if except_sha is not None:
        statement = statement.where(commit.c.sha != except_sha)
    return list(c.execute(statement).scalars())


class Doubtful(NamedTuple):
    """A suite of a pull request's head whose runs so far are suspect and too few to be sure."""

    project_id: int
    number: int
    commit_id: int
    suite: str
    testbed: str
    spec: dict[str, Any]
    runs: list[str]


_DOUBTFUL = text(
    """SELECT p.project_id, p.number, k.id, r.suite, t.name, (array_agg(r.spec ORDER BY r.requested_at))[1],
         array_agg(r.id ORDER BY r.requested_at)
       FROM pull_request p
       JOIN commit k ON k.project_id = p.project_id AND k.sha = p.head_sha
       JOIN run r ON r.commit_id = k.id AND r.pull_request = p.number AND r.kind IN ('pull_request', 'confirm')
         AND r.state NOT IN ('cancelled', 'superseded')
       JOIN testbed t ON t.id = r.testbed_id
       WHERE p.state = 'open' AND p.prepared_sha = p.head_sha
       GROUP BY p.project_id, p.number, k.id, r.suite, t.name
       HAVING bool_and(r.state = 'done') AND bool_and(EXISTS (
         SELECT FROM judgement j JOIN series s ON s.id = j.series_id
         WHERE j.run_id = r.id AND j.measured_at = coalesce(r.started_at, r.received_at) AND j.superseded_at IS NULL
           AND s.role = 'gate'
           AND j.verdict IN ('suspect', 'regression')))
       LIMIT 100"""
)


def doubtful(c: Connection) -> list[Doubtful]:
    """Of every open pull request, the runs of its head of which each has a suspect."""
    return [Doubtful(*row) for row in c.execute(_DOUBTFUL)]


def number_of_head(c: Connection, project_id: int, sha: str) -> int | None:
    """The pull request, open or not, whose head this commit is."""
    statement = select(func.max(pull_request.c.number)).where(
        pull_request.c.project_id == project_id, pull_request.c.head_sha == sha
    )
    found = c.execute(statement).scalar_one_or_none()
    return None if found is None else int(found)


def pull_request_of(c: Connection, project_id: int, sha: str) -> int | None:
    """The open pull request whose head this commit is."""
    statement = select(func.max(pull_request.c.number)).where(
        pull_request.c.project_id == project_id, pull_request.c.head_sha == sha, pull_request.c.state == "open"
    )
    found = c.execute(statement).scalar_one_or_none()
    return None if found is None else int(found)
