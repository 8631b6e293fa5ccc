"""Bodies that would weigh more than their bytes are refused by a count of their marks."""

from __future__ import annotations

import pytest

from backend.contract import Invalid
from backend.contract_weight import MAX_CONTAINERS, MAX_VALUES, check_weight


def test_what_a_run_may_have_is_let_through() -> None:
    check_weight("[" * MAX_CONTAINERS)
    check_weight(b"," * MAX_VALUES)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("[" * (MAX_CONTAINERS + 1), "1,000,001 lists and objects"),
        (b"{" * (MAX_CONTAINERS + 1), "1,000,001 lists and objects"),
        (b"," * (MAX_VALUES + 1), "5,000,001 values"),
    ],
)
def test_one_more_is_refused_with_the_count_and_what_is_accepted(body: bytes | str, said: str) -> None:
    with pytest.raises(Invalid, match=f"run is {said}; accepted: at most"):
        check_weight(body)
