"""Describe a project just added: what its repository holds, what is queued for whom, and where to look on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from tidemark.connected.remote import Service

READ_WITHIN_S = 20.0
FAILS_WITHIN_S = 3.0
LOOK_EVERY_S = 0.3
OPEN = ("queued", "leased", "running")


def what_happens(service: Service, project: str) -> list[str]:
    """Lines for the person who has just added it. Waits for the repository to be read, but not for ever."""
    found = _once_read(service, project)
    board = f"board: {service.url}/board?project={quote(project, safe='/')}"
    lines = [f"{project} is watched: {found['repository_url']}, branch {found['default_branch']}"]
    if found["sync_error"]:
        return [*lines, f"its repository cannot be read: {found['sync_error']}", board]
    if found["sync_requested_at"] is not None:
        return [*lines, "its repository is still being read; queued runs will then appear on the board", board]
    commits = service.get("/api/v1/board", project=project, range="all")
    queue = service.get("/api/v1/queue", project=project, limit=500)
    return [*lines, *queued(commits, queue), board]


def _once_read(service: Service, project: str) -> Mapping[str, Any]:
    """The project after its repository was read, or could not be: an error of an earlier reading goes with the next."""
    began = time.monotonic()
    while True:
        found = service.project(project)
        waited_s = time.monotonic() - began
        failed = found["sync_error"] and waited_s > FAILS_WITHIN_S
        if found["sync_requested_at"] is None or failed or waited_s > READ_WITHIN_S:
            return found
        time.sleep(LOOK_EVERY_S)


def queued(board: Mapping[str, Any], queue: Mapping[str, Any]) -> list[str]:
    """How many commits and runs, then each testbed: its suites, and why its next run has not begun."""
    commits, rows = board["commits_in_range"], board["rows"]
    runs = sum(queue["counts"][state] for state in OPEN)
    found = f"{_counted(commits, 'commit')} found, {_counted(runs, 'run')} queued"
    if not runs:
        if not rows:
            return [f"{found}: the branch has no commit yet"]
        reason = rows[0]["skipped_reason"]  # of the newest: what an older one lacked may long be mended
        return [f"{found}{f': {reason}' if reason else ''}"]
    by_testbed: dict[str, list[Mapping[str, Any]]] = {}
    for item in queue["items"]:
        by_testbed.setdefault(item["testbed"], []).append(item)
    return [found, *(_of_testbed(name, items) for name, items in sorted(by_testbed.items()))]


def _of_testbed(name: str, items: Sequence[Mapping[str, Any]]) -> str:
    suites = sorted({item["suite"] for item in items})
    return f"  {name}: {'suite' if len(suites) == 1 else 'suites'} {', '.join(suites)}; {items[0]['reason']}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
