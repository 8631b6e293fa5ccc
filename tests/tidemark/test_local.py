"""What `tidemark compare A.json B.json` says of two files: beyond doubt, not yet, traded, failed and missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidemark.local import FileComparison, compare_files

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "run.json").read_text())


def measurement(metric: str, *values: float, unit: str = "ms") -> dict[str, Any]:
    return {
        "metric": metric,
        "unit": unit,
        "direction": "lower",
        "role": "gate",
        "value": sorted(values)[len(values) // 2],
        "processes": list(values),
    }


def result(benchmark: str, *measurements: dict[str, Any], status: str = "ok") -> dict[str, Any]:
    found = {"benchmark": benchmark, "variant": {}, "preset": "cpu", "status": status}
    return {**found, "measurements": list(measurements), **({} if status == "ok" else {"error": "it broke"})}


@pytest.fixture
def compared(tmp_path: Path) -> Any:
    def compare(base: list[dict[str, Any]], head: list[dict[str, Any]]) -> FileComparison:
        files = []
        for number, results in enumerate((base, head)):
            file = tmp_path / f"{number}.json"
            file.write_text(json.dumps({**GOLDEN, "results": results}))
            files.append(file)
        return compare_files(*files)

    return compare


STEADY = (10.0, 10.02, 9.98, 10.01, 9.99)


def test_what_cannot_be_told_yet_says_how_many_more_runs_would_tell(compared: Any) -> None:
    said = compared(
        [result("a", measurement("step_ms", 10.0, 11.2, 9.1))], [result("a", measurement("step_ms", 10.8, 12.1, 9.9))]
    ).report()
    assert "undecided: " in said
    assert "more processes per side" in said
    assert "undecided: a step_ms" in said


def test_the_geometric_mean_names_what_it_covers(compared: Any) -> None:
    both, alone = result("a", measurement("step_ms", *STEADY)), result("b", measurement("step_ms", *STEADY))
    comparison = compared([both], [both, alone])
    assert "geometric mean +0.0% over what both ran (1 of 2 gate metrics)" in comparison.report()
    assert "only in head: b step_ms" in comparison.report()
    assert (comparison.as_dict()["covered"], comparison.as_dict()["gates"]) == (1, 2)


def test_twenty_percent_faster_at_twice_the_memory_says_both(compared: Any) -> None:
    fast = [0.8 * value for value in STEADY]
    base = result("a", measurement("step_ms", *STEADY), measurement("peak_bytes", *[1e9] * 5, unit="B"))
    head = result("a", measurement("step_ms", *fast), measurement("peak_bytes", *[2e9] * 5, unit="B"))
    comparison = compared([base], [head])
    said = comparison.report()
    assert "improvement: faster, but worse: a peak_bytes" in said
    assert "1.00 GB -> 2.00 GB" in said and "regression: more memory" in said
    assert "10.0 ms -> 8.00 ms" in said
    assert comparison.slower


@pytest.mark.parametrize(("first", "second"), [("ok", "failed"), ("failed", "ok"), ("failed", "failed")])
def test_what_failed_before_it_had_a_value_is_listed_as_failed(compared: Any, first: str, second: str) -> None:
    """A result that broke has no measurements; one of the other side alone never ran here."""
    fine, sides = result("a", measurement("step_ms", *STEADY)), []
    for status in (first, second):
        sides.append([fine, result("b", *([measurement("step_ms", *STEADY)] if status == "ok" else []), status=status)])
    found = compared(*sides)
    assert f"b: {first} / {second}" in found.report().splitlines()
    assert {"key": "b", "base_status": first, "head_status": second} in found.as_dict()["failed"]


def test_what_broke_and_never_ran_before_is_listed_and_what_is_fine_is_not(compared: Any) -> None:
    fine = result("a", measurement("step_ms", *STEADY))
    said = compared([fine], [fine, result("c", status="timeout")]).report().splitlines()
    assert "c: never ran / timeout" in said
    assert not any(line.startswith("a:") for line in said)


def test_what_failed_is_listed_with_both_sides(compared: Any) -> None:
    good = result("a", measurement("step_ms", *STEADY))
    said = compared([good], [result("a", measurement("step_ms", *STEADY), status="failed")]).report()
    assert "a step_ms: ok / failed" in said
