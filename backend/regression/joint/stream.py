"""`tidemark judge --stream`: runs in, incidents and requests for sessions out, one JSON object a line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import numpy as np

from backend.regression.joint.detector import JointDetector
from backend.regression.joint.terms import (
    HARMLESS_THROTTLE,
    SIZES,
    Ask,
    Floats,
    Incident,
    IncidentAction,
    IncidentUpdate,
    JointRun,
    JointSeries,
    SessionResult,
)
from backend.regression.terms import Role


class JudgeStream:
    """Answers one record after another."""

    def __init__(self) -> None:
        self.detector: JointDetector | None = None
        self.ids: list[str] = []
        self.signs: Floats = np.zeros(0)
        self.lower_canary: Mapping[str, bool] = {}

    def __call__(self, record: Mapping[str, Any]) -> dict[str, Any]:
        kind = record["type"]
        if kind == "fleet":
            self._begin(record)
            return {"incidents": []}
        if self.detector is None:
            raise ValueError(f"the first line must be of type 'fleet', not {kind!r}")
        if kind == "run":
            return self._answer(*self.detector.run(self._run(record)))
        if kind == "accept":
            series = [self.ids.index(s) for s in record["series"]]
            return self._answer(self.detector.accept(record["commit"], record["testbeds"], series), None)
        if kind == "confirm":
            return self._answer(*self.detector.session(self._session(record)))
        if kind == "end":
            return {"incidents": []}
        raise ValueError(f"unknown type {kind!r}; known: fleet, run, accept, confirm, end")

    def _begin(self, record: Mapping[str, Any]) -> None:
        series = [
            JointSeries(
                id=s["id"],
                suite=s["suite"],
                benchmark=s["benchmark"],
                role=Role(s["role"]),
                sign=1.0 if s["direction"] == "lower_is_better" else -1.0,
                exact=s["exact"],
                machine_bound=not s["exact"] and s["unit"] not in SIZES,
            )
            for s in record["series"]
        ]
        self.ids = [s.id for s in series]
        self.signs = np.array([s.sign for s in series])
        self.lower_canary = {name: side == "lower" for name, side in record["canary"].items()}
        self.detector = JointDetector(series, list(record["testbeds"]))

    def _run(self, record: Mapping[str, Any]) -> JointRun:
        cost, spread = self._costs(record["values"])
        telemetry = record["telemetry"]
        return JointRun(
            position=record["commit"],
            testbed=record["testbed"],
            worker=record["worker"],
            timestamp=float(record["timestamp"]),
            cost=cost,
            spread=spread,
            environment=record["environment"],
            suite_version=record["suite_version"],
            canary={
                name: math.log(value) if self.lower_canary.get(name, False) else -math.log(value)
                for name, value in record["canary"].items()
            },
            throttle=frozenset(telemetry["throttle"]) - HARMLESS_THROTTLE,
            clock_mhz=telemetry["sm_clock_mhz"],
            temperature_c=telemetry["temperature_c"],
            foreign_processes=telemetry["foreign_processes"],
            load=telemetry["load"],
            docs_only=record["touched_paths"] == "docs",
        )

    def _costs(self, values: Mapping[str, Sequence[float]]) -> tuple[Floats, Floats]:
        return log_costs([values.get(name, ()) for name in self.ids], self.signs)

    def _session(self, record: Mapping[str, Any]) -> SessionResult | None:
        if "error" in record:
            return None
        base, noise_base = self._costs({name: arms["base"] for name, arms in record["values"].items()})
        head, noise_head = self._costs({name: arms["head"] for name, arms in record["values"].items()})
        processes = min(len(arm) for arms in record["values"].values() for arm in arms.values())
        return SessionResult(
            testbed=record["testbed"],
            base=record["base"],
            head=record["head"],
            change=head - base,
            spread=(noise_base + noise_head) / 2,
            processes=processes,
        )

    def _answer(self, updates: Sequence[IncidentUpdate], ask: Ask | None) -> dict[str, Any]:
        answer: dict[str, Any] = {"incidents": [self._line(update) for update in updates]}
        if ask is not None:
            answer["request"] = {
                "kind": "confirm",
                "series": [self.ids[s] for s in ask.series],
                "base": ask.base,
                "head": ask.head,
                "testbed": ask.testbed,
                **({} if ask.avoid is None else {"avoid": ask.avoid}),
            }
        return answer

    def _line(self, update: IncidentUpdate) -> dict[str, Any]:
        incident = update.incident
        if update.action in (IncidentAction.CLOSE, IncidentAction.WITHDRAW):
            return {"id": incident.id, "action": update.action.value}
        fields = self._fields(incident)
        return {"id": incident.id, "action": update.action.value, **fields}

    def _fields(self, incident: Incident) -> dict[str, Any]:
        return {
            "kind": incident.kind.value,
            "cause": incident.cause.value,
            "series": [self.ids[s] for s in incident.series],
            "testbed": list(incident.testbeds),
            "worker": incident.worker,
            "first_bad_commit": incident.first_bad,
            "range": [incident.range_start, incident.range_end],
            "magnitude_pct": 100 * math.expm1(incident.magnitude),
            "confirmed": True,
        }


def log_costs(processes: Sequence[Sequence[float]], signs: Floats) -> tuple[Floats, Floats]:
    """Mean log cost and its variance between processes, per series; NaN where nothing was measured, or nothing > 0."""
    table = np.full((len(processes), max([1, *map(len, processes)])), np.nan)
    for number, values in enumerate(processes):
        table[number, : len(values)] = values
    logs = np.log(np.where(table > 0, table, np.nan)) * signs[:, None]
    return _typical(logs), _variance(logs)


def _mean(logs: Floats) -> Floats:
    seen = np.isfinite(logs)
    count = seen.sum(axis=1)
    total = np.where(seen, logs, 0.0).sum(axis=1)
    mean: Floats = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean


def _typical(logs: Floats) -> Floats:
    """Mean without the lowest and the highest process where there are at least four: one odd process is not heard."""
    count = np.isfinite(logs).sum(axis=1)
    inner = np.sort(logs, axis=1)  # NaN last
    number = np.arange(logs.shape[1])
    cut = (count >= 4).astype(np.int64)[:, None]
    kept = (number >= cut) & (number < count[:, None] - cut)
    return _mean(np.where(kept, inner, np.nan))


def _variance(logs: Floats) -> Floats:
    seen = np.isfinite(logs)
    count = seen.sum(axis=1)
    centred = np.where(seen, logs - _mean(logs)[:, None], 0.0)
    variance: Floats = np.where(count > 1, (centred**2).sum(axis=1) / np.maximum(count - 1, 1), np.nan)
    return variance


def record_of(line: str) -> dict[str, Any]:
    """The record of one line; raises ValueError where it is none."""
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError(f"found {line.strip()[:40]}; expected a JSON object")
    return record


def main(stdin: TextIO, stdout: TextIO) -> int:
    """Answer every line in order."""
    stream = JudgeStream()
    for line in stdin:
        if line.strip():
            stdout.write(json.dumps(stream(record_of(line))) + "\n")
            stdout.flush()
    return 0
