"""The list of budgets: each is a function that measures something beside its yardstick, and says what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.bench.stage import Stage


MOST_GROWTH = 1.5
"""Of a read, from the small store to the large one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured ratio. `holds` is None where nothing is budgeted."""

    what: str
    value_ms: float
    yardstick: str
    yardstick_ms: float
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""
    growth: float | None = None
    """By how much the ratio is larger than in the small store; None where it was not measured there."""
    load: float = 0.0
    """Processes that ran or waited on the machine, a minute's mean, just before it was measured."""

    @property
    def ratio(self) -> float:
        return self.value_ms / self.yardstick_ms

    @property
    def holds(self) -> bool | None:
        if self.growth is not None and self.growth > MOST_GROWTH:
            return False
        if self.at_most is not None:
            return self.ratio <= self.at_most
        return None if self.at_least is None else self.ratio >= self.at_least

    @property
    def budget(self) -> str:
        if self.at_most is not None:
            return f"≤ {self.at_most:g}×"
        return "" if self.at_least is None else f"≥ {self.at_least:g}×"


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    measure: Callable[[Stage], Iterable[Figure]]
    is_read: bool = False
    """It must not take longer in a larger store, and is measured in a small one as well."""
    in_process: bool = False
    """It is this process's own CPU, and measured before the others fill its memory, as in a service."""


@dataclass(slots=True)
class Registry:
    rows: list[Row] = field(default_factory=list)

    def row(
        self, name: str, *, is_read: bool = False, in_process: bool = False
    ) -> Callable[[Callable[[Stage], Iterable[Figure]]], Callable[[Stage], Iterable[Figure]]]:
        """Adds a function that measures to the list, under the words that `--only` selects it by."""

        def add(measure: Callable[[Stage], Iterable[Figure]]) -> Callable[[Stage], Iterable[Figure]]:
            self.rows.append(Row(name, measure, is_read, in_process))
            return measure

        return add


REGISTRY = Registry()
row = REGISTRY.row
