"""Calls to GitHub: as an app (JWT, installation tokens) or with a plain token, with the retries GitHub requires.

A request that may succeed later (rate limit, secondary limit, 5xx, no connection) raises `Later` with the time to wait;
one that will not (revoked permission, not found, refused body) raises `GitHubRefused` with GitHub's own words. Waiting
is up to the caller: the outbox keeps messages and retries until it gives up visibly.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

API_URL = "https://api.github.com"
API_VERSION = "2022-11-28"
TIMEOUT_S = 15.0
# GitHub asks for at least a minute after a secondary limit that names no time.
SECONDARY_LIMIT_S = 60.0
SERVER_ERROR_S = 10.0
LONGEST_WAIT_S = 3600.0
TOKEN_RENEWED_BEFORE_S = 120.0
APP_JWT_S = 540
MOST_PAGES = 30


class GitHubError(Exception):
    """GitHub did not do what was asked."""


class Later(GitHubError):
    """It may work in `after_s` seconds."""

    def __init__(self, reason: str, after_s: float) -> None:
        super().__init__(reason)
        self.after_s = min(max(after_s, 1.0), LONGEST_WAIT_S)


class GitHubRefused(GitHubError):
    """It will not work until something is changed; `status` is GitHub's."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


class Credentials(Protocol):
    """The app's key or a token, with which requests to GitHub are authorised."""

    def token(self, http: httpx.Client) -> str:
        """A token that is valid now."""
        ...

    def rejected(self) -> None:
        """GitHub said 401 to the last token: forget it."""
        ...


@dataclass(slots=True)
class PlainToken:
    """A personal access token, or the workflow's own."""

    secret: str = field(repr=False)

    def token(self, http: httpx.Client) -> str:
        return self.secret

    def rejected(self) -> None:
        return None


@dataclass(slots=True)
class AppInstallation:
    """A GitHub App on one installation: a short JWT buys an installation token, kept until just before it expires."""

    app_id: str
    private_key: str = field(repr=False)
    installation_id: int
    clock: Callable[[], float] = time.time
    _token: str | None = field(default=None, init=False, repr=False)
    _expires_at: float = field(default=0.0, init=False)

    def token(self, http: httpx.Client) -> str:
        now = self.clock()
        if self._token is None or now > self._expires_at - TOKEN_RENEWED_BEFORE_S:
            answer = http.post(
                f"/app/installations/{self.installation_id}/access_tokens",
                headers={"Authorization": f"Bearer {app_jwt(self.app_id, self.private_key, now)}"},
            )
            _raise_for(answer, now)
            body = answer.json()
            self._token = str(body["token"])
            self._expires_at = _seconds(str(body["expires_at"]))
        return self._token

    def rejected(self) -> None:
        self._token = None


def app_jwt(app_id: str, private_key: str, now: float) -> str:
    """A signed JWT that authenticates this app for a few minutes; a key that is none raises ValueError."""
    # Issued a minute ago: GitHub refuses a token from the future, and clocks differ.
    claims = {"iat": int(now) - 60, "exp": int(now) + APP_JWT_S, "iss": app_id}
    try:
        return jwt.encode({"alg": "RS256"}, claims, RSAKey.import_key(private_key))
    except (JoseError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"the app's private key is not a usable key: {error}") from None


@dataclass(frozen=True, slots=True)
class About:
    """An app as GitHub knows it."""

    name: str
    permissions: Mapping[str, str]


def about_app(app_id: str, private_key: str, *, api_url: str = API_URL) -> About:
    """Ask GitHub who this app is. Raises `Later`, `GitHubRefused` or, for a key that is none, ValueError."""
    token = app_jwt(app_id, private_key, time.time())
    api = GitHub(PlainToken(token), api_url=api_url)
    try:
        told = api.request("GET", "/app")
    finally:
        api.close()
    permissions = told.get("permissions") if isinstance(told, dict) else None
    name = told.get("name") if isinstance(told, dict) else None
    return About(str(name), permissions if isinstance(permissions, dict) else {})


class GitHub:
    """One connection to GitHub's REST API. Raises `Later` or `GitHubRefused`, and nothing of httpx."""

    def __init__(
        self, credentials: Credentials, *, api_url: str = API_URL, clock: Callable[[], float] = time.time
    ) -> None:
        self._credentials = credentials
        self._clock = clock
        self._http = httpx.Client(
            base_url=api_url.rstrip("/"),
            timeout=TIMEOUT_S,
            headers={
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": API_VERSION,
                "User-Agent": "tidemark",
            },
        )

    def close(self) -> None:
        self._http.close()

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """GitHub's response as JSON (None for an empty one). A token that was just revoked is replaced once."""
        return self._answer(method, path, body).json_or_none()

    def pages(self, path: str) -> Iterator[Any]:
        """Every item of a list, page by page as the Link header says."""
        following: str | None = path + ("&" if "?" in path else "?") + "per_page=100"
        for _ in range(MOST_PAGES):
            if following is None:
                return
            answer = self._answer("GET", following, None)
            yield from answer.json_or_none() or ()
            following = answer.next_path()

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None) -> "_Answer":
        for last in (False, True):
            try:
                token = self._credentials.token(self._http)
                response = self._http.request(method, path, json=body, headers={"Authorization": f"Bearer {token}"})
            except ValueError as error:
                raise GitHubRefused(str(error), 401) from None
            except httpx.HTTPError as error:
                raise Later(f"GitHub could not be reached: {error or type(error).__name__}", SERVER_ERROR_S) from error
            if response.status_code == 401 and not last:
                self._credentials.rejected()
                continue
            _raise_for(response, self._clock())
            return _Answer(response)
        raise AssertionError("the second answer returns or raises")


@dataclass(frozen=True, slots=True)
class _Answer:
    response: httpx.Response

    def json_or_none(self) -> Any:
        return self.response.json() if self.response.content else None

    def next_path(self) -> str | None:
        """Where the next page is; only the path, so that a hostile Link header cannot send the token elsewhere."""
        link = self.response.links.get("next", {}).get("url")
        if link is None:
            return None
        parts = urlsplit(link)
        base = self.response.request.url
        if parts.netloc and parts.netloc.encode() != base.netloc:
            return None
        return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _raise_for(response: httpx.Response, now: float) -> None:
    """Nothing for a success; else `Later` or `GitHubRefused` with GitHub's message."""
    status = response.status_code
    if status < 400:
        return
    said = _message(response)
    if status in (403, 429):
        wait = _limit_wait(response, now, said)
        if wait is not None:
            raise Later(f"GitHub's rate limit: {said}", wait)
    if status >= 500:
        raise Later(f"GitHub answered {status}: {said}", SERVER_ERROR_S)
    what = {
        401: "the credentials are not valid (any more)",
        403: "the app or token lacks a permission, or it was revoked",
        404: "not found, or not visible to the app or token",
        410: "gone",
        422: "GitHub refused the body",
    }.get(status, "refused")
    raise GitHubRefused(f"{response.request.method} {response.request.url.path}: {status}, {what}: {said}", status)


def _limit_wait(response: httpx.Response, now: float, said: str) -> float | None:
    """Seconds until a limit is over, or None when a 403 is no limit but a refusal."""
    headers = response.headers
    if (after := headers.get("retry-after")) is not None:
        return float(after) if after.isdigit() else SECONDARY_LIMIT_S
    if headers.get("x-ratelimit-remaining") == "0":
        reset = headers.get("x-ratelimit-reset", "")
        return float(reset) - now + 1 if reset.isdigit() else SECONDARY_LIMIT_S
    if response.status_code == 429 or "secondary rate limit" in said.lower() or "abuse" in said.lower():
        return SECONDARY_LIMIT_S
    return None


def _message(response: httpx.Response) -> str:
    try:
        body = response.json()
    except ValueError:
        return response.text[:200] or response.reason_phrase
    message = str(body.get("message", "")) if isinstance(body, dict) else str(body)
    errors = body.get("errors") if isinstance(body, dict) else None
    return f"{message} {errors}"[:500] if errors else message[:500]


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
