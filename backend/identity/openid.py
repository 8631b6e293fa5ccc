"""Signing in by an OpenID provider: authorization code with PKCE, state and nonce (OpenID Connect Core 1.0)."""

import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from authlib.common.urls import add_params_to_uri
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from backend.identity.provider import ProviderIdentity, Refused, SignInAttempt, asked, text_of

SCOPE = "openid profile email"
# Public keys alone: a provider that signs with the client's secret cannot be told from the client.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
UNVERIFIED = "sub:"
"""Before a subject that looks like an address, which may be anybody's choice: it is not who has that address."""
KNOWN_FOR_S = 3600.0
ASK_AGAIN_S = 10.0  # for keys, when a token names one that is not known
LEEWAY_S = 60


class OpenIdProvider:
    """One provider, its addresses and its keys, which are fetched when needed. Safe to share between threads."""

    key = "openid"

    def __init__(self, issuer: str, client_id: str, client_secret: str, label: str) -> None:
        self.issuer, self.client_id, self._secret, self.label = issuer, client_id, client_secret, label
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._known_at = self._keys_at = float("-inf")

    def address(self, attempt: SignInAttempt, come_back: str) -> str:
        parameters = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": come_back,
            "scope": SCOPE,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        return str(add_params_to_uri(self._endpoint("authorization_endpoint"), list(parameters.items())))

    def identify(self, attempt: SignInAttempt, code: str, come_back: str) -> ProviderIdentity:
        answer = asked(
            "POST",
            self._endpoint("token_endpoint"),
            "the OpenID provider",
            headers={"Accept": "application/json"},
            **self._authenticated(
                {
                    "grant_type": "authorization_code",
                    "code": code,
                    "redirect_uri": come_back,
                    "code_verifier": attempt.verifier,
                }
            ),
        )
        claims = self._verified(answer, attempt)
        if not text_of(claims, "email") and "userinfo_endpoint" in self._metadata():
            claims = {**claims, **self._more_about(claims, answer)}
        subject = str(claims["sub"])
        # An address that the provider does not vouch for may be anybody's.
        address = text_of(claims, "email").lower() if claims.get("email_verified") is True else ""
        login = address or (subject if "@" not in subject else f"{UNVERIFIED}{subject}")
        name = text_of(claims, "name") or text_of(claims, "preferred_username") or login
        return ProviderIdentity(provider=self.key, subject=subject, login=login, name=name)

    def _authenticated(self, form: dict[str, str]) -> dict[str, Any]:
        methods = self._metadata().get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if "client_secret_basic" in methods:
            return {"data": form, "auth": (self.client_id, self._secret)}
        return {"data": {**form, "client_id": self.client_id, "client_secret": self._secret}}

    def _verified(self, answer: Mapping[str, Any], attempt: SignInAttempt) -> dict[str, Any]:
        """The claims of the ID token: signed by the provider, for us, for this attempt, and still valid."""
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise Refused("the OpenID provider answered without an ID token")
        try:
            read = self._read(token)
            claims = CodeIDToken(
                read.claims,
                read.header,
                options={
                    "iss": {"essential": True, "value": self.issuer},
                    "aud": {"essential": True, "value": self.client_id},
                    "sub": {"essential": True},
                },
                params={
                    "nonce": attempt.nonce,
                    "client_id": self.client_id,
                    "access_token": answer.get("access_token"),
                },
            )
            claims.validate(leeway=LEEWAY_S)
        except (JoseError, ValueError, TypeError) as error:
            raise Refused(f"the ID token is not accepted: {error}") from error
        if not isinstance(claims["sub"], str) or not 0 < len(claims["sub"]) <= 255:
            raise Refused("the ID token does not name anyone")
        return dict(claims)

    def _read(self, token: str) -> jwt.Token:
        try:
            return jwt.decode(token, self._key_set(), algorithms=ALGORITHMS)
        except (JoseError, ValueError):
            # A key that is new since they were fetched.
            return jwt.decode(token, self._key_set(at_most_s=ASK_AGAIN_S), algorithms=ALGORITHMS)

    def _more_about(self, claims: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
        """The claims of the provider's userinfo endpoint, if they are of the same person."""
        authorization = {"Authorization": f"Bearer {answer.get('access_token', '')}"}
        found = asked("GET", self._endpoint("userinfo_endpoint"), "the OpenID provider", headers=authorization)
        return found if found.get("sub") == claims["sub"] else {}

    def _endpoint(self, name: str) -> str:
        found = self._metadata().get(name)
        secure = urlsplit(self.issuer).scheme
        if not isinstance(found, str) or urlsplit(found).scheme not in ("https", secure):
            raise Refused(f"the OpenID provider states no {name.replace('_', ' ')}")
        return found

    def _metadata(self) -> dict[str, Any]:
        with self._lock:
            if time.monotonic() - self._known_at > KNOWN_FOR_S:
                where = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
                found = asked("GET", where, "the OpenID provider")
                if found.get("issuer") != self.issuer:
                    said = str(found.get("issuer"))[:200]
                    raise Refused(f"the OpenID provider calls itself {said!r}, not {self.issuer!r}")
                self._known, self._known_at = found, time.monotonic()
            return self._known

    def _key_set(self, at_most_s: float = KNOWN_FOR_S) -> KeySet:
        where = self._endpoint("jwks_uri")
        with self._lock:
            if self._keys is None or time.monotonic() - self._keys_at > at_most_s:
                self._keys = KeySet.import_key_set(asked("GET", where, "the OpenID provider"))  # type: ignore[arg-type]
                self._keys_at = time.monotonic()
            return self._keys
