"""Every real webhook payload of `@octokit/webhooks-examples`, through the endpoint: answered properly, none crashes it.

The payloads are fetched from npm when the test runs and never kept in the repository. Where npm is absent there is
nothing to collect; the run says so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from backend.github.signature import sign

PACKAGE = "@octokit/webhooks-examples@7.6.1"

if shutil.which("npm") is None:  # pragma: no cover - depends on the machine
    print("test_octokit_payloads.py: not collected, because npm is not installed here")
else:

    @pytest.fixture(scope="module")
    def examples(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, dict[str, Any]]]:
        where = tmp_path_factory.mktemp("npm")
        done = subprocess.run(
            ["npm", "pack", "--silent", PACKAGE], cwd=where, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"npm pack {PACKAGE} failed: {done.stderr[-500:]}"
        with tarfile.open(next(Path(where).glob("*.tgz"))) as package:
            member = package.extractfile("package/api.github.com/index.json")
            assert member is not None
            listed = json.load(member)
        return [(entry["name"], example) for entry in listed for example in entry["examples"]]

    def test_every_real_payload_is_answered_and_a_redelivery_changes_nothing(
        live_server: Any, examples: list[tuple[str, dict[str, Any]]]
    ) -> None:
        secret = live_server.config.github_webhook_secret
        with live_server.client("admin") as admin:
            # The repository that most of the examples come from, so that they are acted on.
            made = {
                "project": "Codertocat/Hello-World",
                "repository_url": "https://github.com/Codertocat/Hello-World.git",
            }
            assert admin.post("/api/v1/projects", json=made).status_code in (200, 201)
        outcomes: Counter[str] = Counter()
        with live_server.client() as client:
            for event, payload in examples:
                first, second = deliver(client, secret, event, payload)
                assert first.status_code == second.status_code == 200, f"{event}: {first.text}"
                assert first.json() == second.json()
                outcomes[first.json()["outcome"].split(" ")[0]] += 1
        assert len(examples) > 200 and {event for event, _ in examples} >= {"push", "pull_request", "check_run", "ping"}
        assert outcomes["Codertocat/Hello-World:"] > 10, outcomes

    def deliver(
        client: httpx.Client, secret: str, event: str, payload: dict[str, Any]
    ) -> tuple[httpx.Response, httpx.Response]:
        body = json.dumps(payload).encode()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": str(uuid.uuid4()),
            "X-Hub-Signature-256": sign(secret, body),
        }
        return tuple(client.post("/api/v1/webhooks/github", content=body, headers=headers) for _ in range(2))  # type: ignore[return-value]
