"""A body is read once, and of one that holds no run the contract says why."""

import orjson
import pytest

from backend.contract import Invalid, parse_run
from backend.services.ingest.delivery import decoded

RUN = {"schema": "tidemark.run/1", "id": "r1"}


def test_an_object_is_read() -> None:
    assert decoded(orjson.dumps(RUN)) == RUN


def test_a_fraction_of_many_digits_is_read_as_what_it_is() -> None:
    assert decoded(b'{"values":[0.0012345678901234567,1.0000000000000000001]}') is not None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[1]",
        b'{"value": NaN}',
        b'{"text": "\\ud800"}',
        b"\xff",
        b'{"value": 18446744073709551616}',
        b'{"value":-18446744073709551616}',
        b"[18446744073709551616]",
        b'{"values":[1,\n18446744073709551616]}',
    ],
)
def test_what_is_no_object_is_left_to_the_contract_which_says_what_is_wrong(body: bytes) -> None:
    assert decoded(body) is None
    with pytest.raises(Invalid):
        parse_run(body)


def test_a_body_of_more_values_than_any_run_has_is_refused_before_it_is_read() -> None:
    with pytest.raises(Invalid, match="at most 1,000,000 lists and objects"):
        decoded(b"[" * 1_000_001)
