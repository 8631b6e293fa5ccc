"""The suite's spec, as it came with the lease, and the commands that follow from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worker.client import LeasedRun
from worker.config import Network


class BadSpec(ValueError):
    """The spec cannot be carried out; the message names the field, the value and what is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSpec:
    """Either registered benchmarks or a command; and around them setup, limits and variables."""

    benchmarks: tuple[str, ...]
    command: str | None
    preset: str | None
    implementation: str | None
    variants: tuple[str, ...]
    processes: int | None
    setup: str | None
    timeout_s: float
    ranks: int | None = None
    """So many processes that meet, started by torchrun on this machine; None: one process, started as it is."""
    env: Mapping[str, str] = field(default_factory=dict)
    network: Network = Network.NONE

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], *, default_timeout_s: float) -> SuiteSpec:
        suite = cls(
            benchmarks=_words(spec, "benchmarks"),
            command=_text(spec, "command"),
            preset=_text(spec, "preset"),
            implementation=_text(spec, "implementation"),
            variants=_words(spec, "variants"),
            processes=_count(spec, "processes"),
            setup=_text(spec, "setup"),
            timeout_s=_seconds(spec, "timeout_s", default_timeout_s),
            ranks=_count(spec, "ranks"),
            env=_variables(spec, "env"),
            network=_network(spec, "network"),
        )
        if bool(suite.benchmarks) == bool(suite.command):
            raise BadSpec(
                "the suite must name either benchmarks or a command"
                + (", not both" if suite.command else "; it names neither")
            )
        return suite

    def argv(self, python: Path, run_json: Path) -> tuple[str, ...]:
        """The command of the suite. `-P`: a `benchmarks` folder of the commit must not take the place of ours."""
        return (*self._torchrun(python), *self._one_process(python, run_json))

    def _torchrun(self, python: Path) -> tuple[str, ...]:
        """torchrun, which starts the ranks: it ends the others when one is lost, and the run with them."""
        if self.ranks is None:
            return ()
        return (
            str(python), "-P", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}",
            "--no-python",
        )  # fmt: skip

    def _one_process(self, python: Path, run_json: Path) -> tuple[str, ...]:
        if self.command is not None:
            return ("/bin/sh", "-c", self.command)
        options: list[str] = []
        for name, value in (("--preset", self.preset), ("--implementation", self.implementation)):
            if value is not None:
                options.append(f"{name}={value}")
        options += [f"--variant={variant}" for variant in self.variants]
        if self.processes is not None:
            options.append(f"--processes={self.processes}")
        return (
            str(python), "-P", "-m", "benchmarks", "run", *options, f"--out={run_json}", "--", *self.benchmarks,
        )  # fmt: skip


def run_variables(leased: LeasedRun, worker: str, run_json: Path) -> dict[str, str]:
    """The TIDEMARK_* variables of a run: what it is about, and where its result belongs."""
    variables = {
        "TIDEMARK_RUN_ID": leased.run_id,
        "TIDEMARK_RUN_JSON": str(run_json),
        "TIDEMARK_PROJECT": leased.project,
        "TIDEMARK_COMMIT": leased.commit,
        "TIDEMARK_PARENTS": ",".join(leased.parents),
        "TIDEMARK_BRANCH": leased.branch or "",
        "TIDEMARK_SUITE": leased.suite,
        "TIDEMARK_TESTBED": leased.testbed,
        "TIDEMARK_WORKER": worker,
        "TIDEMARK_ATTEMPT": str(leased.attempt),
        "TIDEMARK_PROGRESS": "1",
    }
    if leased.pull_request is not None:
        variables["TIDEMARK_PULL_REQUEST"] = str(leased.pull_request)
    return variables


def _text(spec: Mapping[str, Any], name: str) -> str | None:
    value = spec.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or "\0" in value:
        raise BadSpec(f"{name} is {value!r}; accepted: text")
    return value


def _words(spec: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = spec.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(word, str) and word and "\0" not in word for word in value):
        raise BadSpec(f"{name} is {value!r}; accepted: a list of texts")
    return tuple(value)


def _count(spec: Mapping[str, Any], name: str) -> int | None:
    value = spec.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise BadSpec(f"{name} is {value!r}; accepted: a whole number from 1 to 1000")
    return value


def _seconds(spec: Mapping[str, Any], name: str, default: float) -> float:
    value = spec.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise BadSpec(f"{name} is {value!r}; accepted: seconds, more than 0")
    return float(value)


def _network(spec: Mapping[str, Any], name: str) -> Network:
    value = spec.get(name)
    try:
        return Network.NONE if value is None else Network(value)
    except ValueError:
        raise BadSpec(f"{name} is {value!r}; accepted: {', '.join(Network)}") from None


def _variables(spec: Mapping[str, Any], name: str) -> dict[str, str]:
    value = spec.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str | int | float) for item in value.values()):
        raise BadSpec(f"{name} is {value!r}; accepted: a table of variables and their texts")
    return {str(key): str(item) for key, item in value.items()}
