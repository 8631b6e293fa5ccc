"""GitHub's OIDC tokens: a workflow proves which repository, ref and environment it runs for, without a stored secret.

`verify` checks signature, issuer, audience and expiry of a token against GitHub's published keys, then the project's
rules. Keys are cached; an unknown key id fetches them again, at most once a minute, so that rotation works and a flood
of made-up key ids costs nothing.
"""

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import httpx
import jwt

GITHUB_ISSUER = "https://token.actions.githubusercontent.com"
ALGORITHMS = ("RS256",)
CLOCK_LEEWAY_S = 60
KEYS_LIVE_S = 3600.0
FETCH_AT_MOST_EVERY_S = 60.0
MAX_TOKEN_CHARACTERS = 8_192
PULL_REQUEST_REF = re.compile(r"refs/pull/([0-9]{1,9})/(?:merge|head)")
REQUIRED = ("iss", "aud", "exp", "iat", "sub", "repository", "ref")


class TokenRefused(Exception):
    """The token is not accepted; the message says which claim, what it was and what is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Workflows whose results a project accepts. Patterns are shell patterns; no environments: any or none."""

    repository: str
    refs: tuple[str, ...] = ("*",)
    environments: tuple[str, ...] = ()
    repository_id: str | None = None  # pinned, so that a repository re-created under the same name is another one

    @classmethod
    def from_settings(cls, repository: str, settings: Mapping[str, Any]) -> "Rules":
        """The rules a project's settings state under `oidc`; without them its own repository on any ref."""
        stated = settings.get("oidc") or {}
        return cls(
            repository=str(stated.get("repository") or repository),
            refs=_patterns(stated.get("refs")) or ("*",),
            environments=_patterns(stated.get("environments")),
            repository_id=str(stated["repository_id"]) if stated.get("repository_id") else None,
        )


def _patterns(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, value)) if isinstance(value, Sequence) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """The workflow that a verified token speaks for."""

    repository: str
    repository_id: str
    ref: str
    sha: str
    event: str
    actor: str
    environment: str | None
    run_id: str
    of_own_repository: bool = True
    """Of the project's repository; else of another one that its rules let measure for it."""

    @property
    def pull_request(self) -> int | None:
        """The pull request that it runs for: its ref is the merge of that one, its sha a commit that nobody wrote."""
        found = PULL_REQUEST_REF.fullmatch(self.ref)
        return None if found is None else int(found[1])

    @property
    def speaks_for_others(self) -> bool:
        """Whether the code that runs is the default branch's own, and takes the results of another run or head."""
        return self.event in ("workflow_run", "pull_request_target")

    @property
    def is_of_tag(self) -> bool:
        return self.ref.startswith("refs/tags/")

    def is_of_branch(self, name: str | None) -> bool:
        return name is not None and self.ref == f"refs/heads/{name}"


class KeySet:
    """The issuer's public keys, fetched when needed and kept for an hour. Safe to share between threads."""

    def __init__(
        self, issuer: str = GITHUB_ISSUER, *, timeout_s: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.issuer = issuer.rstrip("/")
        self._timeout_s = timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at: float | None = None

    def key(self, key_id: str) -> jwt.PyJWK:
        """The key of that id; raises `TokenRefused` when the issuer has none such or cannot be reached."""
        with self._lock:
            age = float("inf") if self._fetched_at is None else self._clock() - self._fetched_at
            if age > KEYS_LIVE_S or (key_id not in self._keys and age > FETCH_AT_MOST_EVERY_S):
                self._fetch()
            if key_id not in self._keys:
                raise TokenRefused(
                    f"the token is signed with key {key_id[:64]!r}, which {self.issuer} does not publish"
                )
            return self._keys[key_id]

    def _fetch(self) -> None:
        """Replace the keys; when that fails, known keys stay valid until the issuer answers again."""
        self._fetched_at = self._clock()
        try:
            found = httpx.get(f"{self.issuer}/.well-known/jwks", timeout=self._timeout_s)
            found.raise_for_status()
            keys = jwt.PyJWKSet.from_dict(found.json()).keys
        except (httpx.HTTPError, ValueError, jwt.PyJWTError) as error:
            if not self._keys:
                raise TokenRefused(f"the keys of {self.issuer} could not be fetched: {error}") from error
            return
        self._keys = {key.key_id: key for key in keys if key.key_id}


def looks_like_oidc(secret: str) -> bool:
    """Whether a bearer secret is a JSON web token rather than one of our own tokens."""
    return secret.startswith("eyJ") and secret.count(".") == 2


def stated_repository(token: str) -> str | None:
    """The repository an unverified token names: only good for choosing whose rules to verify it by."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError:
        return None
    repository = claims.get("repository")
    return repository if isinstance(repository, str) else None


def verify(token: str, rules: Rules, keys: KeySet, *, audience: str) -> Workflow:
    """Who speaks with this token; raises `TokenRefused` when it is not genuine or not one the project accepts."""
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise TokenRefused(f"the token has {len(token)} characters; accepted: at most {MAX_TOKEN_CHARACTERS}")
    try:
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS:
            raise TokenRefused(f"the token's algorithm is {header.get('alg')!r}; accepted: {', '.join(ALGORITHMS)}")
        claims = jwt.decode(
            token,
            keys.key(str(header.get("kid", ""))),
            algorithms=list(ALGORITHMS),
            audience=audience,
            issuer=keys.issuer,
            leeway=CLOCK_LEEWAY_S,
            options={"require": list(REQUIRED)},
        )
    except jwt.InvalidAudienceError:
        raise TokenRefused(f"the token is for another audience; accepted: {audience!r}") from None
    except jwt.ExpiredSignatureError:
        raise TokenRefused("the token has expired; ask for a new one in the step that uses it") from None
    except jwt.PyJWTError as error:
        raise TokenRefused(f"the token is not valid: {error}") from None
    return _accepted(claims, rules)


def _accepted(claims: Mapping[str, Any], rules: Rules) -> Workflow:
    repository, ref = str(claims["repository"]), str(claims["ref"])
    environment = claims.get("environment")
    if repository.lower() != rules.repository.lower():
        raise TokenRefused(f"the token speaks for repository {repository!r}; accepted: {rules.repository!r}")
    if rules.repository_id is not None and str(claims.get("repository_id")) != rules.repository_id:
        raise TokenRefused(f"repository id is {claims.get('repository_id')!r}; accepted: {rules.repository_id!r}")
    if not any(fnmatchcase(ref, pattern) for pattern in rules.refs):
        raise TokenRefused(f"the token speaks for ref {ref!r}; accepted: {', '.join(rules.refs)}")
    if rules.environments and not any(fnmatchcase(str(environment), pattern) for pattern in rules.environments):
        raise TokenRefused(
            f"the token speaks for environment {environment!r}; accepted: {', '.join(rules.environments)}"
        )
    return Workflow(
        repository=repository,
        repository_id=str(claims.get("repository_id", "")),
        ref=ref,
        sha=str(claims.get("sha", "")),
        event=str(claims.get("event_name", "")),
        actor=str(claims.get("actor", "")),
        environment=str(environment) if environment else None,
        run_id=str(claims.get("run_id", "")),
    )
