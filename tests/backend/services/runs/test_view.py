"""The page of a run, whatever state the run is in."""

import json
from datetime import timedelta
from typing import Any

import orjson
import pytest
from sqlalchemy import text

from backend.services.base.errors import BadRequest, NotFound
from backend.services.board.jsonable import dump
from backend.services.reports.notices import Difference
from backend.services.runs.view import LOG_BATCHES, LOG_LINES, load_log, load_run


def say(history: Any, run_id: str, kind: str, detail: dict[str, Any], minute: int) -> None:
    history.connection.execute(
        text(
            """INSERT INTO run_event (run_id, project_id, kind, detail, at)
               SELECT id, project_id, :kind, CAST(:detail AS jsonb), requested_at + :after FROM run WHERE id = :run"""
        ),
        {"run": run_id, "kind": kind, "detail": json.dumps(detail), "after": timedelta(minutes=minute)},
    )


def test_a_delivered_run_shows_what_it_measured_beside_what_was_judged(history: Any) -> None:
    run = load_run(history.connection, "RUN-000015")
    assert (run.state, run.status, run.position, run.worker, run.duration_s) == ("done", "ok", 15, "box-01", 240)
    plain, fused = run.results
    assert (fused.benchmark, fused.variant) == ("gpt.train", {"impl": "fused", "layers": 4})
    step, syncs = fused.measurements
    assert (step.metric, step.verdict, step.red, step.onset) == ("step_ms", "regression", True, True)
    assert step.reason == "still_worse"
    assert step.series_id == history.series() and step.regression_id == history.regression_id
    assert step.before == pytest.approx(100, rel=0.02) and step.change == pytest.approx(0.25, abs=0.02)
    assert len(step.processes) == 5 and step.low < step.change < step.high  # type: ignore[operator]
    assert (syncs.metric, syncs.exact, syncs.value) == ("host_syncs", True, 3)
    assert plain.correctness["checks"][0]["limit"] == 0.01
    assert (plain.roofline["bound"], plain.diagnosis["class"]) == ("memory", "memory_bound")
    assert run.verdicts["regression"] >= 1 and run.statuses == {"ok": 2}
    assert run.canary[0]["name"] == "gemm" and run.telemetry == {"load_1m": 0.4}


def test_phases_stand_beside_those_of_the_previous_run(history: Any) -> None:
    fused = load_run(history.connection, "RUN-000015").results[1]
    beside = [(phase.name, phase.value, phase.before) for phase in fused.phases]
    assert beside == [("forward", 65, 40), ("backward", 60, 60)]
    assert sum(phase.share or 0 for phase in fused.phases) == pytest.approx(1)


def test_the_previous_run_is_the_nearest_good_one_and_its_environment_is_compared(history: Any) -> None:
    run = load_run(history.connection, "RUN-000010")
    assert run.previous is not None and run.previous.run_id == "RUN-000009"
    assert run.previous.environment == (Difference("torch", "2.13.0", "2.13.1"),)
    after_docs = load_run(history.connection, "RUN-000008").previous
    assert after_docs is not None and (after_docs.run_id, after_docs.environment) == ("RUN-000006", ())
    assert load_run(history.connection, "RUN-000000").previous is None


def test_a_failed_run_says_why_and_has_no_results(history: Any) -> None:
    run = load_run(history.connection, "RUN-000005")
    assert (run.state, run.status, run.error) == ("failed", "failed", "worker: make exited with 2")
    assert (run.results, run.verdicts) == ((), {})


def test_a_running_run_shows_its_steps_progress_and_log(history: Any) -> None:
    run_id = "RUN-000028"
    say(history, run_id, "state", {"state": "running", "step": "checkout"}, 1)
    say(history, run_id, "state", {"state": "running", "step": "execute"}, 2)
    say(history, run_id, "log", {"stream": "stderr", "lines": ["<script>", "two"]}, 3)
    run = load_run(history.connection, run_id)
    assert (run.state, run.status, run.progress["done"]) == ("running", None, 3)
    assert [(event.state, event.step) for event in run.timeline] == [
        ("queued", None), ("running", "checkout"), ("running", "execute"),
    ]  # fmt: skip
    assert [(line.stream, line.text) for line in run.log.lines] == [("stderr", "<script>"), ("stderr", "two")]
    assert not run.log.more


def test_a_long_log_comes_in_pages_that_join(history: Any) -> None:
    run_id, batches = "RUN-000028", LOG_BATCHES * 2 + 7
    for number in range(batches):
        say(history, run_id, "log", {"stream": "stdout", "lines": [f"{number}.{line}" for line in range(3)]}, number)
    newest = load_log(history.connection, run_id)
    assert newest.more and newest.lines[-1].text == f"{batches - 1}.2"
    pages = [newest]
    while pages[0].more:
        pages.insert(0, load_log(history.connection, run_id, before=pages[0].first))
    said = [line.text for page in pages for line in page.lines]
    assert said == [f"{number}.{line}" for number in range(batches) for line in range(3)]
    assert load_log(history.connection, run_id, after=newest.last).lines == ()
    assert load_log(history.connection, run_id, after=pages[0].last).lines == pages[1].lines[: LOG_BATCHES * 3]


def test_a_page_of_log_is_bounded_in_lines(history: Any) -> None:
    for number in range(20):
        say(history, "RUN-000028", "log", {"stream": "stdout", "lines": [str(number)] * 200}, number)
    page = load_log(history.connection, "RUN-000028")
    assert len(page.lines) == LOG_LINES and page.more


def test_a_run_of_a_commit_on_no_branch_is_compared_with_its_parent(history: Any) -> None:
    history.execute(
        """INSERT INTO commit (project_id, sha, parents) SELECT project_id, :sha, ARRAY[sha] FROM commit
           WHERE project_id = :project AND pull_request = 114""",
        sha="e" * 40, project=history.project_id,
    )  # fmt: skip
    history.execute(
        """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, pull_request)
           SELECT 'RUN-fork', c.project_id, c.id, :testbed, 'gpt', 'queued', 7 FROM commit c WHERE c.sha = :sha""",
        sha="e" * 40, testbed=history.testbed_id,
    )  # fmt: skip
    run = load_run(history.connection, "RUN-fork")
    assert run.position is None and run.previous is not None and run.previous.run_id == "RUN-000014"


def test_attempts_and_artifacts_are_listed(history: Any) -> None:
    history.execute(
        """UPDATE run SET attempt = 2, attempts = '[{"attempt": 1, "worker": "box-02", "reason": "lease expired"}]'
           WHERE id = 'RUN-000015'"""
    )
    history.execute(
        """INSERT INTO artifact (run_id, project_id, name, content_type, size, sha256)
           SELECT id, project_id, 'gpt.mllog', 'text/plain', 12, '\\x00ff' FROM run WHERE id = 'RUN-000015'"""
    )
    run = load_run(history.connection, "RUN-000015")
    assert [(item.attempt, item.worker, item.reason) for item in run.attempts] == [(1, "box-02", "lease expired")]
    assert [(item.name, item.size, item.sha256) for item in run.artifacts] == [("gpt.mllog", 12, "00ff")]
    assert orjson.loads(dump(run))["artifacts"][0]["name"] == "gpt.mllog"


def test_an_unknown_run_and_contradicting_log_pages_are_refused(history: Any) -> None:
    with pytest.raises(NotFound, match="unknown run 'nope'"):
        load_run(history.connection, "nope")
    with pytest.raises(BadRequest):
        load_log(history.connection, "RUN-000028", before=1, after=1)
