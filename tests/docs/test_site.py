"""The site is built without a warning, needs no network, and its tutorial and reference name what exists."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tidemark.cli import app

ROOT = Path(__file__).resolve().parents[2]
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc(?:set)?=["']?(?:https?:)?//|<link[^>]*href=["']?(?:https?:)?//"""
)

ROUTE = re.compile(r'@router\.(?:get|put|post|patch|delete)\(\s*"(/[^"]*)"(?![^)]*include_in_schema=False)')


GUIDES = ("tutorial.md", "connect-a-repository.md", "triage.md", "tune-a-policy.md", "notifications.md")


def commands() -> list[str]:
    """Those of guides that are ours, as they are written."""
    lines = [line for guide in GUIDES for line in (ROOT / "docs" / guide).read_text().splitlines()]
    said = (
        re.match(r"(?:    |echo .* \| )?(?:\.venv/bin/)?(tidemark [a-z].*|python -m benchmarks .*)", line)
        for line in lines
    )
    return sorted({found[1].partition("  #")[0] for found in said if found})


def words_and_options(command: TyperGroup) -> set[str]:
    """Every command as `project add`, and every option of it as `project add --trusted`."""
    found: set[str] = set()
    for name, inner in command.commands.items():
        found |= {name} | {f"{name} {option}" for parameter in inner.params for option in parameter.opts}
        if isinstance(inner, TyperGroup):
            found |= {f"{name} {rest}" for rest in words_and_options(inner)}
    return found


def test_the_site_is_built_strictly_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 20
    assert [page.name for page in pages if FETCHED.search(page.read_text())] == []
    assert (tmp_path / "site/search/search_index.json").stat().st_size > 10_000


@pytest.mark.parametrize("command", commands())
def test_every_command_of_a_guide_exists_with_its_options(command: str) -> None:
    program, *words = shlex.split(command)
    if program == "tidemark":
        group = typer.main.get_command(app)
        assert isinstance(group, TyperGroup)
        known = words_and_options(group)
        name = " ".join(words[:2]) if words[1:] and words[1].isalpha() and " ".join(words[:2]) in known else words[0]
        assert name in known
        assert [word for word in words[1:] if word.startswith("--") and f"{name} {word}" not in known] == []
    else:
        told = subprocess.run(
            [sys.executable, "-m", "benchmarks", "run", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        assert [word for word in words if word.startswith("--") and word not in told] == []


def test_every_metric_route_setting_and_command_stands_in_the_reference() -> None:
    """Asked of the code itself, not of the generator."""
    from tidemark.settings import Settings

    metrics = set(re.findall(r'"(tidemark_\w+)"', (ROOT / "backend/api/metrics.py").read_text()))
    routes = {path for module in (ROOT / "backend/api").rglob("*.py") for path in ROUTE.findall(module.read_text())}
    routes = {path for path in routes if not path.startswith("/sign-in/")}  # steps of a browser, no part of the API
    assert len(routes) > 40
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    wanted = {
        "metrics.md": {f"`{name}`" for name in metrics},
        "settings.md": {f"`TIDEMARK_{name.upper()}`" for name in Settings.model_fields},
        "commands.md": {f"## tidemark {name}\n" for name, inner in group.commands.items() if not inner.hidden},
        "api.md": {re.sub(r":\w+}", "}", f"{route}`") for route in routes},
    }
    for document, names in wanted.items():
        text = (ROOT / "docs" / document).read_text()
        assert {name for name in names if name not in text} == set(), document
