"""The main job from end to end: a signed push arrives, workers measure, the judge judges, an open page turns red.

Everything is real: the supervised service, a git repository, a worker that checks out every commit and runs its
benchmark, GitHub's signature, Chromium. The benchmark counts the calls it makes, so that the verdict does not depend on
how busy this machine is.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_tidemark import Background, place, until
from playwright.sync_api import Browser, Page, expect

from tidemark.machine import ports

SECRET = "a secret that only GitHub and this service know"
SLUG = "northsea/words"

MANIFEST = """
[suite.words]
command = "python bench.py"
testbeds = ["cpu"]
paths = ["*.py", "tidemark.toml"]
"""

BENCH = '''
"""Counts the calls that splitting a text takes, and writes what it found for Tidemark."""
import json, os, sys
from words import split

calls = 0

def count(frame, event, argument):
    global calls
    calls += event == "call"

sys.setprofile(count)
split("tide mark " * 50)
sys.setprofile(None)
of = lambda name: os.environ["TIDEMARK_" + name]
json.dump({
    "schema": "tidemark.run/1", "id": of("RUN_ID"), "project": of("PROJECT"), "commit": of("COMMIT"),
    "branch": of("BRANCH"), "suite": of("SUITE"), "testbed": of("TESTBED"), "worker": of("WORKER"), "status": "ok",
    "results": [{"benchmark": "words.split", "variant": {"text": "short"}, "status": "ok", "measurements": [
        {"metric": "calls", "unit": "1", "direction": "lower", "role": "gate", "value": calls, "exact": True}]}],
}, open(of("RUN_JSON"), "w"))
'''

FAST = """
def clean(word):
    return word.strip()

def split(text):
    return [clean(word) for word in text.split()]
"""
SLOW = (
    FAST.replace("return word.strip()", "return once_more(word.strip())")
    + """
def once_more(word):
    return word.strip()
"""
)


class Repository:
    """A repository on disk whose pushes GitHub would announce."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self._git("init", "--quiet", "--initial-branch=main")

    def commit(self, message: str, **files: str) -> str:
        for name, content in files.items():
            (self.path / name.replace("__", ".")).write_text(content)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", f"--message={message}")
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Ines Farrow", "-c", "user.email=ines@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.path, capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout


class Running:
    """The service, as its address and its admin's token."""

    def __init__(self, url: str, data: Path, said: str) -> None:
        self.url = url
        self.token = (data / "admin-token").read_text().strip()
        self.sign_in = re.search(r"\S+/sign-in/\S+", said)

    def ask(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        stated = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data=raw, headers=stated)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def push(self, head: str, secret: str = SECRET) -> Any:
        """What GitHub sends after a push, signed with this secret."""
        payload = {
            "ref": "refs/heads/main", "after": head,
            "repository": {"full_name": SLUG, "clone_url": f"https://github.com/{SLUG}.git"},
        }  # fmt: skip
        raw = json.dumps(payload).encode()
        signature = "sha256=" + hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()
        return self.ask(
            "/api/v1/webhooks/github",
            raw,
            {"X-GitHub-Event": "push", "X-GitHub-Delivery": str(uuid.uuid4()), "X-Hub-Signature-256": signature},
        )


@pytest.fixture
def service() -> Iterator[tuple[Running, Path]]:
    with place() as parent:
        port, data = ports.private_port(), parent / "data"
        background = Background(
            [sys.executable, "-P", "-m", "tidemark", "up", "--no-demo", "--data-dir", str(data), "--port", str(port)],
            parent / "log",
            {"TIDEMARK_GITHUB_WEBHOOK_SECRET": SECRET, "HOME": str(parent)},
        )
        try:
            background.wait_for("admin token", 90)
            yield Running(f"http://127.0.0.1:{port}", data, background.said), parent
        finally:
            background.end()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context() as context:
        yield context.new_page()


@pytest.mark.browser
def test_a_signed_push_of_a_slow_commit_turns_its_cell_red_on_an_open_page(
    service: tuple[Running, Path], page: Page
) -> None:
    running, parent = service
    repository = Repository(parent / "words")
    first = repository.commit("Split a text", words__py=FAST, bench__py=BENCH, tidemark__toml=MANIFEST)
    registered = {"project": SLUG, "repository_url": repository.path.as_uri(), "trusted": True}
    running.ask("/api/v1/projects", registered)
    assert until(lambda: done(running) == 1, 60), running.ask("/api/v1/queue")

    page.goto(f"{running.url}/board?project={SLUG}")
    expect(page.locator(f"tr[data-c='{first}']")).to_be_visible()

    for number in range(4):
        repository.commit(f"Harmless, number {number}", words__py=FAST + f"\nVERSION = {number}\n")
    documentation = repository.commit("Say what this is", README__md="Splits words.")
    guilty = repository.commit("Be careful with spaces", words__py=SLOW)
    repository.commit("Harmless again", words__py=SLOW + "\nVERSION = 5\n")
    head = repository.commit("And again", words__py=SLOW + "\nVERSION = 6\n")

    with pytest.raises(urllib.error.HTTPError, match="401"):
        running.push(head, secret="a guess")
    assert "synchronising" in json.dumps(running.push(head))
    assert until(lambda: done(running) == 8, 120), running.ask("/api/v1/queue")

    # Nobody reloads the page: new commits collect above the grid, the cell turns red by itself.
    red = page.locator(f"tr[data-c='{guilty}'] td.vc.r")
    fresh = page.get_by_role("button", name=re.compile("new commit"))
    expect(red.or_(fresh).first).to_be_visible(timeout=20_000)
    if fresh.is_visible():
        fresh.click()
    expect(red).to_be_visible(timeout=20_000)
    expect(page.locator(f"tr[data-c='{documentation}'] td.vc.r")).to_have_count(0)

    (regression,) = running.ask(f"/api/v1/regressions?project={SLUG}&state=confirmed")["items"]
    assert (regression["commit"], regression["cause"]) == (guilty, "code")
    red.locator("a").first.click()
    expect(page.locator("h1")).to_contain_text(guilty[:7])
    expect(page.locator("h1")).to_contain_text("more since")
    expect(page.locator("h1")).to_contain_text("the cause is code")


def done(running: Running) -> int:
    counts: dict[str, int] = running.ask("/api/v1/queue")["counts"]
    return counts["done"]
