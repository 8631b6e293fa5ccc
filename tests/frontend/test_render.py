"""Templates are kept compiled where that is allowed, and read as they are where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment

from frontend.render import CompiledTemplates


def rendered(directory: Path, source: str) -> str:
    kept = CompiledTemplates()
    kept.directory = str(directory)
    return Environment(loader=DictLoader({"page": source}), bytecode_cache=kept).get_template("page").render()


def test_a_template_that_has_changed_is_compiled_anew(tmp_path: Path) -> None:
    assert [rendered(tmp_path, source) for source in ("one", "two", "two")] == ["one", "two", "two"]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("damage", [b"", b"not what was compiled"])
def test_a_damaged_file_is_compiled_anew(tmp_path: Path, damage: bytes) -> None:
    rendered(tmp_path, "one")
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage)
    assert rendered(tmp_path, "one") == "one"


def test_where_nothing_may_be_written_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert rendered(tmp_path / "file", "one") == "one"
