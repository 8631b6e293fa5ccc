"""Reports to GitHub: a check run (or a commit status) per commit, one comment per pull request, one issue per confirmed
regression if a project wants that, each updated in place; and answers to `/tidemark …` in comments.

The housekeeping loop sends what is waiting. What GitHub asks to have later is sent later; what it refuses, or what
failed too often, is given up and reported: in the log, on live pages and in `GET /api/v1/github/outbox`.
"""

import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol
from urllib.parse import quote

from sqlalchemy import Connection, Engine

from backend.github.client import AppInstallation, Credentials, GitHub, GitHubRefused, Later, PlainToken
from backend.services.base import live
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import NotFound
from backend.services.base.projects import find_project
from backend.services.github import comment_commands
from backend.services.github import text as github_text
from backend.services.github.agreement import settle
from backend.services.github.comment_commands import Answered, Asked
from backend.services.github.commit_report import CommitReport, load_report
from backend.services.github.issue import Issue, issue
from backend.services.github.text import Annotation, WasRed
from backend.services.triage.detail import RegressionDetail, get_regression
from backend.store.base import projects as project_store
from backend.store.base.projects import ProjectRow
from backend.store.github import outbox as store
from backend.store.github import pull_requests as pull_request_store
from backend.store.github.outbox import OutboxRow

log = logging.getLogger("tidemark.github")

NAME = "Tidemark"
AT_ONCE = 20
MOST_ISSUES = 200  # open ones that are looked through for one of ours
MOST_ATTEMPTS = 8
GROWS = 4.0  # the waits after failures: 1 s, 4 s, 16 s … an hour; together longer than most outages
LONGEST_WAIT_S = 3600.0
UNEXPECTED_WAIT_S = 10.0
GONE = (404, 410)
# Whose comments count as ours where no app says so: a stranger could begin one with our mark.
OURS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})


class Api(Protocol):
    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any: ...

    def pages(self, path: str) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """Where something is reported, and our access to it."""

    api: Api
    repository: str
    is_app: bool
    app_id: str | None = None

    def wrote(self, item: Mapping[str, Any]) -> bool:
        """Whether a comment or an issue is ours: by the app, or by an account that belongs to the repository."""
        app = item.get("performed_via_github_app")
        if self.is_app:
            return isinstance(app, dict) and self.app_id in (str(app.get("id")), app.get("client_id"))
        user = item.get("user")
        is_bot = isinstance(user, dict) and user.get("type") == "Bot"  # as whom a workflow's own token writes
        return is_bot or item.get("author_association") in OURS


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    remote_id: str | None
    memory: Mapping[str, Any]


@dataclass(slots=True)
class GitHubSender:
    """Sends waiting messages. Keeps one connection for each installation."""

    engine: Engine
    config: ServiceConfig
    _apis: dict[int, GitHub] = field(default_factory=dict)

    @property
    def is_configured(self) -> bool:
        return can_send(self.config)

    def send_due(self, now: Callable[[], datetime], is_stopping: Callable[[], bool] = lambda: False) -> int:
        """Send waiting messages; returns how many. A rate limit ends the round, because it applies to all."""
        if not self.is_configured:
            return 0
        with self.engine.begin() as c:
            store.want_issues(c)
            rows = store.due(c, now(), AT_ONCE)
        sent = 0
        for row in rows:
            if is_stopping():
                break
            try:
                self._send(row, now())
                sent += 1
            except Later as later:
                self._not_now(row, later, now())
                break
            except GitHubRefused as refused:
                self._give_up(row, str(refused))
            except Exception as error:
                # Whatever is wrong with one must not keep the others waiting for ever.
                log.exception("GitHub %s %s failed", row.kind, row.key)
                self._not_now(row, Later(f"unexpected: {type(error).__name__}", UNEXPECTED_WAIT_S), now())
        return sent

    def close(self) -> None:
        for api in self._apis.values():
            api.close()

    def _send(self, row: OutboxRow, now: datetime) -> None:
        with self.engine.begin() as c:
            project = project_store.by_id(c, row.project_id)
            place = None if project is None else self._place(store.connected(c, row.project_id))
        told = Sent(remote_id=row.remote_id, memory=row.memory)
        if project is not None and place is not None:  # else it is not connected any more
            told = self._say(place, project, row, now) or told
        with self.engine.begin() as c:
            store.set_sent(c, row, remote_id=told.remote_id, memory=told.memory, now=now)

    def _say(self, place: Recipient, project: ProjectRow, row: OutboxRow, now: datetime) -> Sent | None:
        """None: there is nothing to tell (any more)."""
        if row.kind == "reply":
            return self._reply(place, project, row, now)
        if row.kind == "issue":
            with self.engine.begin() as c:
                detail = _regression(c, row)
            return None if detail is None else send_issue(place, row, issue(detail, self.config.public_url))
        with self.engine.begin() as c:
            report = _report(c, project, row, self.config.public_url, now)
        if report is None:
            return None
        return send_check(place, row, report) if row.kind == "check" else send_comment(place, row, report)

    def _reply(self, place: Recipient, project: ProjectRow, row: OutboxRow, now: datetime) -> Sent:
        """Follow a command of a comment once, and answer it until GitHub has the answer."""
        asked = Asked.of_memory(row.key, row.memory)
        answered = row.memory.get("answered")
        was_followed = isinstance(answered, dict)
        if not isinstance(answered, dict):
            is_true, permission = _is_true(place, asked), _permission(place, asked.author)
            with self.engine.begin() as c:
                if not is_true:
                    found = comment_commands.not_so()
                elif permission in comment_commands.WRITERS:
                    found = comment_commands.follow(c, project, asked, self.config, now)
                else:
                    found = comment_commands.refused(asked.author, permission)
                answered = _answer_of(found)
                store.remember(c, row, {**row.memory, "answered": answered})
        if asked.label is None and answered != _answer_of(comment_commands.not_so()):
            send_answer(place, asked, answered, may_be_there=was_followed)
        return Sent(remote_id=row.remote_id, memory={**row.memory, "answered": answered})

    def _place(self, connected: Mapping[str, Any] | None) -> Recipient | None:
        if connected is None:
            return None
        installation = connected.get("installation_id")
        app_id, key = self.config.github_app_id, self.config.github_app_key
        is_app = bool(app_id and key and isinstance(installation, int))
        number = installation if is_app and isinstance(installation, int) else 0
        if not is_app and not self.config.github_token:
            return None
        if number not in self._apis:
            credentials: Credentials = PlainToken(self.config.github_token or "")
            if is_app:
                credentials = AppInstallation(app_id or "", key or "", number)
            self._apis[number] = GitHub(credentials, api_url=self.config.github_api_url)
        return Recipient(api=self._apis[number], repository=str(connected["repository"]), is_app=is_app, app_id=app_id)

    def _not_now(self, row: OutboxRow, later: Later, now: datetime) -> None:
        if row.attempts + 1 >= MOST_ATTEMPTS:
            self._give_up(row, f"{later} (tried {row.attempts + 1} times)")
            return
        wait = max(later.after_s, min(GROWS**row.attempts, LONGEST_WAIT_S))
        with self.engine.begin() as c:
            store.set_failed(c, row, str(later), now + timedelta(seconds=wait))
        log.info("GitHub %s %s: again in %.0f s: %s", row.kind, row.key, wait, later)

    def _give_up(self, row: OutboxRow, reason: str) -> None:
        with self.engine.begin() as c:
            store.set_failed(c, row, reason, None)
            live.publish(c, "project", row.project_id, {"github": "gave up", "what": row.kind, "error": reason})
        log.warning("GitHub %s %s given up: %s", row.kind, row.key, reason)


def _report(c: Connection, project: ProjectRow, row: OutboxRow, public_url: str, now: datetime) -> CommitReport | None:
    sha: str | None = row.key
    if row.kind == "comment":
        pull_request = pull_request_store.find(c, project.id, int(row.key))
        sha = pull_request.head_sha if pull_request is not None and pull_request.state == "open" else None
    if sha is None:
        return None
    try:
        settle(c, project, sha, now)
        return load_report(c, project, sha, public_url)
    except NotFound:
        return None  # the commit is not in the store (any more): nothing is known of it


# --- what is sent ----------------------------------------------------------------------------------------------------


def send_check(place: Recipient, row: OutboxRow, report: CommitReport) -> Sent:
    """The commit's check run; without an app, which is required for one, its status."""
    said = github_text.check(report)
    if not place.is_app:
        state, description = github_text.commit_status(report)
        status = {"state": state, "description": description, "context": NAME.lower(), "target_url": report.url}
        path = f"/repos/{place.repository}/statuses/{row.key}"
        return _once(row, status, lambda: _id(place.api.request("POST", path, status)))
    body: dict[str, Any] = {
        "name": NAME,
        "head_sha": row.key,
        "status": said.status,
        "details_url": report.url,
        "external_id": f"{report.project}@{row.key}",
        "output": {"title": said.title, "summary": said.summary[:65_000]},
        **({"conclusion": said.conclusion} if said.conclusion else {}),
    }
    # A check run that is over stays over; measuring again is a new one.
    is_over = row.memory.get("status") == "completed" and said.status != "completed"
    path = f"/repos/{place.repository}/check-runs"
    known = None if is_over else row.remote_id
    noted = [_annotation(it) for it in said.annotations]
    if noted and not (known and row.memory.get("annotations") == _digest(noted)):
        body["output"]["annotations"] = noted  # GitHub adds them to those that are there
    # What is told is the same whether the annotations ride along or are there already.
    whole = {**body, "output": [said.title, said.summary, noted]}
    told = _once(row, whole, lambda: _make_or_change(place, path, path, known, body))
    return Sent(remote_id=told.remote_id, memory={**told.memory, "status": said.status, "annotations": _digest(noted)})


def _annotation(it: Annotation) -> dict[str, Any]:
    return {
        "path": it.path,
        "start_line": it.line,
        "end_line": it.line,
        "annotation_level": it.level,
        "title": it.title,
        "message": it.message,
    }


def send_comment(place: Recipient, row: OutboxRow, report: CommitReport) -> Sent:
    """The pull request's one comment. There is none until there is something to report."""
    remembered = row.memory.get("was_red")
    was_red = WasRed(**remembered) if isinstance(remembered, dict) else None
    if row.remote_id is None and not report.complete and not report.of("regression"):
        return Sent(remote_id=None, memory=row.memory)
    body = {"body": github_text.comment(report, was_red)}
    made_at = f"/repos/{place.repository}/issues/{row.key}/comments"
    changed_at = f"/repos/{place.repository}/issues/comments"
    known = row.remote_id or _comment_of(place, made_at, github_text.marker(report.project))
    told = _once(row, body, lambda: _make_or_change(place, made_at, changed_at, known, body))
    red = github_text.red_of(report) or was_red
    return Sent(remote_id=told.remote_id, memory={**told.memory, **({"was_red": asdict(red)} if red else {})})


def send_issue(place: Recipient, row: OutboxRow, said: Issue) -> Sent:
    """The one issue of a regression: created when it was confirmed, updated in place, closed and reopened with it."""
    made_at = f"/repos/{place.repository}/issues"
    known = row.remote_id or _issue_of(place, made_at, said)
    if known is None and said.state == "closed":
        return Sent(remote_id=None, memory=row.memory)  # it was over before it was told
    body: dict[str, Any] = {"title": said.title, "body": said.body}
    if known is not None:
        body |= {"state": said.state, **({"state_reason": said.state_reason} if said.state_reason else {})}

    def send() -> str | None:
        if known is None:
            return _number(place.api.request("POST", made_at, body))
        try:
            return _number(place.api.request("PATCH", f"{made_at}/{known}", body))
        except GitHubRefused as refused:
            if refused.status in GONE:
                return known  # somebody deleted it, or turned issues off: it is not made again
            raise

    return _once(row, body, send)


def _issue_of(place: Recipient, path: str, said: Issue) -> str | None:
    """An issue of ours that an earlier attempt left without our hearing of it."""
    mark = said.body.partition("\n")[0]
    newest = itertools.islice(place.api.pages(f"{path}?state=open&sort=created"), MOST_ISSUES)
    return next((_number(it) for it in newest if str(it.get("body") or "").startswith(mark) and place.wrote(it)), None)


def send_answer(place: Recipient, asked: Asked, answered: Mapping[str, Any], *, may_be_there: bool) -> None:
    """A reaction to the comment with the command, and a comment if there is more to say."""
    comment = f"/repos/{place.repository}/issues/comments/{asked.comment_id}"
    try:
        place.api.request("POST", f"{comment}/reactions", {"content": answered["reaction"]})
    except GitHubRefused as refused:
        if refused.status not in GONE:  # the comment was deleted; the answer may still be wanted
            raise
    if answered["text"]:
        mark = f"<!-- tidemark:reply:{asked.comment_id} -->"
        path = f"/repos/{place.repository}/issues/{asked.number}/comments"
        if not may_be_there or _comment_of(place, path, mark) is None:
            place.api.request("POST", path, {"body": f"{mark}\n{answered['text']}"})


def _answer_of(found: Answered) -> dict[str, Any]:
    return {"reaction": found.reaction.value, "text": found.text}


def _is_true(place: Recipient, asked: Asked) -> bool:
    """Whether GitHub itself says what the delivery said: who forges one cannot forge this."""
    told = f"pulls/{asked.number}" if asked.label is not None else f"issues/comments/{asked.comment_id}"
    try:
        found = place.api.request("GET", f"/repos/{place.repository}/{told}")
    except GitHubRefused as refused:
        if refused.status in GONE:
            return False
        raise
    if not isinstance(found, dict):
        return False
    return asked.is_said_by(found) if asked.label is None else asked.is_shown_by(found)


def _permission(place: Recipient, login: str) -> str:
    """The user's permission on the repository, in GitHub's words; "none" where it does not know them."""
    try:
        answer = place.api.request("GET", f"/repos/{place.repository}/collaborators/{quote(login, safe='')}/permission")
    except GitHubRefused as refused:
        if refused.status in GONE:
            return "none"
        raise
    return str(answer.get("permission", "none")) if isinstance(answer, dict) else "none"


def _regression(c: Connection, row: OutboxRow) -> RegressionDetail | None:
    try:
        return get_regression(c, int(row.key))
    except NotFound:
        return None


def _comment_of(place: Recipient, path: str, marker: str) -> str | None:
    """A comment of ours that an earlier attempt left without our hearing of it."""
    for item in place.api.pages(path):
        if isinstance(item, dict) and str(item.get("body", "")).startswith(marker) and place.wrote(item):
            return _id(item)
    return None


def _once(row: OutboxRow, body: Mapping[str, Any], send: Callable[[], str | None]) -> Sent:
    """Send, unless exactly this is there already."""
    digest = _digest(body)
    if row.memory.get("digest") == digest:
        return Sent(remote_id=row.remote_id, memory=row.memory)
    return Sent(remote_id=send(), memory={**row.memory, "digest": digest})


def _digest(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _make_or_change(
    place: Recipient, made_at: str, changed_at: str, known: str | None, body: Mapping[str, Any]
) -> str | None:
    """Change what is there; where somebody removed it, make it anew."""
    if known is not None:
        try:
            return _id(place.api.request("PATCH", f"{changed_at}/{known}", body))
        except GitHubRefused as refused:
            if refused.status not in GONE:
                raise
    return _id(place.api.request("POST", made_at, body))


def _number(answer: Any) -> str | None:
    return str(answer["number"]) if isinstance(answer, dict) and "number" in answer else None


def _id(answer: Any) -> str | None:
    return str(answer["id"]) if isinstance(answer, dict) and "id" in answer else None


def can_send(config: ServiceConfig) -> bool:
    """Whether there are credentials for GitHub."""
    return bool(config.github_token or (config.github_app_id and config.github_app_key))


def is_connected(c: Connection, project_name: str) -> bool:
    """Whether a signed webhook has vouched for the project's repository."""
    return store.connected(c, find_project(c, project_name).id) is not None


def issue_number(c: Connection, project_name: str, regression_id: int) -> str | None:
    """The issue that was opened for a regression."""
    return store.remote_id(c, find_project(c, project_name).id, "issue", str(regression_id))


def outbox(c: Connection, project_name: str, limit: int) -> list[OutboxRow]:
    """Messages waiting, sent or given up, newest first."""
    return store.listed(c, find_project(c, project_name).id, limit)
