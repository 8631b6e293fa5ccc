"""A commit plants links, pipes, devices and giants where the worker, which may be root, is about to write or read."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.planting import PLANTING
from worker.execution.results import take_artifacts
from worker.isolation.owned import NotOfTheRun, copy_file, copy_tree, give_to, opened, read_file, remove
from worker.isolation.processes import RunUser

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")

STRANGER = RunUser(name="stranger", uid=58_299, gid=58_299)

# What every attack may use, beside VICTIM.
TOOLS = (
    PLANTING
    + """
ROOM = os.path.dirname(VICTIM)
def link(place, to=VICTIM):
    plant(place, lambda place: os.symlink(to, place))
def pipe(place):
    plant(place, os.mkfifo)
def result():
    with open(os.environ["TIDEMARK_RUN_JSON"], "w") as file:
        json.dump({"schema": "tidemark.run/1", "status": "ok", "results": []}, file)
"""
)


def tools_against(victim: Path) -> str:
    return f"VICTIM = {str(victim)!r}\n{TOOLS}"


ATTACKS = {
    "its log is a link to a file of the worker's": "result(); link(TOP + '/worker.log.txt')",
    "its log is a link among its results": "result(); link(OUT + '/worker.log.txt')",
    "its log is a pipe": "result(); pipe(TOP + '/worker.log.txt'); pipe(OUT + '/worker.log.txt')",
    "its result is a link": "link(OUT + '/run.json')",
    "its result is a pipe": "pipe(OUT + '/run.json')",
    "its result is a directory": "plant(OUT + '/run.json', os.mkdir)",
    "its result is as large as a disk": "open(OUT + '/run.json', 'w').truncate(1 << 42)",
    "its results are a link to another directory": "link(OUT, ROOM)",
    "its home is a link to another directory": "result(); link(TOP + '/home', ROOM)",
    "its checkout is a link to another directory": "result(); link(os.getcwd(), ROOM)",
    "its temporary files are a link to another directory": "result(); link(os.environ['TMPDIR'], ROOM)",
    "its whole directory is a link to another": "result(); link(TOP, ROOM)",
    "an artifact is a link": "result(); link(OUT + '/notes.txt')",
    "an artifact is a hard link": "result(); plant(OUT + '/notes.txt', lambda place: os.link(VICTIM, place))",
    "an artifact is a pipe": "result(); pipe(OUT + '/notes.txt')",
    "an artifact is a file of the kernel's": "result(); link(OUT + '/notes.txt', '/proc/self/environ')",
    "an artifact is as large as a disk": "result(); open(OUT + '/notes.txt', 'w').truncate(1 << 42)",
    "twenty thousand artifacts": "result(); [open(f'{OUT}/ {n}', 'w').close() for n in range(20_000)]",
    "artifacts whose names are no text": """
result()
names = (b"\\xff\\xfe.txt", b"a\\nb.txt", b"\\x1b[2Jx.txt", b".hidden", b"x" * 255, chr(0x202e).encode() + b".exe")
for name in names:
    plant(OUT.encode() + b"/" + name, lambda place: open(place, "w").close())""",
    "an artifact that is a socket": """
result(); import socket; os.chdir(OUT); socket.socket(socket.AF_UNIX).bind('notes.txt')""",
    "a result with extended rights and set-user-id": """
result(); os.chmod(os.environ["TIDEMARK_RUN_JSON"], 0o6777); os.chmod(OUT, 0o7777); os.chmod(TOP + "/home", 0o7777)""",
    "its repository's hooks and settings": """
result(); os.makedirs(".git/hooks", exist_ok=True)
for hook in ("post-checkout", "reference-transaction", "pre-auto-gc"):
    with open(f".git/hooks/{hook}", "w") as file: file.write(f"#!/bin/sh\\nrm -rf {ROOM}\\n")
    os.chmod(f".git/hooks/{hook}", 0o755)
with open(".git/config", "a") as file:
    file.write(f"[core]\\nfsmonitor = rm -rf {ROOM}\\nsshCommand = rm -rf {ROOM}\\n")""",
    "results that nobody may read": "result(); os.chmod(OUT, 0); os.chmod(TOP + '/home', 0)",
    "a thousand directories inside one another": "result()\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')",
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file and a directory that are none of the commit's business."""
    room = tmp_path / "private"
    (room / ".cache").mkdir(parents=True)
    (room / ".cache" / "kept").write_text("kept")
    (room / "secret").write_text("hunter2")
    (room / "secret").chmod(0o600)
    room.chmod(0o700)
    return room / "secret"


def assert_untouched(victim: Path) -> None:
    room = victim.parent
    assert victim.read_text() == "hunter2"
    assert [place.stat().st_uid for place in (victim, room)] == [os.geteuid()] * 2
    assert [place.stat().st_mode & 0o777 for place in (victim, room)] == [0o600, 0o700]
    assert sorted(entry.name for entry in room.iterdir()) == [".cache", "secret"]
    assert (room / ".cache" / "kept").read_text() == "kept"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=list(ATTACKS))
def test_the_run_ends_and_nothing_outside_its_directory_was_touched_or_told(
    untrusted: Any, victim: Path, attack: str
) -> None:
    run = untrusted(tools_against(victim) + attack)
    service, config = untrusted.bench.service, untrusted.bench.config
    assert run["status"] in ("ok", "failed")
    assert_untouched(victim)
    told = b"".join([*service.artifacts.values(), *service.runs.values()])
    # Code that runs as the worker's own user (of a trusted project) reads what that user may.
    assert b"hunter2" not in told or not untrusted.bench.job.sandbox.protects
    assert list(config.runs_dir.iterdir()) == [] and not config.collected_dir.exists()


def test_a_home_that_its_setup_made_a_link_costs_nobody_a_cache(untrusted: Any, victim: Path) -> None:
    setup = f"cd .. && mv home away; ln -s {victim.parent} home; rm -rf home/.cache.new; true"
    untrusted("pass", spec={"setup": setup})
    assert_untouched(victim)


@pytest.mark.parametrize("planted", ["ln -s {victim} leak", "ln {victim} leak; ln {victim} ../home/leak; true"])
def test_what_a_setup_planted_is_not_read_by_keeping_it_for_the_next_run(
    untrusted: Any, victim: Path, planted: str
) -> None:
    look = (
        "import os, sys\nfor place in ('leak', '../home/leak'):\n if os.path.exists(place): print(open(place).read())"
    )
    for _ in range(2):
        run = untrusted(look, spec={"setup": planted.format(victim=victim)})
        assert not untrusted.bench.job.sandbox.protects or "hunter2" not in str(run)
    assert_untouched(victim)
    kept = [path for path in untrusted.bench.config.cache_dir.rglob("leak") if not path.is_symlink()]
    assert not untrusted.bench.job.sandbox.protects or kept == []


# --- the same with the system's own guards out of the way: as if hard links and devices were free for all -------------


@pytest.fixture
def out(tmp_path: Path) -> Path:
    directory = tmp_path / "run" / "out"
    directory.mkdir(parents=True)
    return directory


@needs_root
def test_a_file_of_another_user_is_neither_read_nor_copied_nor_given_away(out: Path, victim: Path) -> None:
    os.link(victim, out / "run.json")
    os.link(victim, out / "notes.txt")
    with opened(out.parent, "out") as directory:
        with pytest.raises(NotOfTheRun, match="belongs to another user"):
            read_file(directory, "run.json", STRANGER, 1000)
        taken, left_out = take_artifacts(directory, STRANGER, out.parent, limit_bytes=1000, total_limit_bytes=1000)
    assert taken == [] and "belongs to another user" in left_out[0]
    os.chown(out, STRANGER.uid, STRANGER.gid)
    with pytest.raises(subprocess.CalledProcessError):
        copy_tree(out, out.parent / "copy", STRANGER)
    with pytest.raises(PermissionError, match="not the worker's to give away"):
        give_to(STRANGER, out)
    assert_untouched(victim)


@needs_root
def test_a_device_is_no_file(out: Path) -> None:
    os.mknod(out / "run.json", 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero
    with opened(out) as directory, pytest.raises(NotOfTheRun, match="is not a file"):
        read_file(directory, "run.json", None, 1000)


def test_a_link_on_the_way_is_not_followed(out: Path, victim: Path) -> None:
    (out / "link").symlink_to(victim.parent)
    with pytest.raises(OSError), opened(out, "link"):
        pass
    with pytest.raises(OSError):
        copy_tree(out / "link", out / "copy")
    remove(out / "link")
    assert_untouched(victim)


def test_swapping_a_file_for_a_link_never_wins_the_race(out: Path, tmp_path: Path, victim: Path) -> None:
    """A process that outlived the command exchanges its artifact for a link and back, as fast as it can."""
    over = threading.Event()
    honest, link, place = out / "a", out / "b", out / "notes.txt"

    def swap() -> None:
        while not over.is_set():
            honest.write_text("honest")
            with suppress(OSError):
                link.symlink_to(victim)
            os.replace(honest, place)
            os.replace(link, place)

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for attempt in range(400):
            into = tmp_path / f"into-{attempt}"
            into.mkdir()
            with opened(out) as directory:
                taken, _ = take_artifacts(directory, None, into, limit_bytes=100, total_limit_bytes=100)
            seen |= {copy.read_text() for copy in taken}
    finally:
        over.set()
        thread.join()
    assert seen <= {"honest", ""}


def test_a_file_that_grows_while_it_is_copied_is_cut_at_the_size_it_had(out: Path, tmp_path: Path) -> None:
    (out / "notes.txt").write_bytes(b"x" * (5 << 20))
    with opened(out) as directory:
        assert copy_file(directory, "notes.txt", None, tmp_path / "copy", 1000) == 1000
    assert (tmp_path / "copy").stat().st_size == 1000


def test_a_directory_swapped_for_a_link_while_it_is_removed_takes_nothing_else_along(out: Path, victim: Path) -> None:
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for act in (
                lambda: os.mkdir(out / "d"),
                lambda: os.rename(out / "d", out / "away"),
                lambda: os.symlink(victim.parent, out / "d"),
                lambda: os.unlink(out / "d"),
                lambda: os.rmdir(out / "away"),
            ):
                with suppress(OSError):
                    act()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(60):
            remove(out)
            with suppress(OSError):
                out.mkdir()
    finally:
        over.set()
        thread.join()
    assert_untouched(victim)


def test_planting_tools_do_what_they_say(tmp_path: Path) -> None:
    """The attacks would prove nothing if their tools failed quietly."""
    victim = tmp_path / "room" / "secret"
    victim.parent.mkdir()
    victim.write_text("x")
    (tmp_path / "out").mkdir()
    program = tools_against(victim) + "link(TOP + '/a'); pipe(TOP + '/b'); link(OUT, ROOM)"
    environment: dict[str, Any] = {**os.environ, "TIDEMARK_RUN_JSON": str(tmp_path / "out" / "run.json")}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert (tmp_path / "a").resolve() == victim and (tmp_path / "b").is_fifo() and (tmp_path / "out").is_symlink()


def test_what_an_ordinary_user_cannot_remove_is_opened_but_nothing_that_it_links_to() -> None:
    """A run in namespaces owns its directory, closes it, and has put a link where its results belong."""
    with tempfile.TemporaryDirectory() as directory:
        room = Path(directory)
        victim, top = room / "victim", room / "run"
        victim.mkdir()
        (victim / "key").write_text("x")
        (victim / "key").chmod(0o400)
        top.mkdir()
        (top / "out").symlink_to(victim)
        for place in (room, victim, victim / "key", top):
            os.chown(place, STRANGER.uid if os.geteuid() == 0 else -1, -1)
        top.chmod(0o500)
        before = os.geteuid()
        if before == 0:
            os.seteuid(STRANGER.uid)
        try:
            remove(top / "out")
            assert (victim / "key").stat().st_mode & 0o777 == 0o400
            remove(top)
            assert not top.exists()
        finally:
            if before == 0:
                os.seteuid(before)


@needs_root
def test_what_was_kept_of_one_run_can_be_given_to_the_next(tmp_path: Path) -> None:
    """Each run has a user of its own, and a copy keeps whose it was."""
    another = RunUser(name="another", uid=STRANGER.uid - 1, gid=STRANGER.gid - 1)
    home, kept, restored = tmp_path / "home", tmp_path / "kept", tmp_path / "restored"
    home.mkdir()
    (home / "built").write_text("x")
    give_to(STRANGER, home)
    copy_tree(home, kept, STRANGER)
    copy_tree(kept, restored)
    give_to(another, restored)
    assert {place.stat().st_uid for place in (restored, restored / "built")} == {another.uid}
