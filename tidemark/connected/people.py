"""Members, the audit trail and the removal of a project, as commands ask the service for them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.connected.remote import Service

PARTS = ("runs", "series", "measurements", "regressions", "commits", "artifacts", "tokens", "members")


def members(service: Service, project: str | None) -> dict[str, Any]:
    return service.get(_members(project))


def set_role(service: Service, project: str | None, login: str, role: str, provider: str | None) -> dict[str, Any]:
    body = {"role": role, **({"provider": provider} if provider else {})}
    return service.send("PUT", _member(project, login), body)


def remove_role(service: Service, project: str | None, login: str) -> None:
    service.send("DELETE", _member(project, login))


def audit(service: Service, **wanted: str | int | None) -> Sequence[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = service.get("/api/v1/audit", **wanted)["items"]
    return found


def exported_audit(service: Service, format: str, **wanted: str | None) -> str:
    """All of it, as `csv` or `jsonl`."""
    given = {name: value for name, value in wanted.items() if value is not None}
    return service.text(f"/api/v1/audit?{urllib.parse.urlencode({'format': format, **given})}")


def contents(service: Service, project: str) -> dict[str, Any]:
    """The counts of what would go with the project."""
    return service.send("DELETE", f"{_project(project)}?dry_run=true")


def remove_project(service: Service, project: str) -> dict[str, Any]:
    return service.send("DELETE", f"{_project(project)}?{urllib.parse.urlencode({'confirm': project})}")


def describe_members(answer: Mapping[str, Any]) -> str:
    if not answer["items"]:
        return "nobody has a role"
    lines = [f"{'role':<10} {'where':<24} {'signs in as':<36} name"]
    for it in answer["items"]:
        signs_in = f"{it['login']} ({it['provider']})"
        lines.append(
            f"{it['role']:<10} {it['project'] or 'every project':<24} {signs_in:<36} {it['name'] or '(not yet)'}"
        )
    return "\n".join(lines)


def describe_audit(items: Sequence[Mapping[str, Any]]) -> str:
    if not items:
        return "nothing of that kind was done yet"
    lines = []
    for it in items:
        at = str(it["at"])[:19].replace("T", " ")
        details = ", ".join(f"{name} {_plain(value)}" for name, value in it["detail"].items())
        what = f"{it['action']} {it['subject']}".strip()
        where = f" in {it['project']}" if it["project"] else ""
        lines.append(f"{at}  {it['actor']} ({it['via']}): {what}{where}{f' [{details}]' if details else ''}")
    return "\n".join(lines)


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def describe_contents(answer: Mapping[str, Any]) -> str:
    counted = ", ".join(_counted(answer["contents"][part], part) for part in PARTS)
    return f"{answer['project']}: {counted}, its mirror and its artifacts"


def _counted(number: int, things: str) -> str:
    return f"{number:,} {things.removesuffix('s') if number == 1 and things != 'series' else things}"


def _members(project: str | None) -> str:
    return "/api/v1/members" if project is None else f"{_project(project)}/members"


def _member(project: str | None, login: str) -> str:
    return f"{_members(project)}/{urllib.parse.quote(login, safe='@')}"


def _project(project: str) -> str:
    return f"/api/v1/projects/{urllib.parse.quote(project, safe='/')}"
