"""Our joint detector on fresh labelled fleets, beside the goals: the table of docs/detection.md.

python tests/detection/fleet/fleet_table.py --seeds 1001-1020
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from fleet_scoring import evaluate

from backend.regression.joint.stream import JudgeStream

GOALS = (
    ("machine events named correctly", "hardware_ok", ">=", 0.90),
    ("of these, workers that no canary shows", "blind_ok", ">=", 0.80),
    ("regressions reported per machine event", "red_per_machine", "<=", 0.05),
    ("regressions reported for one event, at most", "storm", "<=", 2),
    ("upgrades named correctly", "environment_ok", ">=", 0.95),
    ("suite versions named correctly", "method_ok", ">=", 0.97),
    ("regressions found", "regressions_found", ">=", 0.95),
    ("of these, within 5 commits of a machine event or upgrade", "hard_found", ">=", 0.93),
    ("drift found", "drifts_found", ">=", 0.90),
    ("improvements found", "gains_found", ">=", 0.90),
    ("cause right, of what was reported", "cause_accuracy", ">=", 0.97),
    ("code excused as machine or upgrade", "code_excused", "<=", 0.01),
    ("incidents per event", "incidents_per_event", "<=", 1.10),
    ("series listed, of those that moved", "series_listed", ">=", 0.95),
    ("series listed wrongly", "series_wrong", "<=", 0.04),
    ("false incidents per 1,000 runs", "false_per_1000", "<=", 2),
    ("false regressions confirmed per project and week", "false_regressions_per_week", "<=", 1),
    ("commits of documentation blamed", "docs_blamed", "<=", 0),
    ("true commit inside the range", "range_right", ">=", 0.90),
    ("testbeds named", "testbeds_found", ">=", 0.95),
    ("delay of regressions, runs, median", "delay_runs", "<=", 4),
    ("delay of regressions, runs, p90", "delay_runs_p90", "<=", 7),
    ("delay of machine events, commits, median", "delay_infra", "<=", 5),
    ("delay of machine events, commits, p90", "delay_infra_p90", "<=", 15),
    ("sessions per event", "sessions_per_event", "<=", 2),
    ("sessions per 1,000 runs", "sessions_per_1000", "<=", 60),
    ("retracted, of what was reported", "retracted", "<=", 0.03),
    ("fixed regressions closed", "fixed_closed", ">=", 0.95),
    ("malformed answers", "malformed", "<=", 0),
    ("CPU ms per run", "cpu_ms_per_run", "<=", 3),
)


def holds(value: float, side: str, goal: float) -> bool:
    return value >= goal if side == ">=" else value <= goal


def table(found: dict) -> str:
    size = f"{found['fleets']} fleets, {found['runs']:,} runs, {found['weeks']:.1f} weeks"
    rows = [size, "", "| figure | ours | goal | |", "|---|---|---|---|"]
    for title, key, side, goal in GOALS:
        verdict = "holds" if holds(found[key], side, goal) else "MISSED"
        rows.append(f"| {title} | {found[key]:.3g} | {side} {goal:g} | {verdict} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1001-1020", help="such as 1001-1020 or 7,9")
    given = parser.parse_args().seeds
    first, _, last = given.partition("-")
    seeds = range(int(first), int(last) + 1) if last else [int(seed) for seed in given.split(",")]
    print(table(evaluate(JudgeStream, seeds)))


if __name__ == "__main__":
    main()
