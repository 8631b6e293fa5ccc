"""A comparison tells each change once."""

import pytest

from backend.services.comparison.redundant import with_redundant
from backend.services.comparison.rows import ComparisonRow


def row(
    metric: str,
    change: float,
    *,
    role: str = "watch",
    variant: str = "e=64",
    verdict: str = "regression",
    unit: str = "ms",
) -> ComparisonRow:
    return ComparisonRow(
        suite="moe", benchmark="moe.layer", variant_key=variant, preset="full", metric=metric, unit=unit,
        direction="lower", role=role, base=1.0, head=1.0 + change, change=change, low=change, high=change,
        verdict=verdict, reason="", needed_runs=0, traded_for=(), series_id=1,
    )  # fmt: skip


def told(*rows: ComparisonRow) -> list[tuple[str, list[str]]]:
    return [(lead.metric, [each.metric for each in redundant]) for lead, redundant in with_redundant(rows)]


def test_throughput_and_utilisation_of_a_slower_step_are_folded_into_it() -> None:
    step = row("step_ms", 0.074, role="gate")
    assert told(row("tokens_per_s", 0.0741), step, row("mfu", 0.073)) == [("step_ms", ["tokens_per_s", "mfu"])]


@pytest.mark.parametrize(
    "other",
    [
        row("mfu", 0.2),  # another size
        row("mfu", 0.074, variant="e=8"),  # another variant
        row("mfu", 0.074, verdict="improvement"),  # the other way
        row("peak_reserved_bytes", 0.074, role="gate"),  # a gate of its own
        row("peak_allocated_bytes", 0.074, unit="B"),  # memory is no time
    ],
)
def test_what_says_something_else_keeps_its_row(other: ComparisonRow) -> None:
    assert len(told(row("step_ms", 0.074, role="gate"), other)) == 2


def test_without_a_gate_the_first_row_leads() -> None:
    assert told(row("tokens_per_s", 0.05), row("mfu", 0.051)) == [("tokens_per_s", ["mfu"])]
