"""The detector beside the rules of other trackers: the same labelled histories, in the same run.

The ratio is of CPU per 1,000 points; what each finds stands in the note. `python tests/detection/score_table.py` prints
the whole table and the goals, on as many histories as wanted.
"""

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.bench.registry import Figure, row
from tests.bench.stage import Stage

SEEDS, SERIES = (7101, 7102), 100
FLEETS = (11, 112)
"""Small ones: some seconds of each."""
PARSINGS = 80
"""A run is judged in 3 ms where its record is parsed in 0.04."""


@row("detection", in_process=True)
def detection(_: Stage) -> Iterable[Figure]:
    """What our rules and those of others find in 200 histories, and what it costs."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "detection"))
    import score_table

    data = score_table.histories(SEEDS, SERIES)
    ours = score_table.scoring.evaluate(score_table.detect_record, data)
    for name, rule in score_table.peers_rules.RULES.items():
        theirs = score_table.scoring.evaluate(rule, data, checks=0)
        yield Figure(
            what="detection, per 1,000 points, CPU",
            value_ms=ours["ms_per_1000"],
            yardstick=name,
            yardstick_ms=theirs["ms_per_1000"],
            note=f"F1 {ours['F1']:.2f} against {theirs['F1']:.2f}, false alarms per 1,000 quiet commits "
            f"{ours['fa_per_1000']:.2f} against {theirs['fa_per_1000']:.2f}",
        )


@row("fleet", in_process=True)
def fleet(_: Stage) -> Iterable[Figure]:
    """Whose doing a change is, on two labelled fleets: CPU per run beside what parsing the run's record costs."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "detection" / "fleet"))
    import fleet_table
    from fleet_synthetic import Fleet

    found = fleet_table.evaluate(fleet_table.JudgeStream, FLEETS)
    records = [json.dumps(record) for seed in FLEETS for record in Fleet(seed).stream()]
    began = time.process_time()
    for record in records:
        json.loads(record)
    parsed_ms = 1000 * (time.process_time() - began) / len(records)
    yield Figure(
        what="joint detector, per run, CPU",
        value_ms=found["cpu_ms_per_run"],
        yardstick="its record parsed as JSON",
        yardstick_ms=parsed_ms,
        at_most=PARSINGS,
        note=f"regressions found {found['regressions_found']:.2f}, machine events "
        f"named {found['hardware_ok']:.2f}, causes right {found['cause_accuracy']:.2f}",
    )
