"""`python -m benchmarks acceptance`: measures what the time allows, and writes the page from all there is."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.acceptance import plan, sessions, targets
from benchmarks.acceptance.archive import LONGEST_SHARE, Archive, Call, Ended, UnitRecord, code_digest, opened
from benchmarks.acceptance.page import PageContent, page
from benchmarks.acceptance.plan import AcceptancePart, Unit
from benchmarks.environment import accelerator_name
from benchmarks.output.run_record import make_sure_writable
from benchmarks.running.launch import PACKAGE_PARENT
from benchmarks.spec import Preset, Status, WrongCall

ENDING_S = 15.0
"""Kept free at the end of a call: what is interrupted still writes what it has, and the archive is packed."""
LEAST_S = 20.0
"""Nothing is begun when less time than this is left."""
TAIL_LINES = 40


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    accepting = commands.add_parser(
        "acceptance",
        help="measure what the suite promises of a GPU, in calls of some minutes, and write a results page",
    )
    accepting.add_argument(
        "--out",
        type=Path,
        metavar="PAGE.md",
        help="the page (default: docs/results/gpu-DEVICE.md); all runs are in one archive beside it, PAGE.tar.gz; "
        "what it contains is not measured again",
    )
    accepting.add_argument(
        "--preset", choices=["full", "cpu"], default="full", help="cpu rehearses all of it, small, and claims nothing"
    )
    accepting.add_argument("--minutes", type=float, default=9.0, help="for this call (default: 9); the next continues")
    accepting.add_argument(
        "--part",
        action="append",
        default=[],
        choices=[str(part) for part in AcceptancePart],
        help="only this; repeatable",
    )
    accepting.set_defaults(action=run)


@dataclass(frozen=True, slots=True)
class Watch:
    """How much of a call's time is left."""

    began: float
    seconds: float

    def left_s(self) -> float:
        """Until the call must write what it has."""
        return self.began + self.seconds - ENDING_S - time.monotonic()

    def share_left(self) -> float:
        """The same, of the whole call."""
        return self.left_s() / self.seconds


def run(options: argparse.Namespace) -> int:
    """Goes through the plan; 0 when no measured target is missed, 1 when one is, or when something failed."""
    watch = Watch(time.monotonic(), 60 * options.minutes)
    if options.minutes <= 0:
        raise WrongCall(f"--minutes is {options.minutes:g}; it is a number above 0")
    preset = Preset(options.preset)
    out: Path = options.out or Path("docs", "results", f"{_name_of_the_machine(preset)}.md")
    make_sure_writable(out)
    parts = [part for part in AcceptancePart if not options.part or part in options.part]
    with opened(out.with_suffix(".tar.gz")) as archive, _ended_by_a_signal():
        archive.begin(Call(date=_now(), command=_command(options), seconds=0.0, ended="killed"))
        ended = _go_through(parts, preset, archive, watch)
        archive.end(time.monotonic() - watch.began, ended)
        measured = _gather(preset, archive)
    out.write_text(page(measured))
    _report(f"{ended}; written: {out} and {archive.path.name}")
    missed = [] if measured.cpu else [target for target in measured.targets if target.met is False]
    return 1 if missed or any(record.ended is Ended.FAILED for record in archive.records.values()) else 0


def _name_of_the_machine(preset: Preset) -> str:
    if preset is Preset.CPU:
        return "cpu-rehearsal"
    name = accelerator_name()
    if name is None:
        raise WrongCall("no GPU answers here, so the page has no name; give --out, or --preset cpu for a rehearsal")
    return "gpu-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def _report(text: str) -> None:
    print(f"acceptance: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _ended_by_a_signal() -> Iterator[None]:
    """A call that is asked to end takes its processes along; what it had finished is in the archive."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# what is measured


def _go_through(parts: Sequence[AcceptancePart], preset: Preset, archive: Archive, watch: Watch) -> str:
    """The parts in their order, until the time is up or a part that must be whole fails; returns how it ended."""
    units, wanted, code = plan.units(preset), plan.sessions(preset), code_digest()
    for part in parts:
        of_part = plan.of_part(units, part)
        stopped = measure_units(of_part, archive, watch, code, lambda unit, s: _measure(unit, archive, s))
        if stopped is not None:
            return stopped
        if part is AcceptancePart.SESSIONS:
            _measure_sessions(wanted, archive, watch)
    left = [unit for part in parts for unit in _still_to_do(plan.of_part(units, part), archive, code)]
    if left:
        return f"out of time, {len(left)} units are left"
    unshown = AcceptancePart.SESSIONS in parts and len(sessions.load(archive.folder / "sessions.json")) < wanted.count
    if unshown:
        return "sessions are left"
    return "all is measured" if len(parts) == len(AcceptancePart) else f"all of {', '.join(parts)} is measured"


def _measure_sessions(wanted: plan.Sessions, archive: Archive, watch: Watch) -> None:
    kept, call = archive.folder / "sessions.json", len(archive.calls)
    lacking = sessions.measure(
        wanted, sessions.of_case(wanted, call, watch.left_s), kept, watch.left_s, _report, archive.keep
    )
    if lacking is not None:
        (archive.folder / "sessions.log").write_text(lacking)
        _report(f"session ended: {lacking}")
    archive.keep()


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """How one unit ended, with the sentence and the log of a failure."""

    ended: Ended
    said: str = ""
    log: str = ""


def measure_units(
    units: Sequence[Unit],
    archive: Archive,
    watch: Watch,
    code: str,
    measure: Callable[[Unit, float], UnitOutcome],
) -> str | None:
    """Measures what is missing and fits into the remaining time; each unit is stored as soon as it ends.

    In the first part a failure ends the call, with its log: what is broken there is broken for everything that follows.
    The next call retries it if the code has changed, and otherwise continues without it. Returns why the call must end.
    """
    for unit in _still_to_do(units, archive, code):
        left, share, expected_s = watch.left_s(), watch.share_left(), _expected_s(unit, archive)
        if left < LEAST_S or (left < expected_s and share < LONGEST_SHARE):
            _report(f"{unit.name}: no time left for it ({left:.0f} s, it takes some {expected_s:.0f} s)")
            continue
        _report(f"{unit.name}: {' '.join(unit.arguments)}")
        began = time.monotonic()
        found = measure(unit, left)
        seconds = round(time.monotonic() - began, 1)
        archive.record(
            unit.name,
            UnitRecord(
                ended=found.ended,
                seconds=seconds,
                call=len(archive.calls),
                code=code,
                said=found.said,
                share=share if found.ended is Ended.CUT_SHORT else 0.0,
            ),
        )
        _report(f"{unit.name}: {found.ended} after {seconds:g} s{f': {found.said}' if found.said else ''}")
        if found.ended is Ended.FAILED and unit.part is AcceptancePart.FIRST:
            print("\n".join(found.log.splitlines()[-TAIL_LINES:]), file=sys.stderr)
            return f"stopped at {unit.name}, which failed"
    return None


def _expected_s(unit: Unit, archive: Archive) -> float:
    """What other processes of the case took in this acceptance; else what is known of it.

    No less than it had in vain, where it was cut short.
    """
    others = [
        record.seconds
        for name, record in archive.records.items()
        if record.ended is Ended.DONE and plan.case_of(name) == plan.case_of(unit.name)
    ]
    had = archive.records.get(unit.name)
    in_vain = had.seconds if had and had.ended is Ended.CUT_SHORT else 0.0
    return max(median(others) if others else unit.expected_s, in_vain)


def _still_to_do(units: Sequence[Unit], archive: Archive, code: str) -> list[Unit]:
    """Units that are not begun, were cut short and may fit a call, or failed by other code than this."""

    def lacks(record: UnitRecord | None) -> bool:
        if record is None:
            return True
        if record.ended is Ended.CUT_SHORT:
            return record.share < LONGEST_SHARE
        return record.ended is Ended.FAILED and record.code != code

    return [unit for unit in units if lacks(archive.records.get(unit.name))]


def _measure(unit: Unit, archive: Archive, limit_s: float) -> UnitOutcome:
    """One unit as a process of its own, its run and its log kept in the unit's folder."""
    folder = archive.of(unit.name)
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "run.json"
    out.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "benchmarks", *unit.arguments]
    answer, in_time, status = _called(command + (["--out", str(out)] if unit.is_run else []), folder, limit_s)
    log = (folder / "log.txt").read_text(errors="replace")
    if not in_time:
        out.unlink(missing_ok=True)
        return UnitOutcome(Ended.CUT_SHORT, log=log)
    if not unit.is_run:
        (folder / "answer.json").write_text(answer)
        return UnitOutcome(Ended.DONE) if status == 0 else UnitOutcome(Ended.FAILED, f"exit status {status}", log)
    problem = _problem_of(out, unit, status)
    return UnitOutcome(Ended.DONE) if problem is None else UnitOutcome(Ended.FAILED, problem, log)


def _problem_of(out: Path, unit: Unit, status: int) -> str | None:
    try:
        (result,) = json.loads(out.read_text())["results"]
    except (OSError, ValueError, KeyError):
        return f"exit status {status} and no run.json"
    good = (Status.OK, Status.NOT_APPLICABLE) if unit.may_lack else (Status.OK,)
    return None if result["status"] in good else f"{result['status']}: {result['error']}"


def _called(command: Sequence[str], folder: Path, limit_s: float) -> tuple[str, bool, int]:
    """Run a command: output, whether it ended by itself, status. Out of time it is asked to end, then made to."""
    paths = filter(None, (str(PACKAGE_PARENT), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            answer, _ = process.communicate(timeout=max(1.0, limit_s))
            return answer, True, process.returncode
        except subprocess.TimeoutExpired:
            return "", False, _end(process)
        except BaseException:
            _end(process)
            raise


def _end(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=ENDING_S / 2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    return process.returncode


# what the page is made of


def _gather(preset: Preset, archive: Archive) -> PageContent:
    units, wanted = plan.units(preset), plan.sessions(preset)
    runs = archive.runs([unit.name for unit in units])
    held = sessions.load(archive.folder / "sessions.json")
    verdicts = sessions.judged(held)
    failed = sum(record.ended is Ended.FAILED for record in archive.records.values())
    return PageContent(
        calls=archive.calls,
        cpu=preset is Preset.CPU,
        runs=runs,
        records=archive.records,
        targets=targets.targets(runs, held, verdicts, _overhead(archive), failed),
        attention=targets.attention(runs),
        ceilings=targets.ceilings(runs),
        sessions=held,
        verdicts=verdicts,
        archive=archive.path.name,
        missing=[*_missing(units, archive, runs), *_missing_sessions(wanted, held)],
    )


def _command(options: argparse.Namespace) -> str:
    words = ["python -m benchmarks acceptance", f"--minutes {options.minutes:g}"]
    words += [f"--out {options.out.name}"] if options.out else []
    words += ["--preset cpu"] * (options.preset == "cpu")
    return " ".join([*words, *(f"--part {part}" for part in options.part)])


def _overhead(archive: Archive) -> float | None:
    try:
        outcomes = json.loads((archive.of("overhead") / "answer.json").read_text())
    except (OSError, ValueError):
        return None
    return next((float(o["figures"]["overhead"]) for o in outcomes if "overhead" in o["figures"]), None)


def _missing(units: Sequence[Unit], archive: Archive, runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Units never begun, cut short, failed, or not applicable here; each with its reason."""
    said = []
    for unit in units:
        record = archive.records.get(unit.name)
        if record is None:
            said.append(f"`{unit.name}`: not begun")
        elif record.ended is Ended.CUT_SHORT:
            never = "; it does not fit a call" if record.share >= LONGEST_SHARE else ""
            said.append(f"`{unit.name}`: cut short after {record.seconds:g} s{never}")
        elif record.ended is Ended.FAILED:
            said.append(f"`{unit.name}`: **failed** in call {record.call}: {record.said}")
        elif unit.name in runs and (result := runs[unit.name]["results"][0])["status"] != Status.OK:
            said.append(f"`{unit.name}`: {result['status']}: {result.get('error')}")
    return said


def _missing_sessions(wanted: plan.Sessions, held: Sequence[sessions.MeasuredArms]) -> list[str]:
    lacking = wanted.count - len(held)
    return [f"{lacking} of {wanted.count} sessions"] if lacking > 0 else []
