"""Configuration of one worker process. Read once, at the edge; nothing in here looks at the environment."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Isolation(StrEnum):
    """The required isolation: the best this machine allows, none, or namespaces, a separate user, or a container,
    and nothing less."""

    AUTO = "auto"
    NONE = "none"
    NAMESPACE = "namespace"
    USER = "user"
    CONTAINER = "container"


class Network(StrEnum):
    """When a run may reach the network: never, while its setup command runs, or always."""

    NONE = "none"
    SETUP = "setup"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Settings of one worker. `data_dir` holds the mirrors (shared by the workers of a machine) and `<name>/`:
    runs in progress and the spool of this worker. `run_user` is the account that commit code runs as when the worker is
    root; None takes a user number that no account has, one for each worker. `container_image` is what commit code runs
    in where there is podman or docker; without it, containers are not used. `drain_after_s`: take no run any more after
    so long, and leave once the current run is done."""

    api_url: str
    api_token: str = field(repr=False)
    redis_url: str = field(repr=False)
    testbed: str
    name: str
    data_dir: Path
    version: str = field(default_factory=lambda: metadata.version("tidemark"))
    isolation: Isolation = Isolation.AUTO
    run_user: str | None = None
    pass_environment: tuple[str, ...] = ()
    container_image: str | None = None
    container_runtime: str | None = None
    network: Network = Network.NONE
    private_hosts: tuple[str, ...] = ()
    memory_limit_bytes: int | None = None
    mirrors_limit_bytes: int = 20_000_000_000
    cache_limit_bytes: int = 20_000_000_000
    keep_setups_from_s: float = 2.0
    min_free_bytes: int = 1_000_000_000
    run_limit_bytes: int = 64_000_000_000
    drain_after_s: float | None = None
    keep_alive_s: float = 15.0
    event_interval_s: float = 0.5
    kill_grace_s: float = 5.0
    stop_grace_s: float = 0.5
    delivery_wait_s: float = 60.0
    default_timeout_s: float = 3600.0
    max_run_bytes: int = 50_000_000
    max_artifact_bytes: int = 20_000_000
    max_artifacts_bytes: int = 200_000_000

    def __post_init__(self) -> None:
        for field_name, value in (("testbed", self.testbed), ("name", self.name)):
            if not NAME.fullmatch(value):
                raise ValueError(
                    f"worker {field_name} {value!r} is not usable: letters, digits, '.', '_' and '-', at most 100, "
                    "beginning with a letter or digit"
                )
        if not self.api_url.startswith(("http://", "https://")):
            raise ValueError(f"API address {self.api_url!r} is not usable: it must begin with http:// or https://")

    @property
    def queue(self) -> str:
        """Where messages for this testbed are, unless the service names another queue for this worker."""
        return f"testbed.{self.testbed}"

    @property
    def mirrors_dir(self) -> Path:
        return self.data_dir / "mirrors"

    @property
    def own_dir(self) -> Path:
        return self.data_dir / self.name

    @property
    def spool_dir(self) -> Path:
        return self.own_dir / "spool"

    @property
    def cache_dir(self) -> Path:
        return self.own_dir / "cache"

    @property
    def collected_dir(self) -> Path:
        """Log and artifacts of the run in progress, copied here before they go to the spool. Closed to the run."""
        return self.own_dir / "collected"

    @property
    def runs_dir(self) -> Path:
        return self.own_dir / "runs"
