"""Runs and series as the joint rules take them in: the same for the joint detector and for one onset."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from backend.regression.cause.machines import NOT_COMPARED, TIME_SUFFIXES
from backend.regression.joint.terms import HARMLESS_THROTTLE, SIZES, Floats, JointRun, JointSeries
from backend.regression.policy import PolicyBook
from backend.regression.terms import Direction, Role


class StoredSeries(Protocol):
    """What a stored series says of itself."""

    @property
    def suite(self) -> str: ...
    @property
    def benchmark(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def direction(self) -> str: ...
    @property
    def exact(self) -> bool: ...


def joint_series(
    row: StoredSeries, policies: PolicyBook, *, id: str, benchmark: str, testbeds: Iterable[str]
) -> JointSeries:
    """A stored series. `benchmark` tells its benchmark, variant and preset from others.

    Its threshold is the smallest of the `testbeds` that measure it: a machine event or an upgrade may be reported from
    there on, on each of them; a change of the code only from the testbed's own threshold on.
    """
    named = {"suite": row.suite, "benchmark": row.benchmark, "metric": row.metric}
    return JointSeries(
        id=id,
        suite=row.suite,
        benchmark=benchmark,
        role=Role(row.role),
        sign=1.0 if row.direction == Direction.LOWER else -1.0,
        exact=row.exact,
        machine_bound=not row.exact and row.unit not in SIZES,
        min_change=min(policies.of(**named, testbed=testbed).min_change for testbed in testbeds),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One run near an onset, as evidence."""

    run_id: str
    position: int
    worker: str
    change: float | None
    environment: Mapping[str, str]
    canary: Mapping[str, tuple[float, float]]
    """Name to (reading, its own noise)."""
    throttle: frozenset[str]
    clock_mhz: float | None
    foreign_processes: int
    load_1m: float | None
    """Of the host of an accelerator, which is idle beside it; None on other machines."""


def witness_of(
    document: Mapping[str, Any],
    run_id: str,
    position: int,
    worker: str,
    change: float | None,
    environment: Mapping[str, Any],
) -> Witness:
    """A run as delivered, as evidence."""
    telemetry = document.get("telemetry") or {}
    throttle, foreign = telemetry.get("throttle"), telemetry.get("foreign_processes")
    # A processor is always shared, and what is judged there is a ratio to a yardstick that shares it too; its load is
    # the benchmark's own.
    accelerated = bool(environment.get("accelerator"))
    return Witness(
        run_id=run_id,
        position=position,
        worker=worker,
        change=change,
        environment={name: str(value) for name, value in environment.items() if name not in NOT_COMPARED},
        canary=dict(filter(None, (_reading(entry) for entry in document.get("canary") or ()))),
        throttle=frozenset(map(str, throttle)) if isinstance(throttle, list) else frozenset(),
        clock_mhz=_clock(telemetry),
        foreign_processes=foreign if accelerated and isinstance(foreign, int) else 0,
        load_1m=_number(telemetry.get("load_1m")) if accelerated else None,
    )


def joint_run(
    witness: Witness,
    *,
    testbed: str,
    timestamp: float,
    cost: Floats,
    spread: Floats,
    suite_version: Mapping[str, str],
    docs_only: bool,
) -> JointRun:
    """A run with what its machine said of itself; `cost` and `spread` follow the series."""
    return JointRun(
        position=witness.position,
        testbed=testbed,
        worker=witness.worker,
        timestamp=timestamp,
        cost=cost,
        spread=spread,
        environment=witness.environment,
        suite_version=suite_version,
        canary={
            name: math.log(value) if name.endswith(TIME_SUFFIXES) else -math.log(value)
            for name, (value, _) in witness.canary.items()
        },
        throttle=witness.throttle - HARMLESS_THROTTLE,
        clock_mhz=witness.clock_mhz,
        foreign_processes=witness.foreign_processes,
        load=witness.load_1m,
        docs_only=docs_only,
    )


def _reading(entry: Mapping[str, Any]) -> tuple[str, tuple[float, float]] | None:
    told = [entry[side] for side in ("before", "after") if (entry.get(side) or 0) > 0]
    if not told:
        return None
    return entry["name"], (sum(told) / len(told), entry.get("own_noise") or 0.0)


def _clock(telemetry: Mapping[str, Any]) -> float | None:
    clock = telemetry.get("sm_clock_mhz")
    return _number(clock.get("p50") if isinstance(clock, dict) else clock)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
