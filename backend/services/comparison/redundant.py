"""Each change once: if a step got slower, tokens per second and MFU repeat that in other units."""

from collections.abc import Sequence

from backend.services.base.metric_words import MEMORY_UNITS
from backend.services.comparison.rows import ComparisonRow

ALIKE = 0.01  # a change of cost differs by no more than this, or …
ALIKE_SHARE = 0.1  # … by no more than this share of it


def with_redundant(rows: Sequence[ComparisonRow]) -> list[tuple[ComparisonRow, tuple[ComparisonRow, ...]]]:
    """The rows in their order, each with the redundant metrics of the same variant: those that only repeat it.

    A gate metric leads, or if a variant has none among the rows, the first of them. Two gate metrics are never one
    change, and a longer time never repeats a larger use of memory, even if both grow alike.
    """
    leads: list[ComparisonRow] = []
    redundant: dict[int, list[ComparisonRow]] = {}
    for row in sorted(rows, key=lambda row: row.role != "gate"):
        lead = next((each for each in leads if _repeats(row, each)), None)
        if lead is None:
            leads.append(row)
        else:
            redundant.setdefault(id(lead), []).append(row)
    kept = {id(each) for each in leads}
    return [(row, tuple(redundant.get(id(row), ()))) for row in rows if id(row) in kept]


def _repeats(row: ComparisonRow, lead: ComparisonRow) -> bool:
    of_one = (row.suite, row.benchmark, row.variant_key, row.preset) == (
        lead.suite,
        lead.benchmark,
        lead.variant_key,
        lead.preset,
    )
    alike = (row.unit in MEMORY_UNITS) == (lead.unit in MEMORY_UNITS)
    near = abs(row.change - lead.change) <= max(ALIKE, ALIKE_SHARE * abs(lead.change))
    return of_one and row.role != "gate" and row.verdict in (lead.verdict, "insufficient") and alike and near
