"""A result that is small on disk and large once it is read: by the worker, which may be root, and by the service."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from backend.contract import Invalid, parse_run
from backend.contract_weight import MAX_CONTAINERS, MAX_VALUES
from backend.services.ingest.round_body import parse_round

HEAVY = {
    "lists": b'{"schema": "tidemark.run/1", "more": [' + b"[]," * (MAX_CONTAINERS + 1) + b"[]]}",
    "objects": b'{"schema": "tidemark.run/1", "more": [' + b"{}," * (MAX_CONTAINERS + 1) + b"{}]}",
    "texts": b'{"schema": "tidemark.run/1", "more": [' + b'"ab",' * MAX_VALUES + b'"ab"]}',
}


@pytest.mark.parametrize("body", HEAVY.values(), ids=list(HEAVY))
def test_it_is_refused_before_it_is_made(body: bytes) -> None:
    for read in (parse_run, lambda body: parse_round("r", body)):
        tracemalloc.start()
        with pytest.raises(Invalid, match="in one body"):
            read(body)
        assert tracemalloc.get_traced_memory()[1] < len(body)
        tracemalloc.stop()


def test_a_run_that_writes_it_fails_for_that_reason(untrusted: Any) -> None:
    program = """
import os
with open(os.environ["TIDEMARK_RUN_JSON"], "w") as file:
    file.write('{"schema": "tidemark.run/1", "status": "ok", "results": [], "more": [' + "[]," * 1_500_000 + "[]]}")
"""
    assert "at most 1,000,000 lists and objects in one body" in untrusted(program)["error"]


@pytest.mark.parametrize("more", ["NaN", "1e400", "9" * 5000, "[" * 100_000 + "]" * 100_000, '"\\ud800"'])
def test_numbers_and_nesting_that_no_reader_takes_end_the_run_with_a_reason(untrusted: Any, more: str) -> None:
    text = json.dumps({"schema": "tidemark.run/1", "status": "ok", "results": []})[:-1] + f', "x": {more}}}'
    run = untrusted(f"import os\nopen(os.environ['TIDEMARK_RUN_JSON'], 'w').write({text!r})")
    assert run["status"] in ("ok", "failed")
