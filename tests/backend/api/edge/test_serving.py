"""What the process that serves asks of the system."""

import resource
from collections.abc import Iterator

import pytest

from backend.api.edge.serving import MOST_OPEN_FILES, allow_many_open_files


@pytest.fixture
def most() -> Iterator[int]:
    """How many files this process may open if it asks for it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield MOST_OPEN_FILES if before[1] == resource.RLIM_INFINITY else min(MOST_OPEN_FILES, before[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_server_may_open_as_many_files_as_the_system_allows(most: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most // 2, hard))
    for _ in range(2):
        allow_many_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)
