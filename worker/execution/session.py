"""A round of an interleaved session: base and head checked out side by side, their processes run alternately, ABBA.

A drift of the machine affects both arms alike. Each turn is one run of the whole command, with one fresh process of
the built-in suite; the arms share nothing that one could warm up for the other: checkout, home, caches, environment.
"""

from __future__ import annotations

import json
import logging
import shlex
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from worker.client import LeasedRun
from worker.execution.checkout import CheckoutError, CheckoutInterrupted
from worker.execution.execute import Execution, MachineFailed, Product, RunFailed, RunInterrupted
from worker.execution.results import Unusable
from worker.execution.rundir import RunDir
from worker.execution.suite import BadSpec, SuiteSpec
from worker.observe import MachineWatch

log = logging.getLogger("tidemark.worker")

SCHEMA = "tidemark.session/1"
ARMS = {"A": "base", "B": "head"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The task of a round, from its lease."""

    session: str
    purpose: str
    number: int
    order: str
    commits: Mapping[str, str]
    parents: Mapping[str, tuple[str, ...]]
    setups: Mapping[str, Mapping[str, Any]]

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Task:
        try:
            stated = spec["session"]
            order = str(stated["order"])
            if not order or set(order) - set(ARMS):
                raise BadSpec(f"session.order is {order!r}; accepted: letters A (base) and B (head)")
            arms = {arm: stated[arm] for arm in ARMS.values()}
            return cls(
                session=str(stated["id"]),
                purpose=str(stated["purpose"]),
                number=int(stated["round"]),
                order=order,
                commits={arm: str(said["commit"]) for arm, said in arms.items()},
                parents={arm: tuple(map(str, said.get("parents") or ())) for arm, said in arms.items()},
                setups={arm: dict(said.get("setup") or {}) for arm, said in arms.items()},
            )
        except (KeyError, TypeError, ValueError) as flaw:
            raise BadSpec(f"the session of this run is not understood ({flaw!r}); do the versions match?") from None


class SessionArm(Execution):
    """One side: its own directory, and one run for each of its turns."""

    def __init__(self, whole: Execution, task: Task, name: str) -> None:
        leased = replace(whole.leased, commit=task.commits[name], parents=task.parents[name])
        root = whole.run_dir.root
        run_dir = RunDir(root.with_name(f"{root.name}-{name}"))
        super().__init__(
            whole.config, whole.mirrors, whole.sandbox, leased, run_dir, whole.events, whole.interrupt, whole.cache
        )
        self.log = whole.log
        self.name = name
        self.task = task
        self.max_run_bytes //= max(1, len(task.order))  # all turns are delivered as one
        self.suite = with_setup(self._accept(), task.setups[name])
        self.python: Path | None = None

    def prepare(self) -> None:
        """Checkout and setup, once for all its turns."""
        self.run_dir.create()
        self._check_out()
        self.python = self._set_up(self.suite)

    def turn(self, number: int) -> dict[str, Any]:
        """One fresh run of this arm: a `tidemark.run/1` document; raises RunFailed or Unusable."""
        assert self.python is not None
        self.leased = replace(self.leased, run_id=turn_id(self.leased.run_id, number))
        self._renew()
        variables = {
            "TIDEMARK_SESSION_ID": self.task.session,
            "TIDEMARK_SESSION_ARM": self.name,
            "TIDEMARK_SESSION_BASE": self.task.commits["base"],
            "TIDEMARK_SESSION_ORDER": self.task.order,
        }
        suite = replace(self.suite, env={**self.suite.env, **variables})
        outcome = self._measure(suite, self.python)
        document: dict[str, Any] = json.loads(self._collect(outcome).body)
        document.setdefault(
            "session",
            {
                "id": self.task.session,
                "arm": self.name,
                "base": self.task.commits["base"],
                "order": self.task.order,
            },
        )
        return document

    def _renew(self) -> None:
        """Nothing of the turn before: neither its result nor its clock."""
        self.began, self.began_monotonic = datetime.now(UTC), time.monotonic()
        self.watch = MachineWatch()
        self.run_dir.renew_out(self.sandbox.user)


class SessionExecution(Execution):
    """One round in progress."""

    def carry_out(self) -> Product:
        """Run the round, with all its turns or the reason why there are none; RunInterrupted if it is not wanted."""
        turns: list[dict[str, Any]] = []
        error: str | None = None
        status = "ok"
        with ExitStack() as cleared:
            try:
                task = Task.from_spec(self.leased.spec)
                self.run_dir.create()
                arms = {name: SessionArm(self, task, name) for name in ARMS.values()}
                for arm in arms.values():
                    cleared.callback(arm.run_dir.remove)
                status, error = self._run_turns(task, arms, turns)
                self.cpu_s += sum(arm.cpu_s for arm in arms.values())
            except (RunFailed, CheckoutError, BadSpec, Unusable) as failure:
                status, error = "failed", str(failure)
            except CheckoutInterrupted:
                raise RunInterrupted from None
            except (RunInterrupted, MachineFailed):
                raise
            except Exception as failure:
                # As of a run: also what nobody foresaw ends it with a reason, not with a lease that runs out.
                log.exception("session round %s failed on this worker's side", self.leased.run_id)
                what = failure or type(failure).__name__
                status, error = "failed", f"the worker could not carry out the session: {what}"
        if self.interrupt.reason is not None and status == "failed":
            raise RunInterrupted
        if error is not None:
            self.log.note(error)
        return Product(body=self._body(turns, status, error), artifacts=self._written_log())

    def _run_turns(
        self, task: Task, arms: Mapping[str, SessionArm], turns: list[dict[str, Any]]
    ) -> tuple[str, str | None]:
        """Runs every turn; (status, reason). A turn that cannot be believed ends the round: it will be tried again."""
        for name, arm in arms.items():
            self._prepare(name, arm)
        for number, letter in enumerate(task.order):
            name = ARMS[letter]
            self.log.note(f"turn {number + 1} of {len(task.order)}: {name}")
            try:
                document = arms[name].turn(number)
            except (RunFailed, Unusable) as failure:
                raise RunFailed(f"the {name}, {task.commits[name][:12]}: {failure}") from None
            turns.append({"number": number, "arm": name, "run": document})
            if document["status"] == "quarantined":
                return "quarantined", str(document.get("error") or "the machine could not be believed")
            if document["status"] != "ok":
                return "failed", f"the {name}, {task.commits[name][:12]}: {document.get('error') or 'no result'}"
        return "ok", None

    def _prepare(self, name: str, arm: SessionArm) -> None:
        try:
            arm.prepare()
        except (RunFailed, CheckoutError) as failure:
            raise RunFailed(f"the {name}, {arm.leased.commit[:12]}: {failure}") from None

    def _body(self, turns: list[dict[str, Any]], status: str, error: str | None) -> bytes:
        clock = self._clock()
        return json.dumps(
            {
                "schema": SCHEMA,
                "id": self.leased.run_id,
                "project": self.leased.project,
                "testbed": self.leased.testbed,
                "worker": self.config.name,
                "attempt": self.leased.attempt,
                "started_at": clock.started_at,
                "finished_at": clock.finished_at,
                "status": status,
                "error": error,
                "log_tail": "\n".join(self.log.tail()) if status == "failed" else None,
                "telemetry": self.watch.finish(self.cpu_s),
                "turns": turns,
            }
        ).encode()


def with_setup(suite: SuiteSpec, setup: Mapping[str, Any]) -> SuiteSpec:
    """The suite for one turn of an arm: one fresh process, and what the arm installs or sets in addition."""
    steps = [suite.setup] if suite.setup else []
    pip, command, env = setup.get("pip"), setup.get("setup"), setup.get("env") or {}
    if pip:
        steps.append("python -m pip install " + " ".join(shlex.quote(word) for word in str(pip).split()))
    if command:
        steps.append(str(command))
    return replace(
        suite,
        setup="\n".join(["set -e", *steps]) if steps else None,
        env={**suite.env, **{str(name): str(value) for name, value in env.items()}},
        processes=None if suite.command else 1,
    )


def turn_id(run_id: str, number: int) -> str:
    """A turn's own run id: each run of the contract needs one."""
    return f"{run_id.partition('-')[0]}-{number}"


def is_session(leased: LeasedRun) -> bool:
    return "session" in leased.spec
