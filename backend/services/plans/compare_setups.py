"""Two environments of one commit, or two commits, compared by a session that a person or a schedule requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from backend.regression.confirmation import most_rounds
from backend.services.base.config import ServiceConfig
from backend.services.base.confine import require_of
from backend.services.base.errors import BadRequest, NotFound
from backend.services.base.principal import Principal, Scope
from backend.services.base.projects import find_project
from backend.services.base.scope import find_commit, find_scope
from backend.services.policy.resolve import policy_book
from backend.services.repository.requests import check_may_run, manifest_at
from backend.services.sessions.request import Purpose, SessionRequest, request_session
from backend.store.queue import queue

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
KNOWN = ("pip", "setup", "env")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A request to compare two setups."""

    project: str
    suite: str
    testbed: str | None
    base: str
    head: str
    base_setup: Mapping[str, Any]
    head_setup: Mapping[str, Any]
    max_rounds: int | None = None
    """Of ABBA; None: as many as the policy of the suite allows."""


def request_comparison(
    c: Connection,
    wish: Wish,
    config: ServiceConfig,
    principal: Principal,
    now: datetime,
    *,
    schedule: str | None = None,
) -> str:
    """Ask for a session of base against head; its id."""
    require_of(c, principal, Scope.SUBMIT, "project", wish.project)
    project = find_project(c, wish.project)
    for arm, setup in (("base_setup", wish.base_setup), ("head_setup", wish.head_setup)):
        check_setup(arm, setup)
    if (wish.base_setup or wish.head_setup) and schedule is None:
        # What is installed comes from the request, not from a reviewed commit: a token of a CI job must not do that.
        require_of(c, principal, Scope.ADMIN, "project", wish.project)
    scope = find_scope(c, wish.project)
    base, head = (find_commit(c, scope, name) for name in (wish.base, wish.head))
    for commit in (base, head):
        check_may_run(c, config, project, commit)
    if base.id == head.id and wish.base_setup == wish.head_setup:
        raise BadRequest(
            "base and head are the same commit in the same environment; give another head, or what one side installs"
        )
    suites = {suite.name: suite for suite in manifest_at(config, project, head.sha).suites}
    if wish.suite not in suites:
        raise NotFound.of("suite", wish.suite, list(suites))
    suite = suites[wish.suite]
    testbed = wish.testbed or suite.testbeds[0]
    request = SessionRequest(
        project_id=project.id,
        testbed_id=queue.testbed_id(c, testbed),
        suite=suite.name,
        purpose=Purpose.COMPARE,
        base_commit_id=base.id,
        head_commit_id=head.id,
        spec=suite.spec(),
        requested_by=principal.name,
        base_setup=wish.base_setup,
        head_setup=wish.head_setup,
        schedule=schedule,
        max_rounds=wish.max_rounds or most_rounds(policy_book(c, project.slug).of(suite=suite.name, testbed=testbed)),
    )
    return request_session(c, request, now)


def check_setup(where: str, setup: Mapping[str, Any]) -> None:
    """Refuse what a worker could not follow."""
    unknown = sorted(set(setup) - set(KNOWN))
    if unknown:
        raise BadRequest.field(f"{where}.{unknown[0]}", setup[unknown[0]], f"one of {', '.join(KNOWN)}")
    for name in ("pip", "setup"):
        if name in setup and (not isinstance(setup[name], str) or not setup[name].strip() or "\x00" in setup[name]):
            raise BadRequest.field(f"{where}.{name}", setup[name], "text")
    env = setup.get("env", {})
    if not isinstance(env, Mapping):
        raise BadRequest.field(f"{where}.env", env, "a table of variables")
    for name, value in env.items():
        if not ENV_NAME.match(name) or name.upper().startswith("TIDEMARK_"):
            raise BadRequest.field(f"{where}.env", name, "names of letters, digits and _, not beginning with TIDEMARK_")
        if not isinstance(value, str) or "\x00" in value:
            raise BadRequest.field(f"{where}.env.{name}", value, "text")
