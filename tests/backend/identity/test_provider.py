"""What a browser carries through a sign-in."""

from __future__ import annotations

import pytest

from backend.identity.provider import Refused, SignInAttempt, text_of


def test_an_attempt_comes_back_as_it_was() -> None:
    attempt = SignInAttempt.begin()
    assert SignInAttempt.of_cookie(attempt.cookie) == attempt
    assert len({attempt.state, attempt.nonce, attempt.verifier}) == 3 and len(attempt.verifier) >= 43


@pytest.mark.parametrize("cookie", ["", "a.b", "a..c", "a.b.c.d"])
def test_a_browser_that_has_not_begun_is_told_so(cookie: str) -> None:
    with pytest.raises(Refused, match="start again"):
        SignInAttempt.of_cookie(cookie)


def test_an_answer_to_another_attempt_is_refused() -> None:
    with pytest.raises(Refused, match="another browser"):
        SignInAttempt.begin().check_state(SignInAttempt.begin().state)


@pytest.mark.parametrize(("value", "text"), [("Ada  L", "Ada L"), ("a\x00b", ""), (7, ""), (None, "")])
def test_a_claim_is_text_on_one_line_or_nothing(value: object, text: str) -> None:
    assert text_of({"name": value}, "name") == text
