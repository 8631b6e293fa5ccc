"""What the process that serves asks of the system."""

import subprocess
import sys

import pytest

ASK = """
import resource
from backend.api.edge.serving import allow_many_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
allow_many_open_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("soft", "hard", "then"), [(256, 800, 800), (800, 800, 800), (256, 256, 256)])
def test_the_server_may_open_as_many_files_as_the_system_allows(soft: int, hard: int, then: int) -> None:
    asked = ASK.format(soft=soft, hard=hard)
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.split() == [str(then), str(hard)]
