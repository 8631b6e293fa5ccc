"""Every format has an example in docs/formats.md that is read as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.importers import FORMATS, Context, read_file

GUIDE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
SECTIONS = dict(re.findall(r"\n### `([^`]+)`\n(.*?)(?=\n### |\Z)", GUIDE, re.DOTALL))
STATED = Context(
    project="northsea/loom", testbed="ci", commit="9f3c2e1d0b5a4c7e8f90a1b2c3d4e5f60718293a",
    columns={"test": "benchmark", "dtype": "variant.dtype", "step": "value", "sha": "commit"},
)  # fmt: skip


def blocks(section: str) -> list[str]:
    """The indented blocks of a section, as they would stand in a file."""
    found: list[list[str]] = [[]]
    for line in section.splitlines():
        if line.startswith("    "):
            found[-1].append(line[4:])
        elif found[-1]:
            found.append([])
    return ["\n".join(lines) + "\n" for lines in found if lines]


def test_every_format_has_a_section() -> None:
    assert set(FORMATS) <= set(SECTIONS)


@pytest.mark.parametrize("format_name", sorted(FORMATS))
def test_the_example_of_a_format_is_read(format_name: str) -> None:
    example, command, *_ = blocks(SECTIONS[format_name])
    imported = read_file("example", example.encode(), STATED, format_name)
    assert imported.measurements and not imported.problems, imported.problems
    assert command.startswith("tidemark import ")
