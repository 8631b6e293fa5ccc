"""What every page begins with: a project, its branches, and the testbeds on which it ran."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from backend.store.base import lookup

RUNS = 5_000


def run_on(c: Connection, slug: str, testbed: str, runs: int) -> None:
    """Make a project with so many runs on a testbed of its own."""
    c.execute(
        text(
            """WITH p AS (INSERT INTO project (slug) VALUES (:slug) RETURNING id),
                    t AS (INSERT INTO testbed (name) VALUES (:testbed) RETURNING id),
                    k AS (INSERT INTO commit (project_id, sha) SELECT id, repeat('a', 40) FROM p RETURNING id)
               INSERT INTO run (id, project_id, commit_id, testbed_id, suite, kind, state, requested_at, received_at)
               SELECT :slug || n, p.id, k.id, t.id, 'gpt', 'main', 'done', now(), now()
               FROM p, t, k, generate_series(1, :runs) AS n"""
        ),
        {"slug": slug, "testbed": testbed, "runs": runs},
    )


def runs_walked(c: Connection, slug: str) -> int:
    """That scans of `run` looked at, those filtered out included."""
    cursor = c.connection.driver_connection.cursor()  # type: ignore[union-attr]
    cursor.execute(
        "EXPLAIN (ANALYZE, FORMAT JSON) " + lookup.SURROUNDINGS, {"slug": slug, "branch": None, "unread": ""}
    )
    found, nodes = 0, [cursor.fetchone()[0][0]["Plan"]]
    while nodes:
        node: dict[str, Any] = nodes.pop()
        nodes += node.get("Plans", [])
        if node.get("Relation Name") == "run":
            found += round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
    return found


def test_a_testbed_on_which_a_project_never_ran_does_not_cost_a_walk_through_all_runs(connection: Connection) -> None:
    run_on(connection, "ours/loom", "h200", RUNS)
    run_on(connection, "others/loom", "cpu", 3)
    connection.execute(text("ANALYZE run, project, testbed, series"))
    for slug, its in (("ours/loom", ["h200"]), ("others/loom", ["cpu"])):
        found = lookup.surroundings(connection, slug)
        assert found is not None and [testbed.name for testbed in found[2]] == its
        assert runs_walked(connection, slug) <= 2
