"""The fast reader must say what the contract's own reader says, of good bodies and of bad ones."""

import orjson
import pytest

from backend import contract
from backend.services.ingest.run_body import read_body

RUN = {
    "schema": "tidemark.run/1",
    "id": "run-00000001",
    "project": "team/model",
    "commit": "0" * 40,
    "suite": "gpt",
    "testbed": "cpu",
    "status": "ok",
    "environment": {"cores": 2, "name": "Zürich"},
    "results": [],
}
GOOD = orjson.dumps(RUN)


@pytest.mark.parametrize("body", [GOOD, orjson.dumps({**RUN, "commit": "a" + "1" * 39, "new": [1.5, -0.0, 2**63 - 1]})])
def test_a_good_body_is_read_alike(body: bytes) -> None:
    assert contract.to_json(read_body(body)[0]) == contract.to_json(contract.parse_run(body))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"7",
        b"null",
        b'"text"',
        GOOD[:-3],
        b"\xff" + GOOD,
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b'"cores":2', b'"cores":NaN'),
        GOOD.replace(b'"cores":2', b'"cores":1e400'),
        GOOD.replace(b'"cores":2', b'"cores":18446744073709551616'),
        GOOD.replace(b'"cores":2', b'"cores": -9223372036854775809'),
        GOOD.replace(b'"cores":2', b'"cores":[123456789012345678901234567890]'),
        GOOD.replace(b'"cores":2', b'"cores":"\\ud800"'),
        GOOD.replace(b'"cores":2', b'"cores":"\\u0000"'),
        GOOD.replace(b'"cores":2', b'"cores":' + b"[" * 1500 + b"]" * 1500),
        GOOD.replace(b'"status":"ok"', b'"status":"ok","attempt":0'),
        GOOD.replace(b"tidemark.run/1", b"tidemark.run/2"),
    ],
)
def test_a_bad_body_is_refused_alike(body: bytes) -> None:
    with pytest.raises(contract.Invalid) as expected:
        contract.parse_run(body)
    with pytest.raises(contract.Invalid) as refused:
        read_body(body)
    assert refused.value.problems == expected.value.problems
