"""One attempt of a browser to sign in elsewhere, and what comes back: who it is, or why that is refused."""

import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
from authlib.oauth2.rfc7636 import create_s256_code_challenge

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 1024 * 1024
SEPARATOR = "."


class Refused(Exception):
    """The sign-in is not accepted; the message says why, and holds no secret."""


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """The secrets of a sign-in that has begun, known to this browser alone: a cookie carries them to the end."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def begin(cls) -> "SignInAttempt":
        return cls(*(secrets.token_urlsafe(48) for _ in range(3)))

    @classmethod
    def of_cookie(cls, value: str) -> "SignInAttempt":
        parts = value.split(SEPARATOR)
        if len(parts) != 3 or not all(parts):
            raise Refused("this browser did not start this sign-in, or started it too long ago; start again")
        return cls(*parts)

    @property
    def cookie(self) -> str:
        return SEPARATOR.join((self.state, self.nonce, self.verifier))

    @property
    def challenge(self) -> str:
        return str(create_s256_code_challenge(self.verifier))

    def check_state(self, state: str) -> None:
        """Refuse an answer that belongs to another attempt: another person's address was opened here."""
        if not hmac.compare_digest(state.encode(), self.state.encode()):
            raise Refused("the answer belongs to a sign-in that another browser started; start again")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderIdentity:
    """A person, as a provider vouches for them. `subject` never changes and is never reused; `login` names them."""

    provider: str
    subject: str
    login: str
    name: str


class Provider(Protocol):
    """Where people can sign in."""

    key: str
    label: str

    def address(self, attempt: SignInAttempt, come_back: str) -> str:
        """Where to send the browser. Raises `Refused` where the provider does not answer."""
        ...

    def identify(self, attempt: SignInAttempt, code: str, come_back: str) -> ProviderIdentity:
        """Who has come back with this code. Raises `Refused`."""
        ...


def asked(method: str, url: str, what: str, **more: Any) -> dict[str, Any]:
    """The JSON object that answers a request; raises `Refused` where there is none."""
    try:
        with httpx.stream(method, url, timeout=TIMEOUT_S, follow_redirects=False, **more) as answer:
            body = bytearray()
            for part in answer.iter_bytes():
                body += part
                if len(body) > MAX_ANSWER_BYTES:
                    raise Refused(f"{what} answered with too much data")
        found = json.loads(body)
    except (httpx.HTTPError, ValueError) as error:
        raise Refused(f"{what} gave no usable answer ({type(error).__name__})") from error
    if not isinstance(found, dict):
        raise Refused(f"{what} did not answer with a JSON object")
    if answer.status_code >= 400 or "error" in found:
        said = str(found.get("error_description") or found.get("error") or answer.status_code)[:200]
        raise Refused(f"{what} refused: {said}")
    return found


def text_of(claims: Mapping[str, Any], name: str) -> str:
    """A claim that is text, on one line; empty where there is none."""
    value = claims.get(name)
    return " ".join(value.split())[:200] if isinstance(value, str) and value.isprintable() else ""
