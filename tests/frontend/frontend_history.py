"""A history for the pages' tests: a real git repository and the runs of its commits, as a worker would deliver them.

Names and shapes are those of an invented GPT project; what the pages show of it went through the real API and the
real judge. One suite gets slower at one commit and stays so, one is fixed again, one runs into a new environment.
"""

# ruff: noqa: E501 (a line of markup or of data stays one line)

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

HOSTILE = '<img src=x onerror="window.hacked=1"> \u202egnp.exe 🚀 ' + "x" * 3000
PHASES = {
    "data_wait": 0.01,
    "forward": 0.35,
    "backward": 0.49,
    "exposed_communication": 0.08,
    "optimizer": 0.05,
    "idle": 0.015,
    "other": 0.005,
}
AUTHORS = ("m.okafor", "p.sharma", "l.hansen", "j.tsai", "a.rossi", "s.novak")
SUBJECTS = (
    "router: skip empty experts in dispatch", "attn: enable document masks in flex", "fp8: per-row scales for w2",
    "inductor: cache key includes device props", "data: prefetch two batches ahead", "tests: gradcheck for grouped_mm",
    "ddp: bucket size from first backward", "coll: bind communicators eagerly", "optim: drop an unused foreach path",
    "fsdp2: reshard after forward again", "cli: print the resolved config", "ci: pin torch nightly",
    "moe: log expert load every 50 steps", "router: z-loss weight from config", "rope: precompute cos/sin once",
    "attn: fuse qkv bias", "ckpt: async save", "moe: capacity factor in tests", "llama: share causal mask",
    "data: mmap token shards", "fp8: amax history 16", "gpt: weight tying fixed under ddp",
)  # fmt: skip
VARIANTS: dict[str, tuple[tuple[str, dict[str, Any], float], ...]] = {
    "gpt": (
        ("gpt.train", {"impl": "sdpa", "dtype": "bf16"}, 118.0),
        ("gpt.train", {"impl": "math", "dtype": "bf16"}, 171.0),
        ("gpt.train", {"impl": "sdpa", "dtype": "fp32"}, 240.0),
    ),
    "moe": (
        ("moe.layer", {"experts": 8, "load": "even"}, 2.91),
        ("moe.layer", {"experts": 64, "load": "even"}, 5.46),
        ("moe.layer", {"experts": 64, "load": "zipf"}, 5.04),
        ("moe.model", {"ep": 8}, 24.18),
    ),
    "attn": (
        ("attn.train", {"mask": "causal", "sequence": 4096}, 12.2),
        ("attn.train", {"mask": "window", "sequence": 4096}, 9.7),
        ("attn.decode", {"batch": 64}, 0.412),
    ),
    "coll": (("coll.all_reduce", {"size": "1MB"}, 0.061), ("coll.all_reduce", {"size": "1GB"}, 4.9)),
}


@dataclass(frozen=True, slots=True)
class Step:
    """From commit `first` up to (not including) `until`, variants of `benchmark` cost `factor` times as much."""

    benchmark: str
    first: int
    factor: float
    until: int | None = None
    phase: str = "forward"
    only: dict[str, Any] = field(default_factory=dict)

    def factor_at(self, index: int, benchmark: str, variant: dict[str, Any]) -> float:
        here = self.first <= index and (self.until is None or index < self.until)
        mine = benchmark == self.benchmark and all(variant.get(name) == value for name, value in self.only.items())
        return self.factor if here and mine else 1.0


@dataclass(frozen=True, slots=True)
class Commit:
    index: int
    sha: str
    parent: str | None
    at: datetime


def make_repository(
    path: Path,
    commits: int,
    *,
    hours: float = 4.0,
    now: datetime | None = None,
    hostile_at: int | None = None,
    manifest: str | None = None,
) -> list[Commit]:
    """A repository with that many commits on `main`, the newest a few minutes old."""
    now = now or datetime.now(UTC)
    path.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "main", str(path)], check=True)
    stream = []
    for index in range(commits):
        at = now - timedelta(hours=hours * (commits - 1 - index), minutes=4)
        subject = HOSTILE if index == hostile_at else "baseline" if index == 0 else SUBJECTS[index % len(SUBJECTS)]
        author = AUTHORS[index * 5 % len(AUTHORS)]
        message = subject.encode()
        stream += [
            b"commit refs/heads/main\nmark :%d\n" % (index + 1),
            b"author %s <%s@example.org> %d +0000\n" % (author.encode(), author.encode(), at.timestamp()),
            b"committer %s <%s@example.org> %d +0000\n" % (author.encode(), author.encode(), at.timestamp()),
            b"data %d\n%s\n" % (len(message), message),
            b"from :%d\n" % index if index else b"",
            b"M 644 inline tidemark.toml\ndata %d\n%s\n" % (len(manifest), manifest.encode()) if manifest else b"",
            b"M 644 inline src/step.py\ndata <<END\nstep = %d\nEND\n\n" % index,
        ]
    subprocess.run(["git", "-C", str(path), "fast-import", "--quiet"], input=b"".join(stream), check=True)
    listed = subprocess.run(
        ["git", "-C", str(path), "log", "--reverse", "--format=%H %ct", "main"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    made: list[Commit] = []
    for index, line in enumerate(listed):
        sha, seconds = line.split()
        made.append(Commit(index, sha, made[-1].sha if made else None, datetime.fromtimestamp(int(seconds), UTC)))
    return made


def add_commit(path: Path, subject: str) -> None:
    """One more commit on main."""
    now = datetime.now(UTC).timestamp()
    stream = (
        f"commit refs/heads/main\nauthor x <x@example.org> {now:.0f} +0000\ncommitter x <x@example.org> {now:.0f} +0000\n"
        f"data {len(subject)}\n{subject}\nfrom refs/heads/main^0\nM 644 inline src/more.py\ndata 2\n1\n\n"
    )
    subprocess.run(["git", "-C", str(path), "fast-import", "--quiet"], input=stream.encode(), check=True)


def roofline(number: int, factor: float) -> dict[str, Any]:
    """Under the ceilings of `run_document`; what costs `factor` times as much does so many times less a second."""
    achieved = (0.11 + 0.02 * number) / factor
    return {
        "flop_per_byte": 30.0 + 15 * number, "ridge_flop_per_byte": 19.1, "achieved_tflops": achieved,
        "bound": "compute", "share_of_ceiling": achieved / 0.21,
    }  # fmt: skip


def kernels_name(number: int) -> str:
    return f"result-{number}.kernels.json"


def kernel_table(fused: bool) -> dict[str, Any]:
    """Kernels of a step; without the fused router another kernel does its work, and more casts run."""
    router = ("triton_fused_router_topk", 32, 210.0) if fused else ("topk_softmax_kernel", 32, 880.0)
    rows = [
        ("forward", router[0], "64,8", router[1], router[2]),
        ("forward", "elementwise_cast", "64,1024", 32 if fused else 160, 110.0 if fused else 630.0),
        ("backward", "grouped_gemm_bf16", "64,4096", 192, 6920.0),
    ]
    phase, name, shape, calls, us = (list(column) for column in zip(*rows, strict=True))
    columns = {"phase": phase, "name": name, "shape": shape, "calls_per_step": calls, "us_per_step": us}
    return {"schema": "tidemark.kernels/1", "steps": 6, **columns}


def run_document(
    project: str,
    commit: Commit,
    suite: str,
    *,
    steps: tuple[Step, ...] = (),
    testbed: str = "cpu",
    variants: Any = None,
    environment: str = "2.13.0",
    noise: float = 0.004,
    failed: str | None = None,
    seed: int = 0,
    whole_run_failed: bool = False,
    metrics: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """One run of one suite as `tidemark.run/1`."""
    chance = random.Random(f"{suite}-{commit.index}-{seed}")
    results = []
    for number, (benchmark, variant, base) in enumerate((variants or VARIANTS)[suite]):
        slower = [step for step in steps if step.factor_at(commit.index, benchmark, variant) != 1.0]
        factor = 1.0
        for step in slower:
            factor *= step.factor
        value = base * factor
        processes = [round(value * (1 + chance.gauss(0, noise)), 6) for _ in range(5)]
        middle = sorted(processes)[2]
        if failed is not None and number == 0:
            results.append(
                {
                    "benchmark": benchmark,
                    "variant": variant,
                    "preset": "cpu",
                    "status": "failed",
                    "error": failed,
                    "measurements": [],
                }
            )
            continue
        measurements: list[dict[str, Any]] = [
            {
                "metric": "step_ms", "unit": "ms", "direction": "lower", "role": "gate", "value": middle, "processes": processes,
                "samples": [[round(each * (1 + chance.gauss(0, noise)), 6) for _ in range(8)] for each in processes],
            },
            {"metric": "tokens_per_s", "unit": "1/s", "direction": "higher", "role": "derived", "value": round(16384 / middle * 1000, 1)},
        ]  # fmt: skip
        for name, share in PHASES.items():
            size = base * share + sum(base * (step.factor - 1) for step in slower if step.phase == name)
            measurements.append(
                {
                    "metric": f"{name}_ms",
                    "unit": "ms",
                    "direction": "lower",
                    "role": "phase",
                    "value": round(size * (1 + chance.gauss(0, noise / 2)), 6),
                }
            )
        if metrics is not None:
            measurements = [each for each in measurements if each["metric"] in metrics]
        results.append(
            {
                "benchmark": benchmark, "variant": variant, "preset": "cpu", "mode": "train_step", "backend": "eager", "world_size": 1, "status": "ok", "error": None,
                "correctness": {"state": "pass", "reference": "fp64", "checks": [{"name": "output_relative_error", "value": 0.0041, "limit": 0.0086}]},
                "measurements": measurements, "roofline": roofline(number, factor), "artifacts": {"kernels": kernels_name(number)},
            }
        )  # fmt: skip
    started = commit.at + timedelta(minutes=2)
    document = {
        "schema": "tidemark.run/1",
        "id": f"{project.replace('/', '-')}-{suite}-{commit.sha[:12]}-{seed}",
        "project": project, "commit": commit.sha, "parents": [commit.parent] if commit.parent else [], "branch": "main", "pull_request": None,
        "suite": suite, "suite_version": "1.0.0", "testbed": testbed, "worker": f"{testbed}-01", "attempt": 1,
        "started_at": started.isoformat().replace("+00:00", "Z"), "finished_at": (started + timedelta(seconds=95)).isoformat().replace("+00:00", "Z"),
        "status": "failed" if whole_run_failed else "ok",
        "environment": {"torch": environment, "python": "3.11.7", "accelerator": "cpu", "hash": f"sha256:{environment}", "git": {"commit": commit.sha}},
        "telemetry": {"load_1m": 0.8, "foreign_processes": 0, "throttle": []},
        "ceilings": {"gemm_fp32_tflops": 0.21, "copy_gb_per_s": 11.0},
        "canary": [{"name": "gemm_fp32_tflops", "before": 0.2101, "after": 0.2099, "own_noise": 0.003}],
        "results": [] if whole_run_failed else results,
    }  # fmt: skip
    if whole_run_failed:
        document |= {
            "error": failed or "the benchmark ended with status 1",
            "log_tail": "Traceback (most recent call last):\n  …\nRuntimeError: expected scale of shape [14336, 1]\n",
        }
    return document
