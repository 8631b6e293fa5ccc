"""Commands that ask for measurements, against a real service."""

from __future__ import annotations

from typing import Any

from helpers_tidemark import tidemark


def test_to_call_off_what_is_not_running_is_refused_and_begins_nothing(live_server: Any) -> None:
    here = {"TIDEMARK_URL": live_server.url, "TIDEMARK_TOKEN": live_server.token("write")}
    done = tidemark("bisect", "17", "--cancel", **here)
    assert done.returncode != 0
    assert done.stderr.strip().endswith("no bisection of regression 17 is running")
