"""Several ranks from one measuring process: starts them as processes of their own and collects what each returns."""

from __future__ import annotations

import os
import queue
import socket
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

Body = Callable[[int, int, dict[str, Any]], Any]

TIMEOUT_S = 120
PATIENCE_S = 3


class RankFailed(RuntimeError):
    """A rank raised; its traceback is the message."""


def run_ranks(body: Body, ranks: int, argument: dict[str, Any], backend: str) -> list[Any]:
    """Runs `body(rank, ranks, argument)` in `ranks` processes with a process group; returns every rank's result."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    port = _free_port()
    processes = [
        context.Process(target=_entry, args=(body, rank, ranks, argument, backend, port, answers), daemon=True)
        for rank in range(1, ranks)
    ]
    for process in processes:
        process.start()
    # Rank 0 is this process: one import of torch less, and its memory settings are already as they should be.
    try:
        try:
            results = {0: _joined(body, 0, ranks, argument, backend, port)}
        except Exception as error:
            # A rank that dies takes the others' connections along; what it died of is the better answer.
            raise RankFailed(_first_failure(answers) or f"rank 0 failed: {error}") from error
        for _ in processes:
            rank, value, failure = answers.get(timeout=TIMEOUT_S)
            if failure:
                raise RankFailed(f"rank {rank} failed: {failure}")
            results[rank] = value
    finally:
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
    return [results[rank] for rank in range(ranks)]


def _first_failure(answers: Any) -> str | None:
    try:
        rank, _, failure = answers.get(timeout=PATIENCE_S)
    except queue.Empty:
        return None
    return f"rank {rank} failed: {failure}" if failure else None


def _entry(body: Body, rank: int, ranks: int, argument: dict[str, Any], backend: str, port: int, answers: Any) -> None:
    try:
        answers.put((rank, _joined(body, rank, ranks, argument, backend, port), None))
    except BaseException:
        answers.put((rank, None, traceback.format_exc()[-4000:]))


def _joined(body: Body, rank: int, ranks: int, argument: dict[str, Any], backend: str, port: int) -> Any:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_RANK": str(rank)}
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, rank=rank, world_size=ranks, timeout=timedelta(seconds=TIMEOUT_S))
    try:
        return body(rank, ranks, argument)
    finally:
        dist.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
