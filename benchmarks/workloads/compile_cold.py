"""Compile time: a small GPT compiled in a process of its own with an empty cache, and again with a filled one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import torch

from benchmarks.harness.check import Correctness
from benchmarks.harness.values import Value
from benchmarks.harness.workload import Counter, Job, NotApplicable, Work

_START = (
    "import sys, json; sys.path.insert(0, sys.argv[1]); from benchmarks.workloads import compile_cold as c; c.main()"
)


class CompileCold:
    """`compile.cold`: seconds to the first finished step, cold and warm; graphs, breaks and recompilations, exactly."""

    work = Work(flop=0.0)

    def __init__(self, job: Job) -> None:
        self.job = job
        self.device = str(job.config["device"])
        if self.device == "cuda" and not torch.cuda.is_available():
            raise NotApplicable(f"preset {job.preset} needs a GPU and torch sees none; --preset cpu runs anywhere")

    def check(self) -> Correctness:
        return Correctness(reference="the same model, eager; checked in every compiling process")

    def prepare(self) -> None:
        """Everything happens in processes of its own."""

    def counters(self) -> list[Counter]:
        return []

    def after(self) -> str | None:
        worst = max(self.cold["loss_difference"], self.warm["loss_difference"])
        return (
            None if worst <= 1e-4 else f"the compiled loss differs from the eager one by {worst:.2g}; its speed is void"
        )

    def measure(self) -> list[Value]:
        """Cold, then warm with the cache that the cold one filled."""
        with tempfile.TemporaryDirectory(prefix="tidemark-compile-") as cache:
            self.cold, self.warm = self._compile(cache), self._compile(cache)
        role = "gate" if self.device == "cuda" else "watch"
        counts = {name: float(self.cold[name]) for name in ("graphs", "graph_breaks", "recompiles")}
        return [
            Value(metric="compile_cold_s", unit="s", value=self.cold["seconds"], role=role),
            Value(metric="compile_warm_s", unit="s", value=self.warm["seconds"], role=role),
            Value(metric="compile_cold_over_eager_step", unit="ratio", value=self.cold["over_eager"], role="derived"),
            Value(metric="graphs", unit="1", value=counts["graphs"], exact=True, role="watch"),
            Value(metric="graph_breaks", unit="1", value=counts["graph_breaks"], exact=True, role="gate"),
            Value(metric="recompiles", unit="1", value=counts["recompiles"], exact=True, role="gate"),
        ]

    def _compile(self, cache: str) -> dict[str, Any]:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": cache,
            "TRITON_CACHE_DIR": os.path.join(cache, "triton"),
        }
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        command = [sys.executable, "-P", "-c", _START, package, json.dumps(dict(self.job.config))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the compiling process failed: {done.stderr.strip().splitlines()[-1:]}")
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return report


def main() -> None:
    """One compiling process: eager steps first, then the compiled ones; prints its report as JSON."""
    import time

    import torch._dynamo
    import torch.nn.functional as F

    from benchmarks.workloads import gpt_model
    from benchmarks.workloads.gpt_config import GptConfig

    sizes = json.loads(sys.argv[2])
    mode, device = sizes.pop("compile"), sizes["device"]
    config = GptConfig(**sizes)
    torch.manual_seed(1)
    model = gpt_model.build(config).to(device)
    tokens = torch.randint(0, config.vocab_size, (config.batch_size, config.block_size + 1), device=device)

    def loss_of(network: Any) -> torch.Tensor:
        logits = network(tokens[:, :-1])
        return F.cross_entropy(logits.view(-1, config.vocab_size), tokens[:, 1:].reshape(-1))

    def step(network: Any) -> tuple[float, float]:
        began = time.perf_counter()
        loss = loss_of(network)
        loss.backward()
        value = loss.item()
        model.zero_grad()
        return time.perf_counter() - began, value

    step(model)
    eager_s, eager_loss = step(model)
    compiled = torch.compile(model, mode=None if mode == "default" else mode)
    seconds, loss = step(compiled)
    step(compiled)
    counters = torch._dynamo.utils.counters
    stats = counters["stats"]
    report = {
        "seconds": seconds,
        "over_eager": seconds / eager_s,
        "loss_difference": abs(loss / eager_loss - 1),
        "graphs": stats.get("unique_graphs", 0),
        "graph_breaks": sum(counters["graph_break"].values()),
        "recompiles": sum(counters.get("recompiles", {}).values()),
    }
    print(json.dumps(report))
