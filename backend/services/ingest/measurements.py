"""The measurements of a run that are judged: to which series each belongs, and its values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import Connection

from backend.contract import Invalid, ResultStatus, Run, RunStatus, SeriesKey, variant_key
from backend.store.ingest.record import Counted
from backend.store.judging import series as series_store
from backend.store.judging.series import SeriesRow, SeriesWanted


def counted_of(run: Run) -> list[Counted]:
    """The measurements of `ok` results of an `ok` run; what else there is stays in the document alone."""
    if run.status is not RunStatus.OK:
        return []
    return [
        (number, index)
        for number, result in enumerate(run.results)
        if result.status is ResultStatus.OK
        for index in range(len(result.measurements))
    ]


def key_of(run: Run, variant: str, number: int, index: int) -> series_store.Key:
    """The key that tells the series of a measurement from the others of the run."""
    result = run.results[number]
    return result.benchmark, variant, result.preset, result.measurements[index].metric


def wanted(run: Run, number: int, index: int) -> SeriesWanted:
    """The series to create if a measurement is the first of its kind."""
    result = run.results[number]
    measurement = result.measurements[index]
    return SeriesWanted(
        key=SeriesKey(
            project=run.project,
            testbed=run.testbed,
            suite=run.suite,
            benchmark=result.benchmark,
            variant=variant_key(result.variant),
            metric=measurement.metric,
            preset=result.preset,
            suite_version=run.suite_version,
        ),
        variant=result.variant,
        unit=measurement.unit,
        direction=measurement.direction.value,
        role=measurement.role.value,
        exact=measurement.exact,
    )


def same_kind(c: Connection, row: SeriesRow, run: Run, number: int, index: int) -> SeriesRow:
    """The series, if the measurement fits it: a history in ms says nothing about a value in s."""
    measurement = run.results[number].measurements[index]
    stated = measurement.unit, measurement.direction, measurement.exact
    stored = row.unit, row.direction, row.exact
    if stated != stored:
        (name, value, known), *_ = (
            said for said in zip(("unit", "direction", "exact"), stated, stored, strict=True) if said[1] != said[2]
        )
        raise Invalid.one(
            f"results[{number}].measurements[{index}].{name}",
            value,
            f"{orjson.dumps(known).decode()}, as in this series so far (a new suite_version begins new series)",
        )
    if measurement.role != row.role:
        series_store.set_role(c, row.id, measurement.role.value)
        return replace(row, role=measurement.role.value)
    return row


def values_of(run: Run, number: int, index: int) -> tuple[float, ...]:
    """The value of each process, or the one value that the run states."""
    measurement = run.results[number].measurements[index]
    return tuple(map(float, measurement.processes)) or (float(measurement.value),)


def without_samples(run: Run, document: dict[str, Any]) -> dict[str, Any]:
    """The run as delivered, without the samples that are stored with the measurements."""
    results = document["results"]
    for number, index in counted_of(run):
        if any(run.results[number].measurements[index].samples):
            results[number]["measurements"][index].pop("samples", None)
    return document
