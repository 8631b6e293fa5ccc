"""What a result must satisfy before anything of it is stored: a limited size; and for a requested run, that it is that
run, from its holder."""

from __future__ import annotations

from backend.contract import Invalid, Run, RunStatus
from backend.services.base.errors import Conflict, Gone
from backend.services.queue.dispatch import lease_hash
from backend.store.ingest.record import RunPlace

MOST_MEASUREMENTS = 5_000


def check_size(run: Run) -> None:
    """Every measurement is a series that is locked, judged and stored in the one transaction of its run."""
    measurements = sum(len(result.measurements) for result in run.results)
    if measurements > MOST_MEASUREMENTS:
        accepted = f"at most {MOST_MEASUREMENTS:,} measurements in a run; deliver the results as several runs or suites"
        raise Invalid.one("results", f"{measurements:,} measurements", accepted)


def check_request(run: Run, place: RunPlace, lease: str | None) -> None:
    """A result of a requested run must be of that run, and come from its holder."""
    if place.run_state is None:
        if lease is not None and place.project_id is None:
            raise Gone(f"run {run.id} was requested by project {run.project}, which was removed")
        return
    if (place.run_spec or {}).get("session") is not None:
        raise Conflict(f"{run.id} is a round of a session: it is delivered to /runs/{run.id}/session", run_id=run.id)
    known = (place.run_project_id, place.run_commit_id, place.run_testbed_id, place.run_suite)
    if known != (place.project_id, place.commit_id, place.testbed_id, run.suite):
        raise Conflict(
            f"run {run.id} was requested for another project, commit, suite or testbed than "
            f"{run.project} {run.commit[:10]} {run.suite} {run.testbed}",
            run_id=run.id,
        )
    held = place.lease_hash is not None
    if held and (lease is None or place.lease_hash != lease_hash(lease)):
        whose = "no lease was shown" if lease is None else "this lease does not hold it any more"
        raise Conflict(
            f"a worker holds run {run.id}, which is {place.run_state}, and {whose}: only that worker may "
            "deliver its result",
            run_id=run.id,
            state=place.run_state,
        )
    if held and place.holder is not None and run.worker not in (None, place.holder):
        raise Conflict(
            f"run {run.id} is held by worker {place.holder}, and this result says it is of {run.worker}", run_id=run.id
        )
    if not held and lease is not None and run.status is not RunStatus.OK:
        # A good result is welcome from whoever lost the lease; a failure counts only while nobody else is to try.
        raise Conflict(
            f"this lease does not hold run {run.id} any more, and the run is {place.run_state}: a result that is "
            f"{run.status.value} is not accepted from it",
            run_id=run.id,
            state=place.run_state,
        )
