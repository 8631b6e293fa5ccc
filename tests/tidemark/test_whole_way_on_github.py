"""The whole way on GitHub: a push is measured and checked; a pull request that costs 15 % more fails its check and is
told which phase grew; its fix turns the same comment green.

The service, its worker, git, the webhooks and the app's tokens are real; GitHub's API is played by a stand-in that
checks what GitHub checks. The benchmark counts the operations of its own phases and reads a clock that ticks with them,
so no verdict depends on how busy this machine is.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from helpers_tidemark import Background, place, tidemark, until

from tests.backend.github.test_oidc import private_key
from tests.backend.services.github.github_stand_in import StandIn, stand_in
from tests.backend.services.repository.test_sync import Repository
from tidemark.machine import ports

SECRET = "a secret that only GitHub and this service know"
SLUG = "northsea/loom"
HISTORY = 7
PATIENCE_S = 40

MANIFEST = """
[suite.loom]
command = "python bench.py"
testbeds = ["cpu"]
paths = ["*.py", "tidemark.toml"]

[policy]
sustained_runs = 2
"""

BENCH = '''
"""Runs a step of the model in five processes' worth of repetitions, on a clock that ticks once an operation."""
import json, os, random
import model

of = lambda name: os.environ["TIDEMARK_" + name]
chance = random.Random(of("RUN_ID"))
PHASES = ("forward", "backward", "optimizer")
counts = {phase: getattr(model, phase)() for phase in PHASES}

def measured(metric, operations, role):
    processes = sorted(operations / 1000 * (1 + chance.gauss(0, 0.002)) for _ in range(5))
    return {"metric": metric, "unit": "ms", "direction": "lower", "role": role, "value": processes[2],
            "processes": processes}

measurements = [measured("step_ms", sum(counts.values()), "gate")]
measurements += [measured(phase + "_ms", counts[phase], "phase") for phase in PHASES]
measurements.append({"metric": "operations", "unit": "1", "direction": "lower", "role": "watch", "exact": True,
                     "value": sum(counts.values())})
json.dump({
    "schema": "tidemark.run/1", "id": of("RUN_ID"), "project": of("PROJECT"), "commit": of("COMMIT"),
    "branch": of("BRANCH"), "suite": of("SUITE"), "testbed": of("TESTBED"), "worker": of("WORKER"), "status": "ok",
    "environment": {"python": "3.11"},
    "canary": [{"name": "ticks_ms", "before": 1.0, "after": 1.001, "own_noise": 0.002}],
    "results": [{"benchmark": "loom.step", "variant": {"layers": 4}, "preset": "cpu", "status": "ok",
                 "source": "model.py:3", "measurements": measurements}],
}, open(of("RUN_JSON"), "w"))
'''

MODEL = '''"""A model whose phases take so many operations."""

def forward():
    return {forward}

def backward():
    return 6000

def optimizer():
    return 1000
'''


class Hub:
    """GitHub as this service sees it: a repository with pull requests, webhooks, and the API's stand-in."""

    def __init__(self, path: Path, url: str, api: StandIn, token: str) -> None:
        self.repository, self.url, self.api, self.token = Repository(path), url, api, token

    def change(self, message: str, forward: int, **files: str) -> str:
        return self.repository.commit(message, **{"model.py": MODEL.replace("{forward}", str(forward)), **files})

    def pull(self, number: int, message: str, forward: int, *, parent: str = "main") -> str:
        """A commit at the head of a pull request from the repository's own branch `faster`."""
        git = self.repository.git
        git("checkout", "-q", "--detach", parent)
        sha = self.change(message, forward)
        git("update-ref", f"refs/pull/{number}/head", sha)
        git("update-ref", "refs/heads/faster", sha)
        git("checkout", "-q", "main")
        return sha

    def command(self, *arguments: str) -> Any:
        return tidemark(*arguments, TIDEMARK_URL=self.url, TIDEMARK_TOKEN=self.token)

    def say(self, event: str, **payload: Any) -> str:
        """Deliver a webhook as GitHub would; what the service made of it."""
        about = {"repository": {"full_name": SLUG, "clone_url": self.repository.url}, "installation": {"id": 5}}
        raw = json.dumps({**about, "sender": {"login": "ada"}, **payload}).encode()
        signature = "sha256=" + hmac.new(SECRET.encode(), raw, hashlib.sha256).hexdigest()
        headers = {"X-GitHub-Event": event, "X-GitHub-Delivery": str(uuid.uuid4()), "X-Hub-Signature-256": signature}
        return str(self.ask("/api/v1/webhooks/github", raw, headers)["outcome"])

    def say_pull_request(self, action: str, number: int, sha: str) -> str:
        told = {
            "number": number, "title": "Route faster", "state": "open", "user": {"login": "bob"},
            "head": {"sha": sha, "ref": "faster", "repo": {"id": 1}}, "base": {"ref": "main", "repo": {"id": 1}},
            "updated_at": datetime.now(UTC).isoformat(),
        }  # fmt: skip
        return self.say("pull_request", action=action, pull_request=told)

    def ask(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        stated = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data=raw, headers=stated)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def check_of(self, sha: str) -> dict[str, Any]:
        """The newest check run of a commit."""
        found = [check for check in list(self.api.checks.values()) if check["head_sha"] == sha]
        return max(found, key=lambda check: int(check["id"]), default={})

    def comment(self) -> dict[str, Any]:
        return next(iter(self.api.comments.values()), {"body": "", "id": None})

    def state_of(self, sha: str) -> str:
        """All that is known of a commit, for the message of a failed expectation."""
        verdict = self.ask(f"/api/v1/commits/{sha}/verdict?project={SLUG}")
        known = (self.check_of(sha), verdict, self.ask("/api/v1/queue"))
        return json.dumps(known, indent=1)

    def done(self) -> int:
        counts: dict[str, int] = self.ask("/api/v1/queue")["counts"]
        return counts["done"]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with place() as parent, stand_in() as api:
        api.app_public_key = private_key("one").public_key()
        key = parent / "app.pem"
        key.write_bytes(
            private_key("one").private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        port, data = ports.private_port(), parent / "data"
        background = Background(
            [sys.executable, "-P", "-m", "tidemark", "up", "--no-demo", "--data-dir", str(data), "--port", str(port)],
            parent / "log",
            {
                "TIDEMARK_GITHUB_WEBHOOK_SECRET": SECRET, "TIDEMARK_GITHUB_API_URL": api.url, "HOME": str(parent),
                "TIDEMARK_GITHUB_APP_ID": "1", "TIDEMARK_GITHUB_APP_KEY_FILE": str(key),
            },
        )  # fmt: skip
        try:
            background.wait_for("admin token", 90)
            token = (data / "admin-token").read_text().strip()
            yield Hub(parent / "loom", f"http://127.0.0.1:{port}", api, token)
        finally:
            background.end()


def test_a_push_is_checked_a_slow_pull_request_fails_and_its_fix_turns_the_comment_green(hub: Hub) -> None:
    hub.change("A model", 3000, **{"bench.py": BENCH, "tidemark.toml": MANIFEST})
    for number in range(1, HISTORY):
        hub.repository.commit(f"Harmless, number {number}", **{"version.py": f"VERSION = {number}\n"})
    added = hub.command("project", "add", SLUG, str(hub.repository.path), "--trusted")
    assert added.returncode == 0, added.stderr
    assert hub.say("ping", zen="…") == "pong"
    head = hub.repository.git("rev-parse", "main")
    assert hub.say("push", ref="refs/heads/main", after=head) == f"{SLUG}: synchronising"
    assert until(lambda: hub.done() == HISTORY, PATIENCE_S), hub.ask("/api/v1/queue")
    assert until(lambda: hub.check_of(head).get("conclusion") == "success", 30), hub.check_of(head)

    slow = hub.pull(7, "Route twice", 4500)
    assert "runs dropped" in hub.say_pull_request("opened", 7, slow)
    assert until(lambda: hub.check_of(slow).get("conclusion") == "failure", PATIENCE_S), hub.state_of(slow)
    slower = re.compile(r"### ▼ 1[45]\.\d % slower: loom\.step layers=4 step\\_ms")
    assert until(lambda: bool(slower.search(hub.comment()["body"])), 30), hub.comment()["body"]
    told = dict(hub.comment())
    assert re.search(r"\*\*Where it went:\*\* forward \+1\.\d+ ms \((9\d|100) %\)", told["body"]), told["body"]
    assert "**Not the machine:** canary steady (±0.0 %), same environment on both sides" in told["body"]
    (annotation,) = [it for it in hub.check_of(slow)["output"]["annotations"] if "step_ms" in it["message"]]
    assert (annotation["path"], annotation["start_line"], annotation["annotation_level"]) == ("model.py", 3, "failure")
    verdict = hub.ask(f"/api/v1/commits/{slow}/verdict?project={SLUG}")
    assert verdict["verdict"] == "regression", "the API says what the check says"

    fixed = hub.pull(7, "Route once", 3000, parent=slow)
    hub.say_pull_request("synchronize", 7, fixed)
    assert until(lambda: hub.check_of(fixed).get("conclusion") == "success", PATIENCE_S), hub.check_of(fixed)
    assert until(lambda: f"### ▲ fixed by {fixed[:7]}" in hub.comment()["body"], 30), hub.comment()
    assert hub.comment()["id"] == told["id"] and len(hub.api.comments) == 1, "the comment is changed in its place"
    assert hub.check_of(slow)["conclusion"] == "failure", "what was said of the slow commit stays"
    assert not hub.api.complaints
    assert f"events from GitHub   {SLUG}" in hub.command("github", "settings", SLUG).stdout
