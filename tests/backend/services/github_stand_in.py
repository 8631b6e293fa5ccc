"""Plays GitHub's REST API: checks what GitHub checks, keeps what is written, and serves the odd refusal."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKENS = {"Bearer a-plain-token", "Bearer an-installation-token"}
# What GitHub requires of each body: field -> accepted type; a trailing "?" marks what may be left out.
BODIES: dict[str, dict[str, type]] = {
    "check-runs": {
        "name": str, "head_sha": str, "status": str, "output": dict, "conclusion?": str, "details_url?": str,
        "external_id?": str,
    },
    "statuses": {"state": str, "description?": str, "context?": str, "target_url?": str},
    "comments": {"body": str},
}  # fmt: skip
CONCLUSIONS = {"success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required"}


@dataclass
class StandIn:
    """What was written, and what goes wrong next: (status, headers, body) for each coming request."""

    url: str = ""
    checks: dict[int, dict[str, Any]] = field(default_factory=dict)
    statuses: list[dict[str, Any]] = field(default_factory=list)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    trouble: list[tuple[int, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    app_tokens_sold: int = 0
    _next: int = 100

    def answer(  # noqa: PLR0911 -- a table of routes
        self, method: str, address: str, headers: Any, body: Any
    ) -> tuple[int, dict[str, str], Any]:
        path = address.partition("?")[0]
        self.requests.append((method, path))
        if re.fullmatch(r"/app/installations/\d+/access_tokens", path):
            self.app_tokens_sold += 1
            return 201, {}, {"token": "an-installation-token", "expires_at": "2099-01-01T00:00:00Z"}
        if self.trouble:
            return self.trouble.pop(0)
        if headers.get("Authorization") not in TOKENS:
            return 401, {}, {"message": "Bad credentials"}
        if "github" not in headers.get("Accept", "") or not headers.get("User-Agent"):
            return 403, {}, {"message": "Request forbidden by administrative rules"}
        parts = path.strip("/").split("/")
        if parts[:3] != ["repos", "northsea", "loom"]:
            return 404, {}, {"message": "Not Found"}
        wrong = self._wrong(method, parts[3], parts[-2] if method == "PATCH" else parts[-1], body)
        if wrong:
            return 422, {}, {"message": "Validation Failed", "errors": [wrong]}
        match method, parts[3:]:
            case "POST", ["check-runs"]:
                return 201, {}, self._keep(self.checks, body)
            case "PATCH", ["check-runs", number] if int(number) in self.checks:
                self.checks[int(number)] |= body
                return 200, {}, self.checks[int(number)]
            case "POST", ["statuses", sha]:
                self.statuses.append({"sha": sha, **body})
                return 201, {}, {"id": len(self.statuses)}
            case "GET", ["issues", _, "comments"]:
                return 200, {}, list(self.comments.values())
            case "POST", ["issues", _, "comments"]:
                return 201, {}, self._keep(self.comments, body)
            case "PATCH", ["issues", "comments", number] if int(number) in self.comments:
                self.comments[int(number)] |= body
                return 200, {}, self.comments[int(number)]
        return 404, {}, {"message": "Not Found"}

    def _wrong(self, method: str, kind: str, last: str, body: Any) -> str | None:
        if method == "GET":
            return None
        rules = BODIES["comments" if kind == "issues" else kind]
        required = {name for name in rules if not name.endswith("?")} if method == "POST" else set()
        known = {name.rstrip("?"): accepted for name, accepted in rules.items()}
        for name in required - set(body):
            return f"{name} is missing"
        for name, value in body.items():
            if not isinstance(value, known.get(name, ())):
                return f"{name} is not accepted"
        if "status" in body and (body["status"] == "completed") != ("conclusion" in body):
            return "conclusion goes with completed, and only with it"
        if body.get("conclusion", "success") not in CONCLUSIONS or len(body.get("description", "")) > 140:
            return "conclusion or description"
        return None

    def _keep(self, where: dict[int, dict[str, Any]], body: dict[str, Any]) -> dict[str, Any]:
        self._next += 1
        where[self._next] = {"id": self._next, **body}
        return where[self._next]


@contextmanager
def stand_in() -> Iterator[StandIn]:
    played = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            status, headers, said = played.answer(self.command, self.path, self.headers, body)
            content = json.dumps(said).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = _serve

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    played.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield played
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
