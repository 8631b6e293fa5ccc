"""Which backend `best` runs: pinned for each machine and case, so that a series is of one kernel."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.spec import slug_of

FILE = Path(__file__).with_name("pinned_backends.json")
"""Backend by accelerator and case; `python -m benchmarks learn` writes it."""

CLEARLY_QUICKER = 0.97
"""Of the pinned backend's time: another one that takes no more is worth a new pin, and with it a step in the series."""

Pins = Mapping[str, Mapping[str, str]]


def load(path: Path = FILE) -> Pins:
    """Load the pins; none where there is no such file."""
    if not path.exists():
        return {}
    found: Pins = json.loads(path.read_text())
    return found


def of_case(pins: Pins, case: str) -> dict[str, str]:
    """The backend of one case, by accelerator."""
    return {machine: cases[case] for machine, cases in pins.items() if case in cases}


def learn(pins: Pins, runs: Iterable[Mapping[str, Any]]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """The pins after these runs, and a sentence for each that is new or has changed.

    A case without a pin gets the backend that its run chose; one with a pin gets another only where that was clearly
    quicker, or the pinned one did not run. CPUs are left out: their name in a run says too little.
    """
    found = {machine: dict(cases) for machine, cases in pins.items()}
    said = []
    for run in runs:
        machine = run["environment"].get("accelerator")
        for result in run["results"]:
            notes = result.get("notes", {})
            if machine is None or "candidates_ms" not in notes:
                continue
            case, of_machine = f"{result['benchmark']}/{slug_of(result['variant'])}", found.setdefault(machine, {})
            before, now = of_machine.get(case), notes["chosen_backend"]
            if before is not None:
                now = clearly_quickest(before, notes["candidates_ms"])
            if now != before:
                said.append(f"{case} on {machine}: {'' if before is None else f'{before} → '}{now}")
                of_machine[case] = now
    return found, said


def clearly_quickest(pinned: str, milliseconds: Mapping[str, float | None]) -> str:
    """The pinned backend, or the quickest one where that is clearly quicker or the pinned one does not run."""
    ran = {name: ms for name, ms in milliseconds.items() if ms is not None}
    quickest = min(ran, key=lambda name: ran[name])
    return quickest if pinned not in ran or ran[quickest] <= CLEARLY_QUICKER * ran[pinned] else pinned
