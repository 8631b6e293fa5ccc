"""What is wrong in a table, as sentences."""

from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from backend.services.repository.manifest_fields import ManifestTable
from backend.services.repository.manifest_problems import MAX_PROBLEMS, ManifestInvalid, accepts, sentences


class Shelf(ManifestTable):
    books: Annotated[dict[str, Annotated[int, accepts("a number of pages")]], accepts("a table of books")] = Field(
        default_factory=dict
    )


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"books": 1}, ["tidemark.toml: books is 1; accepted: a table of books"]),
        (
            {"books": {"a": "x", "b": "y"}},
            [
                "tidemark.toml: books.a is 'x'; accepted: a number of pages",
                "tidemark.toml: books.b is 'y'; accepted: a number of pages",
            ],
        ),
        ({"book": {}}, ["tidemark.toml: unknown key book (did you mean books?); known: books"]),
    ],
)
def test_the_innermost_key_that_knows_tells(table: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(ValidationError) as refused:
        Shelf.model_validate(table)
    assert sentences(refused.value, lambda place: list(Shelf.model_fields)) == told


def test_of_very_many_problems_the_first_are_told_and_the_others_counted() -> None:
    told = ManifestInvalid(["wrong"] * (MAX_PROBLEMS + 7)).problems
    assert len(told) == MAX_PROBLEMS + 1 and told[-1] == "tidemark.toml: and 7 more"
