"""docs/formats.md has a section for every format, with an example that is read as the command below it says."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import pytest

from backend.importers import FORMATS, Context, read_file
from backend.importers.file import ResultFile
from backend.importers.formats import format_of

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text()
SECTION = re.compile(r"^### `([\w/.-]+)`\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = dict(SECTION.findall(TEXT))
BINARY = {"nsight-systems", "tensorboard"}  # what makes such a file stands in the place of an example


def blocks(name: str) -> list[str]:
    """The indented blocks of a section, as they would stand in a file."""
    return [textwrap.dedent(found) for found in re.findall(r"(?<=\n\n)((?:    .*\n)+)", SECTIONS[name])]


def command(name: str) -> list[str]:
    return shlex.split(next(block for block in blocks(name) if block.startswith("tidemark import ")))


def context(name: str) -> Context:
    """What the command of a section states."""
    words = command(name)
    options = [(word, words[at + 1]) for at, word in enumerate(words) if word.startswith("--")]
    stated = dict(options)
    pairs = {kind: dict(value.split("=", 1) for word, value in options if word == kind)
             for kind in ("--variant", "--column")}  # fmt: skip
    return Context(
        project=stated["--project"],
        testbed=stated.get("--testbed", "ci"),
        commit=stated.get("--commit"),
        variant=pairs["--variant"],
        columns=pairs["--column"],
    )


def test_every_format_is_documented_and_nothing_else() -> None:
    assert set(SECTIONS) == {*FORMATS, "tidemark.run/1"}


@pytest.mark.parametrize("name", sorted(set(FORMATS) - BINARY))
def test_the_example_of_a_format_is_read_as_its_command_says(name: str) -> None:
    data, file = blocks(name)[0].encode(), command(name)[2]
    if not name.startswith("custom-"):
        assert format_of(ResultFile(file, data)) == name
    imported = read_file(file, data, context(name), name)
    assert imported.measurements and not imported.problems, (data.decode(), imported.problems)
