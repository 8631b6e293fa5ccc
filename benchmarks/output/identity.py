"""Whose run this is: what the worker said in the environment, else what git and this machine say."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.output.ulid import new_ulid

NO_COMMIT = "0" * 40
"""Used if code is outside of any git repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The fields that name a run."""

    id: str
    project: str
    commit: str
    parents: tuple[str, ...]
    branch: str | None
    pull_request: int | None
    suite: str
    testbed: str
    worker: str
    attempt: int
    session: Mapping[str, Any] | None


class BadIdentity(ValueError):
    """An environment variable that no run can carry."""


def identity(environ: Mapping[str, str], git: Mapping[str, Any] | None, *, suite: str, testbed: str) -> Identity:
    """Reads TIDEMARK_*; falls back to the checkout in the current directory."""
    state = git or {}
    pull_request = environ.get("TIDEMARK_PULL_REQUEST")
    parents = environ.get("TIDEMARK_PARENTS")
    return Identity(
        id=environ.get("TIDEMARK_RUN_ID") or new_ulid(),
        project=environ.get("TIDEMARK_PROJECT") or f"local/{_plain(Path.cwd().name)}",
        commit=_commit(environ.get("TIDEMARK_COMMIT") or state.get("commit") or NO_COMMIT, "TIDEMARK_COMMIT"),
        parents=tuple(_commit(p.strip(), "TIDEMARK_PARENTS") for p in parents.split(",") if p.strip())
        if parents is not None
        else tuple(state.get("parents", ())),
        branch=environ.get("TIDEMARK_BRANCH") or state.get("branch"),
        pull_request=_whole(pull_request, "TIDEMARK_PULL_REQUEST") if pull_request else None,
        suite=environ.get("TIDEMARK_SUITE") or suite,
        testbed=environ.get("TIDEMARK_TESTBED") or testbed,
        worker=environ.get("TIDEMARK_WORKER") or _machine(environ),
        attempt=_whole(environ.get("TIDEMARK_ATTEMPT") or "1", "TIDEMARK_ATTEMPT"),
        session=_session(environ),
    )


def _machine(environ: Mapping[str, str]) -> str:
    """The name of this machine. GitHub's own runners are a fresh one each time: they are one pool, of one name."""
    return "github-hosted" if environ.get("RUNNER_ENVIRONMENT") == "github-hosted" else platform.node() or "unknown"


def _session(environ: Mapping[str, str]) -> dict[str, Any] | None:
    name = environ.get("TIDEMARK_SESSION_ID")
    if not name:
        return None
    fields = {"id": name, "arm": environ.get("TIDEMARK_SESSION_ARM"), "base": environ.get("TIDEMARK_SESSION_BASE")}
    fields["order"] = environ.get("TIDEMARK_SESSION_ORDER")
    return {key: value for key, value in fields.items() if value}


def _commit(text: str, variable: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text):
        raise BadIdentity(f"{variable} is '{text}'; a full commit id has 40 (or 64) lower-case hexadecimal digits")
    return text


def _whole(text: str, variable: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise BadIdentity(f"{variable} is '{text}'; it must be a whole number from 1")
    return int(text)


def _plain(text: str) -> str:
    return re.sub(r"[^0-9A-Za-z._-]", "-", text).strip("-.") or "project"
