"""What an improvement was paid with, and what a regression bought: both are said."""

from dataclasses import replace

import pytest

from backend.services.reports.comparison import ComparisonRow
from backend.services.triage.views import ImprovedSeries
from frontend.pages.compare import metric_row
from frontend.pages.regression import gained


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


def test_a_regression_says_what_got_better_at_its_commit() -> None:
    faster = ImprovedSeries(
        series_id=2,
        benchmark="net.step",
        variant="dtype=bf16",
        metric="step_ms",
        unit="ms",
        direction="lower",
        change=-0.2,
        before=10.0,
        after=8.0,
    )
    said = gained([faster]).replace("\u202f", " ")
    assert said == "At the same commit step_ms of net.step dtype=bf16 got 20 % faster: weigh both."
    assert gained([]) == ""
    many = gained([replace(faster, change=-0.1 - n / 100) for n in range(200)])
    assert many.count(" of net.step ") == 3
    assert "got 209\u202f% faster" in many and many.endswith("; 197 further metrics got better: weigh both.")
