"""The supervisor with children of our own: restarts, back-off, orphans, recovery after it was killed itself."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from helpers_tidemark import Background, all_gone, until

from tidemark.machine.datadir import DataDirectory, Running
from tidemark.machine.processes import identify

SCRIPT = Path(__file__).with_name("supervise_sleepers.py")


def supervise(data: Path, log: Path, kind: str = "sleepers") -> Background:
    return Background([sys.executable, str(SCRIPT), str(data), kind], log)


@contextlib.contextmanager
def supervised(data: Path, log: Path, kind: str = "sleepers") -> Iterator[Background]:
    background = supervise(data, log, kind)
    try:
        yield background
    finally:
        background.end()


@pytest.fixture
def sleepers(data_place: Path, tmp_path: Path) -> Iterator[Background]:
    with supervised(data_place, tmp_path / "log") as background:
        background.wait_for("all started")
        yield background


def children_of(data_place: Path) -> dict[str, int]:
    running = DataDirectory(data_place).running()
    assert running is not None
    return {name: child.pid for name, child in running.children.items()}


def test_a_killed_child_is_back_within_five_seconds_and_a_line_says_so(sleepers: Background, data_place: Path) -> None:
    before = children_of(data_place)
    os.kill(before["worker"], signal.SIGKILL)
    assert until(lambda: children_of(data_place)["worker"] != before["worker"], 5)
    assert children_of(data_place)["api"] == before["api"]
    assert "worker died (killed by SIGKILL); starting it again" in sleepers.said


def test_a_child_that_keeps_dying_is_tried_again_and_again_with_its_last_words(
    data_place: Path, tmp_path: Path
) -> None:
    with supervised(data_place, tmp_path / "log", "crashing") as background:
        background.wait_for("3 times now: the reason it died", 20)
        assert background.process.poll() is None


def test_a_child_that_takes_long_to_start_is_not_ended_before_it_has_answered_once(
    data_place: Path, tmp_path: Path
) -> None:
    with supervised(data_place, tmp_path / "log", "slow") as background:
        background.wait_for("api does not answer; ending it", 20)
        assert background.said.index("it answers") < background.said.index("does not answer")


def test_a_child_that_never_answers_is_started_again(data_place: Path, tmp_path: Path) -> None:
    with supervised(data_place, tmp_path / "log", "mute") as background:
        background.wait_for("api died (killed by SIGTERM); starting it again", 20)


def test_a_task_that_takes_long_says_so_meanwhile_and_then_its_result(data_place: Path, tmp_path: Path) -> None:
    with supervised(data_place, tmp_path / "log", "once") as background:
        background.wait_for("told: this takes long", 20)
        assert "result" not in background.said
        (data_place / "go-on").touch()
        background.wait_for("result: 100000 characters", 20)


def test_a_task_that_fails_ends_the_start_with_its_last_words(data_place: Path, tmp_path: Path) -> None:
    with supervised(data_place, tmp_path / "log", "failing") as background:
        background.wait_for("prepare failed (exit status 3): the reason it died", 20)


def test_a_task_that_takes_long_ends_with_who_started_it(data_place: Path, tmp_path: Path) -> None:
    with supervised(data_place, tmp_path / "log", "once") as background:
        background.wait_for("told: this takes long", 20)
        family = background.family()
        background.process.terminate()
        assert until(lambda: all_gone(family), 5)


def test_sigterm_leaves_no_process_and_grandchildren_go_too(sleepers: Background, data_place: Path) -> None:
    assert until(lambda: len(sleepers.family()) == 6)  # the supervisor, three children, two of which have a child
    family = sleepers.family()
    began = time.monotonic()
    sleepers.process.send_signal(signal.SIGTERM)
    assert sleepers.process.wait(6) == 0
    assert time.monotonic() - began < 5.5
    assert all_gone(family)
    assert DataDirectory(data_place).running() is None


def test_a_grandchild_whose_parent_was_killed_does_not_outlive_it_for_long(
    sleepers: Background, data_place: Path
) -> None:
    assert until(lambda: len(sleepers.family()) == 6)
    parent = psutil.Process(children_of(data_place)["worker"])
    orphan = parent.children()[0]
    parent.kill()
    assert until(lambda: all_gone([orphan]), 8)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends children with their parent on Linux only")
def test_children_die_with_a_supervisor_that_is_killed(sleepers: Background) -> None:
    assert until(lambda: len(sleepers.family()) == 6)
    children = [p for p in sleepers.family() if p.ppid() == sleepers.process.pid]
    grandchildren = [below for child in children for below in child.children()]
    sleepers.process.kill()
    sleepers.process.wait()
    assert until(lambda: all_gone(children), 5)
    for orphan in grandchildren:  # the next start would end them; there is none in this test
        with contextlib.suppress(psutil.NoSuchProcess):
            orphan.kill()


def test_what_an_earlier_supervisor_left_is_ended_at_the_next_start(data_place: Path, tmp_path: Path) -> None:
    import subprocess

    data = DataDirectory.prepare(data_place)
    left = subprocess.Popen(["sleep", "600"])
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        known, other = identify(left.pid), identify(stranger.pid)
        assert known is not None and other is not None
        # The stranger has a pid that a child of ours once had, but it started at another time.
        recycled = type(other)(other.pid, "another-boot:1")
        dead = type(known)(os.getpid(), "another-boot:2")
        data.note_running(Running(supervisor=dead, url="http://127.0.0.1:1", children={"api": known, "beat": recycled}))
        background = supervise(data_place, tmp_path / "log")
        try:
            background.wait_for("all started")
            assert left.wait(5) is not None
            assert stranger.poll() is None
        finally:
            background.end()
    finally:
        left.kill()
        stranger.kill()
        left.wait()
        stranger.wait()


def test_a_directory_is_held_by_one_supervisor_whose_address_the_second_is_told(
    sleepers: Background, data_place: Path, tmp_path: Path
) -> None:
    second = supervise(data_place, tmp_path / "second")
    assert second.process.wait(10) == 1
    assert second.said.strip() == (
        f"Tidemark is already running on {data_place}: http://127.0.0.1:4711 (pid {sleepers.process.pid}; "
        "a new sign-in link: tidemark sign-in)"
    )


def test_a_long_log_is_put_aside_and_its_writer_goes_on(data_place: Path, tmp_path: Path) -> None:
    with supervised(data_place, tmp_path / "log", "talkative"):
        log = data_place / "logs" / "worker.log"
        assert until(lambda: log.with_name("worker.log.1").exists(), 30)
        size = log.stat().st_size
        assert size < 3_000_000
        assert until(lambda: log.stat().st_size > size, 10)
        assert log.with_name("worker.log.1").read_bytes()[:20].strip(b"x\n") == b""
