"""A run that was asked for takes its result from whoever holds it, and from nobody else."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from backend.contract import Run, RunStatus, parse_run
from backend.services.base.errors import Conflict
from backend.services.ingest.requested import check_request
from backend.services.queue.dispatch import lease_hash
from backend.store.ingest.record import RunPlace
from tests.backend.api.conftest import run_document

RUN: Run = parse_run(run_document(0, worker="gpu-1"))
NOWHERE = RunPlace(**{field.name: None for field in fields(RunPlace)})  # type: ignore[arg-type]
HELD = replace(NOWHERE, run_state="running", run_suite=RUN.suite, lease_hash=lease_hash("the lease"), holder="gpu-1")


def test_its_worker_delivers_it_under_its_lease() -> None:
    check_request(RUN, HELD, "the lease")
    check_request(replace(RUN, worker=None), HELD, "the lease")


@pytest.mark.parametrize(
    ("run", "place", "lease", "said"),
    [
        (RUN, HELD, None, "no lease was shown"),
        (RUN, HELD, "another", "this lease does not hold it any more"),
        (
            replace(RUN, worker="gpu-2"),
            HELD,
            "the lease",
            "is held by worker gpu-1, and this result says it is of gpu-2",
        ),
        (replace(RUN, suite="other"), HELD, "the lease", "was requested for another project, commit, suite or testbed"),
        (RUN, replace(HELD, run_spec={"session": {}}), "the lease", "is a round of a session"),
        (
            replace(RUN, status=RunStatus.FAILED),
            replace(HELD, lease_hash=None, run_state="queued"),
            "the lease",
            "a result that is failed is not accepted from it",
        ),
    ],
)
def test_anything_else_is_refused_and_says_why(run: Run, place: RunPlace, lease: str | None, said: str) -> None:
    with pytest.raises(Conflict, match=said):
        check_request(run, place, lease)


def test_what_nobody_asked_for_is_not_checked_here() -> None:
    check_request(RUN, NOWHERE, None)
