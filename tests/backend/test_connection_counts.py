"""Counts that several processes share."""

import subprocess
import sys

from backend.connection_counts import AWAY, ConnectionCounts


def test_a_process_sees_what_another_has_written() -> None:
    with ConnectionCounts.file_for(2) as file:
        mine = ConnectionCounts(file.fileno(), 0)
        assert mine.all() == [AWAY, AWAY] and mine.has_fewest()
        mine.write(3)
        assert mine.has_fewest(), "the other accepts none"
        code = f"from backend.connection_counts import ConnectionCounts; ConnectionCounts({file.fileno()}, 1).write(2)"
        subprocess.run([sys.executable, "-c", code], pass_fds=[file.fileno()], check=True)
        assert mine.all() == [3, 2] and not mine.has_fewest()
