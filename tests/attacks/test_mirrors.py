"""A commit looks for the history of other people's private projects on the machine that measures it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from backend.services.repository.mirror import Mirror

READ_MIRRORS = """
import os, sys
for place in {places!r}:
    for directory, _, files in os.walk(place):
        for name in files:
            print("READ", directory, name, file=sys.stderr)
sys.exit("looked")
"""


def service_mirror(directory: Path, url: str) -> Mirror:
    return Mirror(directory / "mirrors" / "1.git", url, trusted=True, timeout_s=30)


def test_mirrors_are_closed_to_every_other_user_and_one_that_was_open_is_closed(
    repository: Any, tmp_path: Path
) -> None:
    repository.commit({"secret.py": "x = 1"})
    mirror = service_mirror(tmp_path, repository.url)
    mirror.path.mkdir(parents=True, mode=0o755)
    mirror.path.parent.chmod(0o755)
    mirror.fetch()
    assert mirror.heads().keys() == {"main"}
    assert [place.stat().st_mode & 0o777 for place in (mirror.path, mirror.path.parent)] == [0o700, 0o700]


def test_no_commit_reads_a_mirror(untrusted: Any, tmp_path: Path) -> None:
    bench = untrusted.bench
    bench.repository.commit({"secret.py": "x = 1"})
    service_mirror(tmp_path, bench.repository.url).fetch()
    for directory in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        if directory.stat().st_uid == os.geteuid():
            directory.chmod(0o755)  # nothing but the mirror's own mode is in the way
    places = [str(tmp_path / "mirrors"), str(bench.config.mirrors_dir), str(bench.config.spool_dir)]
    run = untrusted(READ_MIRRORS.format(places=places), trusted=False)
    if bench.job.sandbox.protects:
        assert run["error"].endswith("exit code 1: looked") and "READ" not in str(run)
    else:
        assert "is not marked trusted, and worker host-1 has no protection" in run["error"]
    if bench.job.sandbox.user is not None:
        uid = bench.job.sandbox.user.uid
        looked = subprocess.run(["ls", places[0]], user=uid, capture_output=True, text=True, check=False)
        assert "Permission denied" in looked.stderr


def test_a_commit_finds_no_way_to_what_the_worker_keeps(untrusted: Any) -> None:
    """Mirrors of others, results that wait, what is kept of setups: by their names, and through other processes."""
    data = untrusted.bench.config.data_dir
    program = f"""
import glob, json, os
DATA = {str(data)!r}
tried = [DATA + "/mirrors", DATA + "/host-1/spool", DATA + "/host-1/cache", DATA + "/host-1/collected",
         *glob.glob("/proc/[0-9]*/cwd"), *glob.glob("/proc/[0-9]*/root")]
seen = []
for place in tried:
    try:
        if any(name != ".git" and name.endswith((".git", ".lock", "spool")) for name in os.listdir(place)):
            seen.append(place)
    except OSError:
        pass
out = os.path.dirname(os.environ["TIDEMARK_RUN_JSON"])
json.dump(seen, open(os.path.join(out, "seen.json"), "w"))
json.dump({{"schema": "tidemark.run/1", "status": "ok", "results": []}}, open(os.environ["TIDEMARK_RUN_JSON"], "w"))
"""
    run = untrusted(program)
    if untrusted.bench.job.sandbox.protects:
        assert json.loads(untrusted.bench.service.artifacts[run["id"], "seen.json"]) == []
