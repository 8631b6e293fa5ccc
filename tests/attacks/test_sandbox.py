"""A commit tries to leave its sandbox: to other runs, the machine, its network, its memory.

Every attack is tried under the best protection that this machine gives its user. Where that is none, what is proved
instead is that the worker refuses such a commit.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from worker.config import Isolation, Network, WorkerConfig
from worker.isolation.namespaces import SCRATCH
from worker.isolation.protection import Protection, Sandbox

# What the program saw goes beside its result.
TELL = """
import json, os, sys
def tell(**seen):
    place = os.path.dirname(os.environ["TIDEMARK_RUN_JSON"])
    open(os.path.join(place, "seen.json"), "w").write(json.dumps(seen))
    open(os.environ["TIDEMARK_RUN_JSON"], "w").write('{"schema": "tidemark.run/1", "status": "ok", "results": []}')
def tried(what):
    try:
        return repr(what())
    except BaseException as refusal:
        return "refused: " + type(refusal).__name__
"""


@pytest.fixture
def attack(untrusted: Any) -> Callable[..., dict[str, Any]]:
    """What the program saw; or the test ends here, having proved that no stranger's commit is run on this machine."""

    def run(program: str, **other: Any) -> dict[str, Any]:
        bench = untrusted.bench
        delivered = untrusted(TELL + program, trusted=False, **other)
        if not bench.job.sandbox.protects:
            assert "is not marked trusted, and worker host-1 has no protection" in delivered["error"]
            assert bench.job.sandbox.reason in delivered["error"]
            return {}
        assert delivered["status"] == "ok", delivered
        seen: dict[str, Any] = json.loads(bench.service.artifacts[delivered["id"], "seen.json"])
        return seen

    return run


def has_namespaces(untrusted: Any) -> bool:
    """Whether this machine lets the worker make mounts and a network of a run's own; if not, it must say so."""
    sandbox: Sandbox = untrusted.bench.job.sandbox
    if not sandbox.has_namespaces:
        assert "refused" in sandbox.reason or "the machine's" in sandbox.reason or not sandbox.protects
    return sandbox.has_namespaces


def test_what_is_in_force_is_said_and_goes_to_the_service(untrusted: Any, service: Any, start_worker: Any) -> None:
    sandbox = untrusted.bench.job.sandbox
    worker = start_worker(isolation="auto", name="host-2")
    hello = until(lambda: service.hellos and service.hellos[-1])
    assert hello["protection"] == sandbox.protection
    assert hello["capabilities"]["protection_reason"] == sandbox.reason
    assert f"protection {sandbox.protection} ({sandbox.reason})" in worker.log
    words = {
        Protection.USER: "each run as a user of its own",
        Protection.NAMESPACE: "the system's programs and their own directory",
        Protection.NONE: "namespaces of its own cannot be had here",
    }
    assert words[sandbox.protection] in sandbox.reason


@pytest.mark.parametrize("place", [place for place in (*SCRATCH, "/dev/shm") if os.access(place, os.W_OK)])
def test_a_run_leaves_nothing_for_the_next_and_sees_nothing_of_others(attack: Any, untrusted: Any, place: str) -> None:
    theirs = Path(place) / f"tidemark-attack-{os.getpid()}"
    theirs.write_text("theirs")
    mine = Path(place) / f"tidemark-left-{os.getpid()}"
    try:
        leave = f"mine, theirs = {str(mine)!r}, {str(theirs)!r}\n"
        leave += "seen = [os.path.exists(mine), os.path.exists(theirs)]\n"
        leave += "tried(lambda: open(mine, 'w').write('x'))\ntell(seen=seen)"
        first, second = attack(leave), attack(leave)
        if has_namespaces(untrusted):
            assert first["seen"] == second["seen"] == [False, False]
            assert not mine.exists()
    finally:
        theirs.unlink()
        mine.unlink(missing_ok=True)


def test_the_other_side_of_a_session_is_not_there(attack: Any, untrusted: Any) -> None:
    """Base and head run in turn, as one user; code of one that changed the other would decide who is slower."""
    other = untrusted.bench.config.runs_dir / "now-head"
    other.mkdir()
    other.chmod(0o777)
    (other / "model.py").write_text("x")
    (other / "model.py").chmod(0o666)
    path = str(other / "model.py")
    seen = attack(
        f"tell(written=tried(lambda: open({path!r}, 'a').write('slower')), read=tried(lambda: open({path!r}).read()))"
    )
    if has_namespaces(untrusted):
        assert seen["written"].startswith("refused") and seen["read"].startswith("refused")


def test_two_runs_are_two_users_where_the_worker_is_root(attack: Any, untrusted: Any) -> None:
    look = "tell(uid=os.getuid(), groups=os.getgroups())"
    first, second = attack(look), attack(look)
    if untrusted.bench.job.sandbox.protection is Protection.USER:
        assert first["uid"] != second["uid"] and 0 not in (first["uid"], second["uid"])
        assert first["groups"] == second["groups"] == []


@pytest.fixture
def listener() -> Iterator[int]:
    """A service of this machine, as a database or the metadata address of a cloud is one; the port it has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        over = threading.Event()

        def answer() -> None:
            while not over.is_set():
                with suppress(OSError):
                    server.accept()[0].close()

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]
        over.set()


REACH = """
import socket
def reach(*address):
    with socket.create_connection(address, timeout=3):
        return "reached"
def bind():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return reach(*server.getsockname())
tell(machine=tried(lambda: reach("127.0.0.1", PORT)), metadata=tried(lambda: reach("169.254.169.254", 80)),
     own=tried(bind), devices=[name for _, name in socket.if_nameindex()])
"""


def test_the_network_is_a_loopback_of_its_own(attack: Any, untrusted: Any, listener: int) -> None:
    seen = attack(REACH.replace("PORT", str(listener)))
    if has_namespaces(untrusted):
        assert seen["machine"].startswith("refused") and seen["metadata"].startswith("refused")
        assert seen["own"] == "'reached'", "ranks of one run meet there"
        assert seen["devices"] == ["lo"]


@pytest.mark.parametrize(
    ("asked", "allowed", "reached"),
    [
        ("always", Network.NONE, False),
        ("none", Network.ALWAYS, False),
        ("always", Network.SETUP, False),
        ("always", Network.ALWAYS, True),
    ],
)
def test_it_is_open_only_as_far_as_the_manifest_asks_and_the_operator_allows(
    make_bench: Any, config: WorkerConfig, listener: int, asked: str, allowed: Network, reached: bool
) -> None:
    bench = make_bench(replace(config, isolation=Isolation.AUTO, network=allowed))
    program = TELL + REACH.replace("PORT", str(listener))
    run = bench.run(
        program, trusted=False, spec={"command": f"{sys.executable} bench.py", "timeout_s": 20, "network": asked}
    )
    if not bench.job.sandbox.protects:
        assert "has no protection" in run["error"]
    elif bench.job.sandbox.has_namespaces:
        seen = json.loads(bench.service.artifacts[run["id"], "seen.json"])
        assert (seen["machine"] == "'reached'") is reached


LOOK_AROUND = """
import glob, signal
home = PRIVATE
others = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        others.append(open(f"/proc/{pid}/environ", "rb").read().decode(errors="replace"))
    except OSError:
        pass
def write():
    with open(os.path.join(os.path.dirname(sys.executable), "planted"), "w") as file:
        return file.name
tell(token=sum("TIDEMARK_TOKEN" in other for other in others), worker=tried(lambda: os.kill(WORKER, 0)),
     secret=tried(lambda: open(home + "/id_ed25519").read()), listed=tried(lambda: os.listdir(home)),
     planted=tried(write), setuid=tried(lambda: os.setuid(0)),
     mount=tried(lambda: os.system("mount -t tmpfs x /usr 2>&-")),
     sockets=[path for path in glob.glob("/run/**/*.sock*", recursive=True) if os.access(path, os.W_OK)])
"""


def test_it_sees_no_secret_signals_no_worker_and_plants_nothing(
    attack: Any, untrusted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "home"
    private.mkdir(mode=0o700)
    (private / "id_ed25519").write_text("hunter2")
    monkeypatch.setenv("TIDEMARK_TOKEN", "tm_secret")
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            seen = attack(LOOK_AROUND.replace("PRIVATE", repr(str(private))).replace("WORKER", str(os.getpid())))
        finally:
            other.kill()
    if seen:
        assert seen["token"] == 0
        assert {
            name for name in ("worker", "secret", "planted", "setuid") if not seen[name].startswith("refused")
        } == set()
        assert "id_ed25519" not in seen["listed"] and seen["mount"] != "0"
    if seen and untrusted.bench.job.sandbox.protection is Protection.NAMESPACE:
        assert seen["sockets"] == [], "what listens in /run may be a way to root"


def test_more_memory_than_the_limit_ends_the_run_and_nothing_else(make_bench: Any, config: WorkerConfig) -> None:
    bench = make_bench(replace(config, isolation=Isolation.AUTO, memory_limit_bytes=200_000_000))
    run = bench.run("x = b'x' * 600_000_000; print(len(x))", trusted=False)
    sandbox = bench.job.sandbox
    assert run["status"] == "failed"
    if sandbox.group is not None:
        assert "was killed" in run["error"] and "memory" in run["error"]
        with sandbox.group.limits():
            file, limit = sandbox.group.swap
            held = sandbox.group.places[0] / file
            assert not held.exists() or int(held.read_text()) <= limit, "it does not go on in swap"
    elif sandbox.protects:
        assert "no limit of memory" in sandbox.reason
    else:
        assert "has no protection" in run["error"]


def test_more_processes_than_the_limit_are_refused(make_bench: Any, config: WorkerConfig) -> None:
    """A fork bomb that stays below what this machine bears."""
    bench = make_bench(replace(config, isolation=Isolation.AUTO))
    group = bench.job.sandbox.group
    if group is None:
        assert "no limit of memory" in bench.job.sandbox.reason or not bench.job.sandbox.protects
        return
    bench.job.sandbox = replace(bench.job.sandbox, group=replace(group, processes=40))
    bomb = "import os, time\nfor n in range(200):\n    if os.fork() == 0: time.sleep(20)\n"
    run = bench.run(bomb, trusted=False)
    assert "BlockingIOError" in run["error"] or "Resource temporarily unavailable" in run["error"]
    assert not any(place.exists() for place in group.places), "the group goes with the run"


def test_processes_that_hide_are_ended_with_the_run(attack: Any, untrusted: Any) -> None:
    marker = f"tidemark-hidden-{os.getpid()}"
    program = f"""
for n in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", [{marker!r}, "600"])
        os._exit(0)
tell()
"""
    attack(program)
    found = subprocess.run(["pgrep", "-f", marker], capture_output=True, text=True, check=False)
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("os.kill(1, 9); os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("sys.exit(7)", "ended with exit code 7"),
        ("os.abort()", "crashed with SIGABRT"),
    ],
)
def test_how_a_run_ends_is_told_even_if_it_goes_for_what_supervises_it(
    untrusted: Any, program: str, words: str
) -> None:
    tolerant = "import os, sys\n" + "\n".join(
        f"try: {step}\nexcept PermissionError: pass" for step in program.split("; ")
    )
    run = untrusted(tolerant, trusted=False)
    if untrusted.bench.job.sandbox.protects:
        assert words in run["error"]
    else:
        assert "has no protection" in run["error"]


def test_a_trusted_project_is_run_as_the_worker_by_an_ordinary_user(untrusted: Any) -> None:
    """Whoever starts a worker as themselves and calls a project trusted is told that its commits run as they do."""
    run = untrusted(TELL + "tell(uid=os.getuid())", trusted=True)
    seen = json.loads(untrusted.bench.service.artifacts[run["id"], "seen.json"])
    assert (seen["uid"] == os.geteuid()) is (os.geteuid() != 0)
