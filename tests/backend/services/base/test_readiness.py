"""Ready is who can do the work: on this schema, with this broker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import Engine, create_engine, text

from backend.services.base import readiness
from backend.services.base.config import ServiceConfig
from backend.services.base.reads import Reads


def test_a_service_with_database_schema_and_broker_is_ready(
    committing_engine: Engine, service_config: ServiceConfig
) -> None:
    state = readiness.check(Reads(committing_engine), service_config)
    assert state.ready and dict(state.checks) == {"database": "ok", "schema": "ok", "broker": "ok"}


def test_a_broker_or_a_database_that_does_not_answer_is_said(
    committing_engine: Engine, service_config: ServiceConfig
) -> None:
    alone = readiness.check(Reads(committing_engine), replace(service_config, redis_url="redis://127.0.0.1:1/0"))
    assert not alone.ready and alone.checks["broker"].startswith("does not answer")
    nowhere = create_engine("postgresql://tidemark@127.0.0.1:1/none")
    lost = readiness.check(Reads(nowhere), service_config)
    assert not lost.ready and lost.checks["database"].startswith("does not answer") and lost.checks["broker"] == "ok"


@pytest.mark.parametrize(("revision", "good"), [("0021", False), ("9999", True)])
def test_the_schema_of_a_later_version_will_do_and_that_of_an_earlier_one_will_not(
    committing_engine: Engine, service_config: ServiceConfig, revision: str, good: bool
) -> None:
    with committing_engine.begin() as c:
        c.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
    checks = readiness.check(Reads(committing_engine), service_config).checks
    assert (checks["schema"] == "ok") is good, checks
