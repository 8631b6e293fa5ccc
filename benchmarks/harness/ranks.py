"""Several ranks for one measurement: started here as processes of their own, or by torchrun before us.

Whatever becomes of a rank, the others end within seconds and say which one it was, and why.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

from benchmarks.harness.workload import NotApplicable
from benchmarks.torchrun import RankPlace, place_of

Body = Callable[[int, int, dict[str, Any]], Any]

TIMEOUT_S = 120
PATIENCE_S = 3
POLL_S = 0.2
ECHOES = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")
"""Messages of ranks whose peer is gone: never the cause."""


class RankFailed(RuntimeError):
    """A rank raised, or was lost; the sentence says which, and what it said last."""


class _Traceback(Exception):
    """The traceback of a failed rank; shown as the cause of `RankFailed`."""


def run_ranks(body: Body, ranks: int, argument: dict[str, Any], backend: str, key: str) -> list[Any]:
    """Runs `body(rank, ranks, argument)` on all ranks of a process group; returns every rank's result.

    Under torchrun this process is one of them already, and every rank gets all results; `key` then tells this group
    from the ones before it. Results must be fit for JSON.
    """
    place = place_of(os.environ)
    if place is None:
        return _start_ranks(body, ranks, argument, backend)
    if place.ranks != ranks:
        raise RankFailed(f"torchrun started {place.ranks} ranks and this case needs {ranks}")
    return _as_one_of(place, body, argument, backend, key)


def require_gpus(ranks: int, preset: str) -> None:
    """Check that this machine has GPUs for the ranks; a lack of them makes the variant not applicable, never slow."""
    if not torch.cuda.is_available():
        raise NotApplicable(f"preset {preset} needs GPUs and torch sees none; --preset cpu runs anywhere")
    if not dist.is_nccl_available():
        raise NotApplicable("this build of torch has no NCCL, which carries ranks on GPUs")
    found, needed = torch.cuda.device_count(), gpus_needed(ranks)
    if found < needed:
        raise NotApplicable(
            f"{ranks} ranks need {needed} GPUs here and {found} {'is' if found == 1 else 'are'} here; "
            "on one rank nothing crosses a link, so there is no bandwidth to state"
        )


def gpus_needed(ranks: int) -> int:
    """GPUs that this machine must have for so many ranks: under torchrun only its own share of them."""
    place = place_of(os.environ)
    return ranks if place is None else place.ranks_here


def _failed(rank: int, text: str) -> RankFailed:
    lines = [line for line in text.splitlines() if line.strip()] or ["it said nothing"]
    error = RankFailed(f"rank {rank} failed: {lines[-1].strip()}")
    error.__cause__ = _Traceback(text)
    return error


# ranks started here


def _start_ranks(body: Body, ranks: int, argument: dict[str, Any], backend: str) -> list[Any]:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    port = _free_port()
    started = {
        rank: context.Process(target=_entry, args=(body, rank, ranks, argument, backend, port, answers), daemon=True)
        for rank in range(1, ranks)
    }
    for process in started.values():
        process.start()
    # Rank 0 is this process: one import of torch less, and its memory settings are already as they should be.
    try:
        # Nobody joins before all have come so far: the group would wait minutes for one that died on its way.
        _collect(started, answers)
        try:
            results = {0: _joined(body, 0, ranks, argument, backend, port)}
        except Exception as error:
            # A rank that dies takes the others' connections along; what it died of is the better answer.
            raise _first_failure(started, answers) or _failed(0, traceback.format_exc()) from error
        return [value for _, value in sorted((results | _collect(started, answers)).items())]
    finally:
        for process in started.values():
            process.join(5)
            if process.is_alive():
                process.kill()


def _collect(started: dict[int, Any], answers: Any) -> dict[int, Any]:
    """One answer of every started rank; raises as soon as one failed or was lost."""
    found: dict[int, Any] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < len(started):
        gone = [rank for rank, process in started.items() if rank not in found and process.exitcode is not None]
        try:
            rank, value, failure = answers.get(timeout=POLL_S)
        except queue.Empty:
            if gone:
                raise RankFailed(_lost(gone[0], started[gone[0]].exitcode)) from None
            if time.monotonic() > deadline:
                late = min(set(started) - set(found))
                raise RankFailed(f"rank {late} did not answer within {TIMEOUT_S} s") from None
            continue
        if failure:
            raise _failed(rank, failure)
        found[rank] = value
    return found


def _lost(rank: int, code: int) -> str:
    if code >= 0:
        return f"rank {rank} was lost: it ended with exit status {code} and no answer"
    return f"rank {rank} was lost: it was ended by {signal.Signals(-code).name}"


def _first_failure(started: dict[int, Any], answers: Any) -> RankFailed | None:
    """The error of a failed rank, if any: its own message, or how its process ended."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(queue.Empty):
            rank, _, failure = answers.get(timeout=POLL_S)
            if failure:
                return _failed(rank, failure)
        for rank, process in started.items():
            if process.exitcode not in (None, 0):
                return RankFailed(_lost(rank, process.exitcode))
    return None


def _entry(body: Body, rank: int, ranks: int, argument: dict[str, Any], backend: str, port: int, answers: Any) -> None:
    answers.put((rank, None, None))
    try:
        answers.put((rank, _joined(body, rank, ranks, argument, backend, port), None))
    except BaseException:
        answers.put((rank, None, traceback.format_exc()[-4000:]))
    # Its answer is on its way, and tearing down torch would cost a quarter of a second more.
    answers.close()
    answers.join_thread()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _joined(body: Body, rank: int, ranks: int, argument: dict[str, Any], backend: str, port: int) -> Any:
    os.environ["LOCAL_RANK"] = str(rank)
    store = dist.TCPStore("127.0.0.1", port, ranks, is_master=rank == 0, timeout=timedelta(seconds=TIMEOUT_S))
    with _group(RankPlace(rank, ranks, rank, ranks), backend, store):
        return body(rank, ranks, argument)


@contextlib.contextmanager
def _group(place: RankPlace, backend: str, store: Any) -> Iterator[None]:
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(place.rank_here)
    limit = timedelta(seconds=TIMEOUT_S)
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.ranks, timeout=limit)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ranks started by torchrun


def _as_one_of(place: RankPlace, body: Body, argument: dict[str, Any], backend: str, key: str) -> list[Any]:
    """Joins the others by torchrun's store, or by one that rank 0 keeps where torchrun keeps none."""
    limit = timedelta(seconds=TIMEOUT_S)
    keeper = place.rank == 0 and not place.store_is_kept
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    tcp = dist.TCPStore(host, port, place.ranks, is_master=keeper, timeout=limit, wait_for_workers=False)
    store = dist.PrefixStore(f"tidemark/{place.attempt}/{key}", tcp)
    try:
        with _group(place, backend, dist.PrefixStore("group", store)):
            answer = {"value": body(place.rank, place.ranks, argument)}
    except Exception:
        answer = {"failure": traceback.format_exc()[-4000:]}
    try:
        store.set(f"answer/{place.rank}", json.dumps(answer))
        found = _answers(place, store, failed="failure" in answer)
        store.set(f"read/{place.rank}", "")
    except Exception as error:
        raise RankFailed(f"rank 0 was lost: {str(error).splitlines()[0]}") from error
    if keeper:
        # The store dies with this process; the others must have read it first.
        _wait(store, [f"read/{rank}" for rank in range(place.ranks)], PATIENCE_S)
    lost = [rank for rank in range(place.ranks) if rank not in found]
    failures = {rank: one["failure"] for rank, one in found.items() if "failure" in one}
    if lost:
        said = f"; rank {place.rank} saw: {answer['failure'].splitlines()[-1]}" if "failure" in answer else ""
        raise RankFailed(f"rank {lost[0]} was lost: it gave no answer{said}")
    if failures:
        own = [rank for rank, text in failures.items() if not any(echo in text for echo in ECHOES)]
        first = (own or list(failures))[0]
        raise _failed(first, failures[first])
    return [found[rank]["value"] for rank in range(place.ranks)]


def _answers(place: RankPlace, store: Any, *, failed: bool) -> dict[int, dict[str, Any]]:
    """Every rank's answer; once one has failed, the rest is waited for only a little."""
    found: dict[int, dict[str, Any]] = {}
    for rank in range(place.ranks):
        name = f"answer/{rank}"
        if _wait(store, [name], PATIENCE_S if failed else TIMEOUT_S):
            found[rank] = json.loads(store.get(name))
            failed = failed or "failure" in found[rank]
    return found


def _wait(store: Any, names: list[str], seconds: float) -> bool:
    try:
        store.wait(names, timedelta(seconds=seconds))
    except dist.DistStoreError:
        return False
    return True
