"""The history on the page of a regression: each step in words, with the commit it is about."""

from datetime import UTC, datetime
from typing import Any

import pytest

from backend.services.triage.detail import RegressionEvent
from frontend.pages.regression.activity import line_of

SHA = "819ec500fd87376a4077c609b08a6be0a5b2cac8"
NAMED = ' <span class="mono">819ec50</span>'


@pytest.mark.parametrize(
    ("kind", "detail", "shown"),
    [
        ("confirmed", {"position": 40, "commit": SHA}, f"<b>Confirmed</b> at{NAMED}"),
        ("relocated", {"from": 41, "position": 40, "commit": SHA}, f"<b>Onset moved</b> to{NAMED}"),
        # A commit before the same onset was measured.
        ("relocated", {"from": 40, "position": 40, "commit": SHA}, f"<b>Another last good commit</b> before{NAMED}"),
        ("fixed", {"position": 45, "commit": SHA}, f"<b>Fixed</b> at{NAMED}"),
        ("acknowledged", {}, "<b>Acknowledged</b>"),
    ],
)
def test_each_step_says_what_it_is_and_where(kind: str, detail: dict[str, Any], shown: str) -> None:
    event = RegressionEvent(
        id=1, kind=kind, at=datetime(2026, 11, 22, tzinfo=UTC), actor="tidemark", note=None, detail=detail
    )
    assert str(line_of(event).text) == shown
