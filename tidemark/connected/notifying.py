"""Notifications, as commands ask the service for them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Any

from tidemark.connected.remote import Service
from tidemark.refusal import Refusal


def notifications(service: Service, project: str) -> dict[str, Any]:
    return service.get(_path(project))


def add(service: Service, project: str, rule: Mapping[str, Any]) -> dict[str, Any]:
    return service.post(_path(project), rule)


def change(service: Service, project: str, rule: int, named: Mapping[str, Any]) -> dict[str, Any]:
    return service.send("PATCH", f"{_path(project)}/{rule}", named)


def remove(service: Service, project: str, rule: int) -> None:
    service.send("DELETE", f"{_path(project)}/{rule}")


def test(service: Service, project: str, rule: int) -> int:
    """The number of the requested message."""
    return int(service.post(f"{_path(project)}/{rule}/test")["id"])


def message(service: Service, project: str, number: int) -> dict[str, Any]:
    for found in notifications(service, project)["messages"]:
        if found["id"] == number:
            return dict(found)
    raise Refusal(f"message {number} is gone: its rule was removed")


def describe(found: Mapping[str, Any]) -> str:
    if not found["rules"]:
        return "no rules: nobody is notified"
    lines = [f"{'#':>4}  {'when':<8} {'causes':<30} {'address':<40} name"]
    for rule in found["rules"]:
        when, causes = rule["digest"] or "at once", ",".join(rule["causes"])
        lines.append(f"{rule['id']:>4}  {when:<8} {causes:<30} {rule['address']:<40} {rule['name']}")
    return "\n".join(lines)


def _path(project: str) -> str:
    return f"/api/v1/projects/{urllib.parse.quote(project, safe='/')}/notifications"
