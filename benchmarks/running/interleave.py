"""Base and head interleaved on one machine, ABBA in fresh processes: what a drifting machine cannot spoil."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import pins
from benchmarks.analysis.diagnose import interval_of_difference
from benchmarks.output.ulid import new_ulid
from benchmarks.running.launch import PACKAGE_PARENT


@dataclass(frozen=True, slots=True)
class ArmTurn:
    """One run of one arm."""

    arm: str
    number: int


def abba(rounds: int) -> tuple[ArmTurn, ...]:
    """ABBA, then BAAB, and so on: a linear drift of the machine falls on both arms alike."""
    order = "".join("ABBA" if number % 2 == 0 else "BAAB" for number in range(rounds))
    seen = {"A": 0, "B": 0}
    turns = []
    for letter in order:
        turns.append(ArmTurn("base" if letter == "A" else "head", seen[letter]))
        seen[letter] += 1
    return tuple(turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaved:
    """The command to run in both checkouts."""

    base: Path
    head: Path
    rounds: int
    options: Sequence[str]
    """Options and patterns of `run`, alike for both arms; one process each turn."""


def measure(request: Interleaved, folder: Path) -> Iterator[tuple[ArmTurn, Path]]:
    """Runs every turn in its checkout, each as a separate run; yields where each wrote its run."""
    session, order = f"S-{new_ulid()}", "".join("A" if turn.arm == "base" else "B" for turn in abba(request.rounds))
    base_commit, pinned = _commit(request.base), folder / "pins.json"
    for position, turn in enumerate(abba(request.rounds)):
        out = folder / f"{turn.arm}-{turn.number}" / "run.json"
        environment = {k: v for k, v in os.environ.items() if k not in ("TIDEMARK_COMMIT", "TIDEMARK_PARENTS")}
        environment |= {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(PACKAGE_PARENT), os.environ.get("PYTHONPATH")))),
            "TIDEMARK_RUN_ID": new_ulid(),
            "TIDEMARK_SESSION_ID": session,
            "TIDEMARK_SESSION_ARM": turn.arm,
            "TIDEMARK_SESSION_ORDER": order,
        }
        if base_commit:
            environment["TIDEMARK_SESSION_BASE"] = base_commit
        checkout = request.base if turn.arm == "base" else request.head
        seed = ["--seed", str(1234 + position)]
        command = [sys.executable, "-P", "-m", "benchmarks", "run", "--processes", "1", *seed, "--out", str(out)]
        command += ["--pins", str(pinned)] if pinned.exists() else []
        subprocess.run([*command, *request.options], cwd=checkout, env=environment, check=False, stdout=sys.stderr)
        _pin(out, pinned)
        yield turn, out


def _pin(out: Path, into: Path) -> None:
    """Give the choice of the first turn to the following ones: both arms run the same kernel."""
    if not out.exists():
        return
    before = pins.load(into if into.exists() else pins.FILE)
    chosen, _ = pins.learn({}, [json.loads(out.read_text())])
    into.write_text(json.dumps({m: {**chosen.get(m, {}), **before.get(m, {})} for m in {*chosen, *before}}))


def _commit(checkout: Path) -> str | None:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def compare(runs: Sequence[tuple[ArmTurn, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Per variant and judged metric: the change in cost from base to head, with an interval over processes."""
    values: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    facts: dict[tuple[str, str, str], tuple[dict[str, Any], str]] = {}
    for turn, run in runs:
        for result in run["results"]:
            if result["status"] != "ok":
                continue
            for m in result["measurements"]:
                if m["role"] != "gate":
                    continue
                key = (result["benchmark"], str(sorted(result["variant"].items())), m["metric"])
                cost = [
                    value if m["direction"] == "lower" else 1 / value for value in m.get("processes") or [m["value"]]
                ]
                values.setdefault(key, {"base": [], "head": []})[turn.arm] += cost
                facts[key] = (result["variant"], m["unit"])
    found = []
    for key, arms in values.items():
        if not arms["base"] or not arms["head"]:
            continue
        level = median(arms["base"])
        low, high = interval_of_difference(arms["base"], arms["head"])
        variant, unit = facts[key]
        found.append(
            {
                "benchmark": key[0],
                "variant": variant,
                "metric": key[2],
                "unit": unit,
                "base": level,
                "head": median(arms["head"]),
                "change": median(arms["head"]) / level - 1 if level else 0.0,
                "low": low / level if level else 0.0,
                "high": high / level if level else 0.0,
                "processes": {arm: len(costs) for arm, costs in arms.items()},
            }
        )
    return found
