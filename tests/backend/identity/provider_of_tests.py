"""A provider that people sign in by, on a port of its own: OpenID Connect with tokens that are really signed, and the
part of GitHub that signs people in. `broken` names what it does wrong."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

CLIENT_ID, CLIENT_SECRET = "tidemark", "a secret of the provider of the tests"


@dataclass
class TestProvider:
    """Who signs in next, and what goes wrong."""

    __test__ = False

    url: str = ""
    subject: str = "248289761001"
    claims: dict[str, Any] = field(
        default_factory=lambda: {"email": "Ada@Example.org", "email_verified": True, "name": "Ada Lovelace"}
    )
    user: dict[str, Any] = field(default_factory=lambda: {"id": 7, "login": "Ada", "name": "Ada Lovelace"})
    broken: str = ""
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one", "use": "sig"}))
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    seen: list[dict[str, str]] = field(default_factory=list)

    def metadata(self) -> dict[str, Any]:
        issuer = self.url if self.broken != "issuer of the metadata" else "https://elsewhere.example"
        endpoints = {
            f"{name}_endpoint": f"{self.url}/{path}"
            for name, path in (("authorization", "authorize"), ("token", "token"), ("userinfo", "userinfo"))
        }
        return {"issuer": issuer, "jwks_uri": f"{self.url}/jwks", **endpoints}

    def begin(self, asked: dict[str, str]) -> str:
        """The address that the browser is sent back to: everybody is signed in at once."""
        self.seen.append(asked)
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        back = {"code": code, "state": asked["state"] if self.broken != "state" else "another"}
        if self.broken == "denied":
            back = {"error": "access_denied", "state": asked["state"]}
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    def redeem(self, form: dict[str, str]) -> dict[str, str] | None:
        """What the code was given for, if it is redeemed by who asked for it, and for the first time."""
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or asked["redirect_uri"] != form.get("redirect_uri"):
            return None
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return asked if challenge == asked.get("code_challenge") else None

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT_ID, "sub": self.subject, "iat": now, "exp": now + 300, "nonce": nonce}
        claims |= self.claims
        wrong: dict[str, dict[str, Any]] = {
            "nonce": {"nonce": "another"},
            "no nonce": {"nonce": None},
            "audience": {"aud": "somebody-else"},
            "audiences": {"aud": [CLIENT_ID, "somebody-else"], "azp": "somebody-else"},
            "issuer": {"iss": "https://elsewhere.example"},
            "expired": {"iat": now - 900, "exp": now - 600},
            "not yet": {"nbf": now + 600},
            "nobody": {"sub": ""},
        }
        claims = {name: value for name, value in (claims | wrong.get(self.broken, {})).items() if value is not None}
        if self.broken == "signed with the client's secret":
            return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(CLIENT_SECRET), algorithms=["HS256"])
        if self.broken == "not signed":
            parts = ({"alg": "none"}, claims)
            encoded = (base64.urlsafe_b64encode(json.dumps(it).encode()).rstrip(b"=").decode() for it in parts)
            return f"{'.'.join(encoded)}."
        key = RSAKey.generate_key(2048, {"kid": "one"}) if self.broken == "another key" else self.key
        return jwt.encode({"alg": "RS256", "kid": str(key.kid)}, claims, key, algorithms=["RS256"])


def _handler(provider: TestProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, document: Any, status: int = 200) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            split = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(split.query).items()}
            bearer = self.headers.get("Authorization")
            match split.path:
                case "/.well-known/openid-configuration":
                    self.answer(provider.metadata())
                case "/jwks":
                    self.answer({"keys": [provider.key.as_dict(private=False)]})
                case "/authorize" | "/login/oauth/authorize":
                    self.send_response(302)
                    self.send_header("Location", provider.begin(query))
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                case "/userinfo" if bearer == "Bearer access":
                    self.answer({"sub": provider.subject, "email": "told@example.org", "email_verified": True})
                case "/api/v3/user" if bearer == "Bearer access":
                    self.answer(provider.user)
                case _:
                    self.answer({"error": "not_found"}, 404)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".replace(" ", "+").encode()).decode()
            plain = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
            known = self.headers.get("Authorization") in (f"Basic {basic}", f"Basic {plain}")
            known = known or (form.get("client_id"), form.get("client_secret")) == (CLIENT_ID, CLIENT_SECRET)
            asked = provider.redeem(form) if known else None
            if asked is None:
                self.answer({"error": "invalid_grant"}, 400 if self.path == "/token" else 200)
            elif self.path == "/token":
                told = {"access_token": "access", "token_type": "Bearer"}
                if provider.broken != "no ID token":
                    told["id_token"] = provider.id_token(asked.get("nonce", ""))
                self.answer(told)
            else:
                self.answer({"access_token": "access", "token_type": "bearer"})

    return Handler


@contextmanager
def running_provider() -> Iterator[TestProvider]:
    """The provider, listening on loopback until the block ends."""
    provider = TestProvider()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(provider))
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
