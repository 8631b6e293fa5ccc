"""Projects: what is watched, where its repository is, and whether its commits may run unprotected."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import urlsplit

from sqlalchemy import Connection

from backend.outgoing import AddressRefused, target_of
from backend.services.base import live
from backend.services.base.errors import BadRequest, NotFound
from backend.store.base import live as live_store
from backend.store.base import projects as store
from backend.store.base.projects import ProjectRow

DEMO = "demo/tinygpt"
"""The project that `tidemark up` makes at its first start."""
SLUG = r"^[0-9A-Za-z_][0-9A-Za-z._-]*(/[0-9A-Za-z_][0-9A-Za-z._-]*)*$"
A_SLUG = "letters, digits, '.', '_' and '-', in parts joined by '/', such as northsea/loom"
SHOWN = 20
MAX_SLUG = 200
# git's "user@host:path" form of ssh.
SCP_URL = re.compile(r"[0-9A-Za-z._-]+@[0-9A-Za-z][0-9A-Za-z.-]*:(?!//)[^\x00-\x20]+\Z")
PATTERN = re.compile(r"[^\x00-\x1f\x7f]{1,255}\Z")
REPOSITORY = re.compile(r"[0-9A-Za-z_.-]+/[0-9A-Za-z_.-]+\Z")
NUMBER = re.compile(r"[0-9]{1,20}\Z")
MAX_PATTERNS = 50
PROTOCOLS = ("https", "ssh")
COLUMNS: tuple[Literal["repository_url", "default_branch", "trusted", "private"], ...] = (
    "repository_url",
    "default_branch",
    "trusted",
    "private",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    project: str
    id: int
    created: bool


def find_project(c: Connection, slug: str) -> ProjectRow:
    found = store.find(c, slug)
    if found is None:
        raise NotFound.of("project", slug, store.slugs(c, SHOWN))
    return found


class ProjectChange(TypedDict, total=False):
    """Changes to a project; fields left out keep their value."""

    repository_url: str | None
    default_branch: str
    trusted: bool
    private: bool
    oidc: Mapping[str, Any] | None
    """Whose workflows may deliver; None: those of its own repository, on any ref."""
    github: Mapping[str, Any]
    """`issues`, `approval_label` and `webhook_secret`; None takes one back."""


def save_project(c: Connection, slug: str, *, now: datetime, **change: Unpack[ProjectChange]) -> Saved:
    """Make a project or change it, and have its repository read."""
    known = store.find(c, slug)
    if known is None and (not re.match(SLUG, slug) or len(slug) > MAX_SLUG or slug.endswith("\n")):
        raise BadRequest.field("project", slug, f"{A_SLUG}; at most {MAX_SLUG} characters")
    columns: dict[str, Any] = {name: change[name] for name in COLUMNS if name in change}
    url = columns.get("repository_url", None if known is None else known.repository_url)
    trusted = columns.get("trusted", known is not None and known.trusted)
    if isinstance(url, str):
        check_url(url, trusted=bool(trusted))
    project_id, created = store.save(c, slug, columns, now)
    if "oidc" in change:
        store.set_setting(c, project_id, "oidc", _checked_oidc(change["oidc"] or {}) or None)
    if "github" in change:
        settings = {} if known is None else known.settings
        asked = dict(change["github"])
        if "webhook_secret" in asked:
            store.set_webhook_secret(c, project_id, asked.pop("webhook_secret"))
        merged = {**(settings.get("github") or {}), **asked}
        store.set_setting(c, project_id, "github", {name: value for name, value in merged.items() if value is not None})
    if url is not None and columns.keys() - {"private"}:
        request_sync(c, project_id, now)
    return Saved(project=slug, id=project_id, created=created)


def _checked_oidc(rules: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse rules that could never be met, or that say less than they seem to."""
    for name in ("refs", "environments"):
        patterns = rules.get(name) or []
        if len(patterns) > MAX_PATTERNS:
            raise BadRequest.field(name, f"{len(patterns)} patterns", f"at most {MAX_PATTERNS}")
        for pattern in patterns:
            if not PATTERN.match(pattern):
                raise BadRequest.field(name, pattern, "a shell pattern such as refs/heads/main, at most 255 long")
            if name == "refs" and not pattern.startswith(("refs/", "*")):
                raise BadRequest.field(name, pattern, f"a whole ref, such as refs/heads/{pattern}")
    if rules.get("repository") and not REPOSITORY.match(rules["repository"]):
        raise BadRequest.field("repository", rules["repository"], "owner/name")
    if rules.get("repository_id") and not NUMBER.match(rules["repository_id"]):
        raise BadRequest.field("repository_id", rules["repository_id"], "GitHub's number of the repository")
    return rules


def request_sync(c: Connection, project_id: int, now: datetime) -> None:
    """Have the repository read soon."""
    store.request_sync(c, project_id, now)
    live_store.notify_work(c)
    live.publish(c, "project", project_id, {"sync": "requested"})


def check_url(url: str, *, trusted: bool) -> None:
    """Refuse a repository URL that could reach something other than a repository."""
    accepted = "an https:// or ssh:// URL, or user@host:path" + (", or file:///path" if trusted else "")
    try:
        split = urlsplit(url)
    except ValueError:  # half a pair of brackets around an IPv6 address
        raise BadRequest.field("repository_url", url, accepted) from None
    if re.search(r"[\x00-\x20]", url) or url.startswith("-"):
        raise BadRequest.field("repository_url", url, accepted)
    if split.scheme == "file" and split.path.startswith("/") and not split.netloc:
        if not trusted:
            raise BadRequest.field("repository_url", url, f"{accepted}; file:// only for trusted projects (--trusted)")
        return
    if split.password is not None or (split.scheme == "https" and split.username is not None):
        # It would be shown on pages and sent to workers.
        raise BadRequest(
            "repository_url: credentials do not belong in the address; leave them to git "
            "(an ssh key, or a credential helper of the account that runs this service and its workers)",
            field="repository_url",
        )
    try:
        target = target_of(url)
    except AddressRefused as refused:
        raise BadRequest.field("repository_url", url, f"{accepted}; {refused}") from None
    if target.scheme in PROTOCOLS and ("://" in url or SCP_URL.match(url)):
        return
    raise BadRequest.field("repository_url", url, accepted)
