"""The generated documents are what their generator writes today."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from backend.store.tables import core, github, joint, notify, regressions, sessions  # noqa: F401
from backend.store.tables.core import metadata

DOCS = Path(__file__).resolve().parents[2] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["rule.md", "commands.md", "api.md", "metrics.md", "settings.md", "tables.md", "performance.md"]
)
def test_a_generated_document_is_not_stale(name: str) -> None:
    assert (DOCS / name).read_text() == generator().DOCUMENTS[name](), f"docs/{name} is stale: run `make docs`"


def test_every_command_and_setting_is_documented_with_a_sentence() -> None:
    for line in (DOCS / "settings.md").read_text().splitlines():
        if line.startswith("| `TIDEMARK_"):
            assert len(line.split("|")[3].split()) > 2, line


def test_every_locked_package_has_its_licence_listed() -> None:
    """Also those that only another Python needs."""
    module = generator()
    rows = re.findall(r"^\| ([\w.-]+) \| ([^|]+) \|", (DOCS.parent / "THIRD_PARTY.md").read_text(), re.MULTILINE)
    listed = {module.canonical(name): licence for name, licence in rows}
    locked = {name for file in module.SHIPPED for name in module.locked_names(file)}
    assert locked - listed.keys() == set(), "THIRD_PARTY.md is stale: run `make docs` with a Python that needs these"
    assert "UNKNOWN" not in listed.values()


def test_every_table_of_the_database_is_documented_with_a_sentence() -> None:
    sections = dict(re.findall(r"^## (\w+)\n\n(.*)$", (DOCS / "tables.md").read_text(), re.MULTILINE))
    assert sections.keys() == set(metadata.tables)
    assert [name for name, sentence in sections.items() if len(sentence.split()) < 4] == []
