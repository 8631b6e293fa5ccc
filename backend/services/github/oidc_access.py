"""A workflow on GitHub proves who it is by a token of GitHub, and may deliver results to its project. Nothing else."""

from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from backend.github import oidc
from backend.github.oidc import GITHUB_ISSUER, KeySet, Rules, TokenRefused
from backend.services.base.errors import Unauthenticated, shown
from backend.services.base.principal import Principal, Scope, Via
from backend.store.base import projects as store
from backend.store.base.projects import ProjectRow

HINT = "the project's rules are in its settings under `oidc`; docs/github.md has them"


@dataclass(frozen=True, slots=True)
class Workflows:
    """Whom tokens are checked against: the issuer's keys, and the audience they must be for (our public address)."""

    keys: KeySet
    audience: str

    @classmethod
    def of(cls, issuer: str | None, public_url: str) -> "Workflows":
        return cls(KeySet(issuer or GITHUB_ISSUER), public_url.rstrip("/"))


def identify(c: Connection, token: str, workflows: Workflows, now: datetime) -> Principal:
    """The workflow that shows this token, limited to the one project whose rules accept it."""
    repository = oidc.stated_repository(token)
    own, lent = ([], []) if repository is None else _projects(c, repository)
    projects = own or lent
    if not projects:
        raise Unauthenticated(
            f"the token speaks for repository {shown(repository)}, which is the repository of no project here; "
            "give the project its URL first (POST /api/v1/projects with repository_url)"
        )
    refusals = []
    for project in projects:
        rules = Rules.from_settings(repository or "", project.settings)
        try:
            workflow = oidc.verify(token, rules, workflows.keys, audience=workflows.audience)
        except TokenRefused as refused:
            refusals.append(str(refused))
            continue
        name = f"workflow of {workflow.repository} at {workflow.ref}"
        return Principal(
            name=name,
            via=Via.WORKFLOW,
            scopes=frozenset({Scope.READ}),
            project_id=project.id,
            workflow=replace(workflow, of_own_repository=bool(own)),
        )
    raise Unauthenticated(f"GitHub's token is not accepted: {'; '.join(dict.fromkeys(refusals))} ({HINT})")


def _projects(c: Connection, repository: str) -> tuple[list[ProjectRow], list[ProjectRow]]:
    """Those the repository may deliver to: by their URL, and because their rules name it.

    Never by the project's own name: anybody can make a repository on GitHub that is called like a project here.
    """
    name = repository.replace("\x00", "")[:300]
    urls = [f"https://github.com/{name}", f"https://github.com/{name}.git", f"git@github.com:{name}.git"]
    return store.of_repository(c, [], urls), store.with_oidc_repository(c, name)
