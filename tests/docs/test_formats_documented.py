"""docs/formats.md has a section for every format, with an example that the format's own reader takes."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from backend.importers import FORMATS, Context, detect_format, read_file

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text()
SECTION = re.compile(r"^### `([\w/.-]+)`\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = dict(SECTION.findall(TEXT))
STATED = Context(
    project="northsea/loom",
    testbed="ci",
    commit="9f3c2e1d0b5a4c7e8f90a1b2c3d4e5f60718293a",
    columns={"test": "benchmark", "dtype": "variant.dtype", "step": "value", "sha": "commit"},
)


def example(name: str) -> bytes:
    """The section's first indented block."""
    block = re.search(r"\n\n((?:    .*\n)+)", SECTIONS[name])
    assert block is not None, f"{name} has no example"
    return textwrap.dedent(block.group(1)).encode()


def test_every_format_is_documented_and_nothing_else() -> None:
    assert set(SECTIONS) == {*FORMATS, "tidemark.run/1"}


@pytest.mark.parametrize("name", FORMATS)
def test_the_example_of_a_format_is_read_as_it(name: str) -> None:
    data = example(name)
    if not name.startswith("custom-"):
        assert detect_format("example", data) == name
    context = STATED if name == "csv" else Context(project=STATED.project, testbed="ci", commit=STATED.commit)
    imported = read_file("example", data, context, name)
    assert imported.measurements and not imported.problems, (data.decode(), imported.problems)


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_shows_the_command_that_imports_it(name: str) -> None:
    assert "tidemark import " in SECTIONS[name] and "--project" in SECTIONS[name]
