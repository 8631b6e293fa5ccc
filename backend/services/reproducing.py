"""The command that measures a suite again by hand: the worker's, with the variables a worker would set."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ONE_PLAIN_COMMAND = re.compile(r"(?![\w]+=)[\w ./:,@%+='\"-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is measured again: what its run says it is about."""

    name: str
    project: str
    sha: str
    suite: str
    testbed: str
    benchmarks: Sequence[str]


def run_command(spec: Mapping[str, Any], subject: Subject) -> str:
    """One shell line, to be run in the checkout; its result lies beside the checkout, as NAME.json."""
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
