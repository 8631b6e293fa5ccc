"""A workflow's token is genuine, and tries to deliver what it does not speak for: the token of a pull request names a
commit as one of main, forges results of others, and of runs that workers hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from backend.api import create_api
from backend.contract import parse_run
from backend.github.oidc import Workflow
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.ingest.claims import why_not
from backend.store.base import commits
from backend.store.ingest.claims import Known
from tests.backend.api.conftest import run_document, sha
from tests.backend.github.test_oidc import AUDIENCE, Issuer, issuer
from tests.conftest import LiveServer, ServeApp

__all__ = ["issuer"]
NOW = datetime.now(UTC)
HEAD, FORK, STRANGE = "a" * 40, "f" * 40, "e" * 40
MAIN = "refs/heads/main"


@pytest.fixture
def server(
    issuer: Issuer, service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp
) -> Iterator[LiveServer]:
    """A project whose repository was read: main has the commits 0 to 3 and HEAD; #7 comes from a fork."""
    config = replace(service_config, github_oidc_issuer=issuer.url, public_url=AUDIENCE)
    with committing_engine.begin() as c:
        project = projects.save_project(c, "northsea/loom", repository_url="https://github.com/northsea/loom", now=NOW)
        shas = [*map(sha, range(4)), HEAD]
        rows = [{"sha": each, "parents": [], "message": "", "changed_paths": ["a"]} for each in shas]
        commits.save_commits(c, project.id, rows)
        branch = commits.save_branch(c, project.id, "main", HEAD, NOW)
        ids = commits.ids_of(c, project.id, shas)
        commits.replace_line(c, branch, 0, [ids[each] for each in shas])
        c.execute(
            text(
                """INSERT INTO pull_request (project_id, number, state, is_fork, head_sha, base_ref)
                   VALUES (:project, 7, 'open', true, :fork, 'main')"""
            ),
            {"project": project.id, "fork": FORK},
        )
    with serve_app(create_api(config, committing_engine), committing_engine, config) as made:
        yield made


def deliver(server: LiveServer, token: str, commit: str, **changed: Any) -> httpx.Response:
    run = run_document(0, project="northsea/loom", commit=commit, parents=[], **changed)
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.put(
        f"{server.url}/api/v1/runs/{run['id']}",
        content=json.dumps(run),
        headers=headers,
        timeout=30,
        trust_env=False,
        verify=False,
    )


def of_pull_request(issuer: Issuer, number: int = 7) -> str:
    return issuer.token(ref=f"refs/pull/{number}/merge", sha="9" * 40, event_name="pull_request")


@pytest.mark.parametrize("commit", [FORK, STRANGE, HEAD, sha(1)])
@pytest.mark.parametrize("place", [{"branch": "main"}, {"branch": None}])
def test_the_token_of_a_pull_request_delivers_nothing_to_the_default_branch(
    server: LiveServer, issuer: Issuer, commit: str, place: dict[str, Any]
) -> None:
    answer = deliver(server, of_pull_request(issuer), commit, **place)
    assert answer.status_code == 403 and "speaks for #7, not for main" in answer.json()["detail"]
    with server.engine.connect() as c:
        assert c.scalar(text("SELECT count(*) FROM branch_commit")) == 5


def test_the_token_of_a_pull_request_delivers_nothing_of_another(server: LiveServer, issuer: Issuer) -> None:
    other = of_pull_request(issuer, 8)
    assert deliver(server, other, FORK, branch="pull/8", pull_request=8).status_code == 403
    assert deliver(server, other, FORK, branch="pull/7", pull_request=7).status_code == 403
    assert deliver(server, of_pull_request(issuer), FORK, branch="pull/7", pull_request=7).status_code == 201


@pytest.mark.parametrize("route", ["run", "import"])
def test_a_push_to_a_branch_delivers_its_own_commit_only(server: LiveServer, issuer: Issuer, route: str) -> None:
    token = issuer.token(ref="refs/heads/feature", sha=STRANGE)

    def status(commit: str, branch: str) -> int:
        if route == "run":
            return deliver(server, token, commit, branch=branch).status_code
        answer = httpx.post(
            f"{server.url}/api/v1/import/csv",
            params={"project": "northsea/loom", "testbed": "ci", "commit": commit, "branch": branch},
            content="benchmark,metric,value,unit\nb,step_ms,1.5,ms\n",
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
        )
        return 201 if answer.json()["counts"]["stored"] else 403

    assert status(STRANGE, "main") == status(FORK, "feature") == status(HEAD, "other") == 403
    assert status(STRANGE, "feature") == 201


def test_a_result_puts_no_commit_onto_a_branch_whoever_delivers_it(server: LiveServer) -> None:
    """With a token of ours too: only the repository says what is on main. The run that comes early waits beside it."""
    with server.client("write") as ci, server.engine.connect() as c:
        run = run_document(0, project="northsea/loom", commit=STRANGE, parents=[HEAD])
        answer = ci.put(f"/api/v1/runs/{run['id']}", json=run)
        assert answer.status_code == 201 and "does not have commit eeeeeeeeeeee" in answer.json()["warnings"][0]
        placed = "SELECT b.name FROM branch_commit JOIN branch b ON b.id = branch_id JOIN commit k ON k.id = commit_id"
        assert c.scalars(text(f"{placed} WHERE k.sha = '{STRANGE}'")).all() == ["main (not read yet)"]
        assert c.scalar(text("SELECT sync_requested_at FROM project WHERE slug = 'northsea/loom'")) is not None


def test_a_run_that_a_worker_holds_takes_its_result_under_the_lease_only(server: LiveServer, issuer: Issuer) -> None:
    run = run_document(3, project="northsea/loom")
    with server.engine.begin() as c:
        c.execute(text("INSERT INTO testbed (name) VALUES (:t) ON CONFLICT DO NOTHING"), {"t": run["testbed"]})
        c.execute(
            text(
                """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, kind, branch_name)
                   SELECT :id, p.id, k.id, t.id, :suite, 'queued', 'main', 'main' FROM project p, commit k, testbed t
                   WHERE k.sha = :sha AND t.name = :testbed"""
            ),
            {"id": run["id"], "sha": run["commit"], "testbed": run["testbed"], "suite": run["suite"]},
        )
    path = f"/api/v1/runs/{run['id']}"
    with server.client("worker") as worker, server.client("worker", "write") as another:
        taken = worker.post(f"{path}/lease", json={"worker": "w1", "testbed": run["testbed"], "protection": "user"})
        assert taken.status_code == 200, taken.text
        lease = taken.json()["lease"]
        forged = issuer.token(sha=run["commit"])
        assert "a worker runs it" in deliver(server, forged, run["commit"], id=run["id"]).text
        for headers in ({}, {"Tidemark-Lease": "invented"}):
            refused = another.put(path, json=run, headers=headers)
            assert refused.status_code == 409 and "only that worker may deliver" in refused.json()["detail"]
            artifact = another.put(f"{path}/artifacts/trace.json", content=b"{}", headers=headers)
            assert artifact.status_code == 409
        by_workflow = httpx.put(
            f"{server.url}{path}/artifacts/trace.json",
            content=b"{}",
            headers={"Authorization": f"Bearer {forged}"},
            trust_env=False,
        )
        assert by_workflow.status_code == 403
        held = {"Tidemark-Lease": lease}
        assert worker.put(f"{path}/artifacts/trace.json", content=b"{}", headers=held).status_code == 201
        assert worker.put(path, json=run, headers=held).status_code == 201


# --- the rule, case by case ------------------------------------------------------------------------------------------


def workflow(ref: str, **more: Any) -> Workflow:
    usual = {"repository": "northsea/loom", "repository_id": "1", "sha": HEAD, "event": "push", "actor": "jt"}
    return Workflow(**{**usual, "environment": None, "run_id": "1", "ref": ref, **more})


ON_MAIN = Known(default_branch="main", on_default=True, is_read=True, pull_request=None, was_requested=False)
UNKNOWN = replace(ON_MAIN, on_default=False, is_read=False)
READ_IN_3 = replace(UNKNOWN, is_read=True, pull_request=3)


@pytest.mark.parametrize(
    ("told", "place", "known", "may"),
    [
        (workflow(MAIN), {"branch": "main", "commit": HEAD}, UNKNOWN, True),
        (workflow(MAIN), {"branch": "main", "commit": STRANGE}, UNKNOWN, False),
        (workflow(MAIN), {"branch": "main", "commit": sha(1)}, ON_MAIN, True),  # an earlier one, measured again
        (workflow(MAIN), {"branch": "fork/x", "commit": FORK}, UNKNOWN, False),
        (workflow(MAIN, event="workflow_run"), {"branch": "fork/x", "commit": FORK}, UNKNOWN, True),
        (workflow(MAIN, event="workflow_run"), {"branch": "fork/x", "commit": sha(1)}, ON_MAIN, False),
        (workflow(MAIN, event="workflow_run"), {"branch": "main", "commit": FORK}, UNKNOWN, False),
        (workflow("refs/heads/x", event="workflow_run"), {"branch": "fork/x", "commit": FORK}, UNKNOWN, False),
        (workflow("refs/heads/x"), {"branch": "x", "commit": HEAD}, UNKNOWN, True),
        (workflow("refs/heads/x"), {"branch": "x", "commit": STRANGE}, UNKNOWN, False),
        (workflow("refs/heads/x"), {"branch": "main", "commit": HEAD}, UNKNOWN, False),
        (workflow("refs/heads/x"), {"branch": "x", "commit": HEAD, "pull_request": 3}, UNKNOWN, False),
        (workflow("refs/tags/v1"), {"branch": "v1", "commit": HEAD}, UNKNOWN, True),
        (workflow("refs/tags/v1"), {"branch": "main", "commit": HEAD}, ON_MAIN, True),
        (workflow("refs/tags/main"), {"branch": "main", "commit": HEAD}, UNKNOWN, False),
        (workflow("refs/pull/3/merge"), {"branch": "x", "commit": STRANGE}, UNKNOWN, True),
        (workflow("refs/pull/3/merge"), {"branch": "main", "commit": STRANGE}, UNKNOWN, False),
        (workflow("refs/pull/3/merge"), {"branch": "x", "commit": STRANGE}, replace(UNKNOWN, pull_request=4), False),
        (workflow("refs/pull/3/merge"), {"branch": "x", "commit": sha(1)}, ON_MAIN, False),
        # A commit of release/1, which the repository has brought.
        (workflow("refs/pull/3/merge"), {"branch": "release/1", "commit": FORK}, replace(UNKNOWN, is_read=True), False),
        (workflow("refs/pull/3/merge"), {"branch": "x", "commit": FORK}, READ_IN_3, True),
        (workflow(MAIN, of_own_repository=False), {"branch": "main", "commit": HEAD}, UNKNOWN, False),
        (workflow(MAIN, of_own_repository=False), {"branch": "main", "commit": sha(1)}, ON_MAIN, True),
        (workflow(MAIN), {"branch": "main", "commit": HEAD}, replace(ON_MAIN, was_requested=True), False),
    ],
)
def test_what_a_token_speaks_for(told: Workflow, place: dict[str, Any], known: Known, may: bool) -> None:
    run = parse_run(run_document(0, **{"pull_request": None, **place}))
    assert (why_not(told, run, known) is None) == may, why_not(told, run, known)
