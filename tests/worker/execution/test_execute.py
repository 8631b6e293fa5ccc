"""What becomes of a run, whatever its command does: results, or a delivered failed run with a sentence."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from backend.contract import parse_run

WRITE = """
import json, os
run = {"schema": "tidemark.run/1", "status": "ok", "results": [
    {"benchmark": "moe.layer", "variant": {"k": 2}, "status": "ok", "measurements": [
        {"metric": "step_ms", "unit": "ms", "direction": "lower", "role": "gate", "value": 5.0, "processes": [5.0]}]}]}
run |= CHANGES
with open(os.environ["TIDEMARK_RUN_JSON"], "w") as file:
    json.dump(run, file)
"""


def writing(then: str = "", **changes: Any) -> str:
    """A program that writes a run with these fields, and then does something more."""
    return WRITE.replace("CHANGES", repr(changes)) + then


def test_a_result_is_completed_with_what_the_lease_says_and_delivered(bench: Any) -> None:
    run = bench.run(writing())
    parsed = parse_run(run)
    assert (parsed.status, parsed.suite, parsed.testbed, parsed.worker) == ("ok", "moe", "cpu", "host-1")
    assert parsed.commit == bench.repository.git("rev-parse", "HEAD")
    assert parsed.started_at and parsed.finished_at
    assert parsed.telemetry["cpu_s"] > 0
    assert bench.service.steps() == ["checkout", "execute", "deliver"]
    assert bench.spool.size().waiting == 0
    assert list(bench.config.runs_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("import sys; print('shapes differ', file=sys.stderr); sys.exit(3)", "exit code 3: shapes differ"),
        ("import os; os.kill(os.getpid(), 11)", "the suite crashed with SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "most likely because memory ran out"),
        ("pass", "ended without writing a result"),
        ("import os; open(os.environ['TIDEMARK_RUN_JSON'], 'w').write('{\"a\": 1')", "not tidemark.run/1"),
        ("import os; open(os.environ['TIDEMARK_RUN_JSON'], 'wb').write(bytes(range(256)))", "not tidemark.run/1"),
        ("import os; os.mkdir(os.environ['TIDEMARK_RUN_JSON'])", "not a file"),
        ("import os; os.mkfifo(os.environ['TIDEMARK_RUN_JSON'])", "not a file"),
        ("import os; os.symlink('/etc/hostname', os.environ['TIDEMARK_RUN_JSON'])", "cannot be read"),
        (writing(commit="0" * 40), f"of another run: its commit is '{'0' * 40}'"),
        (writing(suite="attention"), "of another run: its suite is 'attention'"),
        (writing(id="01JD2Q8Z6WJ4M6R8T0V2X4Y6Z8"), "of another run: its id is"),
        (writing(status="splendid"), "status is"),
        (writing(results=[{"benchmark": "x", "status": "ok", "measurements": [{"metric": "m"}]}]), "results[0]"),
    ],
)
def test_a_command_without_a_usable_result_is_a_failed_run_that_says_why(
    bench: Any, program: str, sentence: str
) -> None:
    run = bench.run(program)
    assert parse_run(run).status == "failed"
    assert run["results"] == []
    assert sentence in run["error"]


def test_a_run_without_a_schema_is_refused_by_name(bench: Any) -> None:
    run = bench.run(writing("run.pop('schema'); json.dump(run, open(os.environ['TIDEMARK_RUN_JSON'], 'w'))"))
    assert run["status"] == "failed"
    assert "schema" in run["error"]


def test_results_written_before_a_crash_are_kept_in_an_incomplete_run(bench: Any) -> None:
    run = bench.run(writing("import sys; print('boom', file=sys.stderr); sys.exit(7)"))
    assert run["status"] == "incomplete"
    assert run["error"] == "the suite wrote 1 result and ended with exit code 7: boom"
    assert len(run["results"]) == 1
    assert run["log_tail"] == "boom"


def test_a_failed_run_shows_the_last_200_lines_of_standard_error(bench: Any) -> None:
    run = bench.run("import sys\nfor n in range(500): print('line', n, file=sys.stderr)\nsys.exit(1)")
    lines = run["log_tail"].splitlines()
    assert (len(lines), lines[0], lines[-1]) == (200, "line 300", "line 499")
    log = bench.service.artifacts[run["id"], "worker.log.txt"].decode()
    assert "stderr: line 0\n" in log


def test_standard_output_is_shown_when_standard_error_says_nothing(bench: Any) -> None:
    assert "all is lost" in bench.run("import sys; print('all is lost'); sys.exit(1)")["log_tail"]


def test_files_beside_the_result_are_delivered_and_links_are_not(bench: Any) -> None:
    then = """
out = os.path.dirname(os.environ["TIDEMARK_RUN_JSON"])
open(os.path.join(out, "moe.layer.mllog"), "w").write(":::MLLOG {}")
os.symlink("/etc/passwd", os.path.join(out, "passwd.txt"))
open(os.path.join(out, "-rf"), "w").write("x")
"""
    run = bench.run(writing(then))
    names = {name for run_id, name in bench.service.artifacts if run_id == run["id"]}
    assert names == {"moe.layer.mllog", "worker.log.txt"}
    log = bench.service.artifacts[run["id"], "worker.log.txt"].decode()
    assert "'passwd.txt' left out" in log and "'-rf' left out" in log


def test_a_setup_that_fails_is_a_failed_run(bench: Any) -> None:
    run = bench.run(writing(), spec={"setup": "echo no compiler here >&2; exit 4"})
    assert run["status"] == "failed"
    assert run["error"] == "the setup command ended with exit code 4: no compiler here"
    assert bench.service.steps() == ["checkout", "setup", "deliver"]


def test_a_setup_installs_into_an_environment_of_the_run_alone(bench: Any) -> None:
    setup = (
        'python -c "import sysconfig, pathlib; '
        "pathlib.Path(sysconfig.get_path('purelib'), 'built_by_setup.py').write_text('x = 1')\"; pip --version"
    )
    program = "import built_by_setup, pytest, worker\n" + writing()
    run = bench.run(program, spec={"setup": setup, "command": "python bench.py"})
    assert run["status"] == "ok", run
    assert f"(python {sys.version_info.major}.{sys.version_info.minor})" in "".join(bench.service.log_lines())


def test_a_missing_commit_is_a_failed_run(bench: Any) -> None:
    bench.repository.commit({"a": "b"})
    run_id = bench.service.request(bench.repository, "1" * 40, {"command": "true"})
    bench.job.carry_out(run_id, bench.interrupt)
    assert f"commit {'1' * 40} is not in" in bench.service.run(run_id)["error"]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({}, "names neither"),
        ({"command": "true", "benchmarks": ["gpt.train"]}, "not both"),
        ({"command": ["true"]}, "command is ['true']; accepted: text"),
        ({"command": "true", "timeout_s": -1}, "timeout_s is -1; accepted: seconds"),
        ({"benchmarks": "gpt.train"}, "benchmarks is 'gpt.train'; accepted: a list"),
    ],
)
def test_a_spec_that_cannot_be_carried_out_is_a_failed_run(bench: Any, spec: dict[str, Any], sentence: str) -> None:
    commit = bench.repository.commit({"a": "b"})
    run_id = bench.service.request(bench.repository, commit, spec)
    bench.job.carry_out(run_id, bench.interrupt)
    assert sentence in bench.service.run(run_id)["error"]


def test_an_untrusted_project_does_not_run_without_protection(bench: Any) -> None:
    run = bench.run("open('/tmp/should-not-exist', 'w')", trusted=False)
    assert "not marked trusted" in run["error"]


def test_a_registered_benchmark_runs_from_the_installed_suite_not_from_the_checkout(bench: Any) -> None:
    commit = bench.repository.commit({"benchmarks/__init__.py": "raise SystemExit('the commit took our place')"})
    run_id = bench.service.request(bench.repository, commit, {"benchmarks": ["no.such.benchmark"], "timeout_s": 60})
    bench.job.carry_out(run_id, bench.interrupt)
    told = json.dumps(bench.service.run(run_id)) + "".join(bench.service.log_lines())
    assert "no.such.benchmark" in told
    assert "took our place" not in told


def test_progress_and_lines_reach_the_page_of_the_run(bench: Any) -> None:
    progress = """
import time
print('::tidemark-progress {"done": 1, "total": 4, "note": "moe.layer", "eta_s": 12.5}', flush=True)
print("\\x1b[31mred\\x1b[0m and \\x00 clean", flush=True)
time.sleep(0.3)
print('::tidemark-progress {"done": NaN}', flush=True)
"""
    bench.run(writing(progress))
    details = [event["detail"] for event in bench.service.events if event["kind"] == "progress"]
    assert details == [{"done": 1, "total": 4, "note": "moe.layer", "eta_s": 12.5}]
    assert "red and  clean" in bench.service.log_lines()
    assert any("NaN" in line for line in bench.service.log_lines())


def test_temporary_files_have_a_path_short_enough_for_sockets_and_are_removed(bench: Any) -> None:
    bind = """
import socket, tempfile
place = os.path.join(tempfile.mkdtemp(prefix="pymp-"), "listener-12345678")
socket.socket(socket.AF_UNIX).bind(place)
print("bound", tempfile.gettempdir())
"""
    run = bench.run(writing(bind))
    assert run["status"] == "ok", run
    (said,) = bench.service.log_lines()
    assert not os.path.exists(said.removeprefix("bound "))


def test_a_tree_of_thousands_of_directories_is_removed(bench: Any) -> None:
    dig = "for n in range(1200):\n    os.mkdir('d')\n    os.chdir('d')\n"
    assert bench.run("import os\n" + dig + writing())["status"] == "ok"
    assert list(bench.config.runs_dir.iterdir()) == []


def test_a_directory_made_unwritable_is_removed(bench: Any) -> None:
    close = "os.makedirs('a/b')\nopen('a/b/c', 'w').close()\nos.chmod('a/b', 0o500)\nos.chmod('a', 0)\n"
    assert bench.run("import os\n" + close + writing())["status"] == "ok"
    assert list(bench.config.runs_dir.iterdir()) == []
