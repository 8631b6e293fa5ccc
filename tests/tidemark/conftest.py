"""Fixtures of the launcher's tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Tests are imported by path and belong to no package; what they share is found like this.
sys.path.insert(0, str(Path(__file__).parent))

from helpers_tidemark import place


@pytest.fixture
def data_place() -> Iterator[Path]:
    """A directory for data that does not exist yet, in a place that every account can enter."""
    with place() as path:
        yield path / "data"
