"""Projects: what is watched, where its repository is, and whether its commits may run unprotected."""

import re
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from sqlalchemy import Connection

from backend.services import live
from backend.services.access import Principal
from backend.services.errors import BadRequest, NotFound
from backend.store import live as live_store
from backend.store import projects as store
from backend.store.projects import ProjectRow

SHOWN = 20
# git's "user@host:path" form of ssh.
SCP_URL = re.compile(r"[0-9A-Za-z._-]+@[0-9A-Za-z][0-9A-Za-z.-]*:(?!//)[^\x00-\x20]+\Z")
PROTOCOLS = ("https", "ssh")


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


def check_regression(c: Connection, regression_id: int, principal: Principal) -> None:
    """Refuse a token of another project; one that does not exist is left to whoever reads it."""
    project_id = store.project_of_regression(c, regression_id)
    if project_id is not None:
        principal.require_project(project_id)


def save_project(
    c: Connection,
    slug: str,
    *,
    repository_url: str | None,
    default_branch: str = "main",
    trusted: bool = False,
    now: datetime,
) -> Saved:
    """Make a project or change it, and have its repository read."""
    if repository_url is not None:
        check_url(repository_url, trusted=trusted)
    project_id, created = store.save(
        c, slug, default_branch=default_branch, repository_url=repository_url, trusted=trusted, now=now
    )
    if repository_url is not None:
        request_sync(c, project_id, now)
    return Saved(project=slug, id=project_id, created=created)


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
            raise BadRequest.field("repository_url", url, f"{accepted}; file:// only for trusted projects")
        return
    if split.password is not None or (split.scheme == "https" and split.username is not None):
        # It would be shown on pages and sent to workers.
        raise BadRequest(
            "repository_url: credentials do not belong into the address; leave them to git "
            "(an ssh key, or a credential helper of the account that runs this service and its workers)",
            field="repository_url",
        )
    if split.scheme in PROTOCOLS and split.hostname and not split.hostname.startswith("-"):
        return
    if "://" not in url and SCP_URL.match(url):
        return
    raise BadRequest.field("repository_url", url, accepted)
