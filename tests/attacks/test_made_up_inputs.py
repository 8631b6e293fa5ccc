"""Inputs that nobody thought of, sent by everybody: no 5xx, and nobody gets further than docs/security.md says.

    EXAMPLES=50 python -m pytest tests/attacks/test_made_up_inputs.py

looks longer.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from sqlalchemy import Engine

from backend.services.base.config import ServiceConfig
from tests.attacks.route_table import COLUMNS, MINE, RUN, fill, headers_of_everybody, private_app
from tests.backend.api.conftest import kept_open, sha
from tests.conftest import LiveServer, ServeApp

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
EXAMPLES = int(os.environ.get("EXAMPLES", "1"))
NOT_ASKED = {"/api/v1/events"}  # a stream has no end


@pytest.fixture
def server(service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp) -> Iterator[LiveServer]:
    config, app = private_app(service_config, committing_engine)
    with serve_app(app, committing_engine, config) as made:
        yield made


def who_may() -> dict[str, set[str]]:
    """Columns that are let in, by route as OpenAPI writes it."""
    rows = re.findall(r"^\| `([A-Z]+ /\S*)` \|(.*)\|$", DOCUMENT.read_text(), re.MULTILINE)
    return {
        re.sub(r":\w+}", "}", route): {
            column for column, cell in zip(COLUMNS, cells.split("|"), strict=True) if cell.strip() == "yes"
        }
        for route, cells in rows
    }


def test_no_input_breaks_the_service_or_gets_anybody_further_than_their_role(
    schemathesis: Any, server: LiveServer
) -> None:
    allowed, there, everybody = who_may(), fill(server), headers_of_everybody(server)
    answered, broken = Counter[int](), list[str]()
    line = kept_open()

    def ask(case: Any, route: str, column: str) -> None:
        answer = case.call(session=line, headers=everybody[column](), timeout=20)
        answered[answer.status_code // 100] += 1
        if answer.status_code >= 500:
            broken.append(f"{column}: {case.as_curl_command()}: {answer.status_code}")
        if answer.status_code < 300 and column not in allowed[route]:
            broken.append(f"{column} was let in: {case.as_curl_command()}: {answer.status_code}")

    def try_out(operation: Any, route: str) -> None:
        @given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def with_examples(case: Any) -> None:
            for column in allowed[route]:  # of things that are not there, lest they be removed
                ask(case, route, column)
            name_what_is_there(case, there)
            for column in COLUMNS:
                if column not in allowed[route] or case.method == "GET":
                    ask(case, route, column)

        with_examples()

    operations = [
        found.ok() for found in schemathesis.openapi.from_url(f"{server.url}/openapi.json").get_all_operations()
    ]
    for operation in operations:
        if operation.path not in NOT_ASKED:
            try_out(operation, f"{operation.method.upper()} {operation.path}")
    line.close()
    assert len(operations) > 60 and answered[2] > 100 and answered[4] > 1000, answered
    assert not broken, "\n".join(broken)


def name_what_is_there(case: Any, there: dict[str, str]) -> None:
    """In place of made-up names, which nobody owns."""
    known = {**there, "project": MINE, "run": RUN, "after": RUN, "base": sha(0), "head": "main", "commit": sha(0)}
    for values in (case.query, case.path_parameters, case.body):
        if isinstance(values, dict):
            values.update({name: known[name] for name in values if name in known})
