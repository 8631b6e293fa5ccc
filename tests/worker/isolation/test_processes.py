"""Commands that will not end, end badly, or leave something behind: real processes, killed for real."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.waiting import until
from worker.isolation.output import OutputStream
from worker.isolation.processes import Command, CommandLimits, CommandOutcome, Ending, Interrupt, run_command

Said = list[tuple[OutputStream, str]]


def carry_out(
    program: str, directory: Path, interrupt: Interrupt | None = None, **limits: Any
) -> tuple[CommandOutcome, Said]:
    said: Said = []
    command = Command(
        argv=(sys.executable, "-c", program),
        cwd=directory,
        environment={"PATH": os.defpath, "TIDEMARK_RUN_JSON": str(directory / "out" / "run.json")},
        limits=CommandLimits(**({"timeout_s": 20.0, "kill_grace_s": 0.3} | limits)),
    )
    return run_command(command, lambda stream, line: said.append((stream, line)), interrupt or Interrupt()), said


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_command_that_ignores_sigterm_is_killed_at_its_time_limit(tmp_path: Path) -> None:
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    began = time.monotonic()
    outcome, said = carry_out(program, tmp_path, timeout_s=0.5)
    assert outcome.ending is Ending.TIMED_OUT
    assert outcome.exit_code == -9
    assert said == [(OutputStream.STDOUT, "deaf")]
    assert time.monotonic() - began < 60


def test_a_command_that_heeds_sigterm_may_say_its_last_words(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\n"
        "def leave(*_): print('wrote what there is', flush=True); sys.exit(0)\n"
        "signal.signal(15, leave); print('ready', flush=True); time.sleep(600)"
    )
    outcome, said = carry_out(program, tmp_path, timeout_s=0.5, kill_grace_s=5.0)
    assert (outcome.ending, outcome.exit_code) == (Ending.TIMED_OUT, 0)
    assert said[-1][1] == "wrote what there is"


ESCAPING = """
import os, subprocess, sys
child = "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN); "
child += "open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child, "grandchild"], start_new_session=True, env={})
while not (os.path.exists("grandchild") and open("grandchild").read()): pass
"""


@pytest.mark.parametrize("then", ["", "import time; time.sleep(600)", "os.kill(os.getpid(), 9)"])
def test_a_grandchild_in_a_session_of_its_own_ends_with_the_command(tmp_path: Path, then: str) -> None:
    outcome, _ = carry_out(ESCAPING + then, tmp_path, timeout_s=2.0)
    assert is_gone(int((tmp_path / "grandchild").read_text()))
    assert outcome.survivors == 0
    assert outcome.leftovers == (0 if outcome.ending is Ending.TIMED_OUT else 1)


def test_an_orphan_that_keeps_the_output_open_does_not_hold_up_the_end(tmp_path: Path) -> None:
    program = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nprint('done')"
    began = time.monotonic()
    outcome, said = carry_out(program, tmp_path)
    assert outcome.succeeded and said == [(OutputStream.STDOUT, "done")]
    assert time.monotonic() - began < 60


def test_a_stopped_command_is_ended_too(tmp_path: Path) -> None:
    outcome, _ = carry_out("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", tmp_path, timeout_s=0.5)
    assert outcome.ending is Ending.TIMED_OUT


def test_a_bomb_of_processes_is_ended(tmp_path: Path) -> None:
    program = "import os, time\nfor n in range(6):\n    os.fork() or os.setsid()\ntime.sleep(600)"
    outcome, _ = carry_out(program, tmp_path, timeout_s=1.0)
    assert (outcome.ending, outcome.survivors) == (Ending.TIMED_OUT, 0)
    assert not [p for p in psutil.process_iter() if str(tmp_path) in _cwd(p)]


def _cwd(process: psutil.Process) -> str:
    try:
        return process.cwd()
    except (psutil.Error, OSError):
        return ""


def test_an_interruption_from_another_thread_ends_the_command_at_once(tmp_path: Path) -> None:
    interrupt = Interrupt()
    threading.Timer(0.3, interrupt.give, [Ending.LEASE_LOST]).start()
    began = time.monotonic()
    outcome, _ = carry_out("import time; time.sleep(600)", tmp_path, interrupt=interrupt)
    assert outcome.ending is Ending.LEASE_LOST
    assert time.monotonic() - began < 60


def test_a_command_is_not_begun_after_an_interruption(tmp_path: Path) -> None:
    interrupt = Interrupt()
    interrupt.give(Ending.STOPPED)
    outcome, _ = carry_out("open('begun', 'w')", tmp_path, interrupt=interrupt)
    assert outcome.ending is Ending.STOPPED
    assert not (tmp_path / "begun").exists()


def test_a_command_that_does_not_exist_was_not_started(tmp_path: Path) -> None:
    command = Command(argv=("/no/such/program",), cwd=tmp_path, environment={}, limits=CommandLimits(timeout_s=5.0))
    outcome = run_command(command, lambda *_: None, Interrupt())
    assert outcome.ending is Ending.NOT_STARTED
    assert "/no/such/program" in (outcome.error or "")


def test_a_command_that_kills_its_supervisor_leaves_nothing_behind(tmp_path: Path) -> None:
    program = (
        "import os, signal, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "open('grandchild', 'w').write(str(child.pid))\n"
        "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(600)"
    )
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    command = Command(
        argv=(sys.executable, "-c", program),
        cwd=checkout,
        environment={"PATH": os.defpath, "TIDEMARK_RUN_JSON": str(tmp_path / "out" / "run.json")},
        limits=CommandLimits(timeout_s=20.0),
    )
    outcome = run_command(command, lambda *_: None, Interrupt())
    assert outcome.exit_code is None and "supervised it was killed" in (outcome.error or "")
    assert is_gone(int((checkout / "grandchild").read_text()))


def test_nothing_runs_on_when_the_worker_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "from worker.isolation.processes import *\n"
        "code = 'import os, time; os.fork() or os.setsid(); open(str(os.getpid()), \"w\"); time.sleep(600)'\n"
        "argv, limits = (sys.executable, '-c', code), CommandLimits(timeout_s=60)\n"
        "command = Command(argv=argv, cwd=Path(sys.argv[1]), environment={}, limits=limits)\n"
        "run_command(command, lambda *_: None, Interrupt())"
    )
    worker = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=Path(__file__).parents[3])
    pids = until(lambda: len(list(tmp_path.iterdir())) == 2 and [int(entry.name) for entry in tmp_path.iterdir()])
    worker.kill()
    worker.wait()
    until(lambda: all(is_gone(pid) for pid in pids))


def test_a_million_lines_cost_neither_memory_nor_the_result(bench: Any) -> None:
    program = """
import sys
for block in range(100):
    sys.stdout.write("".join(f"line {block * 10000 + n}\\n" for n in range(10000)))
sys.stdout.write("x" * 30_000_000)
sys.exit(1)
"""
    run = bench.run(program)
    assert "exit code 1" in run["error"]
    assert len(bench.service.log_lines()) < 5000
    assert any("lines left out" in line for line in bench.service.log_lines())
    assert len(bench.service.artifacts[run["id"], "worker.log.txt"]) < 3_000_000
    assert len(run["log_tail"]) < 10_000
    assert "more bytes cut]" in run["log_tail"]


def test_a_run_that_hangs_is_a_failed_run_with_its_log(bench: Any) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); "
    program = deaf + "print('rank 0 waits', flush=True); time.sleep(600)"
    run = bench.run(program, spec={"timeout_s": 1})
    assert run["status"] == "failed"
    assert "ran longer than its time limit and was stopped after" in run["error"]
    assert run["log_tail"] == "rank 0 waits"
