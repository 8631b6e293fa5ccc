"""`tidemark run SUITE`: a suite of the checkout one stands in, measured on this machine without any service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from backend.services.repository.manifest import FILE_NAME, ManifestInvalid, parse
from tidemark.benchmark import git_says, new_id
from tidemark.refusal import Refusal
from worker.execution.suite import BadSpec, SuiteSpec

DEFAULT_TIMEOUT_S = 3600.0


def run_suite(name: str, directory: Path, out: Path) -> int:
    """Runs the suite's command as a worker would, in this directory as it is; the command's exit status.

    The result goes to `out`. Nothing is set up or isolated: it is the person's own code in their own checkout.
    """
    suite, testbed = read_suite(name, directory)
    if out.is_file():
        out.unlink()  # What lies there afterwards is of this run: an older one must not be taken for it.
    environment = {
        **(_about(directory, testbed) if suite.command else {}),
        **os.environ,
        # As a worker does it: `python` is the one that has the suite, also where no virtual environment is active.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        **suite.env,
        "TIDEMARK_RUN_JSON": str(out.absolute()),
        "TIDEMARK_SUITE": name,
    }
    try:
        done = subprocess.run(
            suite.argv(Path(sys.executable), out.absolute()),
            cwd=directory,
            env=environment,
            timeout=suite.timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Refusal(f"suite {name} ran longer than its {suite.timeout_s:.0f} s (timeout_s in {FILE_NAME})") from None
    except KeyboardInterrupt:
        return 130
    if done.returncode == 0 and not out.exists():
        raise Refusal(f"suite {name} ended well but wrote no run to {out} ($TIDEMARK_RUN_JSON)")
    if done.returncode != 0:
        said = f"ended with status {done.returncode}" if done.returncode > 0 else f"ended by signal {-done.returncode}"
        print(f"tidemark: suite {name}: its command {said}", file=sys.stderr)
    return done.returncode


def _about(directory: Path, testbed: str) -> dict[str, str]:
    """Variables that a worker would set for a command; registered benchmarks find these out by themselves."""
    return {
        "TIDEMARK_RUN_ID": new_id(),
        "TIDEMARK_PROJECT": "local/" + re.sub(r"[^0-9A-Za-z._-]", "-", directory.absolute().name),
        "TIDEMARK_COMMIT": git_says("rev-parse", "HEAD", directory=directory) or "0" * 40,
        "TIDEMARK_TESTBED": testbed,
    }


def read_suite(name: str, directory: Path) -> tuple[SuiteSpec, str]:
    """The suite of this name in the directory's tidemark.toml, and the first testbed it is meant for."""
    path = directory / FILE_NAME
    try:
        manifest = parse(path.read_bytes())
    except FileNotFoundError:
        raise Refusal(f"no {FILE_NAME} in {directory}; it says what a suite is (docs/glossary.md)") from None
    except OSError as error:
        raise Refusal(f"cannot read {path}: {error.strerror}") from None
    except ManifestInvalid as error:
        raise Refusal(f"{path}: {'; '.join(error.problems)}") from None
    known = {suite.name: suite for suite in manifest.suites}
    if name not in known:
        raise Refusal(f"no suite {name!r} in {path}; it has: {', '.join(known) or 'none'}")
    try:
        return SuiteSpec.from_spec(known[name].spec(), default_timeout_s=DEFAULT_TIMEOUT_S), known[name].testbeds[0]
    except BadSpec as error:
        raise Refusal(f"{path}: suite {name}: {error}") from None
