"""What is read the short way is exactly what the rules read; whatever is unusual is left to them."""

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.contract import MAX_PROCESSES, Invalid, Measurement, Run, parse_run

USUAL = {
    "metric": "step_ms",
    "unit": "ms",
    "direction": "lower",
    "role": "gate",
    "value": 5.0,
    "processes": [4.9, 5.0, 5.1],
    "samples": [[4.9, 4.8], [5.0], [5.1, 5.2, 5.3]],
}
ODD: list[Any] = [
    None, 0, 5, -1.0, 0.0, -0.0, 1e-70, 1e70, 1e308, math.nan, math.inf, -math.inf, True, "", "ms", "a\x00b", "x" * 300,
    [], [[]], {}, [5.0], [5], [4.9, math.nan, 5.1], [4.9, 5.0, math.inf], [4.9, -5.0, 5.1], [[5.0, -1.0]], [[math.nan]],
    [[5]], [5.0, [5.0]], [[5.0]] * 4, [[1e308, 1e308]], [[], [5.0]], [5.0] * (MAX_PROCESSES + 1), "higher", "derived",
    2**70, (5.0,),
]  # fmt: skip


def run_of(measurement: Any) -> dict[str, Any]:
    return {
        "schema": "tidemark.run/1",
        "id": "run-00000001",
        "project": "team/model",
        "commit": "0" * 40,
        "suite": "gpt",
        "testbed": "cpu",
        "status": "ok",
        "results": [{"benchmark": "gpt.train", "status": "ok", "measurements": [measurement]}],
    }


def said(document: dict[str, Any]) -> Run | str:
    try:
        return parse_run(document)
    except Invalid as refused:
        return str(refused)


def both(measurement: Any) -> tuple[Run | str, Run | str]:
    """What is said with the short way, and without it."""
    document = run_of(measurement)
    quickly = said(copy.deepcopy(document))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Measurement, "quickly", classmethod(lambda cls, value: None))
        return quickly, said(document)


def test_a_usual_measurement_is_read_the_short_way() -> None:
    assert Measurement.quickly(copy.deepcopy(USUAL)) is not None
    without = {name: value for name, value in USUAL.items() if name != "samples"}
    assert Measurement.quickly(without) is not None
    quickly, slowly = both(USUAL)
    assert isinstance(quickly, Run) and quickly == slowly


@settings(max_examples=300, deadline=None)
@given(
    changes=st.dictionaries(
        st.sampled_from([*USUAL, "exact", "samples_taken", "converged", "formula", "own_field"]),
        st.sampled_from(ODD),
        min_size=1,
        max_size=2,
    ),
    left_out=st.sets(st.sampled_from(list(USUAL)), max_size=1),
)
def test_an_unusual_measurement_is_read_or_refused_as_by_the_rules(changes: dict[str, Any], left_out: set[str]) -> None:
    measurement = {name: value for name, value in {**USUAL, **changes}.items() if name not in left_out}
    quickly, slowly = both(measurement)
    assert repr(quickly) == repr(slowly)


@given(st.lists(st.floats(min_value=1e-3, max_value=1e3), min_size=1, max_size=7), st.floats(0.995, 1.005))
def test_a_value_that_is_not_the_median_is_refused_either_way(processes: list[float], off: float) -> None:
    middle = sorted(processes)[len(processes) // 2]
    quickly, slowly = both({**USUAL, "value": middle * off, "processes": processes, "samples": []})
    assert repr(quickly) == repr(slowly)
    quickly, slowly = both({**USUAL, "value": middle * off, "processes": processes, "samples": [[1.0]]})
    assert repr(quickly) == repr(slowly)


def test_a_document_of_text_is_read_alike() -> None:
    assert parse_run(json.dumps(run_of(USUAL))) == parse_run(run_of(USUAL))
