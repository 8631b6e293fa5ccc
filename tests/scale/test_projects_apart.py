"""What a database distributed by project needs: which tables can be, and that hot reads stay within one project.

A distributed table must have the project in its primary key and in every unique one, and refer to others of its kind by
it; small tables that projects share are copied to every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Connection, create_engine, make_url, text

from tests.bench.dataset import fill, settle
from tests.conftest import copy_of
from tests.scale.explained import Explained
from tests.scale.test_reads_do_not_grow import PAGES, SHAPE, Site, site
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.machine.valkey import EmbeddedValkey

COMMITS = 600
MOST_MORE, SLACK_ROWS = 1.25, 20
"""A statement that looks across projects reads twice as much as before. A little more is met on the way: the menu of
every page says of each project how it is."""

SHARED = {
    "account", "api_token", "alembic_version", "environment", "member", "project", "sign_in_link", "testbed",
    "web_session", "worker",
}  # fmt: skip
"""Small, and asked about before a project is known, or of no project: a copy on every machine, or on one."""
OF_THE_SERVICE = {"audit_event", "live_event", "webhook_delivery"}
"""One order over all projects, by one sequence, pruned or exported: they stay on one machine."""

ACROSS_PROJECTS = {
    "/?project=bench/large&range=7d": "the list of projects says of each when it was busy last",
    "/workers?project=bench/large": "workers measure for every project",
    "/api/v1/workers": "workers measure for every project",
    "/api/v1/queue": "runs of all projects wait for the same testbeds",
    "/api/v1/projects": "it is the list of them",
}
"""Reads that may look across projects, and why; none of them is on the way of a result."""


def keys_of_tables(c: Connection) -> dict[str, tuple[bool, bool]]:
    """{table: whether it has project_id, whether that is in its primary key and in every unique one}"""
    statement = text(
        """
        SELECT t.relname, p.attnum IS NOT NULL AS has,
               coalesce(bool_and(p.attnum = ANY (string_to_array(i.indkey::text, ' ')::int2[])), false) AS keyed
        FROM pg_class t
        LEFT JOIN pg_attribute p ON p.attrelid = t.oid AND p.attname = 'project_id' AND NOT p.attisdropped
        LEFT JOIN pg_index i ON i.indrelid = t.oid AND i.indisunique
        WHERE t.relnamespace = 'public'::regnamespace AND t.relkind IN ('r', 'p') AND NOT t.relispartition
        GROUP BY t.relname, p.attnum
        """
    )
    return {name: (has, keyed) for name, has, keyed in c.execute(statement)}


def references_of_tables(c: Connection) -> list[tuple[str, str, bool]]:
    """(table, table that it refers to, whether the project is part of the reference)"""
    statement = text(
        """
        SELECT f.conrelid::regclass::text, f.confrelid::regclass::text,
               EXISTS (SELECT FROM unnest(f.conkey, f.confkey) AS k (here, there)
                       JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.here
                       JOIN pg_attribute b ON b.attrelid = f.confrelid AND b.attnum = k.there
                       WHERE a.attname = 'project_id' AND b.attname = 'project_id')
        FROM pg_constraint f WHERE f.contype = 'f' AND f.connamespace = 'public'::regnamespace
        """
    )
    return [tuple(row) for row in c.execute(statement)]


def test_every_table_of_projects_has_the_project_in_its_keys(connection: Connection) -> None:
    tables = keys_of_tables(connection)
    assert {name for name, (_, keyed) in tables.items() if not keyed} == SHARED | OF_THE_SERVICE
    assert all(has for has, keyed in tables.values() if keyed)


def test_tables_of_projects_refer_to_each_other_within_a_project(connection: Connection) -> None:
    """And to nothing but each other and what lies on every machine; what stays on one refers to no project's rows."""
    references, apart = references_of_tables(connection), SHARED | OF_THE_SERVICE
    assert [each for each in references if each[0] not in apart and each[1] not in apart and not each[2]] == []
    assert [each for each in references if each[0] not in apart and each[1] in OF_THE_SERVICE] == []
    assert [each for each in references if each[0] in apart and each[1] not in apart] == []


@pytest.fixture(scope="module")
def alone_and_beside(
    template: str,
    postgres: EmbeddedPostgres,
    administer: Callable[[str], None],
    valkey: EmbeddedValkey,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, tuple[list[Explained], list[Explained]]]]:
    """What every read did while there was one project, and with another of the same size beside it."""
    with copy_of(template, postgres, administer) as url:
        # Tables as small as these would be read whole: what counts is whether an index leads to one project.
        for method in ("seqscan", "hashjoin", "mergejoin"):
            administer(f"ALTER DATABASE {make_url(url).database} SET enable_{method} = off")
        made = site(url, COMMITS, valkey, tmp_path_factory.mktemp("apart"))
        alone = {path: made.get(path) for path in PAGES}
        _fill_another(url, made)
        beside = {path: made.get(path) for path in PAGES}
        made.explaining.engine.dispose()
        yield {path: (alone[path], beside[path]) for path in PAGES}


def _fill_another(url: str, made: Site) -> None:
    engine = create_engine(url)
    with engine.begin() as c:
        other = fill(c, replace(SHAPE, commits=COMMITS, project="bench/other", testbed="bench-other"))
        for table in ("run", "series", "regression"):  # both are measured on the same machines
            c.execute(
                text(f"UPDATE {table} SET testbed_id = :mine WHERE project_id = :other"),
                {"mine": made.filled.testbed_id, "other": other.project_id},
            )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        settle(c)
    engine.dispose()


@pytest.mark.parametrize("path", [path for path in PAGES if path not in ACROSS_PROJECTS])
def test_a_read_of_one_project_does_not_look_through_another(
    alone_and_beside: dict[str, tuple[list[Explained], list[Explained]]], path: str
) -> None:
    alone, beside = map(rows_by_statement, alone_and_beside[path])
    more = {sql: (alone[sql], rows) for sql, rows in beside.items() if rows > MOST_MORE * alone[sql] + SLACK_ROWS}
    assert not more


def rows_by_statement(heard: list[Explained]) -> Counter[str]:
    """How many rows its scans returned."""
    rows: Counter[str] = Counter()
    for each in heard:
        rows[each.sql] += each.rows
    return rows
