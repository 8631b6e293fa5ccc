"""Executes one leased run: checkout, setup, suite, and a result even if the commit crashes or hangs."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from worker.client import LeasedRun
from worker.config import WorkerConfig
from worker.events import EventSender
from worker.execution.caches import Cache, key_of
from worker.execution.checkout import CheckoutError, CheckoutInterrupted, Mirrors
from worker.execution.results import (
    LOG_ARTIFACT,
    Clock,
    ExecutedRun,
    Unusable,
    failed_run,
    finished_run,
    how_it_ended,
    read_run_file,
    take_artifacts,
)
from worker.execution.rundir import RunDir
from worker.execution.suite import BadSpec, SuiteSpec, run_variables
from worker.health import gpu_trouble, look
from worker.isolation.disk import DiskWatch
from worker.isolation.environment import commit_environment
from worker.isolation.output import LastLines, LogFile, OutputStream, parse_progress
from worker.isolation.owned import opened, remove, remove_in
from worker.isolation.processes import CommandLimits, CommandOutcome, Ending, Interrupt, run_command
from worker.isolation.protection import MAX_OPEN_FILES, MAX_PROCESSES, Sandbox, guarded
from worker.observe import MachineWatch

log = logging.getLogger("tidemark.worker")

MIN_SETUP_TIMEOUT_S = 900.0
MAX_PROCESSES_A_CORE = 256


class RunFailed(Exception):
    """The run ends without results; the message is the sentence shown to people."""


class MachineFailed(Exception):
    """This machine failed, not the commit: another worker must take the run. The message says what is wrong here."""


class RunInterrupted(Exception):
    """The run was stopped from outside: its result is not wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """The product of a run: the document to deliver, and the files that belong to it."""

    body: bytes
    artifacts: tuple[Path, ...]


class RunLog:
    """Where a run's log lines go: to its page as they arrive, to the log artifact, the last ones to a failed run."""

    def __init__(self, stream: EventSender) -> None:
        self._events = stream
        self._file = LogFile()
        self._tails = {OutputStream.STDOUT: LastLines(), OutputStream.STDERR: LastLines()}

    def line(self, stream: OutputStream, line: str) -> None:
        progress = parse_progress(line) if stream is OutputStream.STDOUT else None
        if progress is not None:
            self._events.progress(progress)
            return
        self._file.add(stream, line)
        self._tails[stream].add(line)
        self._events.line(stream, line)

    def note(self, text: str) -> None:
        """A message from the worker itself."""
        self._file.add("worker", text)

    def tail(self) -> list[str]:
        """The last lines of standard error, where programs report errors; if it is empty, of standard output."""
        return self._tails[OutputStream.STDERR].lines() or self._tails[OutputStream.STDOUT].lines()

    def write(self, path: Path) -> None:
        self._file.write(path)


class Execution:
    """One run in progress."""

    def __init__(
        self,
        config: WorkerConfig,
        mirrors: Mirrors,
        sandbox: Sandbox,
        leased: LeasedRun,
        run_dir: RunDir,
        events: EventSender,
        interrupt: Interrupt,
        cache: Cache | None = None,
    ) -> None:
        self.cache = cache
        self.health = look()
        self.config = config
        self.mirrors = mirrors
        self.sandbox = sandbox
        self.leased = leased
        self.run_dir = run_dir
        self.events = events
        self.interrupt = interrupt
        self.log = RunLog(events)
        self.watch = MachineWatch()
        self.max_run_bytes = config.max_run_bytes
        self.cpu_s = 0.0
        self.began = datetime.now(UTC)
        self.began_monotonic = time.monotonic()

    def carry_out(self) -> Product:
        """Execute the run, with results or the reason why there are none; RunInterrupted if it is not wanted."""
        try:
            suite = self._accept()
            self.run_dir.create()
            self._check_out()
            python = self._set_up(suite)
            outcome = self._measure(suite, python)
            return self._collect(outcome)
        except (RunFailed, CheckoutError, BadSpec, Unusable) as failure:
            return self._fail(str(failure))
        except CheckoutInterrupted:
            raise RunInterrupted from None
        except (RunInterrupted, MachineFailed):
            raise
        except Exception as failure:
            # Also what nobody foresaw ends the run with a reason, not with a lease that runs out three times.
            log.exception("run %s failed on this worker's side", self.leased.run_id)
            is_full = isinstance(failure, OSError) and failure.errno in (errno.ENOSPC, errno.EDQUOT)
            full = " (this worker's disk is full)" if is_full else ""
            return self._fail(f"the worker could not carry out the run: {failure or type(failure).__name__}{full}")

    def _accept(self) -> SuiteSpec:
        if not self.leased.trusted and not self.sandbox.protects:
            raise RunFailed(
                f"project {self.leased.project} is not marked trusted, and worker {self.config.name} has no protection "
                f"to run its code under: {self.sandbox.reason}"
            )
        return SuiteSpec.from_spec(self.leased.spec, default_timeout_s=self.config.default_timeout_s)

    def _check_out(self) -> None:
        self.events.state("checkout")
        url = self.leased.repository_url
        if not url:
            raise RunFailed(f"project {self.leased.project} has no repository address to check out from")
        key = key_of({"checkout": self.leased.commit, "repository": url})
        if self.cache is not None and self.cache.restore(key, {"checkout": self.run_dir.checkout}):
            return
        self.mirrors.check_out(url, self.leased.commit, self.run_dir.checkout, self.interrupt.raised)
        if self.cache is not None:
            self.cache.keep(key, {"checkout": self.run_dir.checkout})

    def _set_up(self, suite: SuiteSpec) -> Path:
        """Runs the setup command, if there is one and its result is not there yet; the Python that the suite uses."""
        if suite.setup is None:
            self._give_away()
            return Path(sys.executable)
        self.events.state("setup")
        key = self._setup_key(suite)
        built = {
            "checkout": self.run_dir.checkout,
            "venv": self.run_dir.venv,
            "home": self.run_dir.home,
        }
        if self.cache is not None and self.cache.restore(key, built):
            self.log.note("the setup command was not run again: its result for this commit was kept")
            self._give_away()
            return self.run_dir.python
        python = self.run_dir.make_environment()
        self._give_away()
        limit_s = max(MIN_SETUP_TIMEOUT_S, suite.timeout_s)
        with_network = self.sandbox.may_reach_network(suite.network, at_setup=True)
        if self.sandbox.protects and not with_network:
            self.log.note(
                f"the setup command has no network: `network` of the suite is {suite.network}, "
                f"TIDEMARK_WORKER_NETWORK of this worker {self.sandbox.network}"
            )
        outcome = self._run(("/bin/sh", "-c", suite.setup), python, suite.env, limit_s, with_network=with_network)
        if not outcome.succeeded:
            raise RunFailed(f"the setup command {how_it_ended(outcome, self.log.tail())}")
        # A quick one is as quickly run again as copied.
        if self.cache is not None and outcome.duration_s >= self.config.keep_setups_from_s:
            with contextlib.suppress(OSError), opened(self.run_dir.home) as home:
                remove_in(home, ".cache")
            self.cache.keep(key, built, self.sandbox.user)
        return python

    def _give_away(self) -> None:
        if self.sandbox.user is not None:
            self.run_dir.give_to(self.sandbox.user)

    def _setup_key(self, suite: SuiteSpec) -> str:
        """Everything that a setup's result depends on, as far as this worker knows it. Its paths are in it, too."""
        return key_of(
            {
                "setup": suite.setup,
                "variables": dict(suite.env),
                "project": self.leased.project,
                "repository": self.leased.repository_url,
                "commit": self.leased.commit,
                "directory": str(self.run_dir.root),
                "python": [sys.executable, sys.version],
                "worker": self.config.version,
                "passed": {name: os.environ.get(name) for name in self.config.pass_environment},
                "user": self.sandbox.user is not None,
                "network": self.sandbox.may_reach_network(suite.network, at_setup=True),
                "container": None if self.sandbox.container is None else self.sandbox.container.image,
            }
        )

    def _measure(self, suite: SuiteSpec, python: Path) -> CommandOutcome:
        self.events.state("execute")
        outcome = self._run(
            suite.argv(python, self.run_dir.run_json),
            python,
            suite.env,
            suite.timeout_s,
            with_network=self.sandbox.may_reach_network(suite.network, at_setup=False),
        )
        trouble = gpu_trouble(self.health)
        if trouble is not None:
            raise MachineFailed(trouble)
        return outcome

    def _run(
        self,
        argv: tuple[str, ...],
        python: Path,
        suite_env: Mapping[str, str],
        timeout_s: float,
        *,
        with_network: bool = False,
    ) -> CommandOutcome:
        command = guarded(
            self.sandbox,
            argv,
            cwd=self.run_dir.checkout,
            environment=commit_environment(
                os.environ,
                suite=suite_env,
                run=run_variables(self.leased, self.config.name, self.run_dir.run_json),
                private=self.run_dir.private,
                python_bin=python.parent,
                also_pass=self.config.pass_environment,
            ),
            writable=self.run_dir.all,
            limits=self._limits(timeout_s),
            with_network=with_network,
        )
        try:
            with self.sandbox.limits(), self._disk_watch() as disk:
                outcome = run_command(command, self.log.line, self.interrupt, disk.trouble)
        finally:
            if self.sandbox.container is not None:
                self.sandbox.container.remove()
        self.cpu_s += outcome.cpu_s
        if outcome.ending in (Ending.CANCELLED, Ending.LEASE_LOST, Ending.STOPPED):
            raise RunInterrupted
        if outcome.leftovers:
            self.log.note(f"{outcome.leftovers} processes were still running when the command ended; they were ended")
        return outcome

    def _disk_watch(self) -> DiskWatch:
        # All that stands beside this run's directory is its other side, in a session.
        places = (self.config.runs_dir, *(place for place in self.run_dir.all if place != self.run_dir.root))
        return DiskWatch(places, self.config.run_limit_bytes, self.config.min_free_bytes // 2)

    def _limits(self, timeout_s: float) -> CommandLimits:
        resources = {"CORE": 0, "NOFILE": MAX_OPEN_FILES, "FSIZE": self.config.run_limit_bytes}
        if self.sandbox.user is not None and self.sandbox.user.exclusive:
            # The kernel counts by user: of an account that others share, it would count theirs too.
            resources["NPROC"] = MAX_PROCESSES + MAX_PROCESSES_A_CORE * (os.cpu_count() or 1)
        return CommandLimits(
            timeout_s=timeout_s,
            resources=resources,
            kill_grace_s=self.config.kill_grace_s,
            stop_grace_s=self.config.stop_grace_s,
        )

    def _collect(self, outcome: CommandOutcome) -> Product:
        try:
            with opened(self.run_dir.root, self.run_dir.out.name) as out:
                return self._taken(outcome, out)
        except NotADirectoryError:
            raise RunFailed("the suite left something in the place of its directory of results") from None

    def _taken(self, outcome: CommandOutcome, out: int) -> Product:
        user = self.sandbox.user
        body = read_run_file(out, user, self.max_run_bytes)
        if body is None:
            raise RunFailed(f"the suite {self._without_result(outcome)}")
        try:
            finished = finished_run(body, self._executed(), outcome)
        except Unusable as unusable:
            and_then = "" if outcome.succeeded else f"; it {how_it_ended(outcome, self.log.tail())}"
            raise RunFailed(f"the suite {unusable}{and_then}") from None
        artifacts, left_out = take_artifacts(
            out,
            user,
            self._collected(),
            limit_bytes=self.config.max_artifact_bytes,
            total_limit_bytes=self.config.max_artifacts_bytes,
        )
        for sentence in left_out:
            self.log.note(sentence)
        return Product(body=finished, artifacts=(*artifacts, *self._written_log()))

    def _without_result(self, outcome: CommandOutcome) -> str:
        if outcome.succeeded:
            return "ended without writing a result (a run belongs where $TIDEMARK_RUN_JSON points)"
        return how_it_ended(outcome, self.log.tail())

    def _fail(self, error: str) -> Product:
        if self.interrupt.reason is not None:
            raise RunInterrupted
        log.info("run %s failed: %s", self.leased.run_id, error)
        self.log.note(error)
        body = failed_run(self._executed(), error)
        return Product(body=body, artifacts=self._written_log())

    def _collected(self) -> Path:
        """An empty directory of the worker's, for what is kept of this run until it is in the spool."""
        remove(self.config.collected_dir)
        self.config.collected_dir.mkdir(mode=0o700)
        return self.config.collected_dir

    def _written_log(self) -> tuple[Path, ...]:
        """The log as a file: never in a directory that the run could put a link or a pipe into."""
        path = self.config.collected_dir / LOG_ARTIFACT
        try:
            self.config.collected_dir.mkdir(exist_ok=True, mode=0o700)
            self.log.write(path)
        except OSError as failure:
            log.warning("the log of run %s could not be kept: %s", self.leased.run_id, failure)
            return ()
        return (path,) if path.stat().st_size else ()

    def _executed(self) -> ExecutedRun:
        return ExecutedRun(
            leased=self.leased,
            worker=self.config.name,
            clock=self._clock(),
            log_tail=self.log.tail(),
            telemetry=self.watch.finish(self.cpu_s),
        )

    def _clock(self) -> Clock:
        return Clock(began=self.began, duration_s=time.monotonic() - self.began_monotonic)
