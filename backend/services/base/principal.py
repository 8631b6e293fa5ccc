"""Who is asking, and what they may do: scopes, the roles that people have, and a project as far as that depends on it.

A scope applies to every project or to some. A private project is visible only to those who hold a scope in it
(its members, its own tokens), to administrators of the service, and to workers, which run the code of all projects.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from backend.services.base.errors import Forbidden, Unauthenticated

if TYPE_CHECKING:  # what reads tokens of GitHub's takes long to load, and commands need none of it
    from backend.github.oidc import Workflow


class Scope(StrEnum):
    READ = "read"
    SUBMIT = "submit"  # delivers results and asks for measurements
    WRITE = "write"  # and decides about regressions
    WORKER = "worker"
    APPROVE = "approve"  # lets a fork's commit onto the workers; writing alone does not
    ADMIN = "admin"


IMPLIED: Mapping[Scope, frozenset[Scope]] = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.SUBMIT: frozenset({Scope.READ, Scope.SUBMIT}),
    Scope.WRITE: frozenset({Scope.READ, Scope.SUBMIT, Scope.WRITE}),
    Scope.WORKER: frozenset({Scope.READ, Scope.WORKER}),
    Scope.APPROVE: frozenset({Scope.READ, Scope.APPROVE}),
    Scope.ADMIN: frozenset(Scope),
}


class MemberRole(StrEnum):
    """The role of a person in a project, or in all of them; each includes those before it."""

    VIEWER = "viewer"  # sees it
    SUBMITTER = "submitter"  # delivers results and asks for measurements
    TRIAGER = "triager"  # decides about regressions
    ADMIN = "admin"  # policy, members, tokens, approvals of forks; of all projects: workers and the service, too


# An administrator of one project makes no worker of it: that takes a token, which says so.
OF_ROLE: Mapping[MemberRole, frozenset[Scope]] = {
    MemberRole.VIEWER: IMPLIED[Scope.READ],
    MemberRole.SUBMITTER: IMPLIED[Scope.SUBMIT],
    MemberRole.TRIAGER: IMPLIED[Scope.WRITE],
    MemberRole.ADMIN: IMPLIED[Scope.WRITE] | {Scope.APPROVE, Scope.ADMIN},
}


class Via(StrEnum):
    ANONYMOUS = "anonymous"
    TOKEN = "token"
    SESSION = "session"
    WORKFLOW = "workflow"  # of GitHub, by its own token: reads, and delivers to one project
    COMMAND = "command line"  # at the data directory itself
    GITHUB = "github"  # a comment or a label there, by who has the rights there


class Place(Protocol):
    """A project, as far as rights depend on it."""

    @property
    def id(self) -> int: ...
    @property
    def private(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who is asking.

    `scopes` apply to every project that is not private, or only to `project_id`, if a token is
    limited to one; `in_projects`: what else applies where. `workflow`: the workflow's claims from GitHub.
    """

    name: str
    via: Via
    scopes: frozenset[Scope]
    in_projects: Mapping[int, frozenset[Scope]] = field(default_factory=dict)
    project_id: int | None = None
    token_id: int | None = None
    account_id: int | None = None
    login: str | None = None
    workflow: "Workflow | None" = None

    @property
    def worker_token_id(self) -> int | None:
        """The token that owns workers' names; None: administrators may use any."""
        return None if self.may(Scope.ADMIN) else self.token_id

    @property
    def sees_private(self) -> bool:
        """Including private projects in which it has no role."""
        return self.project_id is None and (Scope.ADMIN in self.scopes or Scope.WORKER in self.scopes)

    @property
    def identity(self) -> str:
        """Who it was, for the record: a name can be chosen freely, a login or a number cannot."""
        if self.token_id is not None:
            return f"token {self.name} (#{self.token_id})"
        return self.name if self.login in (None, self.name) else f"{self.name} ({self.login})"

    def may(self, scope: Scope) -> bool:
        """In every project that is not private, or in the one that it is limited to."""
        return scope in self.scopes

    def may_somewhere(self, scope: Scope) -> bool:
        return scope in self.scopes or any(scope in held for held in self.in_projects.values())

    def may_in(self, scope: Scope, project: Place) -> bool:
        if self.project_id is not None:
            return project.id == self.project_id and scope in self.scopes
        if scope in self.in_projects.get(project.id, ()):
            return True
        return scope in self.scopes and (self.sees_private or not project.private)

    def require_in(self, scope: Scope, project: Place) -> None:
        """Refuse callers who may not do this in the project, which they know exists."""
        if self.project_id not in (None, project.id):
            raise Forbidden(f"token {self.name!r} belongs to another project")
        if not self.may_in(scope, project):
            self.refuse(scope, self.scopes | self.in_projects.get(project.id, frozenset()), "in this project")

    def require(self, scope: Scope) -> None:
        """Refuse callers who may not do this in any project."""
        if not self.may_somewhere(scope):
            self.refuse(scope, self.scopes.union(*self.in_projects.values()))

    def require_everywhere(self, scope: Scope) -> None:
        """Refuse callers who may not do this for the whole service."""
        if self.project_id is not None and scope in self.scopes:
            raise Forbidden(f"token {self.name!r} belongs to one project, and this is about all of them")
        if not self.may(scope):
            self.refuse(scope, self.scopes, "for the whole service")

    def refuse(self, scope: Scope, held: frozenset[Scope], where: str = "") -> None:
        if self.via is Via.ANONYMOUS:
            raise Unauthenticated(
                f"this needs a token with scope {scope.value!r} (header `Authorization: Bearer <token>`) or signing in"
            )
        if self.via is Via.SESSION and not held:
            raise Forbidden(f"{self.name} has no role {where or 'here'} yet; an administrator gives one")
        scopes = f"scopes {', '.join(sorted(held))}" if held else "no scope"
        what = f"{self.via.value} {self.name!r} has {scopes} {where}".rstrip()
        raise Forbidden(f"{what}; this needs {scope.value!r}")


ANONYMOUS = Principal(name="anonymous", via=Via.ANONYMOUS, scopes=frozenset())
ANONYMOUS_READER = Principal(name="anonymous", via=Via.ANONYMOUS, scopes=frozenset({Scope.READ}))


def stranger(*, public_read: bool) -> Principal:
    """A caller with neither a token nor a session."""
    return ANONYMOUS_READER if public_read else ANONYMOUS


def require_no_workflow(principal: Principal) -> None:
    """Refuse a GitHub workflow, which may only deliver runs."""
    if principal.via is Via.WORKFLOW:
        raise Forbidden(f"{principal.name} delivers runs, by PUT /api/v1/runs/{{id}} or POST /api/v1/import, only")


def require_name(principal: Principal) -> None:
    """Refuse strangers what costs more than reading, if they may read."""
    if principal.via is Via.ANONYMOUS:
        raise Unauthenticated("this needs a token (header `Authorization: Bearer <token>`) or signing in")
