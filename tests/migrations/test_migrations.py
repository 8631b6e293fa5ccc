"""The migrations make exactly the tables that the code describes, and go down as far as they came."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, inspect, text

from backend.store.base import schema
from backend.store.tables.core import metadata
from tests.backend.services.loom import Loom

KEYED = ("measurement", "judgement", "rollup", "result", "run", "commit", "branch_commit", "series")


def test_the_migrated_schema_is_what_the_code_describes(committing_engine: Engine) -> None:
    with committing_engine.begin() as c:
        command.check(schema.alembic_config(c))


def test_rounds_of_sessions_do_not_become_runs_of_their_commit_on_the_way_down(committing_engine: Engine) -> None:
    with committing_engine.begin() as c:
        c.execute(text("INSERT INTO project (slug) VALUES ('a/b')"))
        c.execute(text("INSERT INTO testbed (name) VALUES ('cpu')"))
        c.execute(text("INSERT INTO commit (project_id, sha) SELECT id, 'c0ffee' FROM project"))
        for run_id, session_id in (("RUN", None), ("ROUND", "SESSION")):
            c.execute(
                text(
                    """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, kind, session_id)
                       SELECT :run, k.project_id, k.id, t.id, 'own', 'queued', 'confirm', :session
                       FROM commit k, testbed t"""
                ),
                {"run": run_id, "session": session_id},
            )
        schema.downgrade(c, "0008")
        assert c.scalars(text("SELECT id FROM run")).all() == ["RUN"]


def test_rounds_of_the_joint_detector_go_with_their_sessions_on_the_way_down(committing_engine: Engine) -> None:
    with committing_engine.begin() as c:
        c.execute(text("INSERT INTO project (slug) VALUES ('a/b')"))
        c.execute(text("INSERT INTO testbed (name) VALUES ('cpu')"))
        c.execute(text("INSERT INTO commit (project_id, sha) SELECT id, 'c0ffee' FROM project"))
        for purpose in ("confirm", "attribute"):
            c.execute(
                text(
                    """INSERT INTO session (id, project_id, testbed_id, suite, purpose, base_commit_id, head_commit_id,
                                            spec, state, max_rounds, requested_by)
                       SELECT :purpose, k.project_id, t.id, 'own', :purpose, k.id, k.id, '{}', 'waiting', 2, 'tidemark'
                       FROM commit k, testbed t"""
                ),
                {"purpose": purpose},
            )
            c.execute(
                text(
                    """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, kind, session_id)
                       SELECT :run, k.project_id, k.id, t.id, 'own', 'queued', 'confirm', :purpose
                       FROM commit k, testbed t"""
                ),
                {"run": f"ROUND-{purpose}", "purpose": purpose},
            )
            c.execute(
                text(
                    """INSERT INTO session_turn (session_id, project_id, number, arm, run_id, counted, status)
                       SELECT :purpose, id, 0, 'base', :run, true, 'ok' FROM project"""
                ),
                {"run": f"ROUND-{purpose}", "purpose": purpose},
            )
        c.execute(
            text(
                """INSERT INTO joint_question (project_id, suite, testbed, after_run_id, number, base_position,
                                          head_position, session_id)
                   SELECT id, 'own', 'cpu', 'RUN', 0, 1, 2, 'attribute' FROM project"""
            )
        )
        schema.downgrade(c, "0012")
        assert c.scalars(text("SELECT id FROM session")).all() == ["confirm"]
        assert c.scalars(text("SELECT id FROM run")).all() == ["ROUND-confirm"]
        schema.upgrade(c)


def test_a_series_keeps_its_id_and_goes_on_with_the_suite_that_measured_it_last(committing_engine: Engine) -> None:
    """The key had no suite: a suite that was renamed went on in the series of its old name."""
    with committing_engine.begin() as c:
        schema.downgrade(c, "0016")
        c.execute(text("INSERT INTO project (slug) VALUES ('a/b')"))
        c.execute(text("INSERT INTO testbed (name) VALUES ('cpu')"))
        c.execute(text("INSERT INTO commit (project_id, sha) SELECT id, 'c0ffee' FROM project"))
        for name in ("renamed", "kept", "never judged"):
            c.execute(
                text(
                    """INSERT INTO series (project_id, testbed_id, suite, suite_version, benchmark, variant,
                                           variant_key, preset, metric, unit, direction, role)
                       SELECT p.id, t.id, 'old', '1', :name, '{}', '', 'full', 'ms', 'ms', 'lower', 'gate'
                       FROM project p, testbed t"""
                ),
                {"name": name},
            )
        schema.ensure_partitions(c, datetime(2026, 1, 1, tzinfo=UTC))
        points = [("renamed", 0, "old"), ("renamed", 1, "new"), ("kept", 0, "new"), ("kept", 1, "old")]
        for name, position, suite in points:
            c.execute(
                text(
                    """WITH r AS (INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, kind)
                                  SELECT :run, k.project_id, k.id, t.id, :suite, 'done', 'import'
                                  FROM commit k, testbed t
                                  RETURNING id)
                       INSERT INTO judgement (series_id, run_id, commit_id, position, measured_at, value, verdict,
                                              policy_version)
                       SELECT s.id, r.id, k.id, :position, '2026-01-01', 1, 'unchanged', '1'
                       FROM series s, commit k, r WHERE s.benchmark = :name"""
                ),
                {"run": f"RUN-{name}-{position}", "suite": suite, "position": position, "name": name},
            )
        before = {row.benchmark: row.id for row in c.execute(text("SELECT benchmark, id FROM series"))}
        schema.upgrade(c)
        suites = {row.benchmark: row.suite for row in c.execute(text("SELECT benchmark, suite FROM series"))}
        assert suites == {"renamed": "new", "kept": "old", "never judged": "old"}
        assert {row.benchmark: row.id for row in c.execute(text("SELECT benchmark, id FROM series"))} == before


def test_what_was_red_is_red_in_a_column_of_its_own_and_back(committing_engine: Engine) -> None:
    with committing_engine.begin() as c:
        schema.downgrade(c, "0020")
        schema.ensure_partitions(c, datetime(2026, 1, 1, tzinfo=UTC))
        c.execute(text("INSERT INTO project (slug) VALUES ('a/b')"))
        c.execute(text("INSERT INTO testbed (name) VALUES ('cpu')"))
        c.execute(
            text(
                """INSERT INTO series (id, project_id, testbed_id, suite, suite_version, benchmark, variant,
                                       variant_key, preset, metric, unit, direction, role)
                   SELECT 1, p.id, t.id, 'own', '1', 'b', '{}', '', 'full', 'ms', 'ms', 'lower', 'gate'
                   FROM project p, testbed t"""
            )
        )
        for position, detail in enumerate(('{"reason": "still_worse", "red": true}', '{"reason": "within_band"}')):
            c.execute(
                text(
                    """INSERT INTO judgement (series_id, run_id, commit_id, position, measured_at, value, verdict,
                                              policy_version, detail)
                       VALUES (1, 'RUN', 1, :position, '2026-01-01', 1, 'regression', '1', CAST(:detail AS jsonb))"""
                ),
                {"position": position, "detail": detail},
            )
        schema.upgrade(c, "0036")
        rows = c.execute(text("SELECT red, detail FROM judgement ORDER BY position")).all()
        assert [(row.red, row.detail) for row in rows] == [
            (True, {"reason": "still_worse"}),
            (False, {"reason": "within_band"}),
        ]
        schema.downgrade(c, "0020")
        assert c.scalars(text("SELECT detail ->> 'red' FROM judgement ORDER BY position")).all() == ["true", None]
        schema.upgrade(c)


def test_every_migration_goes_down_and_up_again(committing_engine: Engine) -> None:
    with committing_engine.begin() as c:
        schema.downgrade(c, "base")
        assert set(inspect(c).get_table_names()) <= {"alembic_version"}
        schema.upgrade(c)
        context = MigrationContext.configure(c, opts={"include_object": lambda item, name, kind, *_: kind != "index"})
        missing = [difference for difference in compare_metadata(context, metadata) if difference[0] == "add_table"]
    assert missing == []


def test_indexes_that_an_operator_built_before_become_the_key_of_measurements(committing_engine: Engine) -> None:
    with committing_engine.begin() as c:
        schema.downgrade(c, "0030")
        schema.ensure_partitions(c, datetime(2026, 11, 1, tzinfo=UTC))
        c.execute(
            text(
                "CREATE UNIQUE INDEX measurement_2026_11_by_run ON measurement_2026_11 (run_id, series_id, measured_at)"
            )
        )
        built = c.scalar(text("SELECT CAST('measurement_2026_11_by_run' AS regclass)::oid"))
        schema.upgrade(c, "0031")
        keys = dict(
            c.execute(
                text(
                    """SELECT i.indrelid::regclass::text, i.indexrelid FROM pg_index i
                       WHERE i.indisprimary AND i.indrelid::regclass::text LIKE 'measurement_2026_1%'"""
                )
            ).all()
        )
    assert keys["measurement_2026_11"] == built and keys["measurement_2026_12"] != built


def test_what_is_written_anew_for_the_project_in_its_key_is_what_it_was(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([100.0] * 3)
    schema.ensure_partitions(connection, datetime(2026, 11, 1, tzinfo=UTC))
    connection.execute(text("COMMENT ON TABLE measurement_2026_11 IS 'name of its\\:file'"))
    connection.execute(text("GRANT SELECT ON measurement, judgement TO pg_monitor"))
    before = {table: loom.rows(f"SELECT to_jsonb(x) FROM {table} x ORDER BY 1") for table in KEYED}
    schema.downgrade(connection, "0036")
    assert not loom.rows(
        "SELECT FROM information_schema.columns WHERE table_name = 'result' AND column_name = 'project_id'"
    )
    schema.upgrade(connection)
    assert all(before.values())
    assert {table: loom.rows(f"SELECT to_jsonb(x) FROM {table} x ORDER BY 1") for table in KEYED} == before
    assert loom.value("SELECT obj_description('measurement_2026_11'::regclass, 'pg_class')") == "name of its:file"
    granted = "SELECT DISTINCT table_name FROM information_schema.table_privileges WHERE grantee = 'pg_monitor'"
    assert {"measurement", "judgement"} <= {name for (name,) in loom.rows(granted)}
    loom.run(3, 100.0)  # judgements are numbered on from where they were


def test_a_store_with_more_months_than_there_are_locks_for_is_told_the_setting(connection: Connection) -> None:
    months = [datetime(year, month, 1, tzinfo=UTC) for year in range(1995, 2022) for month in range(1, 13)]
    schema.ensure_partitions(connection, *months)
    with pytest.raises(schema.SetTooLow, match=r"set max_locks_per_transaction to 2\d\d \(it is 256\)"):
        schema.downgrade(connection, "0036")


def test_packed_samples_are_arrays_again_on_the_way_down(connection: Connection) -> None:
    loom = Loom(connection)
    loom.deliver(
        loom.run_of(
            0, [{**loom.measurement("step_ms", 5.0), "value": 5.0, "processes": [5.0], "samples": [[4.9, 5.0, 5.3]]}]
        )
    )
    schema.downgrade(connection, "0030")
    assert loom.rows("SELECT samples FROM measurement") == [([4.9, 5.0, 5.3],)]
