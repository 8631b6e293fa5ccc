"""Check where a caller may deliver, and what it claims of a result: which worker measured it; of a workflow on GitHub,
the commit, branch and pull request that its token speaks for."""

from sqlalchemy import Connection

from backend.contract import Run
from backend.github.oidc import Workflow
from backend.services.base.confine import require_of, scope_of_deliverer, sees_all, unknown
from backend.services.base.errors import Forbidden
from backend.services.base.principal import Principal, Scope
from backend.store.ingest import claims as store
from backend.store.ingest.claims import Known


def check_project(c: Connection, slug: str, principal: Principal) -> None:
    """Refuse callers who may not deliver to this project. A new project begins with its first result."""
    if sees_all(principal):
        return
    owner = require_of(c, principal, scope_of_deliverer(principal), "project", slug)
    if owner is None and not principal.may(Scope.SUBMIT):
        raise unknown(c, "project", slug)  # as of a project that is hidden from them


def check_claims(c: Connection, run: Run, principal: Principal) -> None:
    """Refuse a result that the workflow's token does not speak for. Tokens of ours are not meant here."""
    if principal.workflow is None:
        return
    known = store.known_of(c, run.project, run.commit, run.id)
    if known is None:
        return  # of no project: refused elsewhere
    refused = why_not(principal.workflow, run, known)
    if refused is not None:
        raise Forbidden(f"{principal.name} may not deliver {run.commit[:12]}: {refused}")


def check_worker_name(worker: str | None, owner: int | None, principal: Principal) -> None:
    """Refuse a result of a worker whose name belongs to another token (`owner`: which, if that is still good). What is
    learnt of a machine is learnt from its own results."""
    if owner is not None and owner != principal.token_id and not principal.may(Scope.ADMIN):
        raise Forbidden(
            f"{principal.name!r} may not deliver results of worker {worker!r}, which has a token of its own; leave "
            "`worker` out, or give the name of a machine that no worker has"
        )


def why_not(workflow: Workflow, run: Run, known: Known) -> str | None:
    """Why the workflow's token does not allow this result; None where it does."""
    if known.was_requested:
        return f"run {run.id} was requested here, and a worker runs it"
    if not workflow.of_own_repository:
        # Its ref and sha are of another repository.
        return None if known.is_read else "another repository may deliver results of commits that were read here"
    is_default = run.pull_request is None and run.branch in (None, known.default_branch)
    if workflow.pull_request is not None:
        return _of_pull_request(workflow.pull_request, run, known, is_default=is_default)
    if workflow.is_of_branch(known.default_branch):
        return _of_default_branch(workflow, run, known, is_default=is_default)
    may_name = known.on_default if is_default else workflow.is_of_branch(run.branch) or workflow.is_of_tag
    if not may_name or run.pull_request is not None:
        return _another_place(workflow, run, known)
    return _of_its_commit(workflow, run)


def _of_default_branch(workflow: Workflow, run: Run, known: Known, *, is_default: bool) -> str | None:
    """Its own commits, earlier ones too; and of others, results that its code has taken from their workflows."""
    if is_default:
        return None if known.on_default else _of_its_commit(workflow, run)
    if not workflow.speaks_for_others:
        return _another_place(workflow, run, known)
    return "it is a commit of the default branch" if known.on_default else None


def _of_its_commit(workflow: Workflow, run: Run) -> str | None:
    return None if run.commit == workflow.sha else f"the token speaks for commit {workflow.sha[:12]}"


def _another_place(workflow: Workflow, run: Run, known: Known) -> str:
    named = f"#{run.pull_request}" if run.pull_request is not None else run.branch or known.default_branch
    return f"the token speaks for {workflow.ref}, not for {named}"


def _of_pull_request(number: int, run: Run, known: Known, *, is_default: bool) -> str | None:
    if run.pull_request not in (None, number):
        return f"the token speaks for #{number}, not for #{run.pull_request}"
    if is_default or known.on_default:
        return f"the token speaks for #{number}, not for {known.default_branch}"
    if known.pull_request not in (None, number):
        return f"it is a commit of #{known.pull_request}, and the token speaks for #{number}"
    if known.is_read and known.pull_request is None:
        return f"it is a commit of another branch that is read here, and the token speaks for #{number}"
    return None
