"""Prometheus' page: what strangers may not make up, and what is asked of the database at that moment."""

from __future__ import annotations

import re

from sqlalchemy import text

from tests.conftest import LiveServer


def test_a_path_that_no_route_has_makes_no_label(live_server: LiveServer) -> None:
    with live_server.client("read") as client:
        for number in range(3):
            client.get(f"/made-up-{number}")
            client.get(f"/api/v1/runs/01JD2Q8Z6WJ4M6R8T0V2X4Y6Z{number}")
        page = client.get("/metrics").text
    assert "made-up" not in page and "01JD2Q8Z6WJ4M6R8T0V2X4Y6Z" not in page
    counted = re.search(r'tidemark_http_requests_total\{method="GET",route="\(none\)",status="404"\} (\S+)', page)
    assert counted is not None and float(counted.group(1)) == 3.0


def test_every_figure_has_its_help_and_type(live_server: LiveServer) -> None:
    with live_server.engine.begin() as c:
        c.execute(text("INSERT INTO project (slug) VALUES ('a/b')"))
    with live_server.client("read") as client:
        page = client.get("/metrics").text
    families = set(re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE))
    assert {"tidemark_info", "tidemark_oldest_queued_run_seconds", "tidemark_quarantined_workers"} <= families
    assert families == set(re.findall(r"^# HELP (\w+) \S", page, re.MULTILINE))
