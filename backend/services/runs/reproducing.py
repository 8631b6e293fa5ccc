"""The command that measures a suite again by hand: the worker's, with the variables a worker would set."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ONE_PLAIN_COMMAND = re.compile(r"(?![\w]+=)[\w ./:,@%+='\"-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The run to reproduce."""

    name: str
    project: str
    sha: str
    suite: str
    testbed: str
    benchmarks: Sequence[str]


def at_commit(spec: Mapping[str, Any], subject: Subject) -> str:
    """One shell line, to be run in a clone: checks the commit out and measures; the result lies beside, as NAME.json.

    How a suite is measured whose results were delivered, not scheduled, is known to their sender alone.
    """
    checkout = f"git checkout --quiet {subject.sha}"
    if not spec.keys() & {"command", "benchmarks"}:
        return f"{checkout}  # now measure {subject.suite} as its sender does, and write ../{subject.name}.json"
    setup = [spec["setup"]] if isinstance(spec.get("setup"), str) else []
    return " && ".join([checkout, *setup, run_command(spec, subject)])


def run_command(spec: Mapping[str, Any], subject: Subject) -> str:
    """One shell line that measures these benchmarks, or runs the suite's own command."""
    variables = {str(name): str(value) for name, value in (spec.get("env") or {}).items()}
    own = spec.get("command")
    if isinstance(own, str):
        variables |= {
            "TIDEMARK_RUN_ID": f"{subject.name}-{subject.sha[:12]}",
            "TIDEMARK_PROJECT": subject.project,
            "TIDEMARK_COMMIT": subject.sha,
            "TIDEMARK_SUITE": subject.suite,
            "TIDEMARK_TESTBED": subject.testbed,
        }
        # The variables belong to all of it, also where it is more than one command.
        line = own if _ONE_PLAIN_COMMAND.fullmatch(own) else f"sh -c {shlex.quote(own)}"
        return " ".join([*_assigned(variables), f'TIDEMARK_RUN_JSON="$PWD/../{subject.name}.json"', line])
    command = ["python", "-P", "-m", "benchmarks", "run", *subject.benchmarks, "--out", f"../{subject.name}.json"]
    for option in ("preset", "implementation", "processes"):
        if spec.get(option) is not None:
            command += [f"--{option}", str(spec[option])]
    return " ".join([*_assigned(variables), *map(shlex.quote, command)])


def _assigned(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
