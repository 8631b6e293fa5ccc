"""The environment's fingerprint: what the numbers depend on besides the code, without importing torch in the parent.

The hash covers what decides speed (versions, hardware); git state, load and names of hosts are carried beside it and
are not in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

_AMDGPU = ("sys/module/amdgpu/version", r"(\d+(?:\.\d+)+)")
_NOT_HASHED = frozenset({"git", "gpu_uuid", "hash", "hostname"})


def fingerprint(from_child: Mapping[str, Any]) -> dict[str, Any]:
    """The environment of this run.

    Versions from the package metadata, hardware from the system, the rest from a measuring process.
    """
    environment: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": version("torch"),
        "triton": version("triton"),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "cpu": cpu_name(),
        "cpu_count": usable_cpus(),
        "container": _container(),
        "driver": _driver(),
        **from_child,
        "git": git_state(),
    }
    environment = {key: value for key, value in environment.items() if value is not None}
    hashed = json.dumps({key: value for key, value in environment.items() if key not in _NOT_HASHED}, sort_keys=True)
    return environment | {"hash": "sha256:" + hashlib.sha256(hashed.encode()).hexdigest()}


def version(package: str) -> str | None:
    """Of an installed package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cpu_name() -> str:
    """The processor's name, as the system tells it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1) if found else platform.processor() or platform.machine()


def usable_cpus() -> int | None:
    """Cores that this process may use: where a container or a taskset takes some away, the machine has changed."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def accelerator_name() -> str | None:
    """The first accelerator's name, queried from torch in a separate process; None if torch sees none."""
    asked = "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-P", "-c", asked], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _driver(root: Path = Path("/")) -> str | None:
    """Version of the accelerator's kernel driver, by its own file."""
    for file, pattern in (("proc/driver/nvidia/version", r"Kernel Module.*?\s(\d+(?:\.\d+)+)"), _AMDGPU):
        try:
            found = re.search(pattern, Path(root, file).read_text())
        except OSError:
            continue
        if found:
            return found.group(1)
    return None


def _container() -> str | None:
    named = os.environ.get("TIDEMARK_CONTAINER")
    if named:
        return named
    try:
        found = re.search(r"[0-9a-f]{64}", Path("/proc/self/mountinfo").read_text())
    except OSError:
        return None
    return f"sha256:{found.group(0)}" if found and Path("/.dockerenv").exists() else None


def git_state() -> dict[str, Any] | None:
    """Commit, parents, branch and whether files differ, of the repository around the current directory.

    None outside of one.
    """
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None
    parents = (_git("show", "-s", "--format=%P", "HEAD") or "").split()
    branch = _git("symbolic-ref", "--quiet", "--short", "HEAD")
    return {
        "commit": commit,
        "parents": parents,
        "branch": branch,
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
