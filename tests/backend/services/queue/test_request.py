"""Runs are queued once, whoever asks for them at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection, Engine, text

from backend.services.queue import request as queue_request
from tests.backend.services.queue.test_dispatch import make_project, request


def test_the_same_work_is_queued_once(connection: Connection) -> None:
    project, commits = make_project(connection)
    (first,) = request(connection, project, commits[:1])
    (second,) = request(connection, project, commits[:1])
    assert first.created and not second.created and second.run_id == first.run_id
    (elsewhere,) = request(connection, project, commits[:1], testbed="h200")
    assert elsewhere.created


def test_two_requests_at_once_queue_one_run(committing_engine: Engine) -> None:
    with committing_engine.begin() as c:
        project, commits = make_project(c)
    barrier = threading.Barrier(4)

    def ask() -> list[queue_request.Requested]:
        barrier.wait(10)
        with committing_engine.begin() as c:
            return request(c, project, commits)

    with ThreadPoolExecutor(4) as pool:
        answers = [future.result(20) for future in [pool.submit(ask) for _ in range(4)]]
    assert len({answer.run_id for each in answers for answer in each}) == 3
    assert sum(answer.created for each in answers for answer in each) == 3


def test_a_failed_run_may_be_asked_for_again_and_a_done_one_only_explicitly(connection: Connection) -> None:
    project, commits = make_project(connection)
    (first,) = request(connection, project, commits[:1])
    connection.execute(text("UPDATE run SET state = 'failed'"))
    (second,) = request(connection, project, commits[:1])
    assert second.created and second.run_id != first.run_id
    connection.execute(text("UPDATE run SET state = 'done' WHERE id = :id"), {"id": second.run_id})
    assert not request(connection, project, commits[:1])[0].created
    assert request(connection, project, commits[:1], again=True)[0].created
