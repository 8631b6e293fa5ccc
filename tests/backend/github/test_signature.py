"""The signature of a webhook."""

from __future__ import annotations

import pytest

from backend.github.signature import is_signed, sign


def test_the_signature_is_the_one_github_documents() -> None:
    signed = sign("It's a Secret to Everybody", b"Hello, World!")
    assert signed == "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert is_signed("It's a Secret to Everybody", b"Hello, World!", signed)


@pytest.mark.parametrize("header", [None, "", "sha256=", "sha1=00", "sha256=" + "0" * 64, "sha256=é", "\udcff"])
def test_anything_else_is_refused(header: str | None) -> None:
    assert not is_signed("secret", b"body", header)


def test_an_empty_secret_signs_nothing() -> None:
    assert not is_signed("", b"body", sign("", b"body"))
