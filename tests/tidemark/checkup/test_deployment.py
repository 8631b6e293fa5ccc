"""The doctor of a deployment: what is wrong with a database, a broker or a service is found, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, text

from backend.services import housekeeping
from tests.conftest import LiveServer
from tidemark.checkup import deployment
from tidemark.checkup.finding import Finding
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.settings import Settings

Look = Callable[..., dict[str, Finding]]


@pytest.fixture
def look(live_server: LiveServer) -> Look:
    """What the doctor finds of a running service."""
    live_server.config.data_dir.mkdir()

    def examine(**changes: object) -> dict[str, Finding]:
        chosen = {
            "database_url": live_server.config.database_url,
            "redis_url": live_server.config.redis_url,
            "data_dir": live_server.config.data_dir,
            "public_url": live_server.url,
            "github_webhook_secret": live_server.config.github_webhook_secret,
            **changes,
        }
        return {found.name: found for found in deployment.deployment(Settings(**chosen))}  # type: ignore[arg-type]

    return examine


@pytest.fixture
def keeping_house(live_server: LiveServer) -> Iterator[None]:
    """The lock that `tidemark beat` holds."""
    with psycopg.connect(live_server.config.database_url, autocommit=True) as held:
        held.execute("SELECT pg_advisory_lock(hashtext(%s))", [housekeeping.LOCK])
        yield


def test_a_deployment_that_works_is_well_but_for_what_github_never_sent(look: Look, keeping_house: None) -> None:
    found = look()
    wrong = [name for name, each in found.items() if not each.good]
    assert [name for name in wrong if name != "disk"] == ["webhook deliveries"], (
        "how full this disk is, is its own matter"
    )
    assert found.keys() >= {
        *("clock: database", "clock: broker", "clock: service", "postgresql", "schema", "worker versions", "disk"),
        *("database role", "partitions", "housekeeping", "connections", "long statements", "webhook", "broker"),
        *("service", "service version", "encryption"),
    }


def test_what_is_wrong_in_the_database_is_found_with_a_way_to_mend_it(look: Look, committing_engine: Engine) -> None:
    with committing_engine.begin() as c:
        c.execute(text("INSERT INTO testbed (name) VALUES ('cpu')"))
        c.execute(text("INSERT INTO worker (name, testbed_id, version) SELECT 'w1', id, '0.0.9' FROM testbed"))
        c.execute(text(f"DROP TABLE judgement_{datetime.now(UTC):%Y_%m}"))
        c.execute(text("UPDATE alembic_version SET version_num = '0021'"))
    found = look()
    bad = {name: each.found for name, each in found.items() if not each.good}
    assert "w1 (0.0.9)" in bad["worker versions"]
    assert f"judgement_{datetime.now(UTC):%Y_%m}" in bad["partitions"]
    assert bad["schema"].startswith("at 0021") and found["schema"].mend == "tidemark db upgrade"
    assert bad["housekeeping"] == "not running"
    assert "schema" in bad["service"]
    assert all(each.mend for each in found.values() if not each.good)


def test_a_transaction_that_is_left_open_is_named(
    look: Look, committing_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment, "LONG_TRANSACTION_S", 0)
    with committing_engine.connect() as forgotten:
        pid = forgotten.execute(text("SELECT pg_backend_pid()")).scalar_one()
        said = look()["long statements"]
    assert not said.good and f"pid {pid} idle in transaction" in said.found and "pg_terminate_backend" in said.mend


def test_clocks_that_differ_are_told_apart() -> None:
    assert deployment._skew("database", -0.4).good
    wrong = deployment._skew("database", -61.0)
    assert not wrong.good and wrong.found == "61.0 s behind this machine's"


def test_a_replica_is_named_with_how_far_it_is_behind(postgres: EmbeddedPostgres, look: Look) -> None:
    """A real receiver of the write-ahead log that never says that it has replayed anything."""
    with closing(psycopg.connect(postgres.url + "?replication=true", autocommit=True)) as receiver:
        at = receiver.pgconn.exec_(b"IDENTIFY_SYSTEM").get_value(0, 2)
        receiver.pgconn.exec_(b"START_REPLICATION PHYSICAL " + (at or b""))
        found = {name: each for name, each in look().items() if name.startswith("replica ")}
    assert len(found) == 1
    assert "MB behind" in next(iter(found.values())).found


def test_a_database_a_broker_and_a_service_that_do_not_answer_are_found(look: Look) -> None:
    found = look(
        database_url="postgresql://tidemark:s3cret@127.0.0.1:1/x",
        redis_url="redis://127.0.0.1:1/0",
        public_url="http://127.0.0.1:1",
    )
    assert {name for name, each in found.items() if not each.good} == {"database", "broker", "service"}
    assert "s3cret" not in repr(found)


def test_a_public_address_without_tls_is_found(look: Look) -> None:
    found = look(public_url="http://tidemark.invalid")
    assert not found["service"].good and not found["webhook"].good


def test_without_a_deployment_nothing_is_asked(tmp_path: Path) -> None:
    assert list(deployment.deployment(Settings(data_dir=tmp_path))) == []


def test_a_role_that_may_not_migrate_is_named_with_what_it_needs(
    look: Look, live_server: LiveServer, postgres: EmbeddedPostgres, administer: Callable[[str], None]
) -> None:
    administer("CREATE ROLE reader LOGIN PASSWORD 'of-the-tests'")
    try:
        with live_server.engine.begin() as c:
            c.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"))
        name = live_server.config.database_url.rpartition("/")[2]
        found = look(database_url=f"postgresql://reader:of-the-tests@127.0.0.1:{postgres.port}/{name}")["database role"]
        assert not found.good and "may not create" in found.found and 'TO "reader"' in found.mend
    finally:
        with live_server.engine.begin() as c:
            c.execute(text("DROP OWNED BY reader"))
        administer("DROP ROLE reader")
