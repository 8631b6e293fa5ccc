"""Profiles of a variant: its place under the measured ceilings, and its kernels; before and after a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection

from backend.contract import variant_key
from backend.services.base import artifacts
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import ServiceError
from backend.services.runs.kernels import Kernel, KernelDifference, difference, read_table
from backend.store.runs import profiles as store
from backend.store.runs import view as run_view

LOOK_BACK = 4  # points on either side; not every run is profiled
NEWEST = 2**31 - 1
MAX_TABLE_BYTES = 20_000_000
KERNELS = "kernels"


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """A measured step. `roof_tflops` is what its intensity allows under the ceilings of its own run, and
    `share_of_ceiling` is relative to that; if the run measured no ceilings, it is the share reported."""

    flop_per_byte: float
    achieved_tflops: float
    roof_tflops: float | None
    share_of_ceiling: float | None
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The two limits that make a roof, as one run measured them."""

    tflops: float
    gb_per_s: float
    tflops_name: str
    gb_per_s_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantProfile:
    """Profile data of a variant from one run."""

    run_id: str
    sha: str
    roofline: RooflinePoint | None
    ceilings: Ceilings | None
    kernels: tuple[Kernel, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileChange:
    """Both sides; a side is None where no run near it was profiled."""

    before: VariantProfile | None
    after: VariantProfile | None
    kernels: KernelDifference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    benchmark: str
    variant_key: str
    preset: str


def roofline_point(told: Mapping[str, Any] | None, ceilings: Ceilings | None) -> RooflinePoint | None:
    """The roofline of a result under the ceilings of its run, where it is one."""
    told = told or {}
    intensity, achieved = _positive(told.get("flop_per_byte")), _positive(told.get("achieved_tflops"))
    if intensity is None or achieved is None:
        return None
    roof = None if ceilings is None else min(ceilings.tflops, intensity * ceilings.gb_per_s / 1000)
    return RooflinePoint(
        flop_per_byte=intensity,
        achieved_tflops=achieved,
        roof_tflops=roof,
        share_of_ceiling=_positive(told.get("share_of_ceiling")) if roof is None else achieved / roof,
        bound=str(told.get("bound") or ""),
    )


def ceilings_of(told: Mapping[str, Any] | None) -> Ceilings | None:
    """The first compute and the first memory ceiling of a run: those that its rooflines stand under."""
    limits = {name: limit for name, value in (told or {}).items() if (limit := _positive(value)) is not None}
    compute = next((name for name in limits if name.endswith("_tflops")), None)
    memory = next((name for name in limits if name.endswith("_gb_per_s")), None)
    if compute is None or memory is None:
        return None
    return Ceilings(tflops=limits[compute], gb_per_s=limits[memory], tflops_name=compute, gb_per_s_name=memory)


def _positive(value: Any) -> float | None:
    """A size that a chart can show; what a foreign writer put there may be anything."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < 1e30 else None


def around(
    c: Connection, config: ServiceConfig, series_id: int, variant: Variant, onset: int, until: int | None = None
) -> ProfileChange:
    """The profiles nearest to an onset on either side."""
    points = store.points_around(c, series_id, onset, NEWEST if until is None else until, LOOK_BACK)
    before = _nearest(c, config, [point for point in points if point.position < onset], variant)
    after = _nearest(c, config, [point for point in points if point.position >= onset], variant)
    return changed(before, after)


def changed(before: VariantProfile | None, after: VariantProfile | None) -> ProfileChange:
    kernels = None
    if before is not None and after is not None and before.kernels is not None and after.kernels is not None:
        kernels = difference(before.kernels, after.kernels)
    return ProfileChange(before=before, after=after, kernels=kernels)


def _nearest(
    c: Connection, config: ServiceConfig, points: Sequence[store.ProfiledRun], variant: Variant
) -> VariantProfile | None:
    """The nearest profile with kernels, else the nearest that has anything."""
    found: VariantProfile | None = None
    for point in points:
        profile = load_profile(c, config, point.run_id, point.sha, variant)
        if profile is not None and profile.kernels is not None:
            return profile
        found = found or profile
    return found


def load_profile(
    c: Connection, config: ServiceConfig, run_id: str, sha: str, variant: Variant
) -> VariantProfile | None:
    """Load a run's profile of one variant; None where it has neither a roofline nor kernels."""
    document = run_view.document(c, run_id)
    for result in document.get("results") or ():
        mine = Variant(
            benchmark=result.get("benchmark", ""),
            variant_key=variant_key(result.get("variant") or {}),
            preset=result.get("preset", "full"),
        )
        if mine != variant:
            continue
        ceilings = ceilings_of(document.get("ceilings"))
        roofline, name = roofline_point(result.get("roofline"), ceilings), (result.get("artifacts") or {}).get(KERNELS)
        kernels = None if name is None else _table(c, config, run_id, name)
        if roofline is None and kernels is None:
            return None
        return VariantProfile(
            run_id=run_id,
            sha=sha,
            roofline=roofline,
            ceilings=ceilings,
            kernels=kernels,
        )
    return None


def _table(c: Connection, config: ServiceConfig, run_id: str, name: str) -> tuple[Kernel, ...] | None:
    """A kernel table of a run, where it was sent and can be read."""
    try:
        row, path = artifacts.find_artifact(c, run_id, name, config)
        return read_table(orjson.loads(path.read_bytes())) if row.size <= MAX_TABLE_BYTES else None
    except (ServiceError, OSError, orjson.JSONDecodeError):
        return None  # a page does without; the list of artifacts shows what there is
