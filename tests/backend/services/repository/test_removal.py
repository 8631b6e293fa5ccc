"""A project that is removed leaves nothing behind but a line of the audit trail, and takes nothing of others along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, text

from backend.services.base.errors import BadRequest, Conflict, Forbidden, Gone, NotFound
from backend.services.base.principal import MemberRole
from backend.services.repository import removal
from tests.attacks.route_table import MINE, OTHER, fill
from tests.backend.api.conftest import run_document
from tests.backend.people_of_tests import ROOT, only, person
from tests.conftest import LiveServer

NOW = datetime.now(UTC)
# Columns that name a thing of a project, by the table whose ids they hold.
HOLDS = {
    "project_id": "project", "series_id": "series", "lead_series_id": "series", "run_id": "run", "commit_id": "commit",
    "branch_id": "branch", "regression_id": "regression", "session_id": "session", "bisection_id": "bisection",
    "backfill_id": "backfill", "after_run_id": "run",
}  # fmt: skip


def columns(c: Connection) -> list[tuple[str, str, str]]:
    """(table, column, whose ids it holds), from the catalogue."""
    found = c.execute(
        text(
            """SELECT c.table_name, c.column_name FROM information_schema.columns c
               JOIN information_schema.tables t USING (table_schema, table_name)
               WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'"""
        )
    )
    named = [(table, column, HOLDS[column]) for table, column in found if column in HOLDS]
    keyed = [(table, "id", table) for table in dict.fromkeys(HOLDS.values())]
    return [*named, *keyed]


def ids_of(c: Connection, project: int) -> Mapping[str, set[str]]:
    """The ids of everything that belongs to the project."""
    tables = dict.fromkeys(HOLDS.values())
    own = {"project": {str(project)}}
    for table in tables:
        if table != "project":
            rows = c.execute(text(f"SELECT id::text FROM {table} WHERE project_id = :id"), {"id": project})
            own[table] = set(rows.scalars())
    return own


def left(c: Connection, own: Mapping[str, set[str]]) -> dict[str, int]:
    """How many rows of each column still name something of the project."""
    found = {}
    for table, column, kind in columns(c):
        count = c.scalar(
            text(f"SELECT count(*) FROM {table} WHERE {column}::text = ANY(:ids)"), {"ids": sorted(own[kind])}
        )
        if count:
            found[f"{table}.{column}"] = count
    return found


@contextmanager
def as_it_was(c: Connection, project: int) -> Iterator[None]:
    """The rows of another project are the same afterwards."""
    before = left(c, ids_of(c, project))
    yield
    assert left(c, ids_of(c, project)) == before


def two_projects(server: LiveServer) -> tuple[int, int]:
    fill(server)
    with server.client("worker") as worker:
        theirs = run_document(0, project=OTHER) | {"id": f"01OTHER{0:019d}", "worker": "w-other"}
        assert worker.put(f"/api/v1/runs/{theirs['id']}", json=theirs).status_code == 201
        run = run_document(0)["id"]
        assert worker.put(f"/api/v1/runs/{run}/artifacts/trace.json", content=b"{}").status_code == 201
    with server.engine.begin() as c:
        person(c, "ada@example.org", demo_tinygpt=MemberRole.VIEWER)
        c.execute(
            text(
                """INSERT INTO webhook_delivery (delivery_id, event, project_id)
                   SELECT 'd' || id, 'push', id FROM project"""
            )
        )
        c.execute(
            text(
                """INSERT INTO worker (name, testbed_id, project_id)
                   SELECT 'own-' || p.id, t.id, p.id FROM project p, testbed t WHERE t.name = 'cpu'"""
            )
        )
        numbers = {row.slug: row.id for row in c.execute(text("SELECT slug, id FROM project"))}
    return numbers[MINE], numbers[OTHER]


def test_no_row_of_it_is_left_and_no_other_is_gone(live_server: LiveServer) -> None:
    mine, other = two_projects(live_server)
    config = live_server.config
    mirror = config.mirrors_dir / f"{mine}.git"
    archived = config.archive_dir / "project=demo%2Ftinygpt"
    for directory in (mirror, archived):
        directory.mkdir(parents=True)
    with live_server.engine.begin() as c:
        own = ids_of(c, mine)
        assert {"run.id", "measurement.run_id", "judgement.series_id", "webhook_delivery.project_id",
                "worker.project_id", "member.project_id"} <= left(c, own).keys()  # fmt: skip
    with live_server.engine.begin() as c, as_it_was(c, other):
        removed, files = removal.remove(c, ROOT, MINE, confirm=MINE, config=config, now=NOW)
        assert removed.contents.runs == 2 and removed.contents.artifacts == 1
        assert left(c, own) == {}
    assert {mirror, archived} <= set(files) and all(path.exists() for path in files)  # until it is committed
    removal.remove_files(files)
    assert not mirror.exists() and not archived.exists() and not any(config.artifacts_dir.rglob("trace.json"))
    with live_server.engine.connect() as c:
        trail = c.execute(text("SELECT actor, project FROM audit_event WHERE action = 'project.remove'")).all()
    assert trail == [("root", MINE)]


def test_the_mirror_of_a_project_that_is_gone_goes_too(live_server: LiveServer) -> None:
    mine, _ = two_projects(live_server)
    config = live_server.config
    kept, stray = (config.mirrors_dir / f"{number}.git" for number in (mine, mine + 1000))
    for directory in (kept, stray):
        directory.mkdir(parents=True)
    with live_server.engine.begin() as c:
        assert removal.remove_stray_mirrors(c, config) == 1
    assert kept.exists() and not stray.exists()


def test_the_name_is_asked_for_and_workers_are_not_robbed(live_server: LiveServer) -> None:
    mine, _ = two_projects(live_server)
    with live_server.engine.begin() as c:
        with pytest.raises(BadRequest, match=MINE):
            removal.remove(c, ROOT, MINE, confirm="demo", config=live_server.config, now=NOW)
        assert not removal.preview(c, ROOT, MINE).removed
        c.execute(text("UPDATE run SET state = 'running' WHERE id = :id"), {"id": run_document(0)["id"]})
        with pytest.raises(Conflict, match="measuring 1 of its runs"):
            removal.remove(c, ROOT, MINE, confirm=MINE, config=live_server.config, now=NOW)
        for role in (MemberRole.VIEWER, MemberRole.SUBMITTER, MemberRole.TRIAGER):
            with pytest.raises(Forbidden):
                removal.preview(c, only(role, mine), MINE)


def test_a_worker_that_comes_late_does_not_bring_it_back(live_server: LiveServer) -> None:
    two_projects(live_server)
    with live_server.client("admin") as admin:
        counted = admin.delete(f"/api/v1/projects/{MINE}", params={"dry_run": "true"})
        assert counted.json()["contents"]["runs"] == 2
        assert admin.delete(f"/api/v1/projects/{MINE}").status_code == 400
        assert admin.delete(f"/api/v1/projects/{MINE}", params={"confirm": MINE}).json()["removed"]
        late = admin.put(
            f"/api/v1/runs/{run_document(1)['id']}", json=run_document(1), headers={"Tidemark-Lease": "of before"}
        )
        assert late.status_code == Gone.status and "was removed" in late.json()["detail"]
        assert admin.get(f"/api/v1/projects/{MINE}").status_code == NotFound.status
