"""A line of the log says what belongs together: the request, and the run that it is about."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.contextvars import bound_contextvars

from tests.conftest import LiveServer
from tidemark.monitoring.logs import json_lines, plain_lines

RUN = "01JD2Q8Z6WJ4M6R8T0V2X4Y6Z8"


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    """What the loggers of the service say as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(json_lines())
    logger = logging.getLogger("tidemark")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_of_json_has_time_level_logger_and_what_happened(said: io.StringIO) -> None:
    logging.getLogger("tidemark.x").warning("%d runs\nwait", 3, extra={"run_id": RUN, "color_message": "x"})
    (line,) = lines(said)
    assert line.pop("time").endswith("Z")
    assert line == {"level": "warning", "logger": "tidemark.x", "event": "3 runs\nwait", "run_id": RUN}


def test_a_failure_is_one_line_with_its_traceback(said: io.StringIO) -> None:
    try:
        raise ValueError("no such thing")
    except ValueError:
        logging.getLogger("tidemark.x").exception("it failed")
    (line,) = lines(said)
    assert "ValueError: no such thing" in line["exception"]


def test_what_is_logged_for_a_request_has_its_id_and_the_runs(live_server: LiveServer, said: io.StringIO) -> None:
    with live_server.client("read") as client:
        answer = client.get(f"/api/v1/runs/{RUN}", headers={"X-Request-Id": "asked-by-a-test"})
        other = client.get("/api/v1/regressions/123456789")
    assert (answer.status_code, other.status_code) == (404, 404)
    first, second = lines(said)
    assert (first["request_id"], first["run_id"]) == ("asked-by-a-test", RUN)
    assert second["request_id"] == other.headers["x-request-id"] and "run_id" not in second


def test_without_json_a_line_reads_as_before() -> None:
    record = logging.LogRecord("tidemark.x", logging.INFO, "x.py", 1, "%d runs", (3,), None)
    with bound_contextvars(request_id="r"):
        assert plain_lines().format(record).endswith("INFO    tidemark.x: 3 runs")
