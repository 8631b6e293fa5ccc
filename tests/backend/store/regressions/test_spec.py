"""How a commit's suite was run is found by the commit, also in a project that has far more runs than others."""

import re
from typing import Any

from sqlalchemy import Connection, text

from backend.store.regressions import views

RUNS = 3_000
SMALL_ONES = 300


def runs_of(c: Connection, slug: str, runs: int) -> None:
    """Make a project with so many runs on the testbed, a commit each."""
    c.execute(
        text(
            """WITH p AS (INSERT INTO project (slug) VALUES (:slug) RETURNING id),
                    k AS (INSERT INTO commit (project_id, sha)
                          SELECT id, lpad(to_hex(n), 40, '0') FROM p, generate_series(1, :runs) AS n RETURNING id, sha)
               INSERT INTO run (id, project_id, commit_id, testbed_id, suite, kind, state, requested_at, received_at,
                                spec)
               SELECT :slug || '-' || k.sha, p.id, k.id, t.id, 'gpt', 'main', 'done', now(), now(), '{"command": "x"}'
               FROM p, k, testbed t"""
        ),
        {"slug": slug, "runs": runs},
    )


def test_a_commit_of_a_large_project_among_small_ones_is_not_looked_for_run_by_run(connection: Connection) -> None:
    connection.execute(text("INSERT INTO testbed (name) VALUES ('cpu')"))
    for number in range(SMALL_ONES):
        runs_of(connection, f"small/{number}", 1)
    runs_of(connection, "large/one", RUNS)
    connection.execute(text("ANALYZE project, commit, run, testbed"))
    project, testbed = (connection.scalar(text(f"SELECT max(id) FROM {table}")) for table in ("project", "testbed"))
    sha = f"{RUNS // 2:040x}"
    found = views.spec_of(connection, project, testbed, "gpt", sha)
    assert found is not None and found["spec"] == {"command": "x"}
    # As the plan that is kept for all projects has it, not the one of this project's numbers.
    connection.execute(text("SET LOCAL plan_cache_mode = force_generic_plan"))
    numbered = re.sub(r":(project|sha|suite|testbed)\b", lambda name: PLACES[name[1]], views._SPEC.text)
    connection.exec_driver_sql(f"PREPARE spec (int, text, text, int) AS {numbered}")
    (plan,) = connection.exec_driver_sql(
        f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE spec ({project}, '{sha}', 'gpt', {testbed})"
    ).scalar_one()
    assert looked_at(plan["Plan"]) < 10


PLACES = {"project": "$1", "sha": "$2", "suite": "$3", "testbed": "$4"}


def looked_at(node: dict[str, Any]) -> int:
    """Runs and commits that scans found, those filtered out included."""
    mine = node.get("Relation Name") in ("run", "commit")
    here = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] if mine else 0
    return round(here) + sum(looked_at(each) for each in node.get("Plans", []))
