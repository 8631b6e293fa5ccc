"""Plays GitHub's REST API: checks what GitHub checks, keeps what is written, and serves the odd refusal.

Every request must be authorised (an app's short JWT buys an installation token; its signature, issuer and life are
checked), name the API version and a user agent. Bodies are held against a few rules of our own, and against GitHub's
published description where a test provides it (`github_openapi.py`). Lists come in pages, every answer has the headers
of the rate limit, and content written faster than GitHub allows meets the secondary limit.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

PLAIN, INSTALLATION = "a-plain-token", "an-installation-token"
TOKENS = {f"Bearer {PLAIN}", f"Bearer {INSTALLATION}"}
APP_LIFE_S = 600
APP_PERMISSIONS = {
    "checks": "write", "pull_requests": "write", "issues": "write", "contents": "read", "metadata": "read",
}  # fmt: skip
CONCLUSIONS = {"success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required"}
REACTIONS = {"+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"}

# How GitHub tells who wrote a comment or an issue.
BY_APP: dict[str, Any] = {
    "user": {"login": "tidemark[bot]", "type": "Bot"}, "author_association": "NONE",
    "performed_via_github_app": {"id": 1, "client_id": "Iv1.abc"},
}  # fmt: skip
BY_OWNER: dict[str, Any] = {
    "user": {"login": "ada", "type": "User"}, "author_association": "OWNER", "performed_via_github_app": None,
}  # fmt: skip
BY_STRANGER: dict[str, Any] = {
    "user": {"login": "eve", "type": "User"}, "author_association": "CONTRIBUTOR", "performed_via_github_app": None,
}  # fmt: skip

Answer = tuple[int, dict[str, str], Any]
# What GitHub requires of each body: field -> accepted type; a trailing "?" marks what may be left out.
BODIES: dict[str, dict[str, type]] = {
    "check-runs": {
        "name": str, "head_sha": str, "status": str, "output": dict, "conclusion?": str, "details_url?": str,
        "external_id?": str,
    },
    "statuses": {"state": str, "description?": str, "context?": str, "target_url?": str},
    "comments": {"body": str},
    "reactions": {"content": str},
    "issues": {"title": str, "body?": str, "labels?": list, "state?": str, "state_reason?": str},
}  # fmt: skip


@dataclass
class StandIn:
    """What was written, and what goes wrong next: (status, headers, body) for each coming request."""

    url: str = ""
    repository: str = "northsea/loom"
    app_public_key: Any = None
    """Of the app; without it any JWT buys a token."""
    app_permissions: dict[str, str] = field(default_factory=lambda: dict(APP_PERMISSIONS))
    permissions: dict[str, str] = field(default_factory=dict)
    """What people may do: login -> admin, maintain, write, triage, read."""
    validate: Callable[[str, str, Any], str | None] | None = None
    """What GitHub's published description says against a body, if anything."""
    most_writes: int = 1_000
    """Content written beyond this meets the secondary limit, until `forgive` is called."""
    page_size: int = 100
    checks: dict[int, dict[str, Any]] = field(default_factory=dict)
    statuses: list[dict[str, Any]] = field(default_factory=list)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    said: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Comments of people."""
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    issues: dict[int, dict[str, Any]] = field(default_factory=dict)
    reactions: list[tuple[int, str]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Every body that was refused, with the reason."""
    trouble: list[Answer] = field(default_factory=list)
    app_tokens_sold: int = 0
    _next: int = 100
    _author: dict[str, Any] = field(default_factory=dict)
    _written: int = 0

    def answer(self, method: str, address: str, headers: Any, body: Any) -> Answer:
        """The answer, with the headers of the rate limit on it."""
        status, more, said = self._answer(method, address, headers, body)
        limits = {
            "X-RateLimit-Limit": "5000",
            "X-RateLimit-Remaining": str(max(0, 5000 - len(self.requests))),
            "X-RateLimit-Reset": str(int(time.time()) + 3600),
            "X-RateLimit-Resource": "core",
        }
        return status, {**limits, **more}, said

    def forgive(self) -> None:
        """The minute is over."""
        self._written = 0

    def _answer(self, method: str, address: str, headers: Any, body: Any) -> Answer:  # noqa: PLR0911 -- doors in a row
        path = urlsplit(address).path
        self.requests.append((method, path))
        if re.fullmatch(r"/app/installations/\d+/access_tokens", path):
            return self._sell_token(headers)
        if path == "/app":
            wrong = self._wrong_app(headers)
            about = {"id": 1, "name": "T", "permissions": self.app_permissions}
            return (401, {}, {"message": wrong}) if wrong else (200, {}, about)
        if self.trouble:
            return self.trouble.pop(0)
        if headers.get("Authorization") not in TOKENS:
            return 401, {}, {"message": "Bad credentials"}
        if "github" not in headers.get("Accept", "") or not headers.get("User-Agent"):
            return 403, {}, {"message": "Request forbidden by administrative rules"}
        if headers.get("X-GitHub-Api-Version") != "2022-11-28":
            return 400, {}, {"message": "that version of the API is not supported"}
        if path == "/rate_limit":
            return 200, {}, {"rate": {"limit": 5000}}
        if not path.startswith(f"/repos/{self.repository}"):
            return 404, {}, {"message": "Not Found"}
        parts = path.removeprefix(f"/repos/{self.repository}").strip("/").split("/")
        wrong = self._wrong(method, path, parts, body)
        if wrong:
            self.complaints.append(f"{method} {path}: {wrong}")
            return 422, {}, {"message": "Validation Failed", "errors": [wrong]}
        if method in ("POST", "PATCH"):
            self._written += 1
            if self._written > self.most_writes:
                message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
                return 403, {"Retry-After": "60"}, {"message": message}
        if parts == ["check-runs"] and headers.get("Authorization") != f"Bearer {INSTALLATION}":
            return 403, {}, {"message": "You must authenticate via a GitHub App."}
        self._author = BY_APP if headers.get("Authorization") == f"Bearer {INSTALLATION}" else BY_OWNER
        return self._route(method, parts, parse_qs(urlsplit(address).query), body)

    def _route(self, method: str, parts: list[str], query: dict[str, list[str]], body: Any) -> Answer:  # noqa: C901, PLR0911
        match method, parts:
            case "GET", [""]:
                return 200, {}, {"full_name": self.repository, "permissions": {"push": True}}
            case "POST", ["check-runs"]:
                return 201, {}, self._keep(self.checks, body)
            case "PATCH", ["check-runs", number] if int(number) in self.checks:
                return 200, {}, self._change(self.checks, int(number), body)
            case "POST", ["statuses", sha]:
                self.statuses.append({"sha": sha, **body})
                return 201, {}, {"id": len(self.statuses)}
            case "GET", ["issues", number, "comments"]:
                return self._page([it for it in self.comments.values() if it["issue"] == int(number)], parts, query)
            case "POST", ["issues", number, "comments"]:
                return 201, {}, self._keep(self.comments, {**body, **self._author, "issue": int(number)})
            case "GET", ["issues", "comments", number] if int(number) in self.said:
                return 200, {}, self.said[int(number)]
            case "GET", ["pulls", number] if int(number) in self.pulls:
                return 200, {}, self.pulls[int(number)]
            case "PATCH", ["issues", "comments", number] if int(number) in self.comments:
                return 200, {}, self._change(self.comments, int(number), body)
            case "POST", ["issues", "comments", number, "reactions"]:
                self.reactions.append((int(number), body["content"]))
                return 201, {}, {"id": 1, **body}
            case "GET", ["issues"]:
                return self._page(list(self.issues.values()), parts, query)
            case "POST", ["issues"]:
                made = self._keep(self.issues, {"state": "open", **self._author, **body})
                made["number"] = made["id"]
                return 201, {}, made
            case "PATCH", ["issues", number] if int(number) in self.issues:
                return 200, {}, self._change(self.issues, int(number), body)
            case "GET", ["collaborators", login, "permission"] if login in self.permissions:
                return 200, {}, {"permission": self.permissions[login], "role_name": self.permissions[login]}
        return 404, {}, {"message": "Not Found"}

    def _sell_token(self, headers: Any) -> Answer:
        wrong = self._wrong_app(headers)
        if wrong:
            return 401, {}, {"message": wrong}
        self.app_tokens_sold += 1
        return 201, {}, {"token": INSTALLATION, "expires_at": "2099-01-01T00:00:00Z"}

    def _wrong_app(self, headers: Any) -> str | None:
        """What GitHub has against the app's JWT."""
        token = headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            claims = self._claims_of(token)
        except (JoseError, ValueError) as error:
            return f"A JSON web token could not be decoded: {error}"
        if not time.time() < claims["exp"] <= time.time() + APP_LIFE_S:
            return "'Expiration time' claim ('exp') is too far in the future"
        return None if claims["iat"] <= time.time() else "'Issued at' claim ('iat') must be an Integer in the past"

    def _claims_of(self, token: str) -> dict[str, Any]:
        """What the app's JWT states; verified where its public key is known."""
        if self.app_public_key is None:
            claims = json.loads(jws.extract_compact(token.encode()).payload or b"")
        else:
            claims = jwt.decode(token, RSAKey.import_key(self.app_public_key), algorithms=["RS256"]).claims
        jwt.JWTClaimsRegistry(**{name: {"essential": True} for name in ("iat", "exp", "iss")}).validate(claims)
        return dict(claims)

    def _wrong(self, method: str, path: str, parts: list[str], body: Any) -> str | None:
        if method == "GET":
            return None
        said = None if self.validate is None else self.validate(method, path, body)
        if said:
            return said
        kind = next((part for part in reversed(parts) if part in BODIES), None)
        if kind is None or not isinstance(body, dict):
            return f"nothing is accepted here: {parts}"
        rules = BODIES[kind]
        required = {name for name in rules if not name.endswith("?")} if method == "POST" else set()
        known = {name.rstrip("?"): accepted for name, accepted in rules.items()}
        for name in required - set(body):
            return f"{name} is missing"
        for name, value in body.items():
            if not isinstance(value, known.get(name, ())):
                return f"{name} is not accepted"
        return self._wrong_content(kind, body)

    def _wrong_content(self, kind: str, body: dict[str, Any]) -> str | None:  # noqa: PLR0911 -- a list of rules
        if kind == "check-runs" and (body.get("status") == "completed") != ("conclusion" in body):
            return "conclusion goes with completed, and only with it"
        if body.get("conclusion", "success") not in CONCLUSIONS:
            return "conclusion"
        if len(body.get("description", "")) > 140 or len(body.get("body", "")) > 65_536:
            return "description or body is too long"
        if len(body.get("output", {}).get("annotations", ())) > 50:
            return "at most 50 annotations"
        if kind == "reactions" and body["content"] not in REACTIONS:
            return "content"
        if kind == "issues" and body.get("state", "open") not in ("open", "closed"):
            return "state"
        return None

    def _page(self, items: list[dict[str, Any]], parts: list[str], query: dict[str, list[str]]) -> Answer:
        size = min(int(query.get("per_page", ["30"])[0]), self.page_size)
        number = int(query.get("page", ["1"])[0])
        shown = items[(number - 1) * size : number * size]
        if number * size >= len(items):
            return 200, {}, shown
        more = f"{self.url}/repos/{self.repository}/{'/'.join(parts)}?per_page={size}&page={number + 1}"
        return 200, {"Link": f'<{more}>; rel="next"'}, shown

    def _keep(self, where: dict[int, dict[str, Any]], body: dict[str, Any]) -> dict[str, Any]:
        self._next += 1
        where[self._next] = {"id": self._next, **body}
        return where[self._next]

    def _change(self, where: dict[int, dict[str, Any]], number: int, body: dict[str, Any]) -> dict[str, Any]:
        where[number] |= body
        return where[number]


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
