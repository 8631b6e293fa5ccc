"""`/tidemark …` in a comment of a pull request: run, approve, rerun, help.

The webhook only records the command. The outbox then asks GitHub whether its author may write to the repository,
executes it once, and answers: with a reaction, and with a comment if there is something to say.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection

from backend.services.base.config import ServiceConfig
from backend.services.base.errors import BadRequest, ServiceError
from backend.services.base.principal import IMPLIED, Principal, Scope, Via
from backend.services.github import pull_requests
from backend.services.queue.scheduling import Kind
from backend.services.repository import requests
from backend.services.repository.requests import RunRequest
from backend.store.base.projects import ProjectRow
from backend.store.github import outbox as github_outbox
from backend.store.github import pull_requests as store
from backend.store.github.pull_requests import PullRequestRow

COMMAND = re.compile(r"\s*/tidemark(?:[ \t]+(?P<words>[^\r\n]*))?(?:\r?\n|\Z)")
SUITE = re.compile(r"[0-9A-Za-z][0-9A-Za-z._+-]{0,99}\Z")
SHA = re.compile(r"[0-9a-f]{40,64}\Z")
MAX_COMMENT = 65_536
# What GitHub says of people who belong to the repository; whether they may write is asked before anything is done.
ASSOCIATIONS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
WRITERS = frozenset({"admin", "maintain", "write"})

HELP = """Commands for Tidemark in a comment on a pull request, for people with write access to the repository:

- `/tidemark run`: measure the head now, even if no file in a suite's `paths` changed
- `/tidemark run SUITE …`: only these suites
- `/tidemark rerun`: measure once more what was measured already
- `/tidemark approve <full commit id>`: let exactly this commit of a fork run on the workers
- `/tidemark help`: this"""


class Reaction(StrEnum):
    DONE = "+1"
    WORKING = "rocket"
    REFUSED = "-1"
    PUZZLED = "confused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Answer to a command: a reaction on the comment, and words where a reaction is not enough."""

    reaction: Reaction
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A command in the outbox until it is answered."""

    number: int
    comment_id: str
    words: tuple[str, ...]
    author: str
    label: str | None = None
    """It was not said but shown, by setting this label."""

    @classmethod
    def of_memory(cls, comment_id: str, memory: Mapping[str, Any]) -> "Asked":
        return cls(
            number=int(memory["number"]),
            comment_id=comment_id,
            words=tuple(memory["words"]),
            author=str(memory["author"]),
            label=memory.get("label"),
        )

    def is_said_by(self, comment: Mapping[str, Any]) -> bool:
        """Whether GitHub's comment of that number is this command, of this author."""
        user, body = comment.get("user"), comment.get("body")
        found = COMMAND.match(body) if isinstance(body, str) else None
        words = () if found is None else tuple(_word(word) for word in (found["words"] or "help").split()[:20])
        return isinstance(user, dict) and user.get("login") == self.author and words == self.words

    def is_shown_by(self, pull_request: Mapping[str, Any]) -> bool:
        """Whether GitHub's pull request has the label, at the commit that it is to approve."""
        head, labels = pull_request.get("head"), pull_request.get("labels")
        names = [label.get("name") for label in labels] if isinstance(labels, list) else []
        return isinstance(head, dict) and self.words[1:] == (head.get("sha"),) and self.label in names


def note(c: Connection, project: ProjectRow, payload: Mapping[str, Any]) -> str:
    """Take over an `issue_comment` event: what came of it, as a sentence."""
    if payload.get("action") != "created":
        return f"nothing to do for a comment {_word(payload.get('action'))}"
    issue, comment = payload.get("issue"), payload.get("comment")
    if not isinstance(issue, dict) or not isinstance(comment, dict):
        raise BadRequest.field("comment", type(comment).__name__, "an object, next to the object issue")
    body = comment.get("body")
    found = COMMAND.match(body) if isinstance(body, str) and len(body) <= MAX_COMMENT else None
    if found is None:
        return "no command in the comment"
    told = comment.get("user")
    user: Mapping[str, Any] = told if isinstance(told, dict) else {}
    author = user.get("login")
    number, comment_id = issue.get("number"), comment.get("id")
    if not isinstance(author, str) or not isinstance(number, int) or not isinstance(comment_id, int):
        raise BadRequest.field("comment", "without user, id or issue number", "a comment as GitHub sends it")
    if not isinstance(issue.get("pull_request"), dict):
        return f"#{number} is no pull request; commands are for pull requests"
    if comment.get("author_association") not in ASSOCIATIONS or user.get("type") == "Bot":
        return f"{_word(author)} does not belong to the repository; the command is not followed"
    words = (found["words"] or "help").split()[:20]
    memory = {"number": number, "words": [_word(word) for word in words], "author": _word(author)}
    github_outbox.want_reply(c, project.id, str(comment_id), memory)
    return f"/tidemark {_word(' '.join(words))} of {_word(author)} on #{number} is looked at"


def follow(c: Connection, project: ProjectRow, asked: Asked, config: ServiceConfig, now: datetime) -> Answered:
    """Execute the command of an author who may write."""
    verb, *words = asked.words or ("help",)
    if verb == "help":
        return Answered(reaction=Reaction.DONE, text=HELP)
    command = COMMANDS.get(verb)
    if command is None:
        known = ", ".join((*COMMANDS, "help"))
        return Answered(reaction=Reaction.PUZZLED, text=f"`{_code(verb)}` is no command; known: {known}.\n\n{HELP}")
    row = store.find(c, project.id, asked.number)
    if row is None:
        return Answered(
            reaction=Reaction.PUZZLED,
            text="This pull request is not known here yet; GitHub will report it at its next push. "
            "(The webhook needs the event *pull requests*.)",
        )
    scopes = IMPLIED[Scope.WRITE] | {Scope.APPROVE}
    who = Principal(name=f"{asked.author} on GitHub", via=Via.GITHUB, scopes=scopes, project_id=project.id)
    asked_for = _Command(project=project, row=row, words=words, config=config, who=who, now=now)
    try:
        with c.begin_nested():
            return command(asked_for, c)
    except ServiceError as error:
        return Answered(reaction=Reaction.REFUSED, text=f"Not done: {_code(error.detail)}")


def not_so() -> Answered:
    """GitHub does not confirm what was delivered in its name."""
    return Answered(reaction=Reaction.REFUSED, text="GitHub does not say what this delivery said.")


def refused(author: str, permission: str) -> Answered:
    """The author of the command may not write."""
    said = f"@{author} may {_word(permission) or 'read'} here; commands are for people with write access."
    return Answered(reaction=Reaction.REFUSED, text=said)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    """A command that may be followed: on which pull request, with which words, for whom."""

    project: ProjectRow
    row: PullRequestRow
    words: list[str]
    config: ServiceConfig
    who: Principal
    now: datetime

    def run(self, c: Connection, *, again: bool = False) -> Answered:
        """Measure the head; `again`: also what was measured already."""
        if self.row.is_fork and self.row.approved_sha != self.row.head_sha:
            return Answered(reaction=Reaction.REFUSED, text=_unapproved(self.row))
        if (wrong := next((word for word in self.words if not SUITE.match(word)), None)) is not None:
            return Answered(reaction=Reaction.PUZZLED, text=f"`{_code(wrong)}` is no name of a suite.")
        sha = self.row.head_sha
        request = RunRequest(
            project=self.project.slug, commit=sha, suites=self.words or None, kind=Kind.PULL_REQUEST, again=again
        )
        accepted = requests.request_commit(c, request, self.config, self.who, self.now)
        github_outbox.want_check(c, self.project.id, sha)
        if any(run.created for run in accepted.runs):
            return Answered(reaction=Reaction.WORKING)
        return Answered(
            reaction=Reaction.DONE,
            text=f"`{sha[:12]}` was measured, or waits to be; `/tidemark rerun` measures it once more."
            if accepted.runs
            else f"No suite of the tidemark.toml at `{sha[:12]}` has anything to run.",
        )

    def rerun(self, c: Connection) -> Answered:
        return self.run(c, again=True)

    def approve(self, c: Connection) -> Answered:
        """Of a fork, let exactly this commit onto the workers."""
        if not self.row.is_fork:
            return Answered(reaction=Reaction.DONE, text="The head is in this repository; it needs no approval.")
        if len(self.words) != 1 or not SHA.match(self.words[0]):
            return Answered(reaction=Reaction.PUZZLED, text=_unapproved(self.row))
        pull_requests.approve(c, self.project.slug, self.row.number, self.words[0], self.who, self.now)
        return Answered(reaction=Reaction.WORKING)


COMMANDS: Mapping[str, Callable[[_Command, Connection], Answered]] = {
    "run": _Command.run,
    "rerun": _Command.rerun,
    "approve": _Command.approve,
}


def _unapproved(row: PullRequestRow) -> str:
    return (
        "This comes from a fork: its code reaches a worker when you approve exactly the commit that you have read, by "
        f"its full id. The head is at this moment:\n\n```\n/tidemark approve {row.head_sha}\n```"
    )


def _word(value: object) -> str:
    """A stranger's word, as Postgres can take it and a log may show it."""
    text = value if isinstance(value, str) else ""
    return "".join(char for char in text.encode("utf-8", "replace").decode() if char.isprintable())[:200]


def _code(text: str) -> str:
    """Within backticks, and without reaching anybody."""
    return text.replace("`", "'").replace("@", "(at)").replace("<", "‹")[:500]
