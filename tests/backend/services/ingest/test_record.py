"""A run comes in: stored where it belongs, once, whatever is delivered again or at the same time."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from backend.contract import Invalid, parse_run
from backend.services.base.errors import Conflict, NotFound
from backend.services.ingest.record import get_document, record_run
from backend.services.judging.rejudging import rejudge_series
from backend.services.queue.dispatch import lease_hash
from backend.services.runs.view import load_run
from tidemark.machine.processes import wait_until


def test_a_run_that_nobody_asked_for_brings_its_project_commit_and_series(loom: Any) -> None:
    recorded = loom.run(0, 100.0)
    assert recorded.created
    assert [(v.metric, v.verdict) for v in recorded.verdicts] == [("step_ms", "insufficient")]
    assert recorded.summary == {"insufficient": 1}
    assert loom.rows("SELECT state, status, kind FROM run") == [("done", "ok", "submitted")]
    assert loom.rows("SELECT slug, default_branch FROM project") == [("northsea/loom", "main")]
    assert loom.rows("SELECT benchmark, variant_key, metric, preset, state_position FROM series") == [
        ("gpt.train", "dtype=bf16", "step_ms", "cpu", 0)
    ]
    assert loom.rows("SELECT sha, position FROM branch_commit JOIN commit ON commit.id = commit_id") == [
        (loom.sha_of(0), 0)
    ]
    assert loom.rows("SELECT kind, payload ->> 'run_id' FROM live_event") == [("run", "RUN-000000")]


def test_a_run_says_who_made_its_commit_where_nobody_said_it_before(loom: Any) -> None:
    said = {"at": "2026-11-01T10:00:00Z", "author": "Ada", "message": "Fuse the router"}
    commit = "SELECT author_name, message, committed_at IS NOT NULL FROM commit JOIN run ON run.commit_id = commit.id"
    loom.run(0, 100.0, commit_info=said)
    loom.run(0, 100.0, id="RUN-AGAIN", commit_info={**said, "author": "Eve"})
    assert set(loom.rows(commit)) == {("Ada", "Fuse the router", True)}


def test_unknown_commits_follow_the_head_in_the_order_they_come(loom: Any) -> None:
    for position in (3, 1, 2):
        loom.run(position, 100.0)
    placed = loom.rows("SELECT position, sha FROM branch_commit JOIN commit ON commit.id = commit_id ORDER BY 1")
    assert placed == [(0, loom.sha_of(3)), (1, loom.sha_of(1)), (2, loom.sha_of(2))]


def test_what_was_put_is_what_is_read_with_unknown_fields_and_samples(loom: Any) -> None:
    document = loom.run_of(0, [loom.measurement("step_ms", 5.0)], novel={"deep": [1, None]}, telemetry={"power_w": 1})
    document["results"].append(
        {
            "benchmark": "moe.layer",
            "status": "failed",
            "error": "killed",
            "measurements": [loom.measurement("step_ms", 4.0)],
        }
    )
    loom.deliver(document)
    assert get_document(loom.connection, document["id"]) == document


def test_a_run_that_was_not_delivered_has_no_document(loom: Any) -> None:
    with pytest.raises(NotFound, match="NO-SUCH-RUN"):
        get_document(loom.connection, "NO-SUCH-RUN")


def test_other_bytes_under_the_same_id_are_a_conflict(loom: Any) -> None:
    loom.run(0, 100.0)
    with pytest.raises(Conflict, match=r"RUN-000000 was delivered at .* with other content"):
        loom.run(0, 101.0)
    assert loom.value("SELECT count(*) FROM measurement") == 1


def test_nothing_is_told_of_another_projects_run_of_the_same_id(loom: Any) -> None:
    loom.run(0, 100.0)
    theirs = loom.run_of(0, [loom.measurement("step_ms", 100.0)], project="elsewhere/other")
    with pytest.raises(Conflict, match=r"^the run id RUN-000000 is taken") as refused:
        loom.deliver(theirs)
    assert "stored_sha256" not in refused.value.extra


def test_an_arm_of_a_session_is_stored_and_is_no_point_of_the_history(loom: Any) -> None:
    recorded = loom.run(0, 100.0, session={"id": "S-1", "arm": "head", "base": loom.sha_of(9), "order": "ABBA"})
    assert recorded.verdicts == ()
    assert loom.value("SELECT count(*) FROM measurement") == 1
    assert loom.value("SELECT state_position FROM series") is None


def test_a_start_in_the_future_or_the_far_past_is_refused(loom: Any) -> None:
    for started_at in ((loom.now + timedelta(days=2)).isoformat(), "1999-12-31T00:00:00Z"):
        with pytest.raises(Invalid) as caught:
            loom.run(0, 100.0, started_at=started_at)
        assert caught.value.path == "started_at"


def test_an_old_run_gets_a_partition_of_its_month(loom: Any) -> None:
    loom.run(0, 100.0, started_at="2019-03-04T05:06:07Z")
    assert loom.rows("SELECT tableoid::regclass::text FROM measurement") == [("measurement_2019_03",)]


@pytest.mark.parametrize(
    ("started_at", "month"),
    [("2019-12-01T01:00:00+05:00", "2019_11"), ("2019-12-31T23:00:00-05:00", "2020_01")],
)
def test_the_month_of_a_run_is_the_one_in_utc(loom: Any, started_at: str, month: str) -> None:
    loom.run(0, 100.0, started_at=started_at)
    assert loom.rows("SELECT tableoid::regclass::text FROM measurement") == [(f"measurement_{month}",)]


def test_a_run_that_was_asked_for_must_be_that_run(loom: Any) -> None:
    loom.run(0, 100.0)
    _ask_for(loom, "ASKED-0001", loom.sha_of(0))
    with pytest.raises(Conflict, match="requested for another"):
        loom.run(1, 100.0, id="ASKED-0001")
    assert loom.run(0, 100.0, id="ASKED-0001", suite="gpt").created
    assert loom.rows("SELECT state, kind FROM run WHERE id = 'ASKED-0001'") == [("done", "main")]


def test_a_run_that_is_delivered_again_is_answered_with_what_is_said_of_its_commit(loom: Any) -> None:
    loom.history([100.0] * 20 + [130.0] * 4)
    at = loom.sha_of(23)
    red = loom.deliver(first := loom.run_of(23, [loom.measurement("step_ms", 130.0, seed=23)], worker="box-01"))
    assert not red.created and [(v.verdict, v.red) for v in red.verdicts] == [("regression", True)]
    second = loom.run_of(23, [loom.measurement("step_ms", 131.0, seed=99)], id="RUN-SECOND", commit=at)
    judged = loom.deliver(second)
    assert judged.created and judged.verdicts[0].red
    for again in (first, second):  # both are one point now, which the second brought
        answer = loom.deliver(again)
        assert not answer.created
        assert [(v.metric, v.red, v.value) for v in answer.verdicts] == [("step_ms", True, judged.verdicts[0].value)]
    shown = load_run(loom.connection, first["id"]).results[0].measurements[0]
    assert (shown.verdict, shown.red, shown.pooled_runs) == ("regression", True, 2)


def test_a_lost_lease_brings_nothing_while_another_holds_the_run(loom: Any) -> None:
    loom.run(0, 100.0)
    _ask_for(loom, "ASKED-0001", loom.sha_of(0), lease="the newer lease")
    good = loom.run_of(0, [loom.measurement("step_ms", 100.0)], id="ASKED-0001")
    failed = loom.run_of(0, [], id="ASKED-0001", status="failed", error="x")
    for document in (good, failed):
        with pytest.raises(Conflict, match="only that worker may deliver"):
            loom.deliver(document, lease="the older lease")
    assert loom.deliver(good, lease="the newer lease").created
    assert loom.rows("SELECT state, lease_hash FROM run WHERE id = 'ASKED-0001'") == [("done", None)]


def test_a_lost_lease_may_bring_a_result_but_not_a_failure_while_nobody_holds_the_run(loom: Any) -> None:
    loom.run(0, 100.0)
    _ask_for(loom, "ASKED-0001", loom.sha_of(0))
    with pytest.raises(Conflict, match="does not hold run ASKED-0001 any more"):
        loom.deliver(loom.run_of(0, [], id="ASKED-0001", status="failed", error="x"), lease="the older lease")
    document = loom.run_of(0, [loom.measurement("step_ms", 100.0)], id="ASKED-0001")
    assert loom.deliver(document, lease="the older lease").created


def test_rollups_follow_every_result(loom: Any) -> None:
    loom.history([100.0] * 30)
    hours, days, weeks = (
        loom.rows("SELECT count(*), sum(runs), max(last_position) FROM rollup WHERE granularity = :g", g=granularity)
        for granularity in ("hour", "day", "week")
    )
    assert (hours, days, weeks) == ([(30, 30, 29)], [(2, 30, 29)], [(2, 30, 29)])


def test_the_same_run_delivered_twice_at_once_is_stored_once(committing_engine: Engine, loom: Any) -> None:
    document = loom.run_of(0, [loom.measurement("step_ms", 100.0)])
    created = _deliver_at_once(committing_engine, [document] * 4, loom.now)
    assert sorted(created) == [False, False, False, True]
    with committing_engine.connect() as c:
        assert c.scalar(text("SELECT count(*) FROM measurement")) == 1


def test_runs_of_the_same_series_at_once_are_judged_one_after_the_other(committing_engine: Engine, loom: Any) -> None:
    documents = [loom.run_of(n, [loom.measurement("step_ms", 100.0, seed=n)]) for n in range(8)]
    assert all(_deliver_at_once(committing_engine, documents, loom.now))
    with committing_engine.connect() as c:
        positions = c.execute(text("SELECT position FROM judgement WHERE superseded_at IS NULL ORDER BY 1")).scalars()
        assert list(positions) == list(range(8))
        assert c.scalar(text("SELECT state_position FROM series")) == 7


def test_judging_again_waits_for_a_result_that_is_just_arriving(committing_engine: Engine, loom: Any) -> None:
    assert all(_deliver_at_once(committing_engine, [loom.run_of(0, [loom.measurement("step_ms", 100.0)])], loom.now))

    def judge_again() -> None:
        with committing_engine.begin() as c:
            rejudge_series(c, c.scalar(text("SELECT id FROM series")), 0, now=loom.now)

    raw = json.dumps(loom.run_of(1, [loom.measurement("step_ms", 100.0)])).encode()
    with ThreadPoolExecutor(1) as other, committing_engine.connect() as watching:
        with committing_engine.begin() as c:
            record_run(c, parse_run(raw), raw, now=loom.now)
            judging = other.submit(judge_again)
            waits = text("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
            assert wait_until(lambda: bool(watching.scalar(waits)), 20)
        judging.result(20)
        standing = text("SELECT position FROM judgement WHERE superseded_at IS NULL ORDER BY 1")
        assert list(watching.scalars(standing)) == [0, 1]


def _deliver_at_once(engine: Engine, documents: list[dict[str, Any]], now: Any) -> list[bool]:
    created, failed = [], []
    barrier = threading.Barrier(len(documents))

    def deliver(document: dict[str, Any]) -> None:
        raw = json.dumps(document).encode()
        barrier.wait()
        try:
            with engine.begin() as c:
                created.append(record_run(c, parse_run(raw), raw, now=now).created)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=deliver, args=(document,)) for document in documents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    return created


def test_a_run_that_a_worker_holds_is_not_failed_by_someone_without_its_lease(loom: Any) -> None:
    loom.run(0, 10.0)
    _ask_for(loom, "ASKED-0002", loom.sha_of(0), lease="the lease")
    failed = loom.run_of(0, [], id="ASKED-0002", status="failed", error="x")
    with pytest.raises(Conflict, match="a worker holds run ASKED-0002"):
        loom.deliver(failed)
    assert loom.rows("SELECT state FROM run WHERE id = 'ASKED-0002'") == [("running",)]
    assert loom.deliver(failed, lease="the lease").created
    _ask_for(loom, "ASKED-0003", loom.sha_of(0))
    assert loom.deliver(loom.run_of(0, [], id="ASKED-0003", status="failed", error="x")).created


def _ask_for(loom: Any, run_id: str, sha: str, lease: str | None = None) -> None:
    loom.connection.execute(
        text(
            """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, lease_hash)
               SELECT :id, k.project_id, k.id, t.id, 'gpt', 'running', :lease FROM commit k, testbed t
               WHERE k.sha = :sha"""
        ),
        {"id": run_id, "sha": sha, "lease": None if lease is None else lease_hash(lease)},
    )


def test_the_same_run_written_otherwise_is_the_same_run(loom: Any) -> None:
    first = loom.run(0, 100.0)
    document = get_document(loom.connection, first.run_id)
    again = json.dumps(dict(reversed(document.items())), indent=2).encode()
    recorded = record_run(loom.connection, parse_run(again), raw=again, now=loom.now)
    assert (recorded.created, recorded.run_id) == (False, first.run_id)
