"""Commit code in containers: what the runtime is told, and the whole way through a program that stands in for it.

No machine of the tests has podman; a small program on PATH takes the same command line and runs the command.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from worker.config import Isolation, Network
from worker.isolation.container import Container, ContainerLimits, find_runtime, visible_gpus
from worker.isolation.processes import RunUser
from worker.isolation.protection import Protection, establish

PODMAN = """#!{python}
import json, os, subprocess, sys
with open("{log}", "a") as log:
    log.write(json.dumps({{"argv": sys.argv[1:], "environment": dict(os.environ)}}) + "\\n")
if sys.argv[1] != "run":
    sys.exit(0)
options, rest = [], sys.argv[2:]
while rest and rest[0].startswith("--"):
    options.append(rest.pop(0))
stated = dict(option[2:].split("=", 1) for option in options if "=" in option and not option.startswith("--env="))
environment = dict(option[6:].split("=", 1) for option in options if option.startswith("--env="))
image, command = rest[0], rest[1:]
code = subprocess.run(command, env=environment, cwd=stated["workdir"]).returncode
# It has no mounts with which another user would reach this interpreter; the files are given to that user afterwards.
for volume in (option[9:] for option in options if option.startswith("--volume=") and option.endswith(":rw")):
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", stated["user"], volume.split(":")[0]])
sys.exit(code)
"""
RESULT = """
import json, os
assert "TIDEMARK_TOKEN" not in os.environ and "HF_TOKEN" not in os.environ
json.dump({"schema": "tidemark.run/1", "status": "ok", "results": []}, open(os.environ["TIDEMARK_RUN_JSON"], "w"))
"""


@pytest.fixture
def podman(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Any]]:
    """Puts the stand-in on PATH; returns a function that reads how it was called."""
    directory = tmp_path_factory.mktemp("bin")
    log = directory / "log"
    program = directory / "podman"
    program.write_text(PODMAN.format(python=sys.executable, log=log))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TIDEMARK_TOKEN", "a secret")
    monkeypatch.setenv("HF_TOKEN", "another")
    return lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def container(**changes: Any) -> Container:
    limits = ContainerLimits(
        memory_bytes=8_000_000_000, processes=4096, open_files=65_536, shared_memory_bytes=4_000_000_000
    )
    made = Container(
        runtime="/usr/bin/docker", image="debian:13", worker="host-1", user=RunUser(name="x", uid=58_300, gid=58_300),
        readable=(Path("/opt/python"),), limits=limits, gpus="all",
    )  # fmt: skip
    return replace(made, **changes)


def argv_of(made: Container, *, with_network: bool = False) -> list[str]:
    return list(
        made.argv(
            ("python", "bench.py"), environment={"B": "2", "A": "x y"}, cwd=Path("/runs/now/checkout"),
            writable=(Path("/runs/now"),), with_network=with_network,
        )
    )  # fmt: skip


def test_a_container_has_a_read_only_root_no_network_no_rights_and_limits() -> None:
    said = argv_of(container())
    assert said[:3] == ["/usr/bin/docker", "run", "--rm"]
    for option in (
        "--read-only", "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--memory=8000000000",
        "--pids-limit=4096", "--ulimit=core=0:0", "--user=58300:58300", "--gpus=all",
        "--volume=/opt/python:/opt/python:ro",
        "--volume=/runs/now:/runs/now:rw", "--env=A=x y", "--workdir=/runs/now/checkout", "--name=tidemark-host-1",
    ):  # fmt: skip
        assert option in said, option
    assert said[-3:] == ["debian:13", "python", "bench.py"]
    assert not any("docker.sock" in word for word in said)


def test_the_network_is_open_only_where_it_was_asked_for() -> None:
    assert "--network=none" in argv_of(container())
    assert "--network=none" not in argv_of(container(), with_network=True)


def test_without_root_the_container_runs_as_the_workers_own_number() -> None:
    podman = argv_of(container(runtime="/usr/bin/podman", user=None, gpus=None))
    assert "--userns=keep-id" in podman and f"--user={os.getuid()}:{os.getgid()}" in podman
    assert not any(word.startswith("--gpus") for word in podman)
    assert "--userns=keep-id" not in argv_of(container(user=None))


def test_a_worker_with_some_of_the_gpus_gives_its_containers_those(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert (visible_gpus(0), visible_gpus(8)) == (None, "all")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert visible_gpus(8) == '"device=2,3"'


def test_a_run_goes_through_the_container_and_nothing_of_the_service_with_it(
    podman: Callable[[], list[Any]], make_bench: Callable[..., Any], config: Any
) -> None:
    bench = make_bench(replace(config, isolation=Isolation.AUTO, container_image="debian:13"))
    assert bench.job.sandbox.protection is Protection.CONTAINER
    assert "podman containers of debian:13" in bench.job.sandbox.reason
    assert "read-only root, network: none" in bench.job.sandbox.reason
    run = bench.run(RESULT, trusted=False)
    assert run["status"] == "ok", run["error"]
    calls = podman()
    runs = [call for call in calls if call["argv"][0] == "run"]
    assert len(runs) == 2, "one to try it at the start, one for the run"
    assert "TIDEMARK_TOKEN" not in json.dumps(calls), "neither the runtime nor the command gets to see it"
    assert calls[-1]["argv"] == ["rm", "--force", "tidemark-host-1"], "it is gone for sure"


def test_a_command_that_hangs_in_a_container_is_ended_with_it(
    podman: Callable[[], list[Any]], make_bench: Callable[..., Any], config: Any
) -> None:
    bench = make_bench(replace(config, isolation=Isolation.AUTO, container_image="debian:13"))
    run = bench.run("import time\ntime.sleep(600)", spec={"timeout_s": 1})
    assert "ran longer than its time limit" in run["error"]
    assert podman()[-1]["argv"][0] == "rm"


def test_the_setup_may_reach_the_network_where_the_operator_allows_it(
    podman: Callable[[], list[Any]], make_bench: Callable[..., Any], config: Any
) -> None:
    chosen = replace(config, isolation=Isolation.AUTO, container_image="debian:13", network=Network.SETUP)
    bench = make_bench(chosen)
    assert bench.run(RESULT, spec={"setup": "true", "network": "setup"})["status"] == "ok"
    _, setup, suite = (call["argv"] for call in podman() if call["argv"][0] == "run")
    assert "--network=none" not in setup and "--network=none" in suite


def test_an_image_without_a_runtime_falls_back_and_says_why(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = replace(config, container_image="debian:13", container_runtime="no-such-runtime")
    assert find_runtime("no-such-runtime") is None
    sandbox = establish(Isolation.AUTO, "no-such-user", tmp_path, named)
    without_image = establish(Isolation.AUTO, "no-such-user", tmp_path, config)
    assert sandbox.protection is without_image.protection is not Protection.CONTAINER
    assert "an image was named, but this machine has no no-such-runtime" in sandbox.reason
    with pytest.raises(PermissionError, match="'container' was requested, but an image was named"):
        establish(Isolation.CONTAINER, None, tmp_path, named)
    with pytest.raises(PermissionError, match="no image was named"):
        establish(Isolation.CONTAINER, None, tmp_path, config)
