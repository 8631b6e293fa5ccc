"""What commit code can see and reach: nothing of the worker's secrets, and as root nothing as root."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from worker.config import Isolation
from worker.isolation.environment import PrivateDirectories, commit_environment
from worker.isolation.protection import Protection, establish

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start code as another user")

LOOK_AROUND = """
import json, os
seen = {"environ": dict(os.environ), "uid": os.getuid(), "cwd": os.getcwd(), "home": os.path.expanduser("~")}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        seen.setdefault("others", []).append(open(f"/proc/{pid}/environ", "rb").read().decode(errors="replace"))
    except OSError:
        pass
print(json.dumps(seen["environ"]))
open(os.path.join(os.path.dirname(os.environ["TIDEMARK_RUN_JSON"]), "seen.json"), "w").write(json.dumps(seen))
"""


def look_around(bench: Any, **other: Any) -> dict[str, Any]:
    run = bench.run(LOOK_AROUND + "open(os.environ['TIDEMARK_RUN_JSON'], 'w').write('" + RESULT + "')", **other)
    assert run["status"] == "ok", run
    seen: dict[str, Any] = json.loads(bench.service.artifacts[run["id"], "seen.json"])
    return seen


RESULT = json.dumps({"schema": "tidemark.run/1", "status": "ok", "results": []})


def test_a_command_sees_no_secret_and_a_home_of_its_own(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_TOKEN", "tm_in-the-environment")
    monkeypatch.setenv("TIDEMARK_DATABASE_URL", "postgresql://tidemark:hunter2@127.0.0.1/tidemark")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-hunter2")
    monkeypatch.setenv("PIP_INDEX_URL", "https://ada:hunter2@pypi.example.org/simple")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    seen = look_around(bench, spec={"env": {"BATCH": "8", "TIDEMARK_COMMIT": "forged"}})
    told = json.dumps(seen["environ"])
    assert "hunter2" not in told and "tm_" not in told
    assert seen["environ"]["OMP_NUM_THREADS"] == "2"
    assert seen["environ"]["BATCH"] == "8"
    assert seen["environ"]["TIDEMARK_COMMIT"] == bench.repository.git("rev-parse", "HEAD")
    assert seen["home"].startswith(str(bench.config.runs_dir))
    assert seen["environ"]["TMPDIR"] not in ("/tmp", seen["home"])
    assert not Path(seen["environ"]["TMPDIR"]).exists()


def test_named_variables_are_passed_on() -> None:
    own = {"HF_TOKEN": "x", "SSH_AUTH_SOCK": "y", "HTTPS_PROXY": "http://proxy.example.org:3128", "CUDA_HOME": "/cuda"}
    place = Path("/run-of-its-own")
    environment = commit_environment(
        own, suite={"bad name": "z"}, run={}, python_bin=place, also_pass=["HF_TOKEN"],
        private=PrivateDirectories(home=place, temporary=place, compile_cache=place),
    )  # fmt: skip
    assert environment["HF_TOKEN"] == "x"
    assert environment["HTTPS_PROXY"] == "http://proxy.example.org:3128"
    assert environment["CUDA_HOME"] == "/cuda"
    assert not {"SSH_AUTH_SOCK", "bad name"} & set(environment)


@needs_root
def test_as_root_code_runs_as_another_user_in_a_directory_it_owns(make_bench: Callable[..., Any], config: Any) -> None:
    bench = make_bench(replace(config, isolation=Isolation.USER))
    seen = look_around(bench, trusted=False)
    assert seen["uid"] == bench.job.sandbox.user.uid != 0
    assert all(f"TIDEMARK_RUN_ID={seen['environ']['TIDEMARK_RUN_ID']}" in other for other in seen["others"])


@needs_root
@pytest.mark.parametrize(
    "attempt", ["open(SPOOL)", "os.setuid(0)", "open('/etc/shadow')", "os.kill(1, 0)", "open('../../forged', 'w')"]
)
def test_code_of_another_user_is_denied_what_is_roots(
    make_bench: Callable[..., Any], config: Any, attempt: str
) -> None:
    bench = make_bench(replace(config, isolation=Isolation.USER))
    program = f"import os\nSPOOL = {str(config.spool_dir / 'parcel.json')!r}\n{attempt}"
    run = bench.run(program, trusted=False)
    assert any(refusal in run["error"] for refusal in ("PermissionError", "FileNotFoundError", "Read-only file system"))


@needs_root
def test_a_closed_directory_shows_the_run_only_what_it_needs(make_bench: Callable[..., Any], config: Any) -> None:
    closed = config.data_dir.parent / "closed"
    closed.mkdir(mode=0o700)
    (closed / "id_ed25519").write_text("private")
    bench = make_bench(replace(config, isolation=Isolation.USER, data_dir=closed / "worker"))
    run = bench.run(f"import os, sys; sys.exit(repr(os.listdir({str(closed)!r})))", trusted=False)
    assert run["error"].endswith("exit code 1: ['worker']")
    assert closed.stat().st_mode & 0o777 == 0o700


@needs_root
def test_files_of_the_run_user_are_removed_and_links_are_not_followed(
    make_bench: Callable[..., Any], config: Any, tmp_path: Path
) -> None:
    bench = make_bench(replace(config, isolation=Isolation.USER))
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("x")
    bench.run(
        f"import os; os.symlink({str(precious)!r}, 'link'); os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a', 0)",
        trusted=False,
    )
    assert (precious / "data").exists()
    assert list(bench.config.runs_dir.iterdir()) == []


@needs_root
def test_a_hard_link_to_a_file_of_roots_is_no_result(make_bench: Callable[..., Any], config: Any) -> None:
    bench = make_bench(replace(config, isolation=Isolation.USER))
    run = bench.run("import os; os.link('/etc/passwd', os.environ['TIDEMARK_RUN_JSON'])", trusted=False)
    assert run["status"] == "failed"
    assert "root:" not in json.dumps(run)


@needs_root
@pytest.mark.parametrize(("user", "reason"), [("nobody-of-that-name", "has no user"), ("root", "root itself")])
def test_a_user_that_cannot_be_had_leaves_no_protection_and_says_so(tmp_path: Path, user: str, reason: str) -> None:
    sandbox = establish(Isolation.AUTO, user, tmp_path)
    assert sandbox.protection is Protection.NONE
    assert reason in sandbox.reason
    with pytest.raises(PermissionError, match=reason):
        establish(Isolation.USER, user, tmp_path)
