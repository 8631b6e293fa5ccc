"""Bodies of requests, as pydantic models: what FastAPI validates before a route is called."""

from datetime import datetime
from typing import Annotated, Any, Literal, cast

from fastapi import Path
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from backend.api import shapes
from backend.api.shapes import PLAIN
from backend.contract_problems import Problems
from backend.contract_rules import Free, Moment
from backend.services.base.principal import MemberRole
from backend.services.base.projects import ProjectChange
from backend.services.queue.dispatch import Protection, WorkerHello
from backend.services.queue.events import MAX_EVENTS, EventKind, RunEvent
from backend.services.queue.scheduling import Kind

Name = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=shapes.NAME)]
Sentence = Annotated[str, StringConstraints(max_length=2000, pattern=shapes.NO_NUL)]
Secret = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Slug = Annotated[str, StringConstraints(max_length=200, pattern=shapes.SLUG)]
Branch = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=PLAIN)]
# A commit as a person writes it: the whole id or its beginning.

RunId = Annotated[str, Path(pattern=shapes.RUN_ID, description="the run's id, best a ULID")]
WorkerName = Annotated[str, Path(min_length=1, max_length=100, pattern=PLAIN)]
RowId = Annotated[int, Path(ge=1, le=2**31 - 1)]


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    """As the contract has it for objects whose fields their writer chooses: what is stored can be written back."""
    problems = Problems()
    Free().read(value, (None, "capabilities"), problems)
    problems.raise_if_any()
    return value


def _of_a_calendar(value: datetime) -> datetime:
    if value.year not in Moment.years:
        raise ValueError(f"must be {Moment.accepted}")
    return value


Capabilities = Annotated[dict[str, Any], AfterValidator(_storable)]
Instant = Annotated[AwareDatetime, AfterValidator(_of_a_calendar)]


class RequestBody(BaseModel):
    """Unknown fields are refused: a misspelt one would otherwise be silently ignored."""

    model_config = ConfigDict(extra="forbid")


class LeaseBody(RequestBody):
    worker: Name
    testbed: Name
    version: Annotated[str, StringConstraints(max_length=50, pattern=PLAIN)] = ""
    capabilities: Capabilities = Field(default_factory=dict)
    protection: Protection = Protection.NONE

    def hello(self) -> WorkerHello:
        return WorkerHello(
            worker=self.worker,
            testbed=self.testbed,
            version=self.version,
            capabilities=self.capabilities,
            protection=self.protection,
        )


class WorkerBody(RequestBody):
    name: Name
    testbed: Name
    version: Annotated[str, StringConstraints(max_length=50, pattern=PLAIN)] = ""
    capabilities: Capabilities = Field(default_factory=dict)
    protection: Protection = Protection.NONE
    starting: bool = Field(default=False, description="the worker has just started: it holds no run any more")

    def hello(self) -> WorkerHello:
        return WorkerHello(
            worker=self.name,
            testbed=self.testbed,
            version=self.version,
            capabilities=self.capabilities,
            protection=self.protection,
        )


class NextBody(RequestBody):
    after: Annotated[
        str, StringConstraints(max_length=64, pattern=PLAIN), Field(description="the run it has just delivered")
    ]


class WorkerStateBody(RequestBody):
    state: Literal["ok", "pause", "drain", "quarantine"]


class HeartbeatBody(RequestBody):
    lease: Secret


class ReleaseBody(RequestBody):
    lease: Secret
    reason: Sentence = ""
    lost: bool = Field(default=False, description="by the worker's fault: it counts as a lost attempt")


class EventBody(RequestBody):
    at: Annotated[Instant, Field(description="when it happened, with time zone")]
    kind: EventKind
    detail: dict[str, Any]

    def event(self) -> RunEvent:
        return RunEvent(at=self.at, kind=self.kind, detail=self.detail)


class EventsBody(RequestBody):
    lease: Secret
    events: list[EventBody] = Field(max_length=MAX_EVENTS)


class RunRequestBody(RequestBody):
    project: Slug
    commit: Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=PLAIN)] = Field(
        description="a commit id, its beginning (7 digits or more), or the name of a branch"
    )
    suites: list[Name] | None = Field(default=None, description="default: all that its tidemark.toml declares")
    testbeds: list[Name] | None = Field(default=None, description="default: those of each suite")
    kind: Kind = Kind.BACKFILL
    again: bool = Field(default=False, description="run again what is done already")


Pattern = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=PLAIN)]


class OidcBody(RequestBody):
    """Whose workflows may deliver. Patterns are shell patterns; what is left out limits nothing."""

    refs: list[Pattern] = Field(default_factory=list, max_length=50, description='such as "refs/heads/main"')
    environments: list[Pattern] = Field(default_factory=list, max_length=50)
    repository: Slug | None = Field(default=None, description="another repository that measures for this project")
    repository_id: Annotated[str, StringConstraints(pattern=shapes.REPOSITORY_ID)] | None = Field(
        default=None, description="GitHub's number of it: one made again under the same name is another"
    )


class GitHubBody(RequestBody):
    """What is sent to GitHub, by which label a maintainer approves, what signs its deliveries; null takes one back."""

    issues: bool | None = Field(default=None, description="open one issue for each confirmed regression of the branch")
    approval_label: Annotated[str, StringConstraints(min_length=1, max_length=50, pattern=PLAIN)] | None = None
    webhook_secret: Annotated[str, StringConstraints(min_length=16, max_length=200, pattern=PLAIN)] | None = Field(
        default=None, description="of this project's webhook alone, instead of the service's; it is never answered"
    )


class ProjectBody(RequestBody):
    """Settings of a project. A field left out keeps its value; of a new project it gets the default given here."""

    project: Slug
    repository_url: Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=PLAIN)] | None = Field(
        default=None, description="https://, ssh:// or user@host:path; file:// for trusted projects"
    )
    default_branch: Branch = "main"
    trusted: bool = Field(default=False, description="its commits may run on workers that cannot isolate them")
    private: bool = Field(default=False, description="seen by its members, its tokens and its workers alone")
    oidc: OidcBody | None = None
    github: GitHubBody = Field(default_factory=GitHubBody)

    def change(self) -> ProjectChange:
        """The fields that the request names."""
        named = self.model_dump(include=self.model_fields_set - {"project", "oidc", "github"})
        if "oidc" in self.model_fields_set:
            named["oidc"] = None if self.oidc is None else self.oidc.model_dump(exclude_defaults=True)
        if "github" in self.model_fields_set:
            named["github"] = self.github.model_dump(exclude_unset=True)
        return cast(ProjectChange, named)


class PolicyBody(RequestBody):
    policy: Capabilities = Field(
        description="thresholds as in [policy] of tidemark.toml; null takes one back; `override`: tables with scopes"
    )


class PreviewBody(PolicyBody):
    days: int = Field(default=90, ge=1, le=400)
    declared: bool = Field(default=False, description="`policy` is to be the [policy] of tidemark.toml")


class ApprovalBody(RequestBody):
    project: Slug
    commit: Annotated[str, StringConstraints(pattern=shapes.WHOLE_SHA)] = Field(
        description="the exact commit that was looked at; another head needs another approval"
    )


class TokenBody(RequestBody):
    name: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=PLAIN)]
    scopes: list[Literal["read", "submit", "write", "worker", "approve", "admin"]] = Field(min_length=1)
    project: Slug | None = None
    expires_at: Instant | None = None


Login = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=shapes.LOGIN)]


class MemberBody(RequestBody):
    role: MemberRole
    provider: Literal["openid", "github", "local"] | None = Field(
        default=None, description="by what they sign in; without it: with an @ by the OpenID provider, else by GitHub"
    )


class SplitBody(RequestBody):
    onset: Annotated[int, Field(ge=0, le=2**31 - 1)]
    """Position at which the other one began: `onset_position` of its series."""


class MergeBody(RequestBody):
    into: Annotated[int, Field(ge=1, le=2**31 - 1)]


class TriageBody(RequestBody):
    action: Annotated[str, StringConstraints(min_length=1, max_length=40, pattern=PLAIN)]
    assignee: Login | None = Field(default=None, description="with `acknowledge`: who takes it, if not the caller")
    reason: Sentence | None = None
    note: Sentence | None = None
