"""From what a command left behind to the run that is delivered: its results, or a failed run that says why.

A failed run is data: it has a sentence, the end of the log, and never a colour.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from backend.contract import Invalid, ResultStatus, Run, RunStatus, parse_run
from backend.contract_weight import check_weight
from worker.client import LeasedRun
from worker.execution.ranks import lost_rank
from worker.isolation.output import clean
from worker.isolation.owned import NotOfTheRun, copy_file, names_in, read_file
from worker.isolation.processes import CommandOutcome, Ending, RunUser, signal_name

SHOWN_PROBLEMS = 3
MAX_ERROR_CHARACTERS = 4000
ARTIFACT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=,@-]{0,199}")
MAX_ARTIFACTS = 500
LOG_ARTIFACT = "worker.log.txt"


class Unusable(Exception):
    """The command's output cannot be used; the message is the sentence a person reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """When a run began by this worker's clock, and how long it took by the one that cannot jump."""

    began: datetime
    duration_s: float

    @property
    def started_at(self) -> str:
        return _text(self.began)

    @property
    def finished_at(self) -> str:
        return _text(self.began + timedelta(seconds=self.duration_s))


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def identity(leased: LeasedRun, worker: str) -> dict[str, Any]:
    """The fields of a run that follow from its lease, whatever writes them."""
    return {
        "schema": "tidemark.run/1",
        "id": leased.run_id,
        "project": leased.project,
        "commit": leased.commit,
        "parents": list(leased.parents),
        "branch": leased.branch,
        "pull_request": leased.pull_request,
        "suite": leased.suite,
        "testbed": leased.testbed,
        "worker": worker,
        "attempt": leased.attempt,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedRun:
    """What the worker itself knows of a run that it executed: for whom, when, and what it saw meanwhile."""

    leased: LeasedRun
    worker: str
    clock: Clock
    log_tail: Sequence[str]
    telemetry: Mapping[str, Any]


def failed_run(executed: ExecutedRun, error: str) -> bytes:
    """A run without results, and the reason."""
    document = {
        **identity(executed.leased, executed.worker),
        "started_at": executed.clock.started_at,
        "finished_at": executed.clock.finished_at,
        "status": RunStatus.FAILED.value,
        "error": clean(error)[:MAX_ERROR_CHARACTERS],
        "log_tail": "\n".join(executed.log_tail),
        "telemetry": dict(executed.telemetry),
        "results": [],
    }
    return json.dumps(document).encode()


def finished_run(body: bytes, executed: ExecutedRun, outcome: CommandOutcome) -> bytes:
    """The run a command wrote, checked, and completed with what only the worker knows; raises Unusable."""
    document = _completed(body, executed)
    try:
        run = parse_run(document)
    except Invalid as invalid:
        raise Unusable(_not_the_contract(invalid)) from None
    _refuse_foreign(run, executed.leased, executed.worker)
    if outcome.ending in (Ending.TIMED_OUT, Ending.OVER_LIMIT) or (
        not outcome.succeeded and run.status is RunStatus.OK
    ):
        # What was measured before the end is measured; but nobody should take the run for a whole one.
        measured = any(result.status is ResultStatus.OK for result in run.results)
        document["status"] = (RunStatus.INCOMPLETE if measured else RunStatus.FAILED).value
        wrote = f"{len(run.results)} result{'' if len(run.results) == 1 else 's'}"
        document["error"] = clean(f"the suite wrote {wrote} and {how_it_ended(outcome, executed.log_tail)}")
    if document["status"] != RunStatus.OK and not run.log_tail:
        document["log_tail"] = "\n".join(executed.log_tail)
    return json.dumps(document).encode()


def _completed(body: bytes, executed: ExecutedRun) -> dict[str, Any]:
    """The document with what it left unsaid. What it does say is never changed, so that a wrong commit shows."""
    try:
        check_weight(body)
    except Invalid as invalid:
        raise Unusable(_not_the_contract(invalid)) from None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        try:
            parse_run(body)
        except Invalid as invalid:
            raise Unusable(_not_the_contract(invalid)) from None
        raise Unusable("wrote a result that is not tidemark.run/1: it is not a JSON object")
    # The contract names the schema first: without it, anything could be in the file.
    unsaid = {name: value for name, value in identity(executed.leased, executed.worker).items() if name != "schema"}
    unsaid |= {"started_at": executed.clock.started_at, "finished_at": executed.clock.finished_at}
    if "started_at" in document or "finished_at" in document:
        # One clock for both ends.
        unsaid.pop("started_at"), unsaid.pop("finished_at")
    document = unsaid | document
    said = document.get("telemetry", {})
    if isinstance(said, dict):
        document["telemetry"] = dict(executed.telemetry) | said
    return document


def _not_the_contract(invalid: Invalid) -> str:
    told = "; ".join(str(problem) for problem in invalid.problems[:SHOWN_PROBLEMS])
    more = len(invalid.problems) + invalid.more - SHOWN_PROBLEMS
    return f"wrote a result that is not tidemark.run/1: {told}{f'; and {more} more' if more > 0 else ''}"


def _refuse_foreign(run: Run, leased: LeasedRun, worker: str) -> None:
    expected = {
        "id": leased.run_id,
        "project": leased.project,
        "commit": leased.commit,
        "suite": leased.suite,
        "testbed": leased.testbed,
        "worker": worker,
        "attempt": leased.attempt,
    }
    for name, wanted in expected.items():
        found = getattr(run, name)
        if found != wanted:
            raise Unusable(f"wrote a result of another run: its {name} is {found!r}, but this run's is {wanted!r}")


def read_run_file(out: int, owner: RunUser | None, limit_bytes: int) -> bytes | None:
    """The bytes of run.json in the directory of results, or None when nothing was written."""
    try:
        return read_file(out, "run.json", owner, limit_bytes)
    except FileNotFoundError:
        return None
    except NotOfTheRun as flaw:
        raise Unusable(f"left a run.json that {flaw}") from None


def take_artifacts(
    out: int, owner: RunUser | None, into: Path, *, limit_bytes: int, total_limit_bytes: int
) -> tuple[list[Path], list[str]]:
    """Copies the files beside run.json to a directory of the worker's; those copies, and a sentence for each file that
    could not be taken."""
    taken: list[Path] = []
    left_out: list[str] = []
    names, all_of_them = names_in(out)
    room = total_limit_bytes
    for name in names:
        if name == "run.json":
            continue
        if len(taken) >= MAX_ARTIFACTS or len(left_out) >= MAX_ARTIFACTS:
            all_of_them = False
            break
        try:
            status = os.stat(name, dir_fd=out, follow_symlinks=False)
        except FileNotFoundError:
            continue  # a process that outlived the command has just taken it away
        if stat.S_ISDIR(status.st_mode):
            continue
        if not _is_artifact_name(name) or not stat.S_ISREG(status.st_mode):
            left_out.append(f"artifact {name[:100]!r} left out: not a plain file with a plain name")
        elif status.st_size > limit_bytes:
            left_out.append(f"artifact {name} left out: {status.st_size} bytes, at most {limit_bytes} are kept")
        elif status.st_size > room:
            left_out.append(f"artifact {name} left out: the artifacts of this run are too many or too large")
        else:
            try:
                room -= copy_file(out, name, owner, into / name, status.st_size)
                taken.append(into / name)
            except (NotOfTheRun, FileNotFoundError) as flaw:
                left_out.append(f"artifact {name} left out: it {flaw}")
    if not all_of_them:
        left_out.append("further artifacts left out: the artifacts of this run are too many or too large")
    return taken, left_out


def _is_artifact_name(name: str) -> bool:
    return ARTIFACT_NAME.fullmatch(name) is not None and ".." not in name and name != LOG_ARTIFACT


def how_it_ended(outcome: CommandOutcome, log_tail: Sequence[str]) -> str:
    """The end of a command in words that follow "the suite …"."""
    if outcome.ending is Ending.NOT_STARTED:
        return f"could not be started: {outcome.error}"
    if outcome.ending is Ending.TIMED_OUT:
        stuck = f"; {outcome.survivors} of its processes could not be killed" if outcome.survivors else ""
        return f"ran longer than its time limit and was stopped after {outcome.duration_s:.0f} s{stuck}"
    code = outcome.exit_code
    if outcome.ending is Ending.OVER_LIMIT or code is None:
        ended = "was stopped" if outcome.ending is Ending.OVER_LIMIT else "was lost"
        return f"{ended}: {outcome.error or 'how it ended is not known'}"
    # A shell reports a signal of its child as 128 + number.
    killed_by = -code if code < 0 else code - 128 if 128 < code < 160 else 0
    if killed_by == signal.SIGKILL:
        return f"was killed {_by_whom(outcome)}, with {outcome.max_rss_bytes / 1e9:.1f} GB in its largest process"
    memory = _gpu_memory(log_tail)
    if memory is not None:
        return f"ran out of GPU memory: {memory}"
    what = f"crashed with {signal_name(-killed_by)}" if killed_by else f"ended with exit code {code}"
    return what + _last_words(log_tail)


def _by_whom(outcome: CommandOutcome) -> str:
    if outcome.oom_kills:
        return "because memory ran out"
    return "by SIGKILL, most likely because memory ran out"


_GPU_MEMORY = re.compile(r"(?:CUDA|HIP|XPU) out of memory|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED")


def _gpu_memory(log_tail: Sequence[str]) -> str | None:
    """The line in which torch or CUDA says that a GPU's memory did not suffice."""
    return next((line.strip()[:300] for line in reversed(log_tail) if _GPU_MEMORY.search(line)), None)


def _last_words(log_tail: Sequence[str]) -> str:
    """The line an error message usually ends with; of several ranks, which was lost first."""
    lost = lost_rank(log_tail)
    if lost is not None:
        return f": {lost}"
    last = next((line.strip() for line in reversed(log_tail) if line.strip()), "")
    return f": {last[:300]}" if last else ""
