"""Compile time: a small GPT compiled in a fresh process with an empty cache, and again with a filled one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.harness.check import CheckResult, Correctness, norm_error, relative_limit, worst_error
from benchmarks.harness.values import Value
from benchmarks.harness.workload import Job, NotApplicable, StepCounter, Work

_START = "import sys; sys.path.insert(0, sys.argv[1]); from benchmarks.workloads.gpt.compile_cold import main; main()"


class CompileCold:
    """`compile.cold`: seconds to the first finished step, cold and warm; graphs, breaks and recompilations, exactly."""

    work = Work(flop=0.0)

    def __init__(self, job: Job) -> None:
        self.job = job
        self.device = str(job.config["device"])
        if self.device == "cuda" and not torch.cuda.is_available():
            raise NotApplicable(f"preset {job.preset} needs a GPU and torch sees none; --preset cpu runs anywhere")
        if self.device == "cpu" and not cpp_compiler():
            raise NotApplicable("torch compiles for a CPU through C++, and none is here: install g++, or set CXX")

    def check(self) -> Correctness:
        """Nothing yet: each compiling process checks what it compiled."""
        return Correctness(reference="fp64 eager, checked in every compiling process")

    def prepare(self) -> None:
        """Everything happens in separate processes."""

    def counters(self) -> list[StepCounter]:
        return []

    def after(self) -> str | None:
        return None

    def correctness(self) -> Correctness:
        """Check the compiled function, cold and warm, against double precision and the eager path."""
        result = Correctness(reference="fp64 eager, the same weights and token ids")
        for name, report in (("cold", self.cold), ("warm", self.warm)):
            for check in report["checks"]:
                result.require(f"{check['name']}_{name}", check["value"], check["limit"], f"{name} cache")
        return result

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
        package = str(Path(__file__).resolve().parents[3])
        command = [sys.executable, "-P", "-c", _START, package, json.dumps(dict(self.job.config))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.strip()] or ["it printed nothing"]
            raise RuntimeError(f"the compiling process ended with status {done.returncode}: {said[-1].strip()}")
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return report


def cpp_compiler() -> str | None:
    """The C++ compiler that torch would call, or None."""
    names = [name for name in (os.environ.get("CXX"), "g++", "clang++") if name]
    return next((found for name in names if (found := shutil.which(name))), None)


def main() -> None:
    """One compiling process: eager steps first, then the compiled ones; prints its report as JSON."""
    import torch._dynamo

    from benchmarks.workloads.gpt import model as gpt_model
    from benchmarks.workloads.gpt.config import GptConfig

    sizes = json.loads(sys.argv[2])
    mode, device = sizes.pop("compile"), sizes["device"]
    config = GptConfig(**sizes)
    torch.manual_seed(1)
    model = gpt_model.build(config).to(device)
    tokens = torch.randint(0, config.vocab_size, (config.batch_size, config.block_size + 1), device=device)

    step(model, model, tokens)
    eager = step(model, model, tokens)
    compiled = torch.compile(model, mode=None if mode == "default" else mode)
    first = step(compiled, model, tokens)
    step(compiled, model, tokens)
    counters = torch._dynamo.utils.counters
    exact_model = model.double()
    exact = step(exact_model, exact_model, tokens)
    report = {
        "seconds": first.seconds,
        "over_eager": first.seconds / eager.seconds,
        "checks": [finding.to_json() for finding in differences(first, eager, exact, config.dtype)],
        "graphs": counters["stats"].get("unique_graphs", 0),
        "graph_breaks": sum(counters["graph_break"].values()),
        "recompiles": sum(counters.get("recompiles", {}).values()),
    }
    print(json.dumps(report))


@dataclass(frozen=True, slots=True)
class Stepped:
    """Time and results of one forward and backward pass; copies, for a replayed graph writes to one place."""

    seconds: float
    logits: torch.Tensor
    gradients: list[torch.Tensor]


def step(network: Any, model: nn.Module, tokens: torch.Tensor) -> Stepped:
    """Calls `network`, which is `model` or its compiled form; the loss is awaited within the time."""
    began = time.perf_counter()
    logits_BTV = network(tokens[:, :-1])
    loss = F.cross_entropy(logits_BTV.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    loss.item()
    seconds = time.perf_counter() - began
    gradients = [parameter.grad.detach().clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    return Stepped(seconds, logits_BTV.detach().clone(), gradients)


def differences(compiled: Stepped, eager: Stepped, exact: Stepped, dtype: str) -> list[CheckResult]:
    """Logits and gradients of the compiled step: no further from double precision than twice the eager step's."""
    result = Correctness(reference="fp64 eager")
    limit = relative_limit(worst_error(eager.logits, exact.logits), dtype)
    result.require("output_relative_error", worst_error(compiled.logits, exact.logits), limit)
    limit = relative_limit(norm_error(eager.gradients, exact.gradients), dtype)
    result.require("gradient_relative_error", norm_error(compiled.gradients, exact.gradients), limit)
    return result.findings
