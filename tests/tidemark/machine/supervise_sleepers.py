"""Supervises children that do next to nothing, in the data directory it is given (run by a test)."""

import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from tidemark.machine import supervisor as module
from tidemark.machine.datadir import DataDirectory
from tidemark.machine.supervisor import ServiceCommand, Supervisor
from tidemark.refusal import Refusal

SLEEP = "import time; time.sleep(600)"
SLEEP_WITH_CHILD = "import subprocess; subprocess.run(['sleep', '600'])"
ANSWER = """
import os, time
with os.fdopen(int(os.environ["TIDEMARK_RESULT_FD"]), "w") as told:
    print("this takes long", file=told, flush=True)
    while not os.path.exists("GO_ON"):
        time.sleep(0.02)
    told.write("x" * 100_000)
"""
CRASH = "print('the reason it died'); raise SystemExit(3)"
TALK = "import time\nwhile True: print('x' * 9999, flush=True); time.sleep(0.002)"


def command(name: str, code: str, healthy: Callable[[], bool] | None = None) -> ServiceCommand:
    python: Sequence[str] = (sys.executable, "-c", code)
    return ServiceCommand(name=name, arguments=python, environment=lambda: {"PATH": "/usr/bin:/bin"}, healthy=healthy)


def answers_once(times: int) -> Callable[[], bool]:
    """Healthy when it is asked for that time, and never else."""
    asked = count(1)

    def healthy() -> bool:
        answered = next(asked) == times
        if answered:
            print("it answers", flush=True)
        return answered

    return healthy


def main() -> None:
    data = DataDirectory.prepare(Path(sys.argv[1]))
    kind = sys.argv[2]
    try:
        data.hold()
    except Refusal as refusal:
        raise SystemExit(str(refusal)) from None
    supervisor = Supervisor(data, url="http://127.0.0.1:4711", say=lambda line: print(line, flush=True))
    supervisor.catch_signals()
    supervisor.take_over()
    if kind == "talkative":
        module.LOG_BYTES, module.LOGS_EVERY_S = 1_000_000, 0.5
        supervisor.start(command("worker", TALK))
    elif kind in {"slow", "mute"}:
        module.HEALTH_EVERY_S, module.STARTS_WITHIN_S = 0.05, 60.0 if kind == "slow" else 0.5
        supervisor.start(command("api", SLEEP, answers_once(10 if kind == "slow" else 0)))
    elif kind == "once":
        slow = command("prepare", ANSWER.replace("GO_ON", str(data.path / "go-on")))
        result = supervisor.run_once(slow, say=lambda line: print(f"told: {line}", flush=True))
        print(f"result: {len(result)} characters", flush=True)
    elif kind == "failing":
        supervisor.run_once(command("prepare", CRASH), say=print)
    elif kind == "crashing":
        supervisor.start(command("worker", CRASH))
    else:
        supervisor.start(command("api", SLEEP))
        supervisor.start(command("beat", SLEEP_WITH_CHILD))
        supervisor.start(command("worker", SLEEP_WITH_CHILD))
    print("all started", flush=True)
    supervisor.watch()
    supervisor.stop()


if __name__ == "__main__":
    main()
