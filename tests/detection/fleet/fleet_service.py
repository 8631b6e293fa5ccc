"""A labelled fleet played to the service: every run through ingest, every session through the queue, as workers would.

The same records go to `Stream` (`tidemark judge --stream`) elsewhere; the two must say the same.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from fleet_plan import Plan
from fleet_synthetic import Fleet
from sqlalchemy import Connection, text

from backend.contract import parse_run
from backend.services.base.principal import Principal, Scope, Via
from backend.services.ingest.record import record_run
from backend.services.ingest.session_round import deliver_round
from backend.services.joint.detector import JointDetectors
from backend.services.triage import machine_alarms

SUITE = "fleet"
DRIFTS = 70, 135
"""Commits between which a benchmark loses 12 %, a little at each."""
CALLER = Principal(name="tests", via=Via.TOKEN, scopes=frozenset(Scope))


class SmallFleet(Fleet):
    """A fleet of chosen events: one suite on all testbeds, some two hundred commits.

    The new version of the suite comes first: it begins new series, and a drift needs long ones.
    """

    items_wanted = ("method", "regression", "blind", "pair", "upgrade", "slow", "throttle")

    def _plan(self, rng: Any) -> None:
        super()._plan(rng)
        at, commits = [], 45
        for _ in self.items_wanted:
            at.append(commits)
            commits += int(rng.integers(16, 21))
        self.items = list(zip(self.items_wanted, at, strict=True))
        self.n = commits + 12
        self.docs, self.times = self.docs[: self.n], self.times[: self.n]
        assert len(self.docs) == self.n

    def _schedule(self, rng: Any) -> None:
        """A run of every commit that is measured, in order; now and then one comes late."""
        super()._schedule(rng)
        once = {(run["testbed"], run["commit"]): run for run in reversed(self.runs)}
        self.runs = sorted(once.values(), key=lambda run: (run["commit"] + 3 * (run["commit"] == 90), run["testbed"]))
        for number, run in enumerate(self.runs):
            run["index"] = number

    def _drift(self, rng: Any) -> None:
        """Of one benchmark, on all testbeds, while everything else happens."""
        benchmark, first, last = int(rng.integers(len(self.lay.bench))), *DRIFTS
        loss = self.lay.phases([benchmark], rng, 12.0)
        share = np.linspace(0, 1, last - first)
        for testbed in self.testbeds:
            self.code[testbed][first:last] += share[:, None] * loss
            self.code[testbed][last:] += loss
        self.used[benchmark] += range(first, last, 8)
        self._label("drift", "code", first, list(self.testbeds), loss, last, scope="benchmark")

    def _bimodal(self, rng: Any) -> None:
        """None here."""

    def header(self) -> dict[str, Any]:
        header = super().header()
        header["series"] = [{**series, "suite": SUITE} for series in header["series"]]
        return header

    def _versions(self, commit: int) -> dict[str, str]:
        begun = [at for of_suite in self.versions.values() for at in of_suite]
        return {SUITE: f"{1 + sum(commit >= at for at in begun)}.0"}


def sha_of(position: int) -> str:
    return f"f{position:039x}"


class Service:
    """One project on a real store. `run` delivers a record of the fleet, and everything that follows from it."""

    def __init__(self, c: Connection, fleet: Plan, *, fresh_judges: bool = False) -> None:
        self.c, self.fleet, self.sessions = c, fleet, 0
        self.fresh_judges = fresh_judges
        self.fleets = JointDetectors()
        self.described = {s["id"]: s for s in fleet.header()["series"]}
        self.now = datetime.fromtimestamp(float(fleet.times[0]), UTC)
        self.project = self._make_project()

    def _make_project(self) -> int:
        c = self.c
        project = c.scalar(
            text(
                "INSERT INTO project (slug, repository_url) VALUES ('northsea/fleet', 'https://git.example/fleet')"
                " RETURNING id"
            )
        )
        branch = c.scalar(
            text("INSERT INTO branch (project_id, name) VALUES (:p, 'main') RETURNING id"), {"p": project}
        )
        for position in range(self.fleet.n):
            paths = ["docs/guide.md"] if self.fleet.docs[position] else ["core/attention.py"]
            commit = c.scalar(
                text("INSERT INTO commit (project_id, sha, changed_paths) VALUES (:p, :sha, :paths) RETURNING id"),
                {"p": project, "sha": sha_of(position), "paths": paths},
            )
            c.execute(
                text("INSERT INTO branch_commit (branch_id, project_id, position, commit_id) VALUES (:b, :p, :at, :k)"),
                {"b": branch, "p": project, "at": position, "k": commit},
            )
        for testbed, workers in self.fleet.testbeds.items():
            bed = c.scalar(text("INSERT INTO testbed (name) VALUES (:name) RETURNING id"), {"name": testbed})
            for worker in workers:
                c.execute(
                    text("INSERT INTO worker (name, testbed_id) VALUES (:name, :bed)"), {"name": worker, "bed": bed}
                )
        return int(project)

    def play(self) -> None:
        for record in self.fleet.stream():
            if record["type"] == "run":
                self.run(record)

    def run(self, record: dict[str, Any]) -> None:
        self.now = max(self.now + timedelta(seconds=1), datetime.fromtimestamp(record["timestamp"] + 1200, UTC))
        document = self._document(record)
        self._requested(document)
        raw = json.dumps(document).encode()
        record_run(self.c, parse_run(raw), raw, now=self.now)
        self._catch_up()
        while self._serve(record):
            self._catch_up()
        for alarm in machine_alarms.due(self.c):
            machine_alarms.settle(self.c, alarm, self.now)

    def _catch_up(self) -> None:
        if self.fresh_judges:
            self.fleets = JointDetectors()
        self.c.execute(text("UPDATE worker SET last_seen_at = :now"), {"now": self.now})
        self.fleets.catch_up(self.c, self.project, self.now)

    def _requested(self, document: dict[str, Any]) -> None:
        """As if the scheduler had asked for the run: its suite is known, so that sessions can be had."""
        self.c.execute(
            text(
                """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, kind, spec)
                   SELECT :id, k.project_id, k.id, t.id, :suite, 'leased', 'main', CAST(:spec AS jsonb)
                   FROM commit k, testbed t WHERE k.sha = :sha AND t.name = :testbed"""
            ),
            {
                "id": document["id"],
                "suite": SUITE,
                "spec": json.dumps({"command": "./bench"}),
                "sha": document["commit"],
                "testbed": document["testbed"],
            },
        )

    def _document(self, record: dict[str, Any], **more: Any) -> dict[str, Any]:
        telemetry = record["telemetry"]
        return {
            "schema": "tidemark.run/1",
            "id": f"FLEET-{record.get('seq', 0):06d}",
            "project": "northsea/fleet",
            "commit": sha_of(record["commit"]),
            "branch": "main",
            "suite": SUITE,
            "suite_version": record["suite_version"][SUITE],
            "testbed": record["testbed"],
            "worker": record["worker"],
            "status": "ok",
            "started_at": datetime.fromtimestamp(record["timestamp"], UTC).isoformat(),
            "environment": {**record["environment"], "accelerator": "card"},
            "telemetry": {
                "throttle": telemetry["throttle"],
                "foreign_processes": telemetry["foreign_processes"],
                "load_1m": telemetry["load"],
                "sm_clock_mhz": {"p50": telemetry["sm_clock_mhz"]},
            },
            "canary": [{"name": name, "before": value, "after": value} for name, value in record["canary"].items()],
            "results": self._results(record["values"]),
            **more,
        }

    def _results(self, values: dict[str, list[float]]) -> list[dict[str, Any]]:
        by_benchmark: dict[str, list[dict[str, Any]]] = {}
        for name, processes in values.items():
            series = self.described[name]
            by_benchmark.setdefault(series["benchmark"], []).append(
                {
                    "metric": series["metric"],
                    "unit": series["unit"],
                    "direction": series["direction"].removesuffix("_is_better"),
                    "role": series["role"],
                    "exact": series["exact"],
                    "value": statistics.median(processes),
                    "processes": processes,
                }
            )
        return [
            {"benchmark": name, "status": "ok", "measurements": measurements}
            for name, measurements in by_benchmark.items()
        ]

    # --- the worker

    def _serve(self, last: dict[str, Any]) -> bool:
        """Run every session that waits, round by round. Whether there was one."""
        waiting = list(self._waiting())
        for session in waiting:
            answer = serve(self.fleet, self.sessions, session, last["timestamp"] + 1800)
            self.sessions += 1
            halves = (slice(0, 2), slice(2, None))
            for half in halves:
                self._deliver(session, answer, half)
        return bool(waiting)

    def _waiting(self) -> Iterator[dict[str, Any]]:
        rows = self.c.execute(
            text(
                """SELECT x.id, t.name AS testbed, w.name AS avoid, base.position AS base, head.position AS head
                   FROM session x JOIN testbed t ON t.id = x.testbed_id
                   LEFT JOIN worker w ON w.id = x.avoid_worker_id
                   JOIN branch_commit base ON base.commit_id = x.base_commit_id
                   JOIN branch_commit head ON head.commit_id = x.head_commit_id
                   WHERE x.state = 'waiting' AND x.purpose = 'attribute' ORDER BY x.id"""
            )
        )
        yield from (dict(row._mapping) for row in rows)

    def _deliver(self, session: dict[str, Any], answer: dict[str, Any], part: slice) -> None:
        """One round: a turn for each process of each arm."""
        run_id = self.c.scalar(
            text("SELECT id FROM run WHERE session_id = :id AND state = 'queued'"), {"id": session["id"]}
        )
        turns = [
            {"arm": arm, "run": self._document(self._turn(session, answer, arm, number), id=f"{run_id}-{arm}{number}")}
            for number in range(5)[part]
            for arm in ("base", "head")
        ]
        body = {
            "schema": "tidemark.session/1",
            "id": run_id,
            "project": "northsea/fleet",
            "testbed": session["testbed"],
            "worker": answer["worker"],
            "status": "ok",
            "turns": turns,
        }
        deliver_round(self.c, run_id, json.dumps(body).encode(), lease=None, principal=CALLER, now=self.now)

    def _turn(self, session: dict[str, Any], answer: dict[str, Any], arm: str, number: int) -> dict[str, Any]:
        values = {name: [arms[arm][number]] for name, arms in answer["values"].items()}
        version = self.fleet._versions(session["head"])
        return {**answer, "commit": session[arm], "values": values, "suite_version": version}


def serve(fleet: Fleet, number: int, asked: dict[str, Any], at: float) -> dict[str, Any]:
    """A session on a worker of the testbed, on another than the one to avoid where there is one."""
    pool = [w for w in fleet.testbeds[asked["testbed"]] if w != asked.get("avoid")] or fleet.testbeds[asked["testbed"]]
    return fleet.session(
        number, asked["testbed"], pool[number % len(pool)], at, list(fleet.lay.column), asked["base"], asked["head"]
    )
