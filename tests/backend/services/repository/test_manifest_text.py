"""The TOML of a tidemark.toml is read within bounds."""

import pytest

from backend.services.repository.manifest_problems import ManifestInvalid
from backend.services.repository.manifest_text import document_of


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[suite.gpt", "is not TOML"),
        (b"\xff", "is not UTF-8"),
        (b"#" * 300_000, "has 300000 bytes; at most"),
        ("[" + ".".join("a" * 20) + "]", "a name with more than 16 dots"),
        ("a = " + "[" * 20 + "]" * 20, "is nested too deeply; at most 16"),
        (f"a = {2**63}", "a number has too many digits"),
    ],
)
def test_what_cannot_be_read_is_told(text: str | bytes, told: str) -> None:
    with pytest.raises(ManifestInvalid, match=r"tidemark\.toml: ") as refused:
        document_of(text)
    assert told in str(refused.value)


def test_the_largest_number_of_toml_is_read() -> None:
    assert document_of(f"a = {2**63 - 1}") == {"a": 2**63 - 1}
