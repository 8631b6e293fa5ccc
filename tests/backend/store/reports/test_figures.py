"""The figures of /metrics: what waits and for how long, who is alive or in quarantine, what GitHub was not told."""

from __future__ import annotations

from sqlalchemy import Connection, text

from backend.store.reports.figures import load_figures

FILLED = (
    "INSERT INTO project (slug) VALUES ('a/b')",
    "INSERT INTO testbed (name) VALUES ('cpu'), ('h200')",
    "INSERT INTO commit (project_id, sha) SELECT id, 'c0ffee' FROM project",
    """INSERT INTO worker (name, testbed_id, wanted_state, last_seen_at)
       SELECT w.name, t.id, w.wanted, now() - make_interval(secs => w.silent_s)
       FROM (VALUES ('well', 'cpu', 'ok', 1), ('sick', 'cpu', 'quarantine', 1), ('gone', 'h200', 'quarantine', 600))
            AS w(name, testbed, wanted, silent_s) JOIN testbed t ON t.name = w.testbed""",
    """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, kind, requested_at)
       SELECT r.id, k.project_id, k.id, t.id, 'own', r.state, 'main', now() - make_interval(secs => r.ago_s)
       FROM (VALUES ('OLD', 'queued', 7200), ('NEW', 'queued', 60), ('DONE', 'done', 90000)) AS r(id, state, ago_s),
            commit k, testbed t WHERE t.name = 'cpu'""",
    """INSERT INTO github_outbox (project_id, kind, key, state)
       SELECT p.id, 'check', x.key, x.state
       FROM project p, (VALUES ('1', 'waiting'), ('2', 'sent')) AS x(key, state)""",
)


def test_figures_are_counted_by_testbed_and_state(connection: Connection) -> None:
    for statement in FILLED:
        connection.execute(text(statement))
    figures = load_figures(connection, live_within_s=45)
    assert figures.runs_by_state == {"queued": 2, "done": 1}
    assert figures.queued_by_testbed == {"cpu": 2}
    assert round(figures.oldest_queued_s_by_testbed["cpu"]) == 7200
    assert figures.workers_by_testbed == {"cpu": 2}
    assert figures.quarantined_by_testbed == {"cpu": 1}
    assert figures.github_by_state == {"waiting": 1}
