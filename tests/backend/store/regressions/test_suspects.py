"""Which commits of a range may have changed what a suite measures."""

import pytest
from sqlalchemy import Connection, text

from backend.store.regressions.suspects import touching

LINE = """
WITH made AS (INSERT INTO project (slug) VALUES ('a/b') RETURNING id),
     line AS (INSERT INTO branch (project_id, name) SELECT id, 'main' FROM made RETURNING id, project_id),
     commits AS (
       INSERT INTO commit (project_id, sha, untouched_suites)
       SELECT line.project_id, lpad(n::text, 40, '0'),
              CASE WHEN n IN (3, 5) THEN ARRAY['gpt'] WHEN n = 4 THEN NULL ELSE '{}' END
       FROM line, generate_series(0, 7) n RETURNING id, sha)
INSERT INTO branch_commit (branch_id, project_id, position, commit_id)
SELECT line.id, line.project_id, sha::int, commits.id FROM line, commits
"""


@pytest.mark.parametrize(
    ("suite", "good", "bad", "expected"),
    [
        ("gpt", 2, 6, [4, 6]),  # of 4 nothing is known
        ("attn", 2, 6, [3, 4, 5, 6]),
        ("gpt", 2, 3, []),
        ("gpt", None, 6, []),
    ],
)
def test_commits_that_touch_nothing_of_the_suite_are_left_out(
    connection: Connection, suite: str, good: int | None, bad: int, expected: list[int]
) -> None:
    connection.execute(text(LINE))
    suspects = touching("bc.position", of="p", first_bad="onset_position")
    found = connection.execute(
        text(
            f"""SELECT u.position
                FROM (SELECT CAST(:good AS integer) AS last_good_position, :bad AS onset_position) p
                CROSS JOIN (SELECT id AS project_id, :suite AS suite FROM project) s
                CROSS JOIN LATERAL ({suspects}) u ORDER BY 1"""
        ),
        {"good": good, "bad": bad, "suite": suite},
    )
    assert list(found.scalars()) == expected
