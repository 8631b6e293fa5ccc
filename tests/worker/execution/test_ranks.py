"""Suites that ask for ranks: torchrun starts them through the worker, and a lost rank ends the run with its reason."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from worker.execution.suite import BadSpec, SuiteSpec

RANKS = """
    import json, os, sys
    import torch.distributed as dist
    import torch
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    if os.environ.get("LOSE") == str(rank):
        os.kill(os.getpid(), 9)
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    if rank == 0:
        json.dump({"schema": "tidemark.run/1", "id": os.environ["TIDEMARK_RUN_ID"], "status": "ok", "results": [
            {"benchmark": "sum", "variant": {"ranks": size}, "world_size": size, "status": "ok", "measurements": [
                {"metric": "total", "unit": "1", "direction": "lower", "role": "gate", "exact": True,
                 "value": total.item()}]}]}, open(os.environ["TIDEMARK_RUN_JSON"], "w"))
    dist.destroy_process_group()
"""


def suite(**spec: Any) -> SuiteSpec:
    return SuiteSpec.from_spec(spec, default_timeout_s=60)


@pytest.mark.torch
def test_ranks_meet_and_the_first_one_writes_the_run(bench: Any) -> None:
    """As many as were asked for: three of them here, two in the test of a lost one."""
    ranks = 3
    run = bench.run(textwrap.dedent(RANKS), spec={"ranks": ranks, "timeout_s": 120})
    assert run["status"] == "ok", run
    (result,) = run["results"]
    assert result["world_size"] == ranks
    assert result["measurements"][0]["value"] == sum(range(1, ranks + 1))


@pytest.mark.torch
def test_a_lost_rank_ends_the_run_with_its_reason_and_leaves_nothing_behind(bench: Any) -> None:
    run = bench.run(textwrap.dedent(RANKS), spec={"ranks": 2, "timeout_s": 120, "env": {"LOSE": "1"}})
    assert run["status"] == "failed" and run["results"] == []
    assert run["error"] == "the suite ended with exit code 1: rank 1 was killed by SIGKILL, and the others with it"


def test_benchmarks_are_started_by_torchrun_only_where_ranks_are_asked_for() -> None:
    python, out = Path("/usr/bin/python3"), Path("/tmp/run.json")
    alone = suite(benchmarks=["gpt.ddp"]).argv(python, out)
    assert alone[:4] == ("/usr/bin/python3", "-P", "-m", "benchmarks")
    together = suite(benchmarks=["gpt.ddp"], ranks=2).argv(python, out)
    assert "--nproc-per-node=2" in together and together[-len(alone) :] == alone


@pytest.mark.parametrize("ranks", [0, -1, "two", True, 1.5])
def test_a_number_of_ranks_that_cannot_be_is_refused(ranks: Any) -> None:
    with pytest.raises(BadSpec, match="ranks"):
        suite(benchmarks=["gpt.ddp"], ranks=ranks)
