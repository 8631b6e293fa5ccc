"""The simulator on a small fleet: nobody starves, nobody has two runs, and the queue's length does not tell."""

from __future__ import annotations

from sqlalchemy import Engine, text

from backend.services.queue.scheduling import Kind
from tests.scale import claims
from tests.scale.simulate import simulate
from tests.scale.world import Size, World


def test_a_few_hours_of_a_busy_fleet_leave_nobody_out(committing_engine: Engine) -> None:
    found = simulate(committing_engine, Size(workers=6, testbeds=2, projects=6, hours=3, load=1.4), seed=6)
    assert found["claims"] > 60 and found["held_twice"] == 0
    waits = found["wait_min"]
    assert waits[Kind.PULL_REQUEST]["median"] < waits[Kind.MAIN]["median"], found
    # Of three hours: a group that was left out would have waited for nearly all of them.
    assert found["longest_time_a_group_was_not_served"]["hours"] < 2.5, found
    assert found["crashed"] > 0 and found["superseded"] > 0
    assert found["leases_run_out"] <= found["crashed"], "only a worker that crashed loses its run"
    with committing_engine.connect() as c:
        twice = c.scalar(
            text(
                """SELECT count(*) FROM (SELECT commit_id, suite, testbed_id, kind FROM run
                   WHERE state IN ('done', 'queued', 'leased') AND kind <> 'confirm'
                   GROUP BY 1, 2, 3, 4 HAVING count(*) > 1) AS doubled"""
            )
        )
    assert twice == 0


def test_choosing_reads_no_more_of_a_long_queue_than_of_a_short_one(committing_engine: Engine) -> None:
    import random

    world = World(Size(workers=4, testbeds=1, projects=5), random.Random(2))
    with committing_engine.begin() as c:
        world.make(c)
    buffers = []
    for runs in (400, 12_000):
        with committing_engine.begin() as c:
            claims._fill(c, world, runs)
        with committing_engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
            c.execute(text("VACUUM ANALYZE run"))
        plan = claims._plan(committing_engine)
        assert "Seq Scan" not in plan["scans_of_run"], plan
        buffers.append(plan["buffers"])
    assert buffers[1] < 3 * buffers[0], buffers
