"""Stored runs and sessions, as the joint detector takes them in: one column a series, the same one on every testbed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from backend.contract import variant_key
from backend.regression.joint.stream import log_costs
from backend.regression.joint.terms import Floats, JointRun, SessionResult
from backend.regression.policy import PolicyBook
from backend.services.regressions import joint_input
from backend.services.regressions.causes import only_documentation
from backend.store.ingest import record as ingest_store
from backend.store.joint.incidents import ArrivedRun, JointRunRow, JointSeriesRow
from backend.store.sessions.sessions import StoredTurn


class Key(NamedTuple):
    """Key of a joint series; testbed and suite version are not part of it."""

    benchmark: str
    variant_key: str
    preset: str
    metric: str


class Columns:
    """The series of one suite, in the order in which they were first seen."""

    def __init__(self, suite: str, rows: Sequence[JointSeriesRow], policies: PolicyBook) -> None:
        self.suite = suite
        newest = {_key_of(row): row for row in rows}
        beds: dict[Key, set[str]] = {}
        for row in rows:
            beds.setdefault(_key_of(row), set()).add(row.testbed)
        self.series = [
            joint_input.joint_series(row, policies, id=" ".join(key), benchmark=" ".join(key[:3]), testbeds=beds[key])
            for key, row in newest.items()
        ]
        self.signs: Floats = np.array([s.sign for s in self.series])
        self.testbeds = sorted({row.testbed for row in rows})
        self._number = {key: number for number, key in enumerate(newest)}
        self._ids: dict[tuple[int, str], list[int]] = {}
        self._of_id: dict[int, tuple[int, str]] = {}
        for row in rows:
            place = self._number[_key_of(row)], row.testbed
            self._ids.setdefault(place, []).append(row.id)
            self._of_id[row.id] = place

    def same_as(self, other: Columns) -> bool:
        """Whether runs read by the one are runs read by the other."""
        return self.series == other.series and self.testbeds == other.testbeds

    def ids(self, columns: Iterable[int], testbeds: Iterable[str]) -> frozenset[int]:
        """The stored series behind columns, on these testbeds."""
        beds = list(testbeds)
        return frozenset(id for column in columns for bed in beds for id in self._ids.get((column, bed), ()))

    def place_of(self, series_id: int) -> tuple[int, str] | None:
        """Column and testbed of a stored series; None: it is of another suite."""
        return self._of_id.get(series_id)

    def costs(self, documents: Sequence[Mapping[str, Any]]) -> tuple[Floats, Floats, int]:
        """Mean log cost and its variance per column, over the processes of all documents; and how many those were."""
        processes: list[list[float]] = [[] for _ in self.series]
        for document in documents:
            for result in document["results"]:
                if result["status"] == "ok":
                    self._collect(result, processes)
        cost, spread = log_costs(processes, self.signs)
        return cost, spread, min((len(values) for values in processes if values), default=0)

    def _collect(self, result: Mapping[str, Any], into: Sequence[list[float]]) -> None:
        place = result["benchmark"], variant_key(result.get("variant") or {}), result.get("preset", "full")
        for measurement in result.get("measurements", ()):
            number = self._number.get(Key(*place, measurement["metric"]))
            if number is not None:
                into[number] += measurement.get("processes") or [measurement["value"]]


def _key_of(row: JointSeriesRow) -> Key:
    return Key(row.benchmark, row.variant_key, row.preset, row.metric)


def joint_run(columns: Columns, arrived: ArrivedRun, stored: JointRunRow) -> JointRun:
    """A stored run of the suite."""
    document = ingest_store.unpack_document(stored.document)
    cost, spread, _ = columns.costs([document])
    seen = joint_input.witness_of(
        document, stored.id, arrived.position, stored.worker or "", None, stored.fingerprint or {}
    )
    return joint_input.joint_run(
        seen,
        testbed=arrived.testbed,
        timestamp=stored.measured_at.timestamp(),
        cost=cost,
        spread=spread,
        suite_version={columns.suite: document.get("suite_version", "1")},
        docs_only=stored.untouched or only_documentation([stored.changed_paths]),
    )


def session_result(
    columns: Columns, testbed: str, base: int, head: int, turns: Sequence[StoredTurn]
) -> SessionResult | None:
    """Difference between the arms of a session; None where an arm measured nothing."""
    arms = {
        arm: [turn.document for turn in turns if turn.arm == arm and turn.counted and turn.document is not None]
        for arm in ("base", "head")
    }
    before, base_spread, base_processes = columns.costs(arms["base"])
    after, head_spread, head_processes = columns.costs(arms["head"])
    change = after - before
    if not np.isfinite(change).any():
        return None
    return SessionResult(
        testbed=testbed,
        base=base,
        head=head,
        change=change,
        spread=(base_spread + head_spread) / 2,
        processes=min(base_processes, head_processes),
    )
