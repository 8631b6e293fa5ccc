"""Runs a selection of benchmarks: fresh processes in random order, with a record that is complete whenever written.

A failed benchmark is data; the rest of the suite continues. An interruption writes what is finished, marked incomplete.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.analysis import diagnose, measurements, trust
from benchmarks.analysis.peaks import link_gb_per_s
from benchmarks.pins import Pins, of_case
from benchmarks.registry import Selected
from benchmarks.running.launch import CPU_ENVIRONMENT, Launcher
from benchmarks.running.plan import SCALED_DOWN, Repetition, needs_more, processes_of, repetitions, tasks_of
from benchmarks.running.progress import ProgressBar
from benchmarks.spec import Direction, Preset, Status, slug_of
from benchmarks.torchrun import place_of

QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to run benchmarks."""

    selection: tuple[Selected, ...]
    preset: Preset
    implementation: str | None
    processes: int
    seed: int
    timeout_s: float | None = None
    profile_into: Path | None = None
    """Where traces and kernel tables go; None for a run without profiling."""
    precision: float | None = None
    """Repeat beyond the plan until a change of this fraction would show, at most `MOST_PROCESSES` per variant."""
    following: bool = False
    """Whether another process leads: this one prints nothing, and reads no canary."""
    pins: Pins = field(default_factory=dict)
    """Which backend a case with a choice uses, by accelerator and case."""
    unknown: tuple[str, ...] = ()
    """Sentences about unknown ids; each becomes a failed result."""


@dataclass(slots=True)
class CaseState:
    """One case while it runs: the reports so far, and its outcome once it has ended."""

    selected: Selected
    reports: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """Wall time of each process, from which `expected` learns."""
    status: Status | None = None
    error: str | None = None
    output_tail: str = ""


def _key(selected: Selected) -> tuple[str, str]:
    return selected.benchmark.id, str(sorted(selected.case.variant.items()))


class SuiteSession:
    """One run of the suite in progress."""

    def __init__(self, request: Request, launcher: Launcher) -> None:
        self.request, self.launcher = request, launcher
        self.states = {_key(selected): CaseState(selected) for selected in request.selection}
        for state in self.states.values():
            if state.selected.case.not_applicable:
                state.status, state.error = Status.NOT_APPLICABLE, state.selected.case.not_applicable
        self.plan = repetitions(request.selection, request.processes, request.seed)
        self.progress = ProgressBar(total=len(self.plan), quiet=request.following)
        self.order: list[str] = []
        self.artifacts: dict[tuple[str, str], dict[str, str]] = {}
        self.device_busy: dict[tuple[str, str], float] = {}
        self.closing: dict[str, Any] = {}
        self.interrupted = False

    def run(self) -> None:
        """Runs the whole plan, or until interrupted."""
        last = len(self.plan) - 1
        for position, repetition in enumerate(self.plan):
            if self.interrupted:
                return
            state = self.states[_key(repetition.selected)]
            note = f"{repetition.selected.benchmark.id} {' '.join(map(str, repetition.selected.case.variant.values()))}"
            if state.status is not None:
                self.progress.finished(f"{note}: {state.status}")
                continue
            self.progress.starting(note)
            closing = position == last and self.request.precision is None
            self._repeat(state, repetition, first=position == 0, last=closing)
            self.progress.finished(note)

        self._repeat_to_precision()
        self._close()
        if self.request.profile_into is not None:
            self._profile_all(self.request.profile_into)

    def _close(self) -> None:
        """Reads the closing canary in a process of its own where no repetition did.

        With a precision to reach nobody knows beforehand which repetition is the last; and the planned last one may
        have been left out or have failed.
        """
        if self.interrupted or not self._reading("canary_before") or self._reading("canary_after"):
            return
        selected = self.plan[-1].selected
        job = self._job(Repetition(selected, 0), first=False, last=False) | {"tasks": ["canary_after"]}
        report = self.launcher.run(job, selected.case.timeout_s, self._environment_of(selected)).report
        if "canary_after" in report:
            self.closing = {"canary_after": report["canary_after"]}

    def _repeat_to_precision(self) -> None:
        """Rounds of one more process for each variant whose spread still hides a change of the wanted size."""
        precision = self.request.precision
        while precision is not None and not self.interrupted:
            lacking = [state for state in self.states.values() if self._needs_more(state, precision)]
            if not lacking:
                return
            self.progress.grow(len(lacking))
            for state in lacking:
                if self.interrupted:
                    return
                self._repeat(state, Repetition(state.selected, len(state.reports)), first=False, last=False)
                self.progress.finished(f"{state.selected.benchmark.id}: to {precision:.1%}")

    def _needs_more(self, state: CaseState, precision: float) -> bool:
        if state.status is not None:
            return False
        return needs_more(
            measurements.of_reports(state.reports) if state.reports else [], precision, len(state.reports)
        )

    def _profile_all(self, folder: Path) -> None:
        """One more process per variant, profiled: its times are in no sample."""
        fit = [state for state in self.states.values() if state.status is None and state.reports]
        self.progress.grow(len(fit))
        for state in fit:
            if self.interrupted:
                return
            self._profile(state, folder)
            self.progress.finished(f"{state.selected.benchmark.id}: profiled")

    def _profile(self, state: CaseState, folder: Path) -> None:
        stem = f"{state.selected.benchmark.id}.{slug_of(state.selected.case.variant)}"
        trace, kernels = folder / f"{stem}.trace.json.gz", folder / f"{stem}.kernels.json"
        job = self._job(Repetition(state.selected, len(state.reports)), first=False, last=False)
        job |= {"tasks": ["profile"], "extra": {**job["extra"], "trace": str(trace.resolve())}}
        report = self.launcher.run(job, state.selected.case.timeout_s, self._environment_of(state.selected)).report
        if "kernels" in report:
            kernels.write_text(json.dumps(report["kernels"]))
            self.artifacts[_key(state.selected)] = {"trace": trace.name, "kernels": kernels.name}
            if "device_busy" in report["kernels"]:
                self.device_busy[_key(state.selected)] = report["kernels"]["device_busy"]

    def _environment_of(self, selected: Selected) -> Mapping[str, str]:
        return CPU_ENVIRONMENT if selected.case.config.get("device", "cpu") == "cpu" else {}

    def interrupt(self) -> None:
        """Ends the running process and the plan; safe in a signal handler."""
        self.interrupted = True
        self.launcher.stop()

    def _repeat(self, state: CaseState, repetition: Repetition, *, first: bool, last: bool) -> None:
        case = repetition.selected.case
        lacking = self._lacking_gpus(case.world_size)
        if lacking and case.config.get("device") == "cuda":
            state.status, state.error = Status.NOT_APPLICABLE, lacking
            return
        self.order.append(f"{repetition.selected.benchmark.id}#{repetition.number}")
        outcome = self.launcher.run(
            self._job(repetition, first=first, last=last),
            self.request.timeout_s or case.timeout_s,
            self._environment_of(repetition.selected),
        )
        report = outcome.report
        state.output_tail = outcome.output_tail or state.output_tail
        status = Status(report["status"])
        if status is Status.INCOMPLETE or self.interrupted:
            return
        state.reports.append(report)
        state.seconds.append(round(outcome.seconds, 2))
        if status is not Status.OK:
            state.status, state.error = status, report["error"]

    def _lacking_gpus(self, ranks: int) -> str | None:
        """Why so many ranks cannot be, by what an earlier process saw: a start of torch for each would only say it."""
        here = self.child_environment().get("accelerator_count")
        if here is None or ranks <= here or place_of(os.environ) is not None:
            return None
        return f"{ranks} ranks need {ranks} GPUs and {here} {'is' if here == 1 else 'are'} here; nothing crosses a link"

    def _job(self, repetition: Repetition, *, first: bool, last: bool) -> dict[str, Any]:
        benchmark, case = repetition.selected.benchmark, repetition.selected.case
        leading = not self.request.following
        return {
            "benchmark": benchmark.id,
            "workload": benchmark.workload,
            "variant": dict(case.variant),
            "config": dict(case.config),
            "preset": str(self.request.preset),
            "implementation": self.request.implementation if benchmark.signature else None,
            "builtin": benchmark.builtin,
            "process": repetition.number,
            "processes": self.request.processes,
            "seed": self.request.seed,
            "tasks": tasks_of(repetition.number, first=first and leading, last=last and leading),
            "extra": self._pinned(repetition.selected),
        }

    def _pinned(self, selected: Selected) -> dict[str, Any]:
        """The backend that every process of a case takes: that of its first one, or one that was pinned before."""
        reports = self.states[_key(selected)].reports
        chosen = next((r["notes"]["chosen_backend"] for r in reports if "chosen_backend" in r.get("notes", {})), None)
        pins = of_case(self.request.pins, selected.name)
        return ({"chosen_backend": chosen} if chosen else {}) | ({"pins": pins} if pins else {})

    # what was found

    def results(self) -> list[dict[str, Any]]:
        """Every case's result, finished or not, in the order of the registry; then the unknown ids."""
        found = [self._result(state) for state in self.states.values()]
        for sentence in self.request.unknown:
            name = sentence.split("'")[1] if "'" in sentence else "unknown"
            found.append(
                {
                    "benchmark": name,
                    "variant": {},
                    "preset": str(self.request.preset),
                    "status": Status.FAILED,
                    "error": sentence,
                }
            )
        return found

    def _result(self, state: CaseState) -> dict[str, Any]:
        benchmark, case = state.selected.benchmark, state.selected.case
        wanted = processes_of(state.selected, self.request.processes)
        result: dict[str, Any] = {
            "benchmark": benchmark.id,
            "variant": dict(case.variant),
            "preset": str(self.request.preset),
            "mode": benchmark.mode,
            "backend": case.backend,
            "world_size": case.world_size,
            "status": state.status or (Status.OK if len(state.reports) >= wanted else Status.INCOMPLETE),
            "error": state.error,
            "config": dict(case.config),
        }
        if result["status"] is Status.INCOMPLETE:
            result["error"] = f"interrupted after {len(state.reports)} of {wanted} processes"
        if _key(state.selected) in self.artifacts:
            result["artifacts"] = dict(self.artifacts[_key(state.selected)])
        correctness = next((report["correctness"] for report in state.reports if "correctness" in report), None)
        if correctness is not None:
            result["correctness"] = correctness
        notes = [report["notes"] for report in state.reports if report.get("notes")]
        if notes:
            result["notes"] = notes[0] | ({"by_process": notes} if len(notes) > 1 else {})
        detail = next((report["traceback"] for report in state.reports if report.get("traceback")), None)
        if detail:
            result["traceback"] = detail
        if result["status"] in (Status.FAILED, Status.TIMEOUT) and state.output_tail:
            result["output_tail"] = state.output_tail
        if result["status"] in (Status.OK, Status.INCOMPLETE) and state.reports:
            self._add_figures(result, state.reports, self.device_busy.get(_key(state.selected)))
            result["harness"]["process_seconds"] = list(state.seconds)
        return result

    def _add_figures(
        self, result: dict[str, Any], reports: Sequence[Mapping[str, Any]], device_busy: float | None
    ) -> None:
        result["measurements"] = measurements.of_reports(reports)
        if device_busy is not None:
            busy = measurements.derived("device_busy", "ratio", device_busy, Direction.HIGHER)
            result["measurements"].append(busy | {"formula": "union of kernels over steps, in a profiled process"})
        times = [report["times"] for report in reports if "times" in report]
        result["harness"] = {"scaled_down": SCALED_DOWN.get(self.request.preset)}
        if times:
            self._add_roofline(result, reports, times)
        link = link_gb_per_s(self.child_environment().get("accelerator", ""))
        found = diagnose.classify(result, total_memory_bytes=self._device_memory(), link_gb_per_s=link)
        if found["tree"] or "roofline" in result:
            result["diagnosis"] = found

    def _add_roofline(
        self, result: dict[str, Any], reports: Sequence[Mapping[str, Any]], times: Sequence[Mapping[str, Any]]
    ) -> None:
        result["harness"] |= {"clock": times[0]["clock"], "warm_up_steps": [time["warm_up_steps"] for time in times]}
        agreement = [time["events_over_wall"] for time in times if "events_over_wall" in time]
        if agreement:
            result["harness"]["events_agree_with_wall"] = measurements.events_agree(agreement)
        ceilings = self.ceilings()
        work = next((report["work"] for report in reports if "work" in report), None)
        compute = measurements.compute_ceiling(ceilings, (work or {}).get("precision", "bf16"))
        traffic = next((v * 1e9 for name, v in ceilings.items() if name.endswith("_gb_per_s")), None)
        if work and compute and traffic:
            step_s = median(median(time["step_s"]) for time in times)
            counted = [counter for report in reports for counter in report.get("counters", ())]
            kept = next((counter["value"] for counter in counted if counter["metric"] == "activation_bytes"), 0.0)
            roof = measurements.roofline_of(work, step_s, compute, traffic, kept)
            if roof:
                result["roofline"] = roof

    def _device_memory(self) -> float | None:
        return self.child_environment().get("accelerator_memory_bytes")

    def run_status(self, telemetry: Mapping[str, Any]) -> str:
        """ok if anything succeeded; failed if nothing did; incomplete if it was interrupted.

        quarantined if the machine cannot be trusted: its canary moved far beyond its noise, or another user's process
        was on the accelerator.
        """
        if self.interrupted:
            return Status.INCOMPLETE
        if self.untrustworthy(telemetry):
            return QUARANTINED
        statuses = [result["status"] for result in self.results()]
        bad = [status for status in statuses if status not in (Status.OK, Status.NOT_APPLICABLE)]
        return Status.FAILED if bad and Status.OK not in statuses else Status.OK

    def untrustworthy(self, telemetry: Mapping[str, Any]) -> str | None:
        """Why this run must not be judged, or None."""
        return trust.why_not(self.canary(), telemetry)

    def ceilings(self) -> dict[str, float]:
        """Measured limits, from the first and the last process."""
        readings = [reading["ceilings"] for reading in self._readings()]
        names = readings[0] if readings else {}
        return {name: median(reading[name] for reading in readings) for name in names}

    def canary(self) -> list[dict[str, Any]]:
        """The canary's readings before and after."""
        return trust.canary(self._reading("canary_before"), self._reading("canary_after"), self.request.preset)

    def _reading(self, which: str) -> dict[str, Any] | None:
        reports = [self.closing, *(report for state in self.states.values() for report in state.reports)]
        return next((report[which] for report in reports if which in report), None)

    def _readings(self) -> list[dict[str, Any]]:
        return [reading for which in ("canary_before", "canary_after") if (reading := self._reading(which))]

    def child_environment(self) -> dict[str, Any]:
        """The part of the environment that only a process with torch can read."""
        return next(
            (
                report["environment"]
                for state in self.states.values()
                for report in state.reports
                if "environment" in report
            ),
            {},
        )

    def measured_ms(self, result: Mapping[str, Any]) -> list[tuple[int, int]]:
        """When each process of this result began and ended measuring, in milliseconds since the epoch."""
        state = self.states.get((str(result["benchmark"]), str(sorted(result["variant"].items()))))
        reports = state.reports if state else ()
        return [(r["measured_from_ms"], r["measured_to_ms"]) for r in reports if "measured_to_ms" in r]


def now_text() -> str:
    """This moment in the contract's notation."""
    seconds = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"
