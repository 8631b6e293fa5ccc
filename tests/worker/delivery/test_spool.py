"""Results on disk: complete or not there, delivered once the service answers, set aside with a reason otherwise."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tidemark import __version__
from worker.client import ApiClient
from worker.delivery.deliver import Deliverer, Patience, failed_instead
from worker.delivery.spool import Spool

RUN = {"schema": "tidemark.run/1", "id": "01JD2Q8Z6WJ4M6R8T0V2X4Y6Z8", "status": "ok", "results": [{"benchmark": "x"}]}
BODY = json.dumps(RUN).encode()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


@pytest.fixture
def deliverer(config: Any, spool: Spool) -> Iterator[Deliverer]:
    client = ApiClient(config.api_url, config.api_token, version=__version__)
    made = Deliverer(client, spool)
    yield made
    made.close(5.0)
    client.close()


def reasons(spool: Spool) -> list[str]:
    return [file.read_text().strip() for file in spool.aside.glob("*/reason.txt")]


def test_a_parcel_is_read_back_as_it_was_put(spool: Spool, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text("{}")
    spool.put("run-0001", 2, "secret", BODY, [trace])
    (parcel,) = Spool(spool.directory).waiting()
    assert (parcel.run_id, parcel.attempt, parcel.lease, parcel.body) == ("run-0001", 2, "secret", BODY)
    assert parcel.artifacts[0].read_text() == "{}"
    assert spool.directory.stat().st_mode & 0o777 == 0o700
    spool.remove(parcel)
    assert spool.waiting() == []
    assert spool.size().waiting_bytes == 0


def test_a_half_written_parcel_is_never_seen(spool: Spool) -> None:
    growing = spool.directory / "new-run-0001-1-abc"
    growing.mkdir()
    (growing / "run.json").write_bytes(BODY[:10])
    assert spool.waiting() == []
    Spool(spool.directory)
    assert not growing.exists()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda place: (place / "run.json").write_bytes(BODY[:-3]), "checksum differs"),
        (lambda place: (place / "run.json").unlink(), "not whole"),
        (lambda place: (place / "parcel.json").write_bytes(b"\0" * 50), "cannot be read"),
        (lambda place: (place / "parcel.json").write_text("[]"), "cannot be read"),
        (lambda place: (place / "artifact-trace.json").write_text("{"), "instead of 2"),
    ],
)
def test_a_damaged_parcel_is_set_aside_with_the_reason_and_the_others_go_on(
    spool: Spool, tmp_path: Path, damage: Callable[[Path], Any], reason: str
) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text("{}")
    damaged = spool.put("run-0001", 1, "secret", BODY, [trace])
    spool.put("run-0002", 1, "secret", BODY, [])
    assert damaged.place is not None
    damage(damaged.place)
    assert [parcel.run_id for parcel in spool.waiting()] == ["run-0002"]
    assert reason in reasons(spool)[0]
    assert spool.size().set_aside == 1


def test_a_stray_file_in_the_spool_is_set_aside(spool: Spool) -> None:
    (spool.directory / "core").write_text("?")
    assert spool.waiting() == []
    assert spool.size().set_aside == 1


def test_two_results_of_one_attempt_are_both_kept(spool: Spool) -> None:
    spool.put("run-0001", 1, "secret", BODY, [])
    spool.put("run-0001", 1, "secret", BODY + b" ", [])
    assert [parcel.body for parcel in spool.waiting()] == [BODY + b" "]
    assert reasons(spool) == ["another result of the same attempt came later"]


def test_a_delivered_parcel_leaves_the_spool_with_its_artifacts(
    spool: Spool, deliverer: Deliverer, service: Any, tmp_path: Path
) -> None:
    log = tmp_path / "worker.log.txt"
    log.write_text("stdout: hello\n")
    spool.put("run-0001", 1, "secret", BODY, [log])
    deliverer.deliver_waiting()
    assert service.runs == {"run-0001": BODY}
    assert service.artifacts == {("run-0001", "worker.log.txt"): b"stdout: hello\n"}
    assert spool.waiting() == []


def test_the_same_delivery_twice_is_no_trouble(spool: Spool, deliverer: Deliverer, service: Any) -> None:
    service.runs["run-0001"] = BODY
    spool.put("run-0001", 1, "secret", BODY, [])
    deliverer.deliver_waiting()
    assert (spool.waiting(), spool.size().set_aside) == ([], 0)


@pytest.mark.parametrize("status", [500, 503, 429, 401, 403])
def test_what_may_pass_is_waited_for(spool: Spool, deliverer: Deliverer, service: Any, status: int) -> None:
    service.refuse_puts = [status]
    spool.put("run-0001", 1, "secret", BODY, [])
    deliverer.deliver_waiting()
    assert [parcel.run_id for parcel in spool.waiting()] == ["run-0001"]
    deliverer.start()
    until(lambda: service.runs)


def test_a_parcel_that_fails_does_not_hold_up_the_next(spool: Spool, deliverer: Deliverer, service: Any) -> None:
    service.refuse_puts = [500]
    spool.put("run-0001", 1, "secret", BODY, [])
    spool.put("run-0002", 1, "secret", BODY, [])
    deliverer.deliver_waiting()
    assert list(service.runs) == ["run-0002"]


def test_a_conflict_is_set_aside_with_the_answer(spool: Spool, deliverer: Deliverer, service: Any) -> None:
    service.runs["run-0001"] = b"something else"
    settled = deliverer.hand_over(spool.put("run-0001", 1, "secret", BODY, []))
    deliverer.deliver_waiting()
    assert settled.is_set()
    assert spool.waiting() == []
    assert reasons(spool) == ["the API answered 409: another content is stored"]


def test_a_result_the_service_will_not_have_ends_the_run_as_failed(
    spool: Spool, deliverer: Deliverer, service: Any
) -> None:
    service.refuse_puts = [422]
    spool.put("run-0001", 1, "secret", BODY, [])
    deliverer.deliver_waiting()
    assert reasons(spool) == ["the API answered 422: refused on purpose"]
    delivered = service.run("run-0001")
    assert (delivered["status"], delivered["results"]) == ("failed", [])
    assert delivered["error"] == "the service refused the result: refused on purpose"


def test_a_refused_failed_run_is_not_replaced_by_another() -> None:
    assert failed_instead(json.dumps(RUN | {"status": "failed", "results": []}).encode(), "no") is None


def test_a_full_disk_does_not_cost_the_result(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # A disk cannot be filled in a test, so the system call that would say so is the one thing replaced.
    monkeypatch.setattr(os, "fsync", full)
    run = bench.run("raise SystemExit(5)")
    assert "exit code 5" in run["error"]
    assert list(bench.spool.directory.glob("new-*")) == []


def test_the_wait_between_tries_grows_and_is_bounded() -> None:
    patience = Patience()
    waits = [patience.fail(None) for _ in range(20)]
    assert waits[0] <= 0.5
    assert 30 <= waits[-1] <= 60
    assert Patience().fail(7.0) >= 7.0
