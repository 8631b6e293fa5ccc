"""A result arrives: one transaction stores the run, judges it, and answers with every verdict.

Delivering the same bytes again changes nothing and gets the same answer; different bytes under the same id are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from sqlalchemy import Connection

from backend.contract import Invalid, Run, RunStatus, parse_run, variant_key
from backend.regression.policy import PolicyBook
from backend.services.base.errors import Conflict, NotFound
from backend.services.base.principal import Principal
from backend.services.base.projects import request_sync
from backend.services.ingest import placing
from backend.services.ingest.answer import Recorded, answer_of, stored_verdicts
from backend.services.ingest.claims import check_project, check_worker_name
from backend.services.ingest.measurements import counted_of, key_of, same_kind, values_of, wanted, without_samples
from backend.services.ingest.requested import check_request, check_size
from backend.services.judging.judging import Judged, Measured, judge_arrival
from backend.services.judging.outcome import Arrival
from backend.services.judging.together import RecordedTogether
from backend.services.policy.resolve import book_of_run
from backend.services.regressions.ledger import RegressionContext
from backend.store.base import wire
from backend.store.base.commits import UNREAD
from backend.store.base.live import kept_event
from backend.store.base.schema import ensure_partitions
from backend.store.github.outbox import want_statement
from backend.store.ingest import record as store
from backend.store.ingest.record import RunPlace
from backend.store.judging import series as series_store
from backend.store.judging.series import SeriesRow
from backend.store.regressions import regressions as regression_store

# A clock may be wrong by minutes; one that is wrong by a day would put a result into a month that has not begun.
LATEST_START = timedelta(days=1)
EARLIEST_YEAR = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Delivery:
    """A run as it came in."""

    run: Run
    digest: bytes
    """SHA-256 of its body."""
    measured_at: datetime
    fingerprint: str | None
    """Names its environment."""
    now: datetime


def record_run(
    c: Connection,
    run: Run,
    raw: bytes,
    *,
    now: datetime,
    principal: Principal | None = None,
    lease: str | None = None,
    document: dict[str, Any] | None = None,
    together: RecordedTogether | None = None,
    finish: wire.Finish = wire.leave_open,
) -> Recorded:
    """Store a run where it belongs, judge it, and notify.

    `principal` delivers it. `raw` is the body it was parsed from, `document` the parsed body, if available: its
    samples are removed. `finish` may commit with the last statements (`wire.commit`).
    """
    check_size(run)
    delivery = _Delivery(
        run=run,
        digest=hashlib.sha256(raw).digest(),
        measured_at=_measured_at(run, now),
        fingerprint=_fingerprint(run.environment),
        now=now,
    )
    finding = store.place_statements(run, environment_hash=delivery.fingerprint, measured_at=delivery.measured_at)
    with wire.ahead(c, *finding) as found:
        packed = store.pack_document(without_samples(run, orjson.loads(raw) if document is None else document))
    place = store.place_in(found.rows)
    if place.body_sha256 is not None:
        return _delivered_before(c, run, place, delivery.digest)
    check_request(run, place, lease)
    if principal is not None:
        check_worker_name(run.worker, place.worker_token_id, principal)
    is_new_project = place.project_id is None
    place = _complete(c, delivery, place)
    if is_new_project and principal is not None:  # or one that somebody made meanwhile, and that may be private
        check_project(c, run.project, principal)
    # A mirrored repository describes its commits itself, and an import those of its file.
    if place.project_id is not None and not place.is_mirrored and together is None:
        placing.describe(c, place.project_id, run)
    if not place.has_partitions:
        ensure_partitions(c, delivery.measured_at)
    arrival, series, columns = _arrive(c, delivery, place, packed, together)
    judged = _judge(c, arrival, series, columns)
    verdicts = stored_verdicts(c, run.id, arrival.context.branch_id) if judged.restated else judged.verdicts
    warnings = _warnings(run, place, is_new_project=is_new_project)
    recorded = answer_of(c, run, verdicts, judged.regressions, created=True, warnings=warnings)
    event, telling = _page_event(arrival, recorded.summary)
    # Its worker is idle now: the next run should reach it at once, not at the next tick.
    finish(c, [*judged.statements, *([want_statement(run.id)] if place.connected else []), event], [telling])
    return recorded


def get_document(c: Connection, run_id: str) -> dict[str, Any]:
    """A run as delivered."""
    document = store.read_document(c, run_id)
    if document is None:
        raise NotFound.of("run", run_id)
    return document


def received_at(c: Connection, run_id: str) -> datetime:
    """When a delivered run arrived."""
    return store.received_at(c, run_id)


# --- may it come in --------------------------------------------------------------------------------------------------


def _measured_at(run: Run, now: datetime) -> datetime:
    if run.started is None:
        return now
    started = run.started.astimezone(UTC)  # partitions begin at midnight UTC, wherever the worker stands
    if started.year < EARLIEST_YEAR or started > now + LATEST_START:
        accepted = f"a time from the year {EARLIEST_YEAR} to {(now + LATEST_START).isoformat(timespec='seconds')}"
        raise Invalid.one("started_at", run.started_at, accepted)
    return started


def _delivered_before(c: Connection, run: Run, place: RunPlace, digest: bytes) -> Recorded:
    if place.body_sha256 != digest:
        _refuse_other_content(c, run, place, digest)
    verdicts = stored_verdicts(c, run.id, place.default_branch_id)
    changed = regression_store.changed_at(c, run.project, place.received_at)
    return answer_of(c, run, verdicts, changed, created=False, warnings=_warnings(run, place))


def _warnings(run: Run, place: RunPlace, *, is_new_project: bool = False) -> tuple[str, ...]:
    """What its sender may not have meant."""
    found = []
    if is_new_project:
        found.append(warning_of_project(run.project))
    branch = place.default_branch
    if branch is not None and place.is_mirrored and place.position is None and _is_of_default_branch(run, place):
        found.append(warning_of_commit(run.commit, branch))
    return tuple(found)


def warning_of_project(project: str) -> str:
    """The project did not exist."""
    return f"the project {project} is new: is its name right?"


def warning_of_commit(commit: str, branch: str) -> str:
    """The repository does not have the commit of a delivered run on its default branch."""
    return f"{branch} of the repository, as last read, does not have commit {commit[:12]}: no board shows this run yet"


def _refuse_other_content(c: Connection, run: Run, place: RunPlace, digest: bytes) -> None:
    """Raises `Conflict` unless the stored run is equal once parsed; which reveals nothing of another project's run."""
    document = store.read_document(c, run.id)
    stored = None if document is None else parse_run(document)
    if stored == run:
        return
    if stored is None or stored.project != run.project:
        raise Conflict(f"the run id {run.id} is taken: deliver this under an id of its own", run_id=run.id)
    when = "" if place.received_at is None else f" at {place.received_at.isoformat(timespec='seconds')}"
    raise Conflict(
        f"run {run.id} was delivered{when} with other content; what is stored is never overwritten, "
        "so deliver this under an id of its own",
        run_id=run.id,
        stored_sha256=(place.body_sha256 or b"").hex(),
        given_sha256=digest.hex(),
    )


# --- where it belongs ------------------------------------------------------------------------------------------------


def _fingerprint(environment: Mapping[str, Any]) -> str | None:
    """Names an environment: what the run calls it, else its content."""
    if not environment:
        return None
    stated = environment.get("hash")
    if isinstance(stated, str) and 0 < len(stated) <= 200:
        return stated
    return "sha256:" + hashlib.sha256(orjson.dumps(environment, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _complete(c: Connection, delivery: _Delivery, place: RunPlace) -> RunPlace:
    """The place with everything that was not known before."""
    run, fingerprint = delivery.run, delivery.fingerprint
    if place.project_id is None:
        branch = run.branch if run.branch is not None and run.pull_request is None else "main"
        project_id, default_branch, policy = store.ensure_project(c, run.project, branch)
        place = replace(place, project_id=project_id, default_branch=default_branch, policy=policy)
    if place.testbed_id is None:
        place = replace(place, testbed_id=store.ensure_testbed(c, run.testbed))
    if place.worker_id is None and run.worker is not None and place.testbed_id is not None:
        place = replace(place, worker_id=store.ensure_worker(c, run.worker, place.testbed_id))
    if place.environment_id is None and fingerprint is not None:
        place = replace(place, environment_id=store.ensure_environment(c, fingerprint, run.environment))
    if place.default_branch_id is None and place.project_id is not None and place.default_branch is not None:
        branch_id = store.ensure_branch(c, place.project_id, place.default_branch)
        place = replace(place, default_branch_id=branch_id)
    return place


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where a commit is."""

    commit_id: int
    position: int
    branch_id: int | None = None
    """None: the default branch."""
    base_position: int | None = None


def _is_of_default_branch(run: Run, place: RunPlace) -> bool:
    return run.pull_request is None and run.branch in (None, place.default_branch)


def _branch_of_pull_request(c: Connection, run: Run, place: RunPlace) -> str:
    """A fork's branch may be called like one of ours: the repository says whether its commit is on that."""
    own = f"pull/{run.pull_request}"
    if run.branch is None or run.branch == place.default_branch or place.project_id is None:
        return own
    is_ours = not place.is_mirrored or store.has_commit(c, place.project_id, run.branch, place.commit_id)
    return run.branch if is_ours else own


def _known_spot(c: Connection, run: Run, place: RunPlace, now: datetime) -> _Spot | None:
    """None: the commit is to be the newest of the default branch."""
    project_id, default_branch_id, commit_id = place.project_id, place.default_branch_id, place.commit_id
    assert project_id is not None and default_branch_id is not None
    if place.position is not None and commit_id is not None:
        return _Spot(commit_id, place.position)
    branch = run.branch if run.pull_request is None else _branch_of_pull_request(c, run, place)
    if _is_of_default_branch(run, place):
        if not place.is_mirrored:
            return None
        # A result does not put a commit onto a branch. It waits beside it until the repository says that it is there.
        branch = f"{place.default_branch}{UNREAD}"
        request_sync(c, project_id, now)
    if commit_id is None:
        commit_id = store.ensure_commit(c, project_id, run.commit, run.parents, run.pull_request)
    assert branch is not None
    branch_id = store.ensure_branch(c, project_id, branch)
    base = store.merge_base(c, project_id, default_branch_id, commit_id)
    expected = 0 if base is None else base.position + base.depth
    position = store.place_on_branch(c, branch_id, commit_id, expected)
    return _Spot(commit_id, position, branch_id, None if base is None else base.position)


def _arrive(
    c: Connection, delivery: _Delivery, place: RunPlace, packed: bytes, together: RecordedTogether | None
) -> tuple[Arrival, list[SeriesRow], dict[str, Any]]:
    """The run at its place, stored; the series of what it measured, locked; and what is to be stored of that. In one
    round trip where all is known but the commit."""
    run, now = delivery.run, delivery.now
    project_id, testbed_id, default_branch_id = place.project_id, place.testbed_id, place.default_branch_id
    assert project_id is not None and testbed_id is not None and default_branch_id is not None
    spot = _known_spot(c, run, place, now)
    counted = counted_of(run)
    variants = [variant_key(result.variant) for result in run.results]
    keys = [key_of(run, variants[n], n, index) for n, index in counted]
    of_these = project_id, testbed_id, run.suite, run.suite_version, keys
    placing = []
    if spot is None:
        placing = store.append_statements(default_branch_id, project_id, run.commit, run.parents, now)
    with wire.ahead(
        c,
        *placing,
        store.run_statement(
            run, place, state=RUN_STATE[run.status], now=now, body_sha256=delivery.digest, document=packed
        ),
        *([store.results_statement(run, project_id, variants)] if run.results else []),
        series_store.lock_statement(*of_these),
    ) as sent:
        columns = store.measurement_columns(run, counted)
    if spot is None:
        spot = _Spot(*store.appended(sent.rows[len(placing) - 1]))
    series = series_store.lock_or_make(c, *of_these, lambda number: wanted(run, *counted[number]), sent.rows[-1])
    arrival = Arrival(
        run=run,
        context=RegressionContext(
            project_id=project_id,
            project=run.project,
            testbed_id=testbed_id,
            testbed=run.testbed,
            branch_id=default_branch_id,
            position=spot.position,
            run_id=run.id,
            now=now,
            policies=_policies(run, place),
        ),
        commit_id=spot.commit_id,
        branch_id=spot.branch_id,
        base_position=spot.base_position,
        measured_at=delivery.measured_at,
        together=together,
    )
    return arrival, series if together is None else together.rows(series), columns


def _policies(run: Run, place: RunPlace) -> PolicyBook:
    suite = (place.run_spec or {}).get("policy")
    return book_of_run(
        run.id,
        run.project,
        declared=place.policy,
        suite=suite,
        chosen=place.chosen_policy,
        points_per_week=place.points_per_week,
    )


# --- judge -------------------------------------------------------------------------------------------------------

RUN_STATE = {
    RunStatus.OK: "done",
    RunStatus.INCOMPLETE: "done",
    RunStatus.QUARANTINED: "done",
    RunStatus.FAILED: "failed",
}


def _judge(c: Connection, arrival: Arrival, series: Sequence[SeriesRow], columns: Mapping[str, Any]) -> Judged:
    run = arrival.run
    counted = counted_of(run)
    series = [
        same_kind(c, row, run, result, measurement) for row, (result, measurement) in zip(series, counted, strict=True)
    ]
    if not series:
        return Judged(verdicts=(), regressions=(), statements=())
    measurements = store.measurements_statement(
        columns,
        [row.id for row in series],
        project_id=arrival.context.project_id,
        measured_at=arrival.measured_at,
        commit_id=arrival.commit_id,
    )
    if run.session is not None and run.session.arm is not None:
        return Judged(verdicts=(), regressions=(), statements=(measurements,))
    measured = [
        Measured(series=row, values=values_of(run, result, measurement))
        for row, (result, measurement) in zip(series, counted, strict=True)
    ]
    return judge_arrival(c, arrival, measured, measurements)


# --- pages ----------------------------------------------------------------------------------------------------------


def _page_event(arrival: Arrival, summary: Mapping[str, int]) -> tuple[wire.Statement, wire.Statement]:
    run = arrival.run
    payload = {
        "run_id": run.id,
        "state": RUN_STATE[run.status],
        "status": run.status.value,
        "project": run.project,
        "commit": run.commit,
        "branch": run.branch,
        "suite": run.suite,
        "testbed": run.testbed,
        "summary": dict(summary),
    }
    return kept_event("run", arrival.context.project_id, payload)
