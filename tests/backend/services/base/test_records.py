"""Fields that an answer has in common with a row of the store."""

from dataclasses import dataclass
from typing import NamedTuple

from backend.services.base.records import shared_fields


class Row(NamedTuple):
    id: int
    name: str
    secret: str


@dataclass(frozen=True)
class Shown:
    id: int
    name: str
    state: str


def test_what_an_answer_names_is_copied_and_nothing_else_of_the_row() -> None:
    assert shared_fields(Row(7, "gpu-1", "hidden"), Shown) == {"id": 7, "name": "gpu-1"}
