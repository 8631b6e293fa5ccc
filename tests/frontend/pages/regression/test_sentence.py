"""What a regression is, in sentences."""

from dataclasses import replace

from backend.services.triage.detail import ImprovedSeries
from frontend.pages.regression.sentence import gained


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
