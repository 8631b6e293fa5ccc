"""OIDC tokens of GitHub's shape, signed with real keys and verified against keys served by a real HTTP server."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jws, jwt
from joserfc.jwk import OctKey, RSAKey
from joserfc.util import urlsafe_b64encode

from backend.github.oidc import KeySet, Rules, TokenRefused, looks_like_oidc, stated_repository, verify

AUDIENCE = "https://tidemark.example.org"
RULES = Rules(repository="northsea/loom")


@cache
def private_key(name: str) -> rsa.RSAPrivateKey:
    """Making a key takes a second: one of each name for all tests."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class Issuer:
    """Plays GitHub's token service: serves the public halves of its keys and signs tokens with the private ones."""

    keys: dict[str, rsa.RSAPrivateKey] = field(default_factory=dict)
    url: str = ""
    besides: list[Any] = field(default_factory=list)
    """What else it publishes as keys."""
    fetched: int = 0
    answers: int = 200

    def add_key(self, key_id: str) -> None:
        self.keys[key_id] = private_key(key_id)

    def published(self) -> dict[str, Any]:
        return {
            "keys": [
                RSAKey.import_key(key).as_dict(private=False, kid=key_id, use="sig", alg="RS256")
                for key_id, key in self.keys.items()
            ]
            + self.besides
        }

    def token(self, key_id: str = "one", /, **claims: Any) -> str:
        now = int(time.time())
        payload = {
            "iss": self.url, "aud": AUDIENCE, "iat": now, "nbf": now - 5, "exp": now + 300,
            "sub": "repo:northsea/loom:ref:refs/heads/main", "repository": "northsea/loom", "repository_id": "4711",
            "ref": "refs/heads/main", "sha": "a" * 40, "event_name": "push", "actor": "jt", "run_id": "99", **claims,
        }  # fmt: skip
        payload = {key: value for key, value in payload.items() if value is not None}
        return jwt.encode({"alg": "RS256", "kid": key_id}, payload, RSAKey.import_key(self.keys[key_id]))


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    issuer.add_key("one")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.fetched += 1
            body = json.dumps(issuer.published()).encode()
            self.send_response(issuer.answers if self.path == "/.well-known/jwks" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield issuer
    server.shutdown()
    server.server_close()


def test_a_genuine_token_says_who_speaks(issuer: Issuer) -> None:
    workflow = verify(issuer.token(), RULES, KeySet(issuer.url), audience=AUDIENCE)
    assert (workflow.repository, workflow.ref, workflow.sha, workflow.event) == (
        "northsea/loom", "refs/heads/main", "a" * 40, "push")  # fmt: skip


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": "https://elsewhere"}, "another audience"),
        ({"iss": "https://evil.example"}, "not valid"),
        ({"exp": int(time.time()) - 3600}, "expired"),
        ({"repository": "mallory/loom"}, "repository 'mallory/loom'; accepted: 'northsea/loom'"),
        ({"ref": None}, "ref"),
        ({"sub": None}, "sub"),
    ],
)
def test_a_wrong_claim_is_refused_by_name(issuer: Issuer, claims: dict[str, Any], said: str) -> None:
    with pytest.raises(TokenRefused, match=said):
        verify(issuer.token(**claims), RULES, KeySet(issuer.url), audience=AUDIENCE)


@pytest.mark.parametrize(
    ("rules", "claims", "accepted"),
    [
        (Rules(repository="northsea/loom", refs=("refs/heads/main",)), {}, True),
        (Rules(repository="northsea/loom", refs=("refs/heads/release/*",)), {}, False),
        (Rules(repository="northsea/loom", environments=("gpu",)), {"environment": "gpu"}, True),
        (Rules(repository="northsea/loom", environments=("gpu",)), {}, False),
        (Rules(repository="northsea/loom", repository_id="4711"), {}, True),
        (Rules(repository="northsea/loom", repository_id="4712"), {}, False),
        (Rules(repository="NorthSea/Loom"), {}, True),
    ],
)
def test_rules_of_the_project_decide(issuer: Issuer, rules: Rules, claims: dict[str, Any], accepted: bool) -> None:
    token, keys = issuer.token(**claims), KeySet(issuer.url)
    if accepted:
        assert verify(token, rules, keys, audience=AUDIENCE).repository == "northsea/loom"
    else:
        with pytest.raises(TokenRefused, match="accepted"):
            verify(token, rules, keys, audience=AUDIENCE)


def test_a_token_signed_with_somebody_elses_key_is_refused(issuer: Issuer) -> None:
    mallory = Issuer(url=issuer.url, keys={"one": private_key("mallory's")})
    with pytest.raises(TokenRefused, match="not valid: its signature is wrong"):
        verify(mallory.token(), RULES, KeySet(issuer.url), audience=AUDIENCE)


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_unsigned_and_symmetric_tokens_are_refused(issuer: Issuer, algorithm: str) -> None:
    claims = {"iss": issuer.url, "aud": AUDIENCE, "exp": int(time.time()) + 300, "repository": "northsea/loom"}
    key = OctKey.import_key("k" * 32)
    forged = jwt.encode({"alg": algorithm, "kid": "one"}, claims, key, algorithms=[algorithm])
    with pytest.raises(TokenRefused, match="algorithm"):
        verify(forged, RULES, KeySet(issuer.url), audience=AUDIENCE)


def test_a_rotated_key_is_fetched_and_made_up_key_ids_are_not_chased(issuer: Issuer) -> None:
    now = [1000.0]
    keys = KeySet(issuer.url, clock=lambda: now[0])
    verify(issuer.token(), RULES, keys, audience=AUDIENCE)
    issuer.add_key("two")
    with pytest.raises(TokenRefused, match="does not publish"):
        verify(issuer.token("two"), RULES, keys, audience=AUDIENCE)
    now[0] += 61
    assert verify(issuer.token("two"), RULES, keys, audience=AUDIENCE).actor == "jt"
    assert issuer.fetched == 2


def test_known_keys_outlive_an_outage_of_the_issuer(issuer: Issuer) -> None:
    now = [0.0]
    keys = KeySet(issuer.url, clock=lambda: now[0])
    verify(issuer.token(), RULES, keys, audience=AUDIENCE)
    issuer.answers, now[0] = 503, 7200.0
    assert verify(issuer.token(), RULES, keys, audience=AUDIENCE).actor == "jt"


def test_an_issuer_that_never_answered_refuses_with_the_reason(issuer: Issuer) -> None:
    issuer.answers = 503
    with pytest.raises(TokenRefused, match="could not be fetched"):
        verify(issuer.token(), RULES, KeySet(issuer.url), audience=AUDIENCE)


def encoded(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode()


HEADER = encoded('{"alg": "RS256", "kid": "one"}')
GARBAGE = {
    "nothing": "",
    "parts that are nothing": "eyJ.x.y",
    "no JSON": "a.b.c",
    "too long": "eyJ" + "x" * 9000 + ".a.b",
    "a control character": "\x00",
    "not ASCII": "eyJ\xe9.a.b",
    "a surrogate": "eyJ\ud800.a.b",
    "a header that is a list": encoded('["alg"]') + ".e30.e30",
    "an algorithm that is a list": encoded('{"alg": []}') + ".e30.e30",
    "a header that is too long": encoded('{"alg": ' + "[" * 3000) + ".e30.e30",
    "deep claims": f"{HEADER}.{encoded('[' * 5000)}.e30",
    "claims that are a list": f"{HEADER}.{encoded('[1]')}.e30",
    "claims left out": f"{HEADER}..e30",
    "content that is not encoded": encoded('{"alg": "RS256", "b64": false, "crit": ["b64"]}') + ".x.e30",
}


@pytest.mark.parametrize("claims", ["", "[1]", '"text"', "null", "{", "[" * 5000, '{"exp": 1e999}'])
def test_what_the_issuer_signed_and_is_no_claims_is_refused(issuer: Issuer, claims: str) -> None:
    key = RSAKey.import_key(issuer.keys["one"])
    token = jws.serialize_compact({"alg": "RS256", "kid": "one"}, claims, key)
    with pytest.raises(TokenRefused, match=r"not valid: ."):
        verify(token, RULES, KeySet(issuer.url), audience=AUDIENCE)
    assert stated_repository(token) is None


def test_of_the_issuers_keys_those_that_can_be_used_are_and_none_is_forgotten_for_a_worse_answer(
    issuer: Issuer,
) -> None:
    odd = [
        {"kty": "RSA"}, {"kty": "RSA", "kid": "two"}, {"kty": "RSA", "kid": "three", "n": "!!", "e": "AQAB"}, "text",
        {"kty": "EC", "kid": "four"}, {**issuer.published()["keys"][0], "kid": None},
        {**issuer.published()["keys"][0], "kid": "five", "use": "tls"},
    ]  # fmt: skip
    now = [0.0]
    keys = KeySet(issuer.url, clock=lambda: now[0])
    issuer.besides = odd
    assert verify(issuer.token(), RULES, keys, audience=AUDIENCE).actor == "jt"
    genuine, issuer.keys, now[0] = issuer.token(), {}, 7200.0
    assert verify(genuine, RULES, keys, audience=AUDIENCE).actor == "jt"
    with pytest.raises(TokenRefused, match="could not be fetched: none of those that it publishes can be used"):
        verify(genuine, RULES, KeySet(issuer.url), audience=AUDIENCE)


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_refused_and_never_crashes(issuer: Issuer, garbage: str) -> None:
    with pytest.raises(TokenRefused):
        verify(garbage, RULES, KeySet(issuer.url), audience=AUDIENCE)
    assert stated_repository(garbage) is None


def test_our_own_tokens_are_not_mistaken_for_oidc(issuer: Issuer) -> None:
    assert looks_like_oidc(issuer.token())
    assert not looks_like_oidc("tm_abcdef")
    assert stated_repository(issuer.token()) == "northsea/loom"
