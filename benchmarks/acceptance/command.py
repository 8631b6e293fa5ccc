"""`python -m benchmarks acceptance`: measures what the time allows, and writes the page from all there is."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.acceptance import plan, sessions, targets
from benchmarks.acceptance.page import Measured, page
from benchmarks.acceptance.plan import Stage, Unit
from benchmarks.launch import PACKAGE_PARENT
from benchmarks.output.run_record import make_sure_writable
from benchmarks.spec import Preset, WrongCall

ENDING_S = 15.0
"""Kept free at the end: a run that is interrupted still writes what it has."""


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    accepting = commands.add_parser(
        "acceptance", help="measure every target of the suite within a lease of a GPU, and write a results page"
    )
    accepting.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="PAGE.md",
        help="the page; the runs go to a folder of its name beside it, and what is there already is not measured again",
    )
    accepting.add_argument(
        "--preset", choices=["full", "cpu"], default="full", help="cpu exercises the command and claims nothing"
    )
    accepting.add_argument("--quick", action="store_true", help="few rungs, lengths, shapes and sessions")
    accepting.add_argument("--minutes", type=float, default=10.0, help="of this call (default: 10); the next goes on")
    accepting.add_argument(
        "--stage", action="append", default=[], choices=[str(s) for s in Stage], help="only this; repeatable"
    )
    accepting.set_defaults(action=run)


@dataclass(frozen=True, slots=True)
class _Watch:
    """How much of the time is left."""

    until: float

    def left_s(self) -> float:
        return self.until - time.monotonic()


def run(options: argparse.Namespace) -> int:
    """Goes through the plan; 0 when no measured target is missed, 1 when one is, or when something failed."""
    if options.minutes <= 0:
        raise WrongCall(f"--minutes is {options.minutes:g}; it is a number above 0")
    out: Path = options.out
    make_sure_writable(out)
    folder, preset = out.with_suffix(""), Preset(options.preset)
    stages = {Stage(name) for name in options.stage} or set(Stage)
    watch = _Watch(time.monotonic() + 60 * options.minutes)
    units = plan.units(preset, quick=options.quick)
    wanted = plan.sessions(preset, quick=options.quick)
    kept = folder / "sessions.json"
    for stage in Stage:
        if stage not in stages:
            continue
        for unit in (unit for unit in units if unit.stage is stage):
            _measure(unit, folder / unit.name, watch)
        if stage is Stage.SESSIONS:
            one = sessions.of_benchmark(wanted, preset)
            sessions.measure(wanted, one, kept, lambda: watch.left_s() - ENDING_S, _tell)
    measured = _gather(options, folder, units, wanted, sessions.load(kept))
    out.write_text(page(measured))
    _tell(f"written: {out}")
    missed = [] if measured.cpu else [target for target in measured.targets if target.met is False]
    failed = any(result["status"] not in _FINE for run in measured.runs.values() for result in run["results"])
    return 1 if missed or failed else 0


_FINE = ("ok", "not_applicable")


def _tell(text: str) -> None:
    print(f"acceptance: {text}", file=sys.stderr)


def _measure(unit: Unit, folder: Path, watch: _Watch) -> None:
    """One unit in its folder, unless it is there; ended in time to write what it has."""
    if _is_done(folder):
        _tell(f"{unit.name}: there already")
        return
    if watch.left_s() < unit.at_least_s:
        _tell(f"{unit.name}: no time left for it")
        return
    folder.mkdir(parents=True, exist_ok=True)
    _tell(f"{unit.name}: {' '.join(unit.arguments)}")
    command = [sys.executable, "-P", "-m", "benchmarks", *unit.arguments]
    command += ["--out", str(folder / "run.json")] if unit.arguments[0] == "run" else []
    began = time.monotonic()
    answer, ended = _called(command, max(5.0, watch.left_s() - ENDING_S))
    (folder / "answer.json").write_text(answer)
    about = {"arguments": list(unit.arguments), "seconds": round(time.monotonic() - began, 1), "ended": ended}
    (folder / "unit.json").write_text(json.dumps(about))


def _called(command: Sequence[str], limit_s: float) -> tuple[str, str]:
    """What it printed, and how it ended. Out of time it is asked to end, and writes what is finished."""
    paths = filter(None, (str(PACKAGE_PARENT), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        answer, _ = process.communicate(timeout=limit_s)
        return answer, f"exit status {process.returncode}"
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            answer, _ = process.communicate(timeout=ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            answer, _ = process.communicate()
        return answer, "out of time"


def _is_done(folder: Path) -> bool:
    about = _read(folder / "unit.json")
    return about is not None and about["ended"] != "out of time"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found


def _gather(
    options: argparse.Namespace,
    folder: Path,
    units: Sequence[Unit],
    wanted: plan.Sessions,
    held: Sequence[sessions.Session],
) -> Measured:
    found = {unit.name: _read(folder / unit.name / "run.json") for unit in units}
    runs: Mapping[str, Mapping[str, Any]] = {name: document for name, document in found.items() if document is not None}
    smoke, verdicts = _read(folder / "smoke" / "unit.json"), sessions.judged(held)
    smoke_s = None if smoke is None or smoke["ended"] == "out of time" else float(smoke["seconds"])
    return Measured(
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        command=_command(options),
        cpu=options.preset == "cpu",
        runs=runs,
        targets=targets.targets(runs, verdicts, _overhead(folder), smoke_s),
        attention=targets.attention(runs),
        ceilings=targets.ceilings(runs),
        sessions=held,
        verdicts=verdicts,
        missing=[*_missing(units, folder, runs), *_missing_sessions(wanted, verdicts)],
    )


def _command(options: argparse.Namespace) -> str:
    words = ["python -m benchmarks acceptance", "--out", options.out.name, "--preset", options.preset]
    words += ["--quick"] * options.quick + [f"--minutes {options.minutes:g}"]
    return " ".join([*words, *(f"--stage {stage}" for stage in options.stage)])


def _overhead(folder: Path) -> float | None:
    try:
        outcomes = json.loads((folder / "overhead" / "answer.json").read_text())
    except (OSError, ValueError):
        return None
    return next((float(o["figures"]["overhead"]) for o in outcomes if "overhead" in o["figures"]), None)


def _missing(units: Sequence[Unit], folder: Path, runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Units never begun, cut short, or without one result that counts; each with its reason."""
    said = []
    for unit in units:
        about = _read(folder / unit.name / "unit.json")
        if about is None:
            said.append(f"`{unit.name}` ({' '.join(unit.arguments)}): not begun")
        elif about["ended"] == "out of time":
            said.append(f"`{unit.name}`: cut short after {about['seconds']} s")
        elif unit.arguments[0] == "run" and unit.name not in runs:
            said.append(f"`{unit.name}`: ended with {about['ended']} and no run.json")
    for name, document in runs.items():
        for result in document["results"]:
            if result["status"] != "ok":
                variant = " ".join(f"{key}={value}" for key, value in result["variant"].items())
                said.append(f"`{name}`: {result['benchmark']} {variant}: {result['status']}: {result.get('error')}")
    return said


def _missing_sessions(wanted: plan.Sessions, verdicts: sessions.Verdicts) -> list[str]:
    lacking = 2 * wanted.count - verdicts.honest - verdicts.slowed
    return [f"{lacking} of {2 * wanted.count} sessions"] if lacking > 0 else []
