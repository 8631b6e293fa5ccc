"""The scope of a query: project, branch, testbed, a stretch of time. Names become ids here, or a helpful refusal."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from backend.contract_rules import Moment
from backend.services.base.errors import BadRequest, NotFound, shown
from backend.store.base import lookup
from backend.store.base.lookup import BranchRow, CommitRow, NamedProject, TestbedRow

RANGES = {
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
    "1y": timedelta(days=365),
    "all": None,
}
SHA = re.compile(r"[0-9a-f]{4,64}\Z")
PULL_REQUEST = re.compile(r"#?(\d{1,9})\Z")
LAST_GOOD = "last-good"
ACCEPTED_COMMITS = "a sha, a branch, a tag, #123 or last-good"


@dataclass(frozen=True, slots=True)
class QueryScope:
    """Where a query looks. `testbed` is None for a project on which nothing has run yet."""

    project: NamedProject
    branch: BranchRow | None
    default_branch: BranchRow | None
    branches: tuple[BranchRow, ...]
    testbed: TestbedRow | None
    testbeds: tuple[TestbedRow, ...]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A stretch of time; None is open. `name` is the word it was asked by, when it was one (`30d`)."""

    since: datetime | None
    until: datetime | None
    name: str | None = None


ALWAYS = TimeRange(None, None)


def storable(text: str) -> str:
    """Text as PostgreSQL can compare it: without NUL and broken surrogates, which no stored name has."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def find_project(connection: Connection, slug: str) -> NamedProject:
    found = lookup.find_project(connection, storable(slug))
    if found is None:
        raise NotFound.of("project", slug, lookup.project_slugs(connection))
    return found


def find_scope(connection: Connection, slug: str, branch: str | None = None, testbed: str | None = None) -> QueryScope:
    """Resolve names. Without them: the default branch, and the first testbed on which the project ran."""
    found = lookup.surroundings(connection, storable(slug), None if branch is None else storable(branch))
    if found is None:
        raise NotFound.of("project", slug, lookup.project_slugs(connection))
    project, branches, testbeds = found
    default = next((item for item in branches if item.name == project.default_branch), None)
    return QueryScope(
        project,
        _branch(branches, branch, default),
        default,
        tuple(branches),
        find_testbed(testbeds, testbed),
        tuple(testbeds),
    )


def _branch(branches: Sequence[BranchRow], name: str | None, default: BranchRow | None) -> BranchRow | None:
    if name is None:
        return default
    for branch in branches:
        if branch.name == name:
            return branch
    raise NotFound.of("branch", name, [branch.name for branch in branches[:20]])


def find_testbed(testbeds: Sequence[TestbedRow], name: str | None) -> TestbedRow | None:
    """The testbed of this name, or without a name the first one."""
    if name is None:
        return testbeds[0] if testbeds else None
    for testbed in testbeds:
        if testbed.name == name:
            return testbed
    raise NotFound.of("testbed", name, [testbed.name for testbed in testbeds])


def in_zone(moment: datetime) -> datetime:
    """The moment, in UTC where it names no zone. Raises ValueError for a year to which no day can be added or taken."""
    if moment.year not in Moment.years:
        raise ValueError(f"the year is {moment.year}; accepted: {Moment.years.start} to {Moment.years.stop - 1}")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def time_range(
    name: str | None, since: datetime | None, until: datetime | None, *, now: datetime, default: str | None = None
) -> TimeRange:
    """A range by name (`7d`), or from `since` to `until`; either end may be open."""
    if since is not None or until is not None:
        if since is not None and until is not None and since > until:
            raise BadRequest.field("since", since.isoformat(), f"a time before until ({until.isoformat()})")
        return TimeRange(since, until)
    name = name or default
    if name is None:
        return TimeRange(None, None)
    if name not in RANGES:
        raise BadRequest.field("range", name, list(RANGES))
    length = RANGES[name]
    return TimeRange(None if length is None else now - length, None, name)


def find_commit(connection: Connection, scope: QueryScope, name: str, *, before: int | None = None) -> CommitRow:
    """A commit by sha (four digits or more), branch, tag, `#123` (a pull request) or `last-good`.

    `before` is the position that `last-good` must lie before.
    """
    sha = _sha_named(connection, scope, name.strip(), before)
    found = _commits_of(connection, scope, sha)
    if not found and (tagged := lookup.commit_of_tag(connection, scope.project.id, storable(name.strip()))):
        sha, found = tagged, _commits_of(connection, scope, tagged)
    exact = [commit for commit in found if commit.sha == sha]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if found:
        matching = ", ".join(commit.sha[:12] for commit in found)
        raise BadRequest.field("commit", name, f"more digits: {matching} match")
    raise NotFound(f"no commit {shown(name)} is recorded in {scope.project.slug}; {ACCEPTED_COMMITS}")


def _commits_of(connection: Connection, scope: QueryScope, sha: str) -> list[CommitRow]:
    """The commits whose sha begins so, placed on the branch that is looked at."""
    default = scope.default_branch
    return lookup.find_commits(
        connection,
        scope.project.id,
        sha,
        branch_id=None if scope.branch is None else scope.branch.id,
        default_branch_id=None if default is None else default.id,
    )


def _sha_named(connection: Connection, scope: QueryScope, name: str, before: int | None) -> str:
    """The sha that a name stands for; the name itself when it looks like one."""
    for branch in scope.branches:
        if branch.name == name and branch.head_sha:
            return branch.head_sha
    if name == LAST_GOOD:
        return _last_good(connection, scope, before)
    if name.startswith("#") and (match := PULL_REQUEST.match(name)):
        head = lookup.commit_of_pull_request(connection, scope.project.id, int(match[1]))
        if head is None:
            raise NotFound(f"no commit of pull request {name} is recorded in {scope.project.slug}")
        return head
    if SHA.match(name.lower()):
        return name.lower()
    tagged = lookup.commit_of_tag(connection, scope.project.id, storable(name))
    if tagged is not None:
        return tagged
    known = ", ".join(branch.name for branch in scope.branches[:20])
    raise NotFound(
        f"{shown(name)} is no commit of {scope.project.slug}; accepted: a sha of four digits or more, "
        f"a branch ({known or 'none known yet'}), a tag, #123 for a pull request, {LAST_GOOD}"
    )


def _last_good(connection: Connection, scope: QueryScope, before: int | None) -> str:
    if scope.default_branch is None or scope.testbed is None:
        raise NotFound(f"nothing has run in {scope.project.slug} yet, so there is no last good commit")
    sha = lookup.last_good_commit(connection, scope.default_branch.id, scope.testbed.id, before)
    if sha is None:
        raise NotFound(f"no benchmarked commit of {scope.project.slug} on {scope.testbed.name} is free of regressions")
    return sha
