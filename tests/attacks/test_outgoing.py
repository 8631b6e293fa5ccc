"""A project names a repository that is none: this machine, the network behind it, the address where a cloud hands out
credentials, an option of ssh."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from backend.outgoing import AddressRefused, Way, target_of, way_to
from backend.services.repository.mirror import GitFailure, Mirror
from worker.execution.checkout import CheckoutError, Mirrors

NOT_PUBLIC = [
    "https://127.0.0.1/a.git",
    "https://127.1/a.git",
    "https://2130706433/a.git",
    "https://0x7f000001/a.git",
    "https://0/a.git",
    "https://localhost/a.git",
    "https://localhost./a.git",
    "https://[::1]/a.git",
    "https://[::ffff:127.0.0.1]/a.git",
    "https://[2002:7f00:1::]/a.git",
    "https://[fe80::1]/a.git",
    "https://[fec0::1]/a.git",
    "https://[::127.0.0.1]/a.git",
    "https://[64:ff9b::7f00:1]/a.git",
    "https://[64:ff9b::a9fe:a9fe]/a.git",
    "https://168.63.129.16/machine",
    "https://[fd00:ec2::254]/a.git",
    "https://169.254.169.254/latest/meta-data",
    "http://169.254.169.254/latest/meta-data",
    "https://10.0.0.1/a.git",
    "https://172.16.0.1/a.git",
    "https://192.168.1.1/a.git",
    "https://100.64.0.1/a.git",
    "https://224.0.0.1/a.git",
    "ssh://git@127.0.0.1/a.git",
    "git@127.0.0.1:a.git",
    "https://user@127.0.0.1:5432/a.git",
    "https://github.com@127.0.0.1/a.git",
]

OPTIONS = [
    "ssh://-oProxyCommand=touch%20pwned/a",
    "ssh://-oProxyCommand=x@example.org/a",
    "ssh://git@-oProxyCommand=x/a",
    "-oProxyCommand=x:a",
    "git@-oProxyCommand=x:a",
    "-u@example.org:a",
    "--upload-pack=touch pwned",
    "ext::sh -c touch% pwned",
    "fd::17",
    "https://exa mple.org/a",
    "https://example.org\n/a",
    "https://[/a",
    "https://example.org:99999/a",
    "https:///a",
    "file://elsewhere/a",
    "gopher://127.0.0.1/a",
    "git://127.0.0.1/a.git",
    "git://example.org/a.git",
]


@pytest.mark.parametrize("url", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused(url: str) -> None:
    with pytest.raises(AddressRefused, match=r"not public|has no address"):
        way_to(url)


@pytest.mark.parametrize("url", OPTIONS)
def test_what_could_become_an_option_or_a_command_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(AddressRefused):
        target_of(url)
    with pytest.raises(CheckoutError, match="not usable"):
        Mirrors(tmp_path / "mirrors").check_out(url, "a" * 40, tmp_path / "target")
    with pytest.raises(GitFailure):
        Mirror(tmp_path / "1.git", url, trusted=True, timeout_s=5).fetch()
    assert not list(tmp_path.rglob("pwned"))


def test_what_an_operator_allows_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    assert way_to("https://127.0.0.1/a", ["127.0.0.0/8"]).settings["http.followRedirects"] == "false"
    assert way_to("https://git.corp.example/a", ["git.corp.example"])
    with pytest.raises(AddressRefused):
        way_to("https://127.0.0.1/a", ["10.0.0.0/8", "git.corp.example"])
    assert way_to("file:///srv/a.git") == Way()


def test_a_name_that_answers_otherwise_a_moment_later_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rebinding: git is told the addresses that were looked at. One private address among public ones is enough."""
    answers = ["192.0.43.8"]

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert way_to("https://rebind.example/a").settings["http.curloptResolve"] == "rebind.example:443:192.0.43.8"
    pinned = ("-oHostName=192.0.43.8", "-oHostKeyAlias=rebind.example")
    assert way_to("ssh://git@rebind.example/a").ssh_options == way_to("git@rebind.example:a").ssh_options == pinned
    answers.append("169.254.169.254")
    with pytest.raises(AddressRefused, match=r"169\.254\.169\.254, an address that is not public"):
        way_to("https://rebind.example/a")


@contextmanager
def server(location: str | None = None) -> Iterator[tuple[int, list[str]]]:
    """A web server of this machine, which redirects if told to; its port, and what was asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404 if location is None else 302)
            if location is not None:
                self.send_header("Location", location)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield running.server_address[1], asked
        running.shutdown()


def test_neither_service_nor_worker_asks_a_server_of_this_machine(tmp_path: Path) -> None:
    with server() as (port, asked):
        url = f"http://127.0.0.1:{port}/a.git"
        with pytest.raises(CheckoutError, match="an address that is not public"):
            Mirrors(tmp_path / "mirrors").check_out(url, "a" * 40, tmp_path / "target")
        with pytest.raises(GitFailure, match="an address that is not public"):
            Mirror(tmp_path / "1.git", url, trusted=True, timeout_s=5).fetch()
        with pytest.raises(GitFailure, match="an address that is not public"):
            Mirror(tmp_path / "1.git", url, trusted=True, timeout_s=5).fetch_pull_request(1)
        assert asked == []


def test_a_redirect_leads_nowhere(tmp_path: Path) -> None:
    with server() as (inner, asked_inside), server(f"http://127.0.0.1:{inner}/secret") as (outer, asked):
        mirrors = Mirrors(tmp_path / "mirrors", private_hosts=("127.0.0.1",))
        with pytest.raises(CheckoutError):
            mirrors.check_out(f"http://127.0.0.1:{outer}/a.git", "a" * 40, tmp_path / "target")
        assert asked and asked_inside == []


def test_ssh_goes_to_the_address_that_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ssh is called with, by git; and where the real ssh would go with that, and whose key it would expect."""
    told = tmp_path / "told"
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" > {told}\nexit 1\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
    url = "ssh://git@192.0.43.8:2222/a.git"
    with pytest.raises(CheckoutError):
        Mirrors(tmp_path / "mirrors").check_out(url, "a" * 40, tmp_path / "target")
    assert "-oHostName=192.0.43.8" in told.read_text().split()
    options = way_to(url).ssh_options
    real = shutil.which("ssh")
    if real is not None:
        asked = subprocess.run([real, "-G", *options, "-p2222", "h"], capture_output=True, text=True, check=True)
        assert {"hostname 192.0.43.8", "hostkeyalias [192.0.43.8]:2222"} <= set(asked.stdout.lower().splitlines())


def test_the_service_reaches_ssh_by_the_pinned_address_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" > {told}\nexit 1\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(GitFailure):
        Mirror(tmp_path / "1.git", "git@192.0.43.8:a.git", trusted=False, timeout_s=20).fetch()
    assert "-oHostName=192.0.43.8" in told.read_text().split()
