"""A commit fills the disk: with one file, with a great many, deep below, among its results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from worker.config import Isolation, WorkerConfig

LIMIT = 20_000_000
FILL = {
    "one file": "open('f', 'wb').write(b'x' * 19_000_000); open('g', 'wb').write(b'x' * 19_000_000)",
    "thousands of files": "[open(f'f{n}', 'w').write('x') for n in range(9_000)]",
    "in a thousand directories inside one another": """
for _ in range(1200): os.mkdir('d'); os.chdir('d')
open('f', 'wb').write(b'x' * 19_000_000); open('g', 'wb').write(b'x' * 19_000_000)""",
    "where its results belong": """
out = os.path.dirname(os.environ['TIDEMARK_RUN_JSON'])
for name in 'ab': open(os.path.join(out, name), 'wb').write(b'x' * 19_000_000)""",
}


@pytest.fixture
def small(make_bench: Any, config: WorkerConfig) -> Any:
    return make_bench(replace(config, isolation=Isolation.AUTO, run_limit_bytes=LIMIT))


@pytest.mark.parametrize("fill", FILL.values(), ids=list(FILL))
def test_a_run_that_takes_more_disk_than_it_may_is_ended_and_says_so(small: Any, fill: str) -> None:
    run = small.run(f"import os, time\n{fill}\ntime.sleep(50)", trusted=not small.job.sandbox.protects)
    assert run["status"] == "failed"
    assert "was stopped: its directory held 0.0 GB; at most 0.0 GB are accepted here" in run["error"]
    assert list(small.config.runs_dir.iterdir()) == []


def test_one_file_alone_may_not_be_larger_either(small: Any) -> None:
    run = small.run("open('f', 'wb').write(b'x' * 30_000_000)", trusted=not small.job.sandbox.protects)
    assert run["status"] == "failed" and "File too large" in run["error"]
