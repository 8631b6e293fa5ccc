"""The plan of a run: which processes measure what, in which order. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.analysis import summary
from benchmarks.registry import Selected
from benchmarks.spec import Preset, Role

PROCESSES = {Preset.CPU: 3, Preset.SMOKE: 1, Preset.FULL: 5}
"""Fresh processes per variant, unless `--processes` says otherwise; `full` continues to the stated precision."""

MOST_PROCESSES = 12

SCALED_DOWN = {
    Preset.CPU: "three processes of gpt.train, two of others, one with ranks; warm-up 10 steps or 0.3 s, settled "
    "within 2 %; 1.1 s of pairs with the yardstick; host clock, no events",
    Preset.SMOKE: "one process; warm-up 10 steps and 0.5 s; 20 steps; fewer variants; never judged",
}
"""How a preset falls short of the full protocol; it is said in run.json."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """One fresh process of one case. `number` counts within the case, from zero."""

    selected: Selected
    number: int


def processes_of(selected: Selected, asked: int) -> int:
    """Fresh processes for this case: as many as asked, or fewer where the case says so."""
    return min(asked, selected.case.processes or asked)


def repetitions(selection: Sequence[Selected], processes: int, seed: int) -> list[Repetition]:
    """Rounds over all cases, each round in a new random order: what drifts in the machine hits every case alike."""
    rng = random.Random(seed)
    runnable = [selected for selected in selection if selected.case.not_applicable is None]
    order: list[Repetition] = []
    for number in range(processes):
        in_turn = [selected for selected in runnable if number < processes_of(selected, processes)]
        rng.shuffle(in_turn)
        order.extend(Repetition(selected, number) for selected in in_turn)
    return order


def tasks_of(number: int, *, first: bool, last: bool) -> list[str]:
    """Tasks of a process: check and count once per case, the canary in the first and the last process of the run."""
    once = ["check", "count"] if number == 0 else []
    return ["time", *once, *["canary_before"] * first, *["canary_after"] * last]


def needs_more(measured: Sequence[Mapping[str, Any]], precision: float, processes: int) -> bool:
    """Whether a change of `precision` would still hide in the spread of some judged metric, and repeats are left."""
    if not 2 <= processes < MOST_PROCESSES:
        return False
    judged = [m["processes"] for m in measured if m["role"] == Role.GATE and len(m.get("processes", ())) > 1]
    spreads = [summary.coefficient_of_variation(values) or 0.0 for values in judged]
    return any(summary.repeats_needed(spread, precision) > processes for spread in spreads)
