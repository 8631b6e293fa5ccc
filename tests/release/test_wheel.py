"""The wheel: built from the sources, installed into an empty environment, started there away from any checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

from backend.services.base.config import ServiceConfig
from tidemark import __version__
from tidemark.machine import ports
from worker.config import WorkerConfig

ROOT = Path(__file__).parents[2]
PACKAGES = ("tidemark", "backend", "frontend", "worker", "benchmarks", "migrations")
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Outside pytest's own directories, which the embedded servers' account cannot enter."""
    path = Path(tempfile.mkdtemp(prefix="tidemark-wheel-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def wheel(place: Path) -> Path:
    """Built from a copy of what is needed: nothing is left behind in the checkout, and nothing old is taken from it."""
    source = place / "source"
    source.mkdir()
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE", "THIRD_PARTY.md"):
        shutil.copy(ROOT / file, source / file)
    uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", place / "dist", source)
    (built,) = (place / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(place: Path, wheel: Path) -> Path:
    """An environment that holds the wheel; what it depends on is lent by the one that runs the tests."""
    made = place / "environment"
    uv("venv", "--python", sys.executable, made)
    uv("pip", "install", "--offline", "--no-deps", "--python", made / "bin" / "python", wheel)
    (site,) = made.glob("lib/python*/site-packages")
    # A path in a .pth is searched, but the .pth files there are not read: the checkout stays out of reach.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


def uv(*arguments: str | Path) -> None:
    done = subprocess.run(
        [UV, "--offline", "--quiet", *arguments], cwd="/", capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_every_file_of_the_rooms_is_in_the_wheel(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources - packed == set()


def test_the_wheel_says_its_version_licences_and_pythons(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    told = Parser().parsestr(archive.read(f"tidemark-{__version__}.dist-info/METADATA").decode())
    assert told["Version"] == __version__
    assert told["License-Expression"] == "Apache-2.0"
    licences = {"LICENSE", "THIRD_PARTY.md", "frontend/static/vendor/plotly/LICENSE"}
    assert set(told.get_all("License-File", [])) == licences
    pythons = [line.rpartition(" ")[2] for line in told.get_all("Classifier", []) if "Python :: 3" in line]
    assert pythons == re.findall(
        r'os: ubuntu-24\.04, python: "(3\.\d+)"', (ROOT / ".github/workflows/ci.yml").read_text()
    )
    assert {"server", "otel", "torch"} <= set(told.get_all("Provides-Extra", []))


def test_the_version_is_written_once_in_the_code() -> None:
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if package != "migrations"]
    assert [path for path in sources if __version__ in path.read_text()] == [ROOT / "tidemark/__init__.py"]
    assert __version__ in re.findall(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_parts_that_nobody_told_their_version_state_that_of_the_package() -> None:
    place = Path("/nowhere")
    service = ServiceConfig(database_url="", redis_url="", data_dir=place)
    worker = WorkerConfig(
        api_url="http://localhost", api_token="", redis_url="", testbed="cpu", name="w", data_dir=place
    )
    assert {service.version, worker.version} == {__version__}


def test_the_client_needs_nothing_but_the_standard_library(place: Path, wheel: Path) -> None:
    """`pip install tidemark` without extras, beside anything: the decorator and the client."""
    uv("venv", "--python", sys.executable, place / "bare")
    uv("pip", "install", "--python", place / "bare/bin/python", wheel)
    program = "import tidemark, tidemark.benchmark, tidemark.client; print(tidemark.__version__)"
    said = subprocess.run(
        [place / "bare/bin/python", "-c", program], cwd="/", capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == __version__
    refused = subprocess.run([place / "bare/bin/tidemark", "up"], cwd="/", capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "pip install 'tidemark[server]'" in refused.stderr


def test_what_was_installed_starts_and_shows_its_pages_away_from_the_checkout(place: Path, environment: Path) -> None:
    """Migrations, templates, static files and the demo come out of the wheel."""
    port = ports.private_port()
    log = place / "up.log"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "PYTHON"))}
    with log.open("wb") as output:
        up = subprocess.Popen(
            [environment / "bin/tidemark", "up", "--no-demo", "--port", str(port), "--data-dir", place / "data"],
            env={**kept, "HOME": str(place), "PYTHONUNBUFFERED": "1"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        assert _said(up, log, "Tidemark runs at"), log.read_text()
        answers = {path: _read(port, path) for path in ("/", "/readyz", "/openapi.json", "/regressions.atom")}
        static = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', answers["/"]))
        assert {name.rpartition(".")[2] for name in static} >= {"css", "js", "svg"}
        assert all(_read(port, path) for path in static)
    finally:
        up.terminate()
        assert up.wait(30) == 0, log.read_text()


def _read(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def _said(process: subprocess.Popen[bytes], log: Path, words: str) -> bool:
    from tidemark.machine.processes import wait_until

    wait_until(lambda: words in log.read_text() or process.poll() is not None, 90)
    return words in log.read_text()
