"""The report for somebody else's project: drafted when a newer version is slower, and for nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from backend.services.github.upstream_report import _kernels
from backend.services.runs.kernels import KernelBeforeAfter
from tests.backend.api.conftest import BROKEN_AT, run_document

NEWER = {"torch": "2.14.0", "python": "3.11", "driver": "575.10 <b>|</b> @team"}
OLDER = {"torch": "2.13.0", "python": "3.11", "driver": "570.26"}


def deliver(server: Any, *, newer: bool) -> int:
    with server.client("write") as client:
        for position in range(BROKEN_AT + 5):
            environment = NEWER if newer and position >= BROKEN_AT else OLDER
            document = run_document(position, environment=environment)
            client.put(f"/api/v1/runs/{document['id']}", json=document).raise_for_status()
        (found,) = client.get("/api/v1/regressions").json()["items"]
    return int(found["id"])


def test_a_newer_torch_that_is_slower_gets_a_report_with_versions_command_figures_and_phases(live_server: Any) -> None:
    number = deliver(live_server, newer=True)
    with live_server.client() as client:
        answer = client.get(f"/api/v1/regressions/{number}/upstream-report")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/markdown")
    text = answer.text
    assert text.startswith("# gpt.train 20.") or text.startswith("# gpt.train 19."), text.splitlines()[0]
    assert "slower with torch 2.14.0 (was 2.13.0)" in text.splitlines()[0]
    assert "| torch | 2.13.0 | 2.14.0 |" in text and "| python | 3.11 | 3.11 |" in text
    assert "pip install torch==2.13.0 && " in text and "pip install torch==2.14.0 && " in text
    assert "tidemark compare before.json after.json" in text
    assert "| gpt.train rung=r03 | step_ms | 10" in text and "| forward_ms | 4 | 4.8 |" in text
    assert "torch changed from 2.13.0 to 2.14.0" in text
    assert "No run near the onset was profiled on both sides." in text
    assert "@team" not in text and "<b>" not in text


def test_names_of_kernels_stand_as_they_are_and_others_are_no_markup() -> None:
    name = "void elementwise<4, at::`lambda'|float>(@x)"
    moved = KernelBeforeAfter(
        name=name, phase="forward [x](https://evil.example)", replaces="#12", before_us=1.0, after_us=2.0,
        before_calls=1.0, after_calls=1.0,
    )  # fmt: skip
    row = _kernels(SimpleNamespace(changes=(moved,)))[-2]
    assert "`void elementwise<4, at::'lambda'\\|float>(@x)`" in row
    assert "](" not in row.replace("\\[x](", "") and "://" not in row and "#12" not in row and "replaces #" in row


def test_there_is_nothing_to_report_upstream_when_it_is_our_code(live_server: Any) -> None:
    number = deliver(live_server, newer=False)
    with live_server.client() as client:
        answer = client.get(f"/api/v1/regressions/{number}/upstream-report")
        assert answer.status_code == 409 and "the cause of" in answer.json()["detail"]
        assert client.get("/api/v1/regressions/999/upstream-report").status_code == 404
