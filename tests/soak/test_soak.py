"""A minute of what `make soak` does for ten: whatever is killed, every run ends exactly once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.run import report, soak


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that other accounts can pass through, unlike pytest's."""
    path = Path(tempfile.mkdtemp(prefix="tidemark-soak-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.slow
def test_whatever_is_killed_every_run_ends_exactly_once(directory: Path) -> None:
    figures = soak(directory, seconds=35, seed=11, drain_s=180, say=print)
    assert figures.wrong == [], report(figures)
    assert figures.requested == 2 * (figures.commits - figures.skipped) > 0
    assert sum(figures.faults.values()) >= 3
    assert figures.left_processes == 0
