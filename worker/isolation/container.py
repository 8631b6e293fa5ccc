"""Commit code in a container: a read-only root, no network, no capabilities, nothing of the worker's in sight.

The container sees the run's own directories, and read-only the interpreter and packages the suite runs on, at the same
paths as outside; its image needs nothing but a C library that fits them.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.isolation.processes import RunUser

log = logging.getLogger("tidemark.worker")

RUNTIMES = ("podman", "docker")
CALL_LIMIT_S = 30.0
LABEL = "dev.tidemark.worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits:
    """Limits of a container."""

    memory_bytes: int
    processes: int
    open_files: int
    shared_memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """How commands are started in containers of this worker."""

    runtime: str
    image: str
    worker: str
    user: RunUser | None
    readable: tuple[Path, ...]
    limits: ContainerLimits
    gpus: str | None

    @property
    def is_podman(self) -> bool:
        return Path(self.runtime).name.startswith("podman")

    @property
    def name(self) -> str:
        """One run at a time, so one container at a time."""
        return f"tidemark-{self.worker}"

    def argv(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path,
        writable: Sequence[Path],
        with_network: bool,
    ) -> tuple[str, ...]:
        """The command line that runs the command in a fresh container, gone when it ends."""
        return (
            self.runtime, "run", "--rm", "--init", f"--name={self.name}", f"--label={LABEL}={self.worker}",
            "--read-only", "--tmpfs=/tmp:rw,nosuid,nodev,size=1g",
            *(() if with_network else ("--network=none",)),
            "--cap-drop=ALL", "--security-opt=no-new-privileges", "--security-opt=label=disable",
            f"--memory={self.limits.memory_bytes}", f"--memory-swap={self.limits.memory_bytes}",
            f"--pids-limit={self.limits.processes}",
            f"--ulimit=nofile={self.limits.open_files}:{self.limits.open_files}", "--ulimit=core=0:0",
            f"--shm-size={self.limits.shared_memory_bytes}",
            *self._user_options(),
            *((f"--gpus={self.gpus}",) if self.gpus else ()),
            *(f"--volume={path}:{path}:ro" for path in self.readable),
            *(f"--volume={path}:{path}:rw" for path in writable),
            *(f"--env={name}={value}" for name, value in sorted(environment.items())),
            f"--workdir={cwd}", "--entrypoint=", self.image, *command,
        )  # fmt: skip

    def _user_options(self) -> tuple[str, ...]:
        if self.user is not None:
            return (f"--user={self.user.uid}:{self.user.gid}",)
        same = (f"--user={os.getuid()}:{os.getgid()}",)
        return ("--userns=keep-id", *same) if self.is_podman else same

    def own_environment(self) -> dict[str, str]:
        """Environment of the container runtime itself; none of the worker's secrets, nothing of the commit's."""
        kept = ("PATH", "HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "DOCKER_HOST", "CONTAINER_HOST")
        return {name: os.environ[name] for name in kept if name in os.environ}

    def remove(self) -> None:
        """Ends the container for sure: it is no child of the worker's, and outlives the client that started it."""
        try:
            subprocess.run(
                [self.runtime, "rm", "--force", self.name],
                env=self.own_environment(), stdin=subprocess.DEVNULL, capture_output=True,
                timeout=CALL_LIMIT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as failure:
            log.warning("container %s could not be removed: %s", self.name, failure)


def find_runtime(stated: str | None) -> str | None:
    """The program that runs containers: the one that was named, else podman, else docker."""
    for name in (stated,) if stated else RUNTIMES:
        found = shutil.which(name)
        if found is not None:
            return found
    return None


def visible_gpus(count: int) -> str | None:
    """Which GPUs a container gets: those this worker was given, else all."""
    if count == 0:
        return None
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    return f'"device={chosen}"' if chosen else "all"
