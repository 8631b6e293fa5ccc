"""The API as a worker sees it: a handful of calls, each with a time limit, each refusal with its reason.

Nothing here retries. A call whose answer was lost may have happened; only its caller knows whether doing it again is
harmless (a delivery is, a lease is not).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

PREFIX = "/api/v1"
SESSION_BODY = b'{"schema": "tidemark.session/1"'


class ApiRefusal(Exception):
    """The API answered, and the answer was no. `problem` is the reason it gave."""

    def __init__(self, status: int, problem: str, *, retry_after_s: float | None = None) -> None:
        self.status = status
        self.problem = problem
        self.retry_after_s = retry_after_s
        super().__init__(f"the API answered {status}: {problem}")

    @property
    def is_outdated(self) -> bool:
        """The versions of worker and service do not fit together."""
        return self.status == 426

    @property
    def may_pass(self) -> bool:
        """Whether the same call may succeed later: overload and failures of the service, and a token to be mended."""
        return self.status >= 500 or self.status in (401, 403, 408, 425, 429)


class ApiUnreachable(Exception):
    """No answer came: connection refused, reset, timed out, or a name that does not resolve."""


class DesiredState(StrEnum):
    """The state the service wants this worker to be in."""

    OK = "ok"
    PAUSE = "pause"
    DRAIN = "drain"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The answer to a hello: what the worker is to be, and the queue of the broker that holds its messages."""

    state: DesiredState
    queue: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedRun:
    """One run this worker holds the lease of, and everything needed to carry it out."""

    run_id: str
    lease: str = field(repr=False)
    lease_s: float
    heartbeat_s: float
    attempt: int
    project: str
    trusted: bool
    repository_url: str | None
    commit: str
    parents: tuple[str, ...]
    branch: str | None
    pull_request: int | None
    suite: str
    testbed: str
    spec: Mapping[str, Any]

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> LeasedRun:
        try:
            return cls(
                run_id=str(answer["run_id"]),
                lease=str(answer["lease"]),
                lease_s=float(answer["lease_s"]),
                heartbeat_s=float(answer["heartbeat_s"]),
                attempt=int(answer["attempt"]),
                project=str(answer["project"]),
                trusted=answer["trusted"] is True,
                repository_url=answer.get("repository_url"),
                commit=str(answer["commit"]),
                parents=tuple(str(parent) for parent in answer.get("parents") or ()),
                branch=answer.get("branch"),
                pull_request=answer.get("pull_request"),
                suite=str(answer["suite"]),
                testbed=str(answer["testbed"]),
                spec=dict(answer.get("spec") or {}),
            )
        except (KeyError, TypeError, ValueError) as flaw:
            raise ApiRefusal(
                200, f"the answer to a lease is not understood ({flaw!r}); do the versions match?"
            ) from None


class ApiClient:
    """Calls of one worker, from any of its threads."""

    def __init__(self, api_url: str, token: str, *, version: str) -> None:
        self._http = httpx.Client(
            base_url=api_url.rstrip("/"),
            headers={"Authorization": f"Bearer {token}", "User-Agent": f"tidemark-worker/{version}"},
            timeout=httpx.Timeout(10.0, connect=3.0),
            limits=httpx.Limits(max_connections=8, keepalive_expiry=20.0),
            # A proxy set for the internet must not swallow calls to this machine.
            trust_env=not _is_loopback(api_url),
        )

        self.clock_ahead_s: float | None = None
        """How far this machine's clock is ahead of the service's; None before the first answer."""

    def close(self) -> None:
        self._http.close()

    def _compare_clocks(self, answer: httpx.Response) -> None:
        try:
            theirs = parsedate_to_datetime(answer.headers["Date"]).timestamp()
        except (KeyError, ValueError):
            return
        self.clock_ahead_s = time.time() - theirs

    def register(
        self,
        *,
        name: str,
        testbed: str,
        version: str,
        capabilities: Mapping[str, Any],
        protection: str,
        starting: bool = False,
    ) -> Welcome:
        """Says hello. `starting`: whatever runs a worker of this name held before, it does not hold any more."""
        body = {
            "name": name,
            "testbed": testbed,
            "version": version,
            "capabilities": dict(capabilities),
            "protection": protection,
            "starting": starting,
        }
        answer = self._call("POST", "/workers", json=body)
        state, queue = answer.get("state"), answer.get("queue")
        return Welcome(
            state=DesiredState(state) if state in set(DesiredState) else DesiredState.OK,
            queue=queue if isinstance(queue, str) else None,
        )

    def lease(
        self, run_id: str, *, worker: str, testbed: str, version: str, capabilities: Mapping[str, Any], protection: str
    ) -> LeasedRun | None:
        """The run, or None if another worker has it or it is gone."""
        body = {
            "worker": worker,
            "testbed": testbed,
            "version": version,
            "capabilities": dict(capabilities),
            "protection": protection,
        }
        try:
            return LeasedRun.from_answer(self._call("POST", f"/runs/{quote(run_id, safe='')}/lease", json=body))
        except ApiRefusal as refusal:
            if refusal.status in (404, 409, 410):
                return None
            raise

    def heartbeat(self, run_id: str, lease: str) -> bool:
        """Keeps the lease; whether the run is to be cancelled. ApiError 409 means the lease is lost."""
        answer = self._call("POST", f"/runs/{run_id}/heartbeat", json={"lease": lease}, limit_s=5.0)
        return answer.get("cancel") is True

    def events(self, run_id: str, lease: str, events: Sequence[Mapping[str, Any]]) -> None:
        self._call("POST", f"/runs/{run_id}/events", json={"lease": lease, "events": list(events)}, limit_s=5.0)

    def release(self, run_id: str, lease: str, reason: str, *, lost: bool = False, limit_s: float = 5.0) -> None:
        """Hands a run back. `lost`: by this machine's fault, which may not happen to it for ever."""
        body = {"lease": lease, "reason": reason, **({"lost": True} if lost else {})}
        self._call("POST", f"/runs/{run_id}/release", json=body, limit_s=limit_s)

    def next_run(self, worker: str, after: str) -> str | None:
        """Another suite of the commit that was just measured, if this worker is to go on with it."""
        answer = self._call("POST", f"/workers/{quote(worker, safe='')}/next", json={"after": after}, limit_s=5.0)
        run_id = answer.get("run_id")
        return run_id if isinstance(run_id, str) else None

    def put_run(self, run_id: str, lease: str, body: bytes) -> Mapping[str, Any]:
        """Delivers what came of a run, or of a round of a session: its writer puts the schema first."""
        headers = {"Content-Type": "application/json", "Tidemark-Lease": lease}
        path = f"/runs/{run_id}/session" if body.startswith(SESSION_BODY) else f"/runs/{run_id}"
        return self._call("PUT", path, content=body, headers=headers, limit_s=120.0)

    def put_artifact(self, run_id: str, lease: str, name: str, file: Path) -> None:
        headers = {"Content-Type": "application/octet-stream", "Tidemark-Lease": lease}
        body = file.read_bytes()
        path = f"/runs/{run_id}/artifacts/{quote(name, safe='')}"
        self._call("PUT", path, content=body, headers=headers, limit_s=120.0)

    def _call(self, method: str, path: str, *, limit_s: float = 10.0, **content: Any) -> Mapping[str, Any]:
        try:
            answer = self._http.request(
                method, PREFIX + path, timeout=httpx.Timeout(limit_s, connect=min(3.0, limit_s)), **content
            )
        except httpx.HTTPError as failure:
            raise ApiUnreachable(f"{method} {path}: {failure or type(failure).__name__}") from failure
        self._compare_clocks(answer)
        if answer.is_success:
            return _object(answer)
        raise ApiRefusal(answer.status_code, _problem(answer), retry_after_s=_retry_after_s(answer))


def _object(answer: httpx.Response) -> Mapping[str, Any]:
    if not answer.content:
        return {}
    try:
        body = answer.json()
    except ValueError:
        raise ApiRefusal(502, "the answer is not JSON; does something else listen at this address?") from None
    return body if isinstance(body, dict) else {}


def _problem(answer: httpx.Response) -> str:
    """The reason in an RFC 9457 answer, or the beginning of whatever came instead."""
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return answer.text.strip()[:300] or answer.reason_phrase
    said = str(body.get("detail") or body.get("title") or answer.reason_phrase)
    errors = body.get("errors")
    if isinstance(errors, list) and errors:
        said += ": " + "; ".join(str(error)[:200] for error in errors[:3])
    return said[:1000]


def _retry_after_s(answer: httpx.Response) -> float | None:
    try:
        return max(0.0, float(answer.headers.get("Retry-After", "")))
    except ValueError:
        return None


def _is_loopback(api_url: str) -> bool:
    host = urlsplit(api_url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
