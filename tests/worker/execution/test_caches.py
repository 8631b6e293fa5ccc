"""What a worker keeps from run to run: never more than its limit, never another commit's, never in the way."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from worker.execution.caches import Cache, key_of, trim_mirrors
from worker.isolation.owned import size_of
from worker.isolation.processes import Interrupt

RESULT = """
import json, os
json.dump({"schema": "tidemark.run/1", "status": "ok", "results": []}, open(os.environ["TIDEMARK_RUN_JSON"], "w"))
"""


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 10_000)


def made(directory: Path, size: int = 1000) -> Path:
    directory.mkdir(parents=True)
    (directory / "file").write_bytes(b"x" * size)
    (directory / "link").symlink_to("file")
    return directory


def test_what_is_kept_comes_back_as_it_was(cache: Cache, tmp_path: Path) -> None:
    cache.keep("a" * 32, {"checkout": made(tmp_path / "one")})
    assert cache.restore("a" * 32, {"checkout": tmp_path / "two"})
    assert (tmp_path / "two" / "file").read_bytes() == b"x" * 1000
    assert (tmp_path / "two" / "link").is_symlink()
    assert not cache.restore("b" * 32, {"checkout": tmp_path / "three"})


def test_the_one_that_was_used_longest_ago_makes_room(cache: Cache, tmp_path: Path) -> None:
    for number in range(3):
        key = f"{number}" * 32
        cache.keep(key, {"checkout": made(tmp_path / str(number), 3000)})
        os.utime(cache.directory / key, (number, number))
    assert cache.restore("0" * 32, {"checkout": tmp_path / "again"})
    cache.keep("3" * 32, {"checkout": made(tmp_path / "new", 3000)})
    assert sorted(entry.name[0] for entry in cache.directory.iterdir()) == ["0", "2", "3"]
    assert cache.size().bytes <= cache.limit_bytes
    cache.keep("4" * 32, {"checkout": made(tmp_path / "huge", 20_000)})
    assert not (cache.directory / ("4" * 32)).exists()


def test_a_damaged_entry_is_made_anew(cache: Cache, tmp_path: Path) -> None:
    cache.keep("a" * 32, {"checkout": made(tmp_path / "one")})
    (cache.directory / ("a" * 32) / "size").unlink()
    assert not cache.restore("a" * 32, {"checkout": tmp_path / "two"})


def test_half_written_entries_are_cleared_at_the_next_start(cache: Cache) -> None:
    made(cache.directory / "new-123")
    assert list(Cache(cache.directory, 10_000).directory.iterdir()) == []


def test_everything_that_something_was_built_from_is_in_its_key() -> None:
    assert key_of({"a": 1, "b": [2]}) == key_of({"b": [2], "a": 1}) != key_of({"a": 1, "b": [3]})


def test_mirrors_that_were_not_used_lately_are_removed_and_one_in_use_is_not(tmp_path: Path) -> None:
    import fcntl

    for number, name in enumerate(("old", "busy", "newer", "newest")):
        os.utime(made(tmp_path / f"{name}.git", 1000), (number, number))
    with (tmp_path / "busy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert trim_mirrors(tmp_path, 2500) == ["old.git", "newer.git"]
    assert size_of(tmp_path / "busy.git") > 0 and (tmp_path / "newest.git").exists()
    assert trim_mirrors(tmp_path, 0) == ["busy.git"], "the one just used stays"


def test_a_setup_runs_once_for_all_suites_of_a_commit_and_again_for_another(
    make_bench: Callable[..., Any], config: Any, tmp_path: Path
) -> None:
    bench = make_bench(replace(config, keep_setups_from_s=0.0))
    setup = f"echo once >> {tmp_path}/setups; echo built > built.txt; python -c 'import sys; print(sys.prefix)'"
    program = "import os, sys\nassert open('built.txt').read() == 'built\\n'\nassert 'venv' in sys.prefix\n" + RESULT
    spec = {"setup": setup, "command": "python bench.py"}
    commit = bench.repository.commit({"bench.py": program})
    for suite, timeout_s in (("alpha", 20), ("beta", 30)):
        run_id = bench.service.request(bench.repository, commit, {**spec, "timeout_s": timeout_s}, suite=suite)
        bench.job.carry_out(run_id, Interrupt())
        assert bench.service.run(run_id)["status"] == "ok", bench.service.run(run_id)["error"]
    assert (tmp_path / "setups").read_text() == "once\n"
    other = bench.repository.commit({"other.txt": "x"})
    bench.job.carry_out(bench.service.request(bench.repository, other, spec), Interrupt())
    assert (tmp_path / "setups").read_text() == "once\nonce\n"


def test_what_a_suite_does_to_its_checkout_is_not_kept(bench: Any) -> None:
    program = "import os\nassert not os.path.exists('dirt')\nopen('dirt', 'w').write('x')\n" + RESULT
    commit = bench.repository.commit({"bench.py": program})
    for suite in ("alpha", "beta"):
        run_id = bench.service.request(bench.repository, commit, {"command": "python bench.py"}, suite=suite)
        bench.job.carry_out(run_id, Interrupt())
        assert bench.service.run(run_id)["status"] == "ok", bench.service.run(run_id)["error"]
    assert bench.job.cache.size().entries == 1


def test_every_run_compiles_for_itself(bench: Any) -> None:
    program = (
        """
import os
for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"):
    place = os.environ[name]
    assert not os.path.exists(place) or not os.listdir(place), place
    os.makedirs(place, exist_ok=True)
    open(os.path.join(place, "kernel"), "w").write("x")
"""
        + RESULT
    )
    for _ in range(2):
        bench.interrupt = Interrupt()
        assert bench.run(program)["status"] == "ok"


def test_a_worker_goes_on_with_the_next_suite_of_the_commit(
    start_worker: Any, service: Any, nudge: Any, repository: Any
) -> None:

    start_worker()
    commit = repository.commit({"bench.py": RESULT})
    first, second = (
        service.request(repository, commit, {"command": "python bench.py"}, suite=suite) for suite in ("alpha", "beta")
    )
    service.siblings[first] = second
    nudge(first)
    until(lambda: len(service.runs) == 2)
    assert service.run(second)["suite"] == "beta", "nobody sent a message for it"
