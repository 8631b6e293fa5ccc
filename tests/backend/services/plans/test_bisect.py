"""Bisections: what they ask for, when they end, and what they take back when nobody needs their answer any more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import text

from backend.services.base.config import ServiceConfig
from backend.services.plans import bisect, bisection_views
from backend.services.queue import dispatch
from backend.services.queue import request as queue_request
from backend.services.queue.dispatch import Protection, WorkerHello
from backend.services.queue.request import WantedRun
from backend.services.queue.scheduling import Kind
from backend.services.triage import triage
from tests.backend.services.counting import counted

QUIET = [100.0] * 24
SPEC = {"benchmarks": ["gpt.*"], "command": None, "preset": "cpu", "variants": [], "policy": {}}
FIRST_UNMEASURED, BAD = 24, 34


@pytest.fixture
def slowed(loom: Any) -> Any:
    """Quiet commits, ten that nobody measured, and one that is a fifth slower."""
    loom.history(QUIET)
    told = WorkerHello(worker="box-02", testbed="cpu", version="", capabilities={}, protection=Protection.NONE)
    dispatch.say_hello(loom.connection, told, loom.now)
    loom.connection.execute(text("UPDATE project SET repository_url = 'file:///srv/loom.git', trusted = true"))
    for position in range(FIRST_UNMEASURED, BAD + 1):
        record(loom, position)
    measure(loom, BAD, 120.0)
    return loom


def record(loom: Any, position: int) -> None:
    loom.connection.execute(
        text("INSERT INTO commit (project_id, sha, parents) SELECT id, :sha, ARRAY[:parent]::text[] FROM project"),
        {"sha": loom.sha_of(position), "parent": loom.sha_of(position - 1)},
    )
    loom.connection.execute(
        text(
            """INSERT INTO branch_commit (branch_id, project_id, position, commit_id)
               SELECT b.id, b.project_id, :position, k.id FROM branch b JOIN commit k ON k.sha = :sha
               WHERE b.name = 'main'"""
        ),
        {"sha": loom.sha_of(position), "position": position},
    )


def measure(loom: Any, position: int, value: float) -> None:
    """A run of this commit that was asked for."""
    run = loom.run_of(position, [loom.measurement("step_ms", value, seed=position)])
    loom.connection.execute(
        text(
            """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, kind, spec)
               SELECT :id, k.project_id, k.id, t.id, 'gpt', 'leased', 'main', CAST(:spec AS jsonb)
               FROM commit k, testbed t WHERE k.sha = :sha AND t.name = 'cpu'"""
        ),
        {"id": run["id"], "sha": run["commit"], "spec": json.dumps(SPEC)},
    )
    loom.deliver(run)


def waiting(loom: Any) -> list[tuple[str, str]]:
    """(run, commit) of what was asked for, less the rounds of sessions."""
    return loom.rows(
        """SELECT r.id, k.sha FROM run r JOIN commit k ON k.id = r.commit_id
           WHERE r.state = 'queued' AND r.session_id IS NULL ORDER BY r.id"""
    )


def begin(loom: Any, service_config: ServiceConfig) -> bisection_views.BisectionView:
    number = loom.value("SELECT id FROM regression")
    return bisect.start_bisection(loom.connection, number, "ada", service_config, loom.now)


def measure_what_waits(loom: Any, value: float) -> int:
    """The position of the commit."""
    ((run_id, sha),) = waiting(loom)
    position = int(sha[1:], 16)
    turn = loom.value("SELECT count(*) FROM run")
    loom.deliver(loom.run_of(position, [loom.measurement("step_ms", value, seed=position * 100 + turn)], id=run_id))
    return position


def test_a_commit_that_is_neither_good_nor_bad_is_not_measured_for_ever(
    slowed: Any, service_config: ServiceConfig
) -> None:
    """Two commits share the loss: between them, no measurement says on which side a commit is."""
    view = begin(slowed, service_config)
    asked: list[int] = []
    while waiting(slowed):
        asked.append(measure_what_waits(slowed, 109.5))
        assert len(asked) <= 2 * (BAD - FIRST_UNMEASURED), asked
        bisect.advance(slowed.connection, view.id, service_config, slowed.now)
    ended = bisection_views.bisection_view(slowed.connection, view.id)
    assert max(asked.count(position) for position in asked) <= 2
    assert ended.state in ("gave_up", "done")


def test_the_spread_of_a_short_past_is_filled_up_by_what_was_chosen_for_this_metric(
    slowed: Any, service_config: ServiceConfig
) -> None:
    of_four_runs = "UPDATE judgement SET superseded_at = now() WHERE position < :first"
    slowed.connection.execute(text(of_four_runs), {"first": FIRST_UNMEASURED - 4})
    spreads = []
    for pattern in ("loss*", "step_*"):
        chosen = {"override": [{"metric": pattern, "prior_noise": 0.2}]}
        slowed.connection.execute(
            text("UPDATE project SET settings = jsonb_set(settings, '{policy}', CAST(:chosen AS jsonb))"),
            {"chosen": json.dumps({"table": chosen})},
        )
        view = begin(slowed, service_config)
        spreads.append(slowed.value("SELECT spread FROM bisection WHERE id = :id", id=view.id))
        bisect.cancel_bisection(slowed.connection, view.id, "another policy", slowed.now)
    assert spreads[1] > 5 * spreads[0]


def test_a_bisection_that_is_called_off_takes_back_only_what_it_asked_for_itself(
    slowed: Any, service_config: ServiceConfig
) -> None:
    wanted = [
        WantedRun(commit_id=commit_id, suite="gpt", testbed="cpu", spec=SPEC)
        for (commit_id,) in slowed.rows(
            """SELECT bc.commit_id FROM branch_commit bc JOIN branch b ON b.id = bc.branch_id
               WHERE b.name = 'main' AND bc.position >= :first AND bc.position < :bad""",
            first=FIRST_UNMEASURED,
            bad=BAD,
        )
    ]
    project_id = slowed.value("SELECT id FROM project")
    pushed = queue_request.request_runs(
        slowed.connection, project_id, wanted, kind=Kind.MAIN, requested_by="sync", now=slowed.now, branch="main"
    )
    view = begin(slowed, service_config)
    assert {step.run_id for step in view.steps} <= {run.run_id for run in pushed}
    bisect.cancel_bisection(slowed.connection, view.id, "cancelled by ada", slowed.now)
    assert len(waiting(slowed)) == len(pushed)


def test_a_bisection_whose_regression_is_settled_takes_its_run_back(slowed: Any, service_config: ServiceConfig) -> None:
    view = begin(slowed, service_config)
    assert len(waiting(slowed)) == 1
    triage.triage(
        slowed.connection,
        view.regression_id,
        triage.TriageDecision("expected", reason="worth it"),
        "ada",
        now=slowed.now,
    )
    bisect.advance_all(slowed.connection, service_config, slowed.now)
    ended = bisection_views.bisection_view(slowed.connection, view.id)
    assert (ended.state, ended.reason) == ("cancelled", "the regression is expected")
    assert waiting(slowed) == [] and [step.state for step in ended.steps] == ["skipped"]


def test_a_bisection_that_cannot_go_on_does_not_hold_up_the_others(slowed: Any, service_config: ServiceConfig) -> None:
    view = begin(slowed, service_config)
    measure_what_waits(slowed, 100.0)
    slowed.connection.execute(
        text(
            """INSERT INTO regression (project_id, testbed_id, state, kind, first_bad_position, still_bad)
               SELECT project_id, testbed_id, state, kind, first_bad_position, still_bad FROM regression"""
        )
    )
    slowed.connection.execute(
        text(
            """INSERT INTO bisection (id, project_id, testbed_id, regression_id, series_id, suite, spec, state,
                 last_good_commit_id, first_bad_commit_id, candidates, shift, spread, good_level, requested_by,
                 requested_at)
               SELECT '00000000000000000000000000', project_id, testbed_id, (SELECT max(id) FROM regression), series_id,
                 suite, spec, state, last_good_commit_id, first_bad_commit_id, '[{}]', shift, spread, good_level,
                 requested_by, requested_at - interval '1 day'
               FROM bisection"""
        )
    )
    bisect.advance_all(slowed.connection, service_config, slowed.now)
    assert bisection_views.bisection_view(slowed.connection, view.id).steps_done == 1


COPIED = (
    """INSERT INTO bisection SELECT (jsonb_populate_record(b, jsonb_build_object('id', b.id || n))).*
       FROM bisection b, generate_series(CAST(:first AS int), CAST(:last AS int)) AS n WHERE b.id = :id""",
    """INSERT INTO bisection_step
       SELECT (jsonb_populate_record(s, jsonb_build_object('bisection_id', s.bisection_id || n))).*
       FROM bisection_step s, generate_series(CAST(:first AS int), CAST(:last AS int)) AS n
       WHERE s.bisection_id = :id""",
)


def test_thirty_bisections_are_listed_by_as_many_statements_as_three(
    slowed: Any, service_config: ServiceConfig
) -> None:
    own = begin(slowed, service_config)
    # Of one regression only one runs at a time; that is not what this is about.
    slowed.connection.execute(text("DROP INDEX uq_bisection_running"))
    told = []
    for first, last in ((1, 2), (3, 29)):
        for statement in COPIED:
            slowed.connection.execute(text(statement), {"id": own.id, "first": first, "last": last})
        with counted(slowed.connection) as sent:
            views = bisection_views.list_bisections(slowed.connection)
        told.append((len(views), len(sent)))
    assert told == [(3, told[0][1]), (30, told[0][1])] and told[0][1] > 2
    assert {(view.steps, view.candidates, view.eta_s) for view in views} == {(own.steps, own.candidates, own.eta_s)}
