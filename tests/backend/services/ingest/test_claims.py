"""Where a caller may deliver: of a project that is hidden from them they learn nothing."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, Engine, text

from backend.contract import parse_run
from backend.services.base import projects
from backend.services.base.errors import NotFound
from backend.services.base.principal import IMPLIED, MemberRole, Principal, Scope, Via
from backend.services.ingest.claims import check_project
from backend.services.ingest.record import record_run
from tests.backend.people_of_tests import only
from tests.backend.services.loom import measurement, run_of
from tidemark.machine.processes import wait_until

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
WRITER = Principal(name="ci", via=Via.TOKEN, scopes=IMPLIED[Scope.WRITE], token_id=1)


def test_who_may_deliver_to_one_project_cannot_tell_a_hidden_one_from_none(connection: Connection) -> None:
    mine = projects.save_project(connection, "mine/one", now=NOW).id
    projects.save_project(connection, "secret/one", private=True, now=NOW)
    member = only(MemberRole.SUBMITTER, mine)
    check_project(connection, "mine/one", member)
    said = []
    for slug in ("secret/one", "none/one"):
        with pytest.raises(NotFound) as refused:
            check_project(connection, slug, member)
        said.append(refused.value.detail.replace(slug, "…"))
    assert said[0] == said[1]
    check_project(connection, "none/one", WRITER)  # which begins with its first result


def test_a_project_that_becomes_private_while_its_first_result_comes_does_not_take_it(
    committing_engine: Engine,
) -> None:
    raw = json.dumps(run_of(0, [measurement("step_ms", 100.0)])).encode()

    def deliver() -> None:
        with committing_engine.begin() as c:
            record_run(c, parse_run(raw), raw, now=NOW, principal=WRITER)

    with ThreadPoolExecutor(1) as other, committing_engine.connect() as watching:
        with committing_engine.begin() as c:
            projects.save_project(c, "northsea/loom", private=True, now=NOW)
            delivery = other.submit(deliver)
            waits = text("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
            assert wait_until(lambda: bool(watching.scalar(waits)), 20)
        with pytest.raises(NotFound, match="unknown project"):
            delivery.result(20)
        assert watching.scalar(text("SELECT count(*) FROM run")) == 0
