"""What deploy/ says is so: settings that exist, commands that are understood, references that lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
import yaml
from typer.main import get_command

from tests.conftest import LiveServer
from tidemark import __version__
from tidemark.cli import app
from tidemark.machine import ports
from tidemark.machine.processes import wait_until
from tidemark.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILES = [ROOT / "docker-compose.yml", *(path for path in sorted(DEPLOY.rglob("*")) if path.is_file())]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes/tidemark.yaml").read_text()))
CADDY = Path(sys.executable).with_name("caddy")
SETTINGS = {f"TIDEMARK_{name.upper()}" for name in Settings.model_fields}
# Not ours but the deployment's: they stand in example.env, or have a default where they are used.
OF_COMPOSE = {"TIDEMARK_BIND", "TIDEMARK_WORKER_TOKEN", "TIDEMARK_TESTBED", "TIDEMARK_DOMAIN", "TIDEMARK_TLS_EMAIL"}
OF_CADDY = {"TIDEMARK_UPSTREAM"}


def commands_in(path: Path) -> Iterator[str]:
    """Each `tidemark …` that a file starts, or tells its reader to type."""
    if path in UNITS:
        yield from re.findall(r"^Exec\w+=/opt/tidemark/bin/(tidemark .*)$", path.read_text(), re.MULTILINE)
    for words in re.findall(r"(?:command|args): \[(tidemark[^]]*)\]", path.read_text()):
        yield " ".join(word.strip().strip('"') for word in words.split(","))
    yield from re.findall(r"^CMD \[\"(tidemark.*)\"\]", path.read_text().replace('", "', " "), re.MULTILINE)
    yield from re.findall(r"^#.*?(tidemark token create [^>\n]+?)(?= >|$)", path.read_text(), re.MULTILINE)


def test_every_setting_that_a_deployment_names_exists() -> None:
    for path in FILES:
        named = set(re.findall(r"\bTIDEMARK_[A-Z_]*[A-Z]\b", path.read_text()))
        assert named <= SETTINGS | OF_COMPOSE | OF_CADDY, path.name
    example = (DEPLOY / "example.env").read_text()
    assert OF_COMPOSE - {"TIDEMARK_BIND"} <= set(re.findall(r"^(\w+)=", example, re.MULTILINE))


@pytest.mark.parametrize("line", sorted({line for path in FILES for line in commands_in(path)}))
def test_a_command_of_the_deployment_is_understood(line: str) -> None:
    name, *words = shlex.split(line.replace("%i", "cpu").replace("${TIDEMARK_TESTBED:-gpu}", "gpu"))
    command: click.Command = get_command(app)  # type: ignore[assignment]
    parent: click.Context | None = None
    while hasattr(command, "resolve_command"):
        parent = command.make_context(name, list(words), parent=parent)
        name, command, words = command.resolve_command(parent, [*parent._protected_args, *parent.args])
    command.make_context(name, list(words), parent=parent)


def test_there_are_commands_in_every_kind_of_deployment() -> None:
    kinds = {path.parent.name if path.parent != DEPLOY else path.name for path in FILES if list(commands_in(path))}
    assert kinds >= {"systemd", "kubernetes", "prometheus", "Dockerfile", "worker.Dockerfile", ROOT.name}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_has_what_systemd_and_we_need(unit: Path, tmp_path: Path) -> None:
    said = unit.read_text()
    assert re.findall(r"^\[(\w+)\]$", said, re.MULTILINE)[:2] == ["Unit", "Service"]
    for variables in re.findall(r"^EnvironmentFile=/etc/tidemark/(\S+)$", said, re.MULTILINE):
        assert (DEPLOY / "systemd" / f"{variables}.example").exists()
    if unit.name.startswith(("tidemark-api", "tidemark-beat", "tidemark-worker")):
        assert "Restart=always" in said and "TimeoutStopSec=" in said
    if shutil.which("systemd-analyze") is None:
        return  # what is above holds on every machine; where systemd is, it reads the unit itself
    for each in (*UNITS, *(DEPLOY / "systemd").glob("*.timer")):
        (tmp_path / each.name).write_text(each.read_text().replace("/opt/tidemark/bin/tidemark", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / unit.name], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if line.startswith("tidemark") or str(tmp_path) in line]
    assert complaints == []


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in MANIFESTS if each["kind"] == kind}


def test_what_kubernetes_objects_refer_to_is_there() -> None:
    for name, deployment in of_kind("Deployment").items():
        template = deployment["spec"]["template"]
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert selector.items() <= template["metadata"]["labels"].items(), name
        pod = template["spec"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for volume in volumes.values():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert claim is None or claim in of_kind("PersistentVolumeClaim")
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
            maps = [each["configMapRef"]["name"] for each in container.get("envFrom", ()) if "configMapRef" in each]
            assert set(maps) <= of_kind("ConfigMap").keys()
            closed = container["securityContext"]
            assert closed["readOnlyRootFilesystem"] and not closed["allowPrivilegeEscalation"]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in of_kind("Deployment").values()]
    for name, service in of_kind("Service").items():
        assert any(service["spec"]["selector"].items() <= those.items() for those in labels), name
    backend = of_kind("Ingress")["tidemark"]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend["name"] in of_kind("Service")
    told = of_kind("ConfigMap")["tidemark"]["data"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        (container,) = of_kind("Deployment")["tidemark-api"]["spec"]["template"]["spec"]["containers"]
        (header,) = container[probe]["httpGet"]["httpHeaders"]
        assert header["value"] in told["TIDEMARK_ALLOWED_HOSTS"].split(",")


def test_the_images_are_those_of_this_version() -> None:
    images = set(re.findall(r"image: (?:&\w+ )?(ghcr\.io/\S+)", (DEPLOY / "kubernetes/tidemark.yaml").read_text()))
    assert {image.rpartition(":")[2] for image in images} == {__version__}


def test_the_proxy_passes_pages_on_at_once_and_logs_no_secret(live_server: LiveServer, tmp_path: Path) -> None:
    """Caddy as deploy/Caddyfile has it, without a certificate here: it is told an http address."""
    port = ports.private_port()
    told = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "TIDEMARK_TLS_EMAIL": "owner@example.org",
        "TIDEMARK_DOMAIN": f"http://127.0.0.1:{port}", "TIDEMARK_UPSTREAM": live_server.url.removeprefix("http://"),
    }  # fmt: skip
    adapted = subprocess.run(
        [CADDY, "adapt", "--config", DEPLOY / "Caddyfile", "--adapter", "caddyfile"],
        env=told, capture_output=True, text=True, check=True,
    )  # fmt: skip
    config = tmp_path / "caddy.json"
    config.write_text(json.dumps({**json.loads(adapted.stdout), "admin": {"disabled": True}}))
    log = tmp_path / "log"
    with log.open("wb") as output:
        caddy = subprocess.Popen([CADDY, "run", "--config", config], env=told, stdout=output, stderr=output)
    try:
        assert wait_until(lambda: _listens(port), 20), log.read_text()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/sign-in/very-secret").status_code in (403, 404)
            headers = {"Authorization": f"Bearer {live_server.token('read')}"}
            with client.stream("GET", "/api/v1/events", headers=headers) as events:
                assert next(events.iter_text())  # not held back until the stream ends
        assert wait_until(lambda: "/sign-in/" in log.read_text(), 5)
        assert "very-secret" not in log.read_text()
    finally:
        caddy.terminate()
        caddy.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
