"""Kinds of values in a tidemark.toml."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from backend.services.repository.manifest_fields import EnvironmentText, Name, PathPattern, Text, Unique


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Text, " "),
        (Text, "a\x00"),
        (Text, "a" * 10_001),
        (Text, 7),
        (EnvironmentText, "a\x00"),
        (Name, "a b"),
        (Name, "a\n"),
        (PathPattern, "*" * 21),
        (PathPattern, "a" * 501),
        (Unique[Text], "a"),
        (Unique[Text], ["a"] * 1001),
    ],
)
def test_what_neither_a_shell_nor_a_database_would_take_is_refused(kind: Any, value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(value)


def test_a_list_holds_each_of_its_values_once_and_in_order() -> None:
    assert TypeAdapter(Unique[Text]).validate_python(["b", "a", "b"]) == ("b", "a")
