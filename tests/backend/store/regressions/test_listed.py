"""The list of regressions is read by an index that begins with the project: others' are not walked through."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from backend.store.regressions.views import listed, listing

OTHERS = 3_000


def regressions(c: Connection, slug: str, number: int) -> int:
    """Make a project with so many, and give its id."""
    project = c.execute(text("INSERT INTO project (slug) VALUES (:slug) RETURNING id"), {"slug": slug}).scalar_one()
    testbed = c.execute(text("INSERT INTO testbed (name) VALUES (:slug) RETURNING id"), {"slug": slug}).scalar_one()
    c.execute(
        text(
            """INSERT INTO regression (project_id, testbed_id, state, cause, first_bad_position, lead_change, still_bad)
               SELECT :project, :testbed, 'fixed', 'code', n, 0.08, false FROM generate_series(1, :number) AS n"""
        ),
        {"project": project, "testbed": testbed, "number": number},
    )
    return int(project)


def rows_walked(c: Connection, statement: str, values: dict[str, Any]) -> int:
    """That scans of `regression` looked at, those filtered out included."""
    plan = c.execute(text(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"), values).scalar_one()[0]["Plan"]
    found, nodes = 0, [plan]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        if node.get("Relation Name") == "regression":
            found += round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
    return found


def test_the_newest_of_a_project_are_found_without_those_of_others(connection: Connection) -> None:
    regressions(connection, "ours/first", 60)
    regressions(connection, "others/busy", OTHERS)
    connection.execute(text("ANALYZE regression, project, testbed"))
    newest = [row["id"] for row in listed(connection, {"project": "ours/first"}, 50)]
    assert len(newest) == 50 and newest == sorted(newest, reverse=True)
    for filters in ({}, {"min_change": 0.01}, {"still_bad": False}):
        values = {"project": "ours/first", **filters}
        assert rows_walked(connection, listing(values, 50), values) <= 60
