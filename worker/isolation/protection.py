"""Isolation of a commit's code from everything else on this machine, determined by trying it.

`container`: commit code runs in a container with a read-only root and no network, if this worker was given an image
and the machine has podman or docker. `user`: each run has its own unprivileged user, and a view of the file system
in which closed directories (such as root's home) contain only what the run needs, with its own /tmp, shared memory and
network; this needs root. `namespace`: commits of untrusted projects see only the system's programs and their
own directory; this needs a kernel that lets an ordinary user create namespaces. Without any of these the
protection is `none`, and only projects marked trusted run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import psutil

from worker.config import Isolation, Network, WorkerConfig
from worker.isolation import cgroups, namespaces
from worker.isolation.cgroups import CGroup
from worker.isolation.container import Container, ContainerLimits, find_runtime, visible_gpus
from worker.isolation.output import OutputStream
from worker.isolation.processes import Command, CommandLimits, Interrupt, RunUser, run_command
from worker.isolation.run_users import account, claim_spare_user
from worker.isolation.visible_files import hide_neighbours, interpreter_paths, scratch_places, view_for
from worker.observe import read_accelerators

PROBE_LIMIT_S = 60.0
# Threads count too, and every rank brings some for each core.
MAX_PROCESSES = 4096
MAX_OPEN_FILES = 65_536
# The rest is for the machine itself: the worker, the container runtime, the file cache.
SHARE_OF_MEMORY = 0.9


class Protection(StrEnum):
    NONE = "none"
    NAMESPACE = "namespace"
    USER = "user"
    CONTAINER = "container"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The protection in force, why it was chosen, and what a command needs to be started under it."""

    protection: Protection
    reason: str
    user: RunUser | None = None
    readable: tuple[Path, ...] = ()
    container: Container | None = None
    has_namespaces: bool = False
    """Whether a command gets its own mounts, shared memory and, unless it may reach the machine's, network."""
    group: CGroup | None = None
    network: Network = Network.NONE
    """The most that the operator allows."""
    claim: IO[str] | None = field(default=None, repr=False, compare=False)
    """Held open as long as the user id belongs to this worker."""

    @property
    def protects(self) -> bool:
        """Whether commits of untrusted projects may run."""
        return self.protection is not Protection.NONE

    @property
    def starts_as(self) -> RunUser | None:
        """The user that a command is started as. A container sets its command's user itself."""
        return None if self.container is not None else self.user

    def view(self, *writable: Path) -> dict[str, dict[str, bool]]:
        """The file system as the run sees it: {closed directory: {what it needs in there: may it write to it}}."""
        if self.user is None or self.container is not None:
            return {}
        view = view_for(self.user, self._needed(*writable), scratch=scratch_places() if self.has_namespaces else ())
        if self.has_namespaces:
            hide_neighbours(view, writable)
        return view

    def own_namespaces(self, *writable: Path, with_network: bool) -> dict[str, Any] | None:
        """The instructions for `worker.isolation.namespaces`; None if the machine is seen as it is."""
        if not self.has_namespaces:
            return None
        needed = {str(path): may for path, may in self._needed(*writable).items()}
        return {
            "scratch": list(scratch_places()),
            "needed": needed if self.protection is Protection.NAMESPACE else None,
            "network": with_network,
            "shared_memory_bytes": psutil.virtual_memory().total // 2,
        }

    def limits(self) -> AbstractContextManager[None]:
        """Limits shared by a command's processes, in force while this context is active."""
        return nullcontext() if self.group is None else self.group.limits()

    def _needed(self, *writable: Path) -> dict[Path, bool]:
        return {**dict.fromkeys(self.readable, False), **dict.fromkeys(writable, True)}

    def may_reach_network(self, asked: Network, *, at_setup: bool) -> bool:
        """Whether a command may: as far as its tidemark.toml requests it and the operator allows it."""
        steps = (Network.NONE, Network.SETUP, Network.ALWAYS)
        granted = steps[min(steps.index(asked), steps.index(self.network))]
        return granted is Network.ALWAYS or (granted is Network.SETUP and at_setup)

    def renewed(self, runs_dir: Path) -> Sandbox:
        """The same for the next run, with a user id that the previous run did not have."""
        if self.user is None or self.claim is None:
            return self
        user, claim = claim_spare_user(runs_dir, after=self.user.uid)
        self.claim.close()
        container = None if self.container is None else replace(self.container, user=user)
        return replace(self, user=user, claim=claim, container=container)

    def for_project(self, *, trusted: bool) -> Sandbox:
        """An ordinary user's namespaces are for untrusted code; trusted code runs as the worker."""
        if self.protection is Protection.NAMESPACE and trusted:
            return Sandbox(protection=Protection.NONE, reason="the project is trusted")
        return self


def establish(
    isolation: Isolation, run_user: str | None, runs_dir: Path, config: WorkerConfig | None = None
) -> Sandbox:
    """The best protection this machine allows; raises PermissionError if it is less than requested."""
    if isolation is Isolation.NONE:
        return Sandbox(protection=Protection.NONE, reason="switched off in this worker's settings")
    in_container = None if config is None else _try_container(config, runs_dir)
    if in_container is not None and in_container.protection is Protection.CONTAINER and isolation is not Isolation.USER:
        return in_container
    if isolation is Isolation.CONTAINER:
        why = "no image was named (TIDEMARK_WORKER_IMAGE)" if in_container is None else in_container.reason
        raise PermissionError(f"protection 'container' was requested, but {why}")
    sandbox = _try_user(run_user, runs_dir, config)
    if sandbox.protection is Protection.NONE and isolation is Isolation.USER:
        raise PermissionError(f"protection 'user' was requested, but {sandbox.reason}")
    if sandbox.protection is Protection.NONE and os.geteuid() != 0:
        sandbox = _try_namespaces(runs_dir, config)
    if sandbox.protection is Protection.NONE and isolation is Isolation.NAMESPACE:
        raise PermissionError(f"protection 'namespace' was requested, but {sandbox.reason}")
    if in_container is not None and isolation is Isolation.AUTO:
        return replace(sandbox, reason=f"{sandbox.reason}; no container: {in_container.reason}")
    return sandbox


def _try_container(config: WorkerConfig, runs_dir: Path) -> Sandbox | None:
    """Containers, if an image was named and starting one works; None where nobody asked for them."""
    if config.container_image is None:
        return None
    runtime = find_runtime(config.container_runtime)
    if runtime is None:
        sought = config.container_runtime or "podman or docker"
        return Sandbox(protection=Protection.NONE, reason=f"an image was named, but this machine has no {sought}")
    user, claim = (None, None) if os.geteuid() != 0 else _user_for_container(config.run_user, runs_dir)
    total = psutil.virtual_memory().total
    container = Container(
        runtime=runtime,
        image=config.container_image,
        worker=config.name,
        user=user,
        readable=tuple(interpreter_paths()),
        limits=ContainerLimits(
            memory_bytes=config.memory_limit_bytes or int(total * SHARE_OF_MEMORY),
            processes=MAX_PROCESSES,
            open_files=MAX_OPEN_FILES,
            shared_memory_bytes=total // 2,
        ),
        gpus=visible_gpus(len(read_accelerators())),
    )
    who = "the worker's user" if user is None else user.name
    name = Path(runtime).name
    sandbox = Sandbox(
        protection=Protection.CONTAINER,
        reason=f"commit code runs in {name} containers of {config.container_image} as {who}, read-only root, "
        f"network: {config.network} at most, at most {container.limits.memory_bytes / 1e9:.0f} GB",
        user=user,
        container=container,
        network=config.network,
        claim=claim,
    )
    container.remove()  # one that outlived an earlier life of this worker
    failure = _probe(sandbox, runs_dir)
    if failure is not None:
        return Sandbox(protection=Protection.NONE, reason=f"{name} cannot run a benchmark here: {failure}")
    return sandbox


def _user_for_container(run_user: str | None, runs_dir: Path) -> tuple[RunUser, IO[str] | None]:
    if run_user is not None:
        return account(run_user), None
    try:
        return claim_spare_user(runs_dir)
    except OSError:
        return account("nobody"), None


def _try_user(run_user: str | None, runs_dir: Path, config: WorkerConfig | None) -> Sandbox:
    if os.geteuid() != 0:
        return Sandbox(protection=Protection.NONE, reason="only root can start code as another user")
    claim: IO[str] | None = None
    try:
        if run_user is None:
            try:
                user, claim = claim_spare_user(runs_dir)
            except OSError:
                user = account("nobody")  # no place on this machine to claim a number of one's own
        else:
            user = account(run_user)
    except ValueError as flaw:
        return Sandbox(protection=Protection.NONE, reason=str(flaw))
    bare = Sandbox(
        protection=Protection.USER,
        reason="",
        user=user,
        readable=tuple(interpreter_paths()),
        network=_allowed(config),
        claim=claim,
    )
    group, no_group = _try_group(config, runs_dir)
    failure: str | None = None
    for sandbox in _best_first(bare, group):
        stood_in_the_way = _probe(sandbox, runs_dir)
        if stood_in_the_way is None:
            return replace(sandbox, reason=_effective_reason(sandbox, failure, no_group))
        failure = failure or stood_in_the_way
    return Sandbox(protection=Protection.NONE, reason=f"{user.name} cannot run a benchmark here: {failure}")


def _best_first(bare: Sandbox, group: CGroup | None) -> Iterator[Sandbox]:
    if namespaces.on_linux():
        if group is not None:
            yield replace(bare, has_namespaces=True, group=group)
        yield replace(bare, has_namespaces=True)
    if group is not None:
        yield replace(bare, group=group)
    yield bare


def _effective_reason(sandbox: Sandbox, failure: str | None, no_group: str | None) -> str:
    """Describe the isolation and limits in effect, and what is missing."""
    assert sandbox.user is not None
    who = "each run as a user of its own" if sandbox.claim is not None else f"commit code runs as {sandbox.user.name}"
    parts = [who]
    if sandbox.has_namespaces:
        parts += ["/tmp and shared memory of its own", f"network: {sandbox.network} at most"]
    else:
        parts.append(f"/tmp, shared memory and network are the machine's ({failure or 'not Linux'})")
    parts.append(_effective_limits(sandbox.group, no_group or failure))
    return ", ".join(parts)


def _effective_limits(group: CGroup | None, why_not: str | None) -> str:
    if group is None:
        return f"no limit of memory ({why_not})"
    return f"at most {group.memory_bytes / 1e9:.0f} GB and {group.processes} processes"


def _try_group(config: WorkerConfig | None, runs_dir: Path) -> tuple[CGroup | None, str | None]:
    memory = config.memory_limit_bytes if config is not None else None
    try:
        group = cgroups.group(
            f"{zlib.crc32(str(runs_dir.resolve()).encode()):08x}",
            memory_bytes=memory or int(psutil.virtual_memory().total * SHARE_OF_MEMORY),
            processes=MAX_PROCESSES,
        )
        with group.limits():
            return group, None
    except OSError as failure:
        return None, f"no cgroups: {failure.strerror or failure}"


def _allowed(config: WorkerConfig | None) -> Network:
    return Network.NONE if config is None else config.network


def _try_namespaces(runs_dir: Path, config: WorkerConfig | None) -> Sandbox:
    if not namespaces.on_linux():
        return Sandbox(protection=Protection.NONE, reason="only root can start code as another user")
    sandbox = Sandbox(
        protection=Protection.NAMESPACE,
        reason="commits of untrusted projects see the system's programs and their own directory, with "
        f"processes, /tmp and shared memory of their own, network: {_allowed(config)} at most, no limit of memory",
        readable=tuple(interpreter_paths()),
        has_namespaces=True,
        network=_allowed(config),
    )
    failure = _probe(sandbox, runs_dir)
    if failure is None:
        return sandbox
    reason = f"only root can start code as another user, and namespaces of its own cannot be had here: {failure}"
    return Sandbox(protection=Protection.NONE, reason=reason)


def _probe(sandbox: Sandbox, runs_dir: Path) -> str | None:
    """Tries what a run does (start this Python, import, write its directory); what stood in the way."""
    wanted = [name for name in ("benchmarks", "torch") if find_spec(name) is not None]
    program = (
        "import importlib.util, pathlib, sys\n"
        "missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]\n"
        "pathlib.Path('probe').write_text('x')\n"
        "sys.exit('cannot import ' + ', '.join(missing) if missing else 0)\n"
    )
    said: list[str] = []

    def listen(stream: OutputStream, line: str) -> None:
        said.append(line)

    with tempfile.TemporaryDirectory(prefix="probe-", dir=runs_dir) as directory:
        run_dir = Path(directory).resolve()
        if sandbox.user is not None:
            os.chown(run_dir, sandbox.user.uid, sandbox.user.gid)
        try:
            command = guarded(
                sandbox,
                (sys.executable, "-P", "-c", program, *wanted),
                cwd=run_dir,
                environment={"PATH": os.defpath, "HOME": str(run_dir)},
                writable=(run_dir,),
                limits=CommandLimits(timeout_s=PROBE_LIMIT_S),
            )
            with sandbox.limits():
                outcome = run_command(command, listen, Interrupt())
        except OSError as failure:
            return str(failure)
        finally:
            if sandbox.container is not None:
                sandbox.container.remove()
    if outcome.succeeded:
        return None
    return outcome.error or (said[-1] if said else f"exit code {outcome.exit_code}")


def guarded(
    sandbox: Sandbox,
    argv: tuple[str, ...],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    writable: tuple[Path, ...],
    limits: CommandLimits,
    with_network: bool = False,
) -> Command:
    """The command to start under this protection."""
    container = sandbox.container
    if container is not None:
        argv = container.argv(argv, environment=environment, cwd=cwd, writable=writable, with_network=with_network)
        environment, limits = container.own_environment(), replace(limits, resources={})  # the runtime sets those
    return Command(
        argv=argv,
        cwd=cwd,
        environment=environment,
        limits=limits,
        user=sandbox.starts_as,
        view=sandbox.view(*writable),
        own_namespaces=sandbox.own_namespaces(*writable, with_network=with_network),
        groups=sandbox.group.as_order() if sandbox.group is not None else (),
    )


def describe(sandbox: Sandbox) -> str:
    return f"{sandbox.protection} ({sandbox.reason})"
