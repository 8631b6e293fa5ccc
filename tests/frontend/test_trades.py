"""An improvement says what it was paid with."""

import pytest

from backend.services.comparison.rows import ComparisonRow
from frontend.pages.compare import metric_row


@pytest.mark.parametrize(
    ("traded_for", "note"),
    [
        ((), ""),
        (("s|net.step|dtype=bf16|cpu|mem_bytes",), "weigh against mem_bytes"),
        (
            ("s|net.step|dtype=bf16|cpu|mem_bytes", "s|net.step|dtype=fp8,k=2|cpu|step_ms"),
            "weigh against mem_bytes, step_ms of net.step dtype=fp8, k=2",
        ),
    ],
)
def test_a_faster_metric_names_what_got_worse_meanwhile(traded_for: tuple[str, ...], note: str) -> None:
    row = ComparisonRow(
        suite="s",
        benchmark="net.step",
        variant_key="dtype=bf16",
        preset="cpu",
        metric="step_ms",
        unit="ms",
        direction="lower",
        role="gate",
        base=10.0,
        head=8.0,
        change=-0.2,
        low=-0.21,
        high=-0.19,
        verdict="improvement",
        reason="clearly_better",
        needed_runs=0,
        traded_for=traded_for,
        series_id=1,
    )
    assert metric_row(row, 0.05).note == note
