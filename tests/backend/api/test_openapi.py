"""What OpenAPI promises holds for inputs nobody thought of: no 5xx, documented statuses, bodies as described."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.backend.api.conftest import BROKEN_AT, kept_open, run_document, sha

# An event stream has no end.
NOT_ASKED = {"/api/v1/events"}
EXAMPLES = 10
PATIENCE_S = 120
# What is there: with made-up names, nearly every question ends at "unknown project".
QUERY = {"project": "demo/tinygpt", "base": sha(1), "head": "main", "commit": sha(BROKEN_AT)}
PATH = {"series_id": 1, "regression_id": 1, "name": "w1", "run_id": run_document(3)["id"], "sha": sha(BROKEN_AT)}


@pytest.fixture(scope="module")
def promised(schemathesis: Any, seeded: Any) -> Any:
    schemathesis.checks.load_all_checks()
    return schemathesis.openapi.from_url(f"{seeded.url}/openapi.json", timeout=PATIENCE_S)


def test_the_document_keeps_its_word(schemathesis: Any, seeded: Any, promised: Any) -> None:
    checks = schemathesis.checks
    headers = {"Authorization": f"Bearer {seeded.token('admin')}"}
    kept = [
        checks.not_a_server_error,
        *(checks.CHECKS.get_one(name) for name in ("status_code_conformance", "response_schema_conformance")),
        checks.CHECKS.get_one("content_type_conformance"),
    ]
    answered, broken = Counter[int](), []
    line = kept_open()
    operations = [result.ok() for result in promised.get_all_operations()]
    for operation in operations:
        if operation.path in NOT_ASKED:
            continue

        @given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def keeps_its_word(case: Any) -> None:
            if case.operation.path == "/api/v1/tokens/{token_id}":
                case.path_parameters["token_id"] += 1000  # not the token that is in use
            for known in (False, True) if case.method == "GET" else (False,):
                if known:
                    name_what_is_there(case)
                answer = case.call(session=line, headers=headers, timeout=PATIENCE_S)
                answered[answer.status_code // 100] += 1
                case.validate_response(answer, checks=kept)

        try:
            keeps_its_word()
        except Exception as failure:
            broken.append(f"{operation.method.upper()} {operation.path}: {failure}")
    line.close()
    assert len(operations) > 30 and answered[2] > 100 and answered[4] > 100, answered
    assert not broken, "\n\n".join(broken)


def name_what_is_there(case: Any) -> None:
    for values, known in ((case.query, QUERY), (case.path_parameters, PATH)):
        for name in values or {}:
            values[name] = known.get(name, values[name])
