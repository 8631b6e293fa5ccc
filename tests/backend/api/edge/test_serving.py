"""What the process that serves asks of the system."""

import resource
from collections.abc import Iterator

import pytest

from backend.api.edge.serving import OPEN_FILES, allow_many_open_files


@pytest.fixture
def hard() -> Iterator[float]:
    """The system's limit of open files, which are as many afterwards as before."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield float("inf") if before[1] == resource.RLIM_INFINITY else before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_server_may_open_as_many_files_as_the_system_allows(hard: float) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for _ in range(2):
        allow_many_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] in {min(hard, wanted) for wanted in OPEN_FILES}
