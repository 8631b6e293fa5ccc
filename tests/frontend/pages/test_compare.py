"""What a comparison claims: of gates that moved, and of nothing else."""

from __future__ import annotations

from dataclasses import replace

from backend.services.comparison.commits import CommitComparison, ComparisonSide, PhaseDifference
from backend.services.comparison.rows import ComparisonRow, SuiteMean
from frontend.pages.compare import markdown, metric_row, phase_panels, sentence_of

VARIANT = {"suite": "gpt", "benchmark": "gpt.train", "variant_key": "dtype=fp32"}
GATE = ComparisonRow(
    **VARIANT,
    preset="default",
    metric="step_over_yardstick",
    unit="ratio",
    direction="lower",
    role="gate",
    base=1.88,
    head=1.87,
    change=-0.003,
    low=-0.075,
    high=0.073,
    verdict="insufficient",
    reason="few_processes",
    needed_runs=4,
    traded_for=(),
    series_id=1,
)
MACHINE = replace(
    GATE, metric="yardstick_ms", unit="ms", role="derived", base=7.96, head=9.33, change=0.17, verdict="regression"
)
MEAN = SuiteMean(
    suite=None,
    change=-0.003,
    low=-0.075,
    high=0.073,
    compared=2,
    gates=2,
    slower=0,
    faster=0,
    undecided=1,
    unchanged=1,
    left_out=0,
)


BASE = ComparisonSide(
    name="cd8b6e1",
    sha="cd8b6e1",
    message="Save and load checkpoints",
    author="Devika Rao",
    committed_at=None,
    pull_request=None,
    position=18,
    runs={},
    workers=(),
)


def comparison(*rows: ComparisonRow, undecided: int = 1) -> CommitComparison:
    phase = PhaseDifference(**VARIANT, phase="backward", unit="ms", base=8.78, head=10.57)
    return CommitComparison(
        project="demo/tinygpt",
        testbed="cpu",
        base=BASE,
        head=replace(BASE, name="1804535", sha="1804535"),
        rows=rows,
        hidden=0,
        levelled=0,
        suites=(),
        overall=replace(MEAN, undecided=undecided),
        phases=(phase,),
        not_compared=(),
        environment=(),
    )


def test_a_metric_that_no_gate_watches_is_shown_and_neither_red_nor_a_reason_for_phases() -> None:
    shown = metric_row(MACHINE, 0.05)
    assert shown.words == "slower, not judged"
    assert shown.look[0] != "r" and "bad" not in shown.change and "--reg" not in shown.forest
    assert not phase_panels(comparison(GATE, MACHINE))
    assert "| not judged |" in markdown(comparison(GATE, MACHINE))


def test_a_gate_that_moved_is_red_and_shows_where_the_step_grew() -> None:
    slower = replace(GATE, change=0.17, verdict="regression")
    assert metric_row(slower, 0.05).look[0] == "r" and "bad" in metric_row(slower, 0.05).change
    assert [name for name, _ in phase_panels(comparison(slower))] == ["gpt.train dtype=fp32"]


def test_two_commits_cost_the_same_only_where_every_gate_is_settled() -> None:
    assert "costs the same" in sentence_of(comparison(undecided=0))
    unsettled = "No difference between 1804535 and cd8b6e1 could be found; 1 unchanged, 1 not settled."
    assert sentence_of(comparison(GATE)) == unsettled
