"""Mirrors and checkouts, on real repositories: exactly the commit, nothing of a hostile name, nothing left locked."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from worker.execution.checkout import CheckoutError, CheckoutInterrupted, GitLimits, Mirrors, refuse_unusable, shown_url


@pytest.fixture
def mirrors(tmp_path: Path) -> Mirrors:
    return Mirrors(tmp_path / "mirrors", GitLimits(lock_s=5, fetch_s=30, checkout_s=30))


def only_mirror(mirrors: Mirrors) -> Path:
    (found,) = mirrors.directory.glob("*.git")
    return found


def test_a_checkout_is_exactly_the_commit_and_a_repository_of_its_own(
    mirrors: Mirrors, repository: Any, tmp_path: Path
) -> None:
    first = repository.commit({"model.py": "one"})
    second = repository.commit({"model.py": "two", "new.py": ""})
    for commit, text in ((first, "one"), (second, "two")):
        target = tmp_path / commit
        mirrors.check_out(repository.url, commit, target)
        assert (target / "model.py").read_text() == text
        assert (target / "new.py").exists() == (commit == second)
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=target, capture_output=True, text=True, check=True)
        assert head.stdout.strip() == commit
        assert not (target / ".git" / "objects" / "info" / "alternates").exists()


def test_a_later_commit_is_fetched_into_the_same_mirror(mirrors: Mirrors, repository: Any, tmp_path: Path) -> None:
    mirrors.check_out(repository.url, repository.commit({"a": "1"}), tmp_path / "one")
    later = repository.commit({"a": "2"})
    mirrors.check_out(repository.url, later, tmp_path / "two")
    assert (tmp_path / "two" / "a").read_text() == "2"
    assert only_mirror(mirrors).is_dir()


def test_a_commit_that_was_mirrored_is_had_while_the_repository_is_away(
    mirrors: Mirrors, repository: Any, tmp_path: Path
) -> None:
    commit = repository.commit({"a": "1"})
    mirrors.check_out(repository.url, commit, tmp_path / "one")
    repository.path.rename(tmp_path / "moved")
    mirrors.check_out(repository.url, commit, tmp_path / "two")
    with pytest.raises(CheckoutError, match="git fetch failed"):
        mirrors.check_out(repository.url, "1" * 40, tmp_path / "three")


def test_a_force_pushed_branch_is_followed_and_the_old_commit_still_known(
    mirrors: Mirrors, repository: Any, tmp_path: Path
) -> None:
    repository.commit({"a": "1"})
    dropped = repository.commit({"a": "2"})
    mirrors.check_out(repository.url, dropped, tmp_path / "one")
    repository.git("reset", "--quiet", "--hard", "HEAD~1")
    mirrors.check_out(repository.url, repository.commit({"a": "3"}), tmp_path / "two")
    mirrors.check_out(repository.url, dropped, tmp_path / "three")


def test_a_damaged_mirror_is_made_anew(mirrors: Mirrors, repository: Any, tmp_path: Path) -> None:
    commit = repository.commit({"a": "1"})
    mirrors.check_out(repository.url, commit, tmp_path / "one")
    (only_mirror(mirrors) / "HEAD").write_bytes(b"\0\0\0")
    mirrors.check_out(repository.url, commit, tmp_path / "two")
    (only_mirror(mirrors).with_suffix(".new")).mkdir()
    mirrors.check_out(repository.url, repository.commit({"a": "2"}), tmp_path / "three")


def test_a_repository_of_another_account_can_be_read(mirrors: Mirrors, repository: Any, tmp_path: Path) -> None:
    commit = repository.commit({"a": "1"})
    if os.geteuid() == 0:
        for path in (repository.path, *repository.path.rglob("*")):
            os.chown(path, 58_999, 58_999)
    mirrors.check_out(repository.url, commit, tmp_path / "one")


@pytest.mark.parametrize(
    "url",
    [
        "--upload-pack=touch /tmp/pwned",
        "-oProxyCommand=touch",
        "ext::sh -c touch% /tmp/pwned",
        "ssh://-oProxyCommand=touch/x",
        "git@-oProxyCommand=touch:x",
        "fd::17/foo",
        "file://relative",
        "/plain/path",
        "https://example.org/a\nb",
        "",
    ],
)
def test_an_address_never_becomes_an_option_or_another_protocol(mirrors: Mirrors, tmp_path: Path, url: str) -> None:
    with pytest.raises(CheckoutError, match="not usable"):
        mirrors.check_out(url, "a" * 40, tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("commit", ["--help", "HEAD", "main", "A" * 40, "a" * 39, "a" * 40 + "\n", "../" * 13 + "x"])
def test_only_a_full_commit_id_is_checked_out(commit: str) -> None:
    with pytest.raises(CheckoutError, match="is not a commit id"):
        refuse_unusable("https://example.org/a.git", commit)


@pytest.mark.parametrize(
    "url", ["https://example.org/a.git", "git@github.com:northsea/loom.git", "ssh://git@host:22/x", "file:///srv/x"]
)
def test_ordinary_addresses_are_usable(url: str) -> None:
    refuse_unusable(url, "a" * 40)


def test_a_password_in_an_address_is_not_shown() -> None:
    assert shown_url("https://ada:hunter2@example.org/a.git") == "https://…@example.org/a.git"


def test_submodules_and_hooks_of_a_repository_do_nothing(mirrors: Mirrors, repository: Any, tmp_path: Path) -> None:
    other = repository.path.parent / "other"
    subprocess.run(["git", "init", "--quiet", other], check=True)
    inner = type(repository)(other)
    inner.commit({"inner.txt": "x"})
    repository.git("submodule", "add", "--quiet", other.as_uri(), "vendored")
    hook = repository.path / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    mirrors.check_out(repository.url, repository.commit({"a": "1"}), tmp_path / "one")
    assert list((tmp_path / "one" / "vendored").iterdir()) == []
    assert not (tmp_path / "hooked").exists()


def test_a_mirror_in_use_is_waited_for(mirrors: Mirrors, repository: Any, tmp_path: Path) -> None:
    commits = [repository.commit({"a": str(n)}) for n in range(4)]
    others = [Mirrors(mirrors.directory) for _ in commits]
    threads = [
        threading.Thread(target=other.check_out, args=(repository.url, commit, tmp_path / commit))
        for other, commit in zip(others, commits, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [(tmp_path / commit / "a").read_text() for commit in commits] == ["0", "1", "2", "3"]


def test_a_repository_that_does_not_answer_can_be_given_up(mirrors: Mirrors, tmp_path: Path) -> None:
    import socket

    give_up = threading.Event()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        threading.Timer(0.3, give_up.set).start()
        began = time.monotonic()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.git"
        mirrors.private_hosts = ("127.0.0.1",)
        with pytest.raises(CheckoutInterrupted):
            mirrors.check_out(url, "a" * 40, tmp_path / "one", give_up)
        assert time.monotonic() - began < 60
        mirrors.limits = GitLimits(fetch_s=0.5)
        with pytest.raises(CheckoutError, match="git clone took longer than"):
            mirrors.check_out(url, "a" * 40, tmp_path / "one")
